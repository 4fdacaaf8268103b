package azure_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/faults"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure"
)

// inGoalStateLabs runs a test where VMs list what they have, and where they list what they are to
// have; and where the driver writes the lists.
func inGoalStateLabs(t *testing.T, test func(l *lab)) {
	for name, mode := range map[string]struct {
		goalState bool
		off       string // where attachDetachDataDisks is not enabled
	}{
		"a VM lists a disk until it is off":       {},
		"a VM does not list a disk that is to go": {goalState: true},
		"the driver writes the VM's list":         {off: "region"},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, calm(), 3, func(l *lab) {
				l.sim.ListGoalState(mode.goalState)
				l.sim.AttachDetachOff = mode.off
				test(l)
			})
		})
	}
}

// isAt reports whether the disk names a VM.
func (l *lab) isAt(disk string) bool {
	l.Helper()
	d, err := l.cloud.Disks().Get(l.Context(), disk)
	if err != nil {
		l.Fatal(err)
	}
	return len(d.AttachedTo) > 0
}

func TestADetachEndsWhenTheDiskIsOffWhateverTheVMLists(t *testing.T) {
	inGoalStateLabs(t, func(l *lab) {
		vm, disks := l.lostNode(3)
		ctx, kill := context.WithCancel(l.Context())
		former := l.open(ctx)
		op, err := former.Attachments().ForceDetach(ctx, vm, disks[0])
		if err != nil {
			l.Fatal(err)
		}
		time.Sleep(time.Second)
		kill()
		l.must(l.cloud.Attachments().Resume(l.Context(), op.Token()))
		if l.isAt(disks[0]) {
			l.Error("a forced detach that was resumed succeeded, and the disk is attached")
		}
		l.must(l.cloud.Attachments().Detach(l.Context(), vm, disks[1]))
		if l.isAt(disks[1]) {
			l.Error("a detach succeeded, and the disk is attached")
		}
		if _, err := l.open(l.Context()).Attachments().Detach(l.Context(), vm, disks[2]); err != nil {
			l.Fatal(err)
		}
		time.Sleep(time.Second)
		l.fence(l.Context(), l.cloud, vm, disks[2], "")
		if l.isAt(disks[2]) {
			l.Error("a forced detach during another client's detach succeeded, and the disk is attached")
		}
	})
}

func TestAForcedDetachThatFailsIsNoSuccessWhateverTheVMLists(t *testing.T) {
	inGoalStateLabs(t, func(l *lab) {
		vm, disks := l.lostNode(1)
		l.rule(faults.Rule{
			Stage:     faults.Operation,
			Operation: l.kindOfUpdates(),
			Status:    500,
			Code:      "InternalExecutionError",
			Times:     2,
		})
		for try := range 2 {
			op, err := l.cloud.Attachments().ForceDetach(l.Context(), vm, disks[0])
			if err == nil {
				err = op.Wait(l.Context())
			}
			if err == nil {
				l.Errorf("try %d: got a success, and the disk is attached: %v", try, l.isAt(disks[0]))
			}
		}
		l.must(l.cloud.Attachments().ForceDetach(l.Context(), vm, disks[0]))
		if l.isAt(disks[0]) {
			l.Error("got a success, and the disk is attached")
		}
	})
}

// Each disk that a VM is to have is listed, also if its attach has failed.
func TestAnAttachThatFailsIsNoSuccessWhateverTheVMLists(t *testing.T) {
	inGoalStateLabs(t, func(l *lab) {
		vm, disk := l.newVM(), l.newDisks(1)[0]
		fails := func() {
			l.Helper()
			l.rule(faults.Rule{
				Stage:     faults.Operation,
				Operation: l.kindOfUpdates(),
				Status:    500,
				Code:      "InternalExecutionError",
				Times:     1,
			})
			op, err := l.attach(vm, disk)
			if err == nil {
				err = op.Wait(l.Context())
			}
			if err == nil {
				l.Error("got a success, and the operation has failed")
			}
		}
		fails()
		l.must(l.cloud.Attachments().Detach(l.Context(), vm, disk))
		if l.isAt(disk) {
			l.Error("got a success of the detach, and the disk names the VM")
		}
		fails()
		l.must(l.attach(vm, disk))
		if !l.isAt(disk) {
			l.Error("got a success, and the disk does not name the VM")
		}
	})
}

func TestForcedDetachesShareCallsIfTheVMListsWhatItIsToHave(t *testing.T) {
	inLab(t, calm(), 3, func(l *lab) {
		vm, disks := l.lostNode(12)
		l.sim.ListGoalState(true)
		began := time.Now()
		done := make(chan bool, len(disks))
		for i, disk := range disks {
			go func() {
				time.Sleep(time.Duration(i) * 8 * time.Millisecond)
				l.fence(l.Context(), l.cloud, vm, disk, "")
				done <- l.isAt(disk)
			}()
		}
		for range disks {
			if <-done {
				l.Error("a fence ended while the disk was attached")
			}
		}
		if took, updates := time.Since(began), l.updates(began); took > 20*time.Second || updates > 3 {
			l.Errorf("got %d forced calls in %v, want at most 3 in 20s", updates, took)
		}
	})
}

// reads is a platform that answers reads of a VM and of disks, and refuses everything else.
type reads struct {
	oneAnswer
	vm, disk string
}

