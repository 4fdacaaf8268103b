package azure_test

import (
	"errors"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/faults"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func (l *lab) usageCalls() int {
	n := 0
	for _, r := range l.since(time.Time{}) {
		if r.API == "Usage.List" {
			n++
		}
	}
	return n
}

func TestManyQuestionsAboutQuotasCostAzureOneCallAMinute(t *testing.T) {
	inLab(t, calm(), 1, func(l *lab) {
		skus := []string{"Standard_LRS", "StandardSSD_LRS", "StandardSSD_ZRS", "Premium_LRS", "Premium_ZRS", "PremiumV2_LRS",
			"UltraSSD_LRS"}
		ask := func() {
			answers := make(chan error)
			for i := range 10 * len(skus) {
				go func() {
					left, err := l.cloud.SKUs().Quota(l.Context(), "", "East US", skus[i%len(skus)])
					if err == nil && left.Disks < 1000 {
						err = errors.New("too few")
					}
					answers <- err
				}()
			}
			for range 10 * len(skus) {
				if err := <-answers; err != nil {
					l.Error(err)
				}
			}
		}
		ask()
		time.Sleep(50 * time.Second)
		ask()
		if n := l.usageCalls(); n != 1 {
			l.Errorf("%d calls in the first minute, want 1", n)
		}
		time.Sleep(11 * time.Second)
		ask()
		if n := l.usageCalls(); n != 2 {
			l.Errorf("%d calls after a minute, want 2", n)
		}
	})
}

func TestAQuotaThatCannotBeReadIsNotReadAgainAtOnce(t *testing.T) {
	inLab(t, calm(), 1, func(l *lab) {
		added, err := l.faults.Add(faults.Rule{
			Kind:   "usages",
			Status: 403,
			Code:   "AuthorizationFailed",
		})
		if err != nil {
			l.Fatal(err)
		}
		for range 5 {
			if _, err := l.cloud.SKUs().Quota(l.Context(), "", "eastus", "Premium_LRS"); !errors.Is(err,
				provisioner.Unauthorized) {
				l.Errorf("want Unauthorized, got %v", err)
			}
		}
		if n := l.usageCalls(); n != 1 {
			l.Errorf("%d calls for five questions", n)
		}
		l.faults.Remove(added.ID)
		time.Sleep(11 * time.Second)
		if left, err := l.cloud.SKUs().Quota(l.Context(), "", "eastus", "Premium_LRS"); err != nil || left.Disks != 50000 {
			l.Errorf("%+v, %v", left, err)
		}
	})
}

func TestAnotherRefusalThanTheQuotasIsNotInsufficientCapacity(t *testing.T) {
	inLab(t, calm(), 1, func(l *lab) {
		if _, err := l.faults.Add(faults.Rule{
			Method: "PUT",
			Kind:   "disks",
			Status: 409,
			Code:   "OperationNotAllowed",
		}); err != nil {
			l.Fatal(err)
		}
		_, err := l.cloud.Disks().Create(l.Context(), provisioner.DiskSpec{
			ID:           "/subscriptions/" + subscription + "/resourceGroups/" + group + "/providers/Microsoft.Compute/disks/d",
			Location:     "eastus",
			SizeBytes:    16 << 30,
			MaxShares:    1,
			DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
		})
		if !errors.Is(err, provisioner.FailedPrecondition) {
			l.Errorf("want FailedPrecondition, got %v", err)
		}
	})
}