// Do implements policy.Transporter.
func (r reads) Do(req *http.Request) (*http.Response, error) {
	switch {
	case req.Method != http.MethodGet:
		return oneAnswer{400, `{"error": {"code": "InvalidParameter", "target": "dataDisksToDetach",
			"message": "not attached"}}`}.Do(req)
	case len(req.URL.Path) > 0 && req.URL.Path[len(req.URL.Path)-1] == 'd':
		return oneAnswer{200, r.disk}.Do(req)
	}
	return oneAnswer{200, r.vm}.Do(req)
}

// Another client may have changed the VM, which does not list the disk.
func TestWhichReadsProveADetach(t *testing.T) {
	const (
		group = "/subscriptions/" + subscription + "/resourceGroups/default/providers/Microsoft.Compute/"
		vm    = group + "virtualMachines/vm"
		disk  = group + "disks/d"
	)
	for name, test := range map[string]struct {
		state, disk    string
		forced, detach bool
	}{
		"a VM that is settled, and a disk without a VM": {"Succeeded", ``, true, true},
		"a VM that is settled, and its disk":            {"Succeeded", `"managedBy": "` + vm + `",`, false, false},
		"a VM that is settled, and a shared disk of it": {"Succeeded",
			`"managedByExtended": ["` + group + `virtualMachines/other", "` + vm + `"],`, false, false},
		"a VM that is settled, and a disk of another VM": {"Succeeded",
			`"managedBy": "` + group + `virtualMachines/other",`, true, true},
		"a VM that is being updated, and its disk":                  {"Updating", `"managedBy": "` + vm + `",`, false, false},
		"a VM that is being updated, and a disk without a VM":       {"Updating", ``, false, true},
		"a VM whose last operation failed, and its disk":            {"Failed", `"managedBy": "` + vm + `",`, false, false},
		"a VM whose last operation failed, and a disk without a VM": {"Failed", ``, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				platform := reads{
					vm: `{"id": "` + vm + `", "properties": {"provisioningState": "` + test.state +
						`", "storageProfile": {"dataDisks": []}}}`,
					disk: `{"id": "` + disk + `", ` + test.disk +
						` "properties": {"provisioningState": "Succeeded", "maxShares": 3}}`,
				}
				cloud, err := azure.New(t.Context(), azure.Options{
					Credential:     platform,
					Transport:      platform,
					SubscriptionID: subscription,
					Cloud:          labCloud(),
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				attachments := cloud.Attachments()
				for what, request := range map[string]struct {
					begin func(context.Context, string, string) (provisioner.Operation, error)
					want  bool
				}{"forced detach": {attachments.ForceDetach, test.forced}, "detach": {attachments.Detach, test.detach}} {
					op, err := request.begin(ctx, vm, disk)
					if err == nil {
						err = op.Wait(ctx)
					}
					if (err == nil) != request.want || err != nil && !errors.Is(err, provisioner.Conflict) {
						t.Errorf("%s: got %v, want a success: %v, or else a conflict", what, err, request.want)
					}
				}
			})
		})
	}
}

func TestAVMThatIsHibernatedIsNotDown(t *testing.T) {
	const vm = "/subscriptions/" + subscription + "/resourceGroups/default/providers/Microsoft.Compute/virtualMachines/vm"
	status := func(codes ...string) string {
		text := ""
		for _, code := range codes {
			text += `, {"code": "` + code + `"}`
		}
		return `"instanceView": {"statuses": [{"code": "ProvisioningState/succeeded"}` + text + `]}`
	}
	const enabled = `"additionalCapabilities": {"hibernationEnabled": true}, `
	for name, test := range map[string]struct {
		properties string
		want       provisioner.PowerState
	}{
		"deallocated": {status("PowerState/deallocated"), provisioner.PowerDeallocated},
		"stopped":     {status("PowerState/stopped"), provisioner.PowerStopped},
		"hibernated": {status("PowerState/deallocated", "HibernationState/Hibernated"),
			provisioner.PowerHibernated},
		"hibernated, in another order": {status("HibernationState/Hibernated", "PowerState/deallocated"),
			provisioner.PowerHibernated},
		"deallocated, and can be hibernated":  {enabled + status("PowerState/deallocated"), provisioner.PowerHibernated},
		"being deallocated, to be hibernated": {enabled + status("PowerState/deallocating"), provisioner.PowerRunning},
		"running, and can be hibernated":      {enabled + status("PowerState/running"), provisioner.PowerRunning},
	} {
		t.Run(name, func(t *testing.T) {
			answer := oneAnswer{200, `{"id": "` + vm + `", "properties": {"storageProfile": {"dataDisks": []}, ` +
				test.properties + `}}`}
			cloud, err := azure.New(t.Context(), azure.Options{
				Credential:     answer,
				Transport:      answer,
				SubscriptionID: subscription,
				Cloud:          labCloud(),
			})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := cloud.Instances().Get(t.Context(), vm); err != nil || got.Power != test.want {
				t.Errorf("got %s, %v, want %s", got.Power, err, test.want)
			}
		})
	}
}

// kindOfUpdates is the kind of the operations by which the driver changes the disks of VMs.
func (l *lab) kindOfUpdates() string {
	if l.sim.AttachDetachOff != "" {
		return "vm.update"
	}
	return "vm.disks"
}
