package azure_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/audit"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/faults"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func newDiskSpec(name string) provisioner.DiskSpec {
	return provisioner.DiskSpec{
		ID: fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/disks/%s", subscription, group,
			name),
		Location:     "eastus",
		SizeBytes:    16 << 30,
		MaxShares:    1,
		DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
	}
}

// createAtOnce creates that many disks at once, and returns the calls that it took, how many of
// them Azure refused, and how long it took.
func (l *lab) createAtOnce(n int) (calls []audit.Record, refused int, took time.Duration) {
	l.Helper()
	began := time.Now()
	var work sync.WaitGroup
	for i := range n {
		work.Go(func() {
			op, err := l.cloud.Disks().Create(l.Context(), newDiskSpec(fmt.Sprintf("at-once-%d-%d", n, i)))
			if err == nil {
				err = op.Wait(l.Context())
			}
			if err != nil {
				l.Errorf("disk %d: %v", i, err)
			} else if made, ok := op.(provisioner.DiskOperation).Disk(); !ok || !made.Ready || made.SizeBytes != 16<<30 {
				l.Errorf("disk %d: got %+v (%t) of the operation, want the disk, so that it need not be read", i, made, ok)
			}
		})
	}
	work.Wait()
	took = time.Since(began)
	calls = l.since(began)
	for _, c := range calls {
		if c.Status == http.StatusTooManyRequests {
			refused++
		}
	}
	return calls, refused, took
}

func TestVolumesCreatedAtOnceStayWithinTheQuotasOfResourceManager(t *testing.T) {
	for n, most := range map[int]struct {
		calls int
		took  time.Duration
	}{1: {12, 3 * time.Second}, 40: {160, 4 * time.Second}, 100: {400, 5 * time.Second}, 400: {1600, 40 * time.Second}} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inLab(t, calm(), 1, func(l *lab) {
				calls, refused, took := l.createAtOnce(n)
				t.Logf("%d disks: %d calls, %d refused, %v", n, len(calls), refused, took)
				if len(calls) > most.calls || refused > 0 || took > most.took {
					t.Errorf("%d disks: %d calls, %d refused, %v; want at most %d calls, 0 refused, %v", n, len(calls), refused,
						took, most.calls, most.took)
				}
			})
		})
	}
}

func TestPollsLeaveReadsForOthers(t *testing.T) {
	profile := calm()
	profile.Steps[latency.DiskCreate] = latency.Range{Min: latency.Duration(time.Minute), Max: latency.Duration(time.Minute)}
	inLab(t, profile, 1, func(l *lab) {
		var work sync.WaitGroup
		work.Go(func() { l.createAtOnce(190) })
		time.Sleep(20 * time.Second) // in virtual time: the polls have used what they may
		for range 10 {
			began := time.Now()
			if _, err := l.cloud.Disks().Get(l.Context(),
				newDiskSpec("none").ID); provisioner.KindOf(err) != provisioner.NotFound {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 500*time.Millisecond {
				t.Errorf("while 190 operations are polled a read takes %v, want at most 0.5 s", took)
			}
		}
		work.Wait()
	})
}

// updatesInARow attaches three disks to an instance of a uniform scale set one after the other, and
// detaches two by force. It returns how long each attach took, and how long until Azure had
// accepted each forced detach.
func (l *lab) updatesInARow() (attaches, detaches []time.Duration) {
	l.Helper()
	vm, disks := l.newInstances(1)[0], l.newDisks(3)
	for _, disk := range disks {
		began := time.Now()
		l.must(l.attach(vm, disk))
		attaches = append(attaches, time.Since(began))
	}
	for _, disk := range disks[:2] {
		began := time.Now()
		op, err := l.cloud.Attachments().ForceDetach(l.Context(), vm, disk)
		detaches = append(detaches, time.Since(began))
		l.must(op, err)
	}
	return attaches, detaches
}

func TestQuotasThatARequestDoesNotUseHoldNothingBack(t *testing.T) {
	inLab(t, calm(), 1, func(l *lab) {
		attaches, detaches := l.updatesInARow()
		t.Logf("attaches took %v, forced detaches were accepted after %v", attaches, detaches)
		for i, took := range attaches {
			if most := 15 * time.Second; took > most {
				t.Errorf("attach %d took %v, want at most %v: Azure takes 13 s for it", i+1, took, most)
			}
		}
		for i, took := range detaches {
			if took > time.Second {
				t.Errorf("forced detach %d was accepted after %v, want at most 1 s", i+1, took)
			}
		}
	})
}

func TestAThrottledKindOfRequestHoldsBackNoOther(t *testing.T) {
	inLab(t, calm(), 1, func(l *lab) {
		vm, disk := l.newVM(), l.newDisks(1)[0]
		snapshot := func(name string) error {
			id := fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/snapshots/%s", subscription, group,
				name)
			spec := provisioner.SnapshotSpec{
				ID:          id,
				SourceID:    disk,
				Location:    "eastus",
				Incremental: true,
			}
			_, err := l.cloud.Snapshots().Create(l.Context(), spec)
			return err
		}
		l.rule(faults.Rule{
			Method:     http.MethodPut,
			Kind:       "snapshots",
			Times:      1,
			Status:     429,
			Code:       "TooManyRequests",
			RetryAfter: latency.Duration(time.Minute),
		})
		l.header = http.Header{"X-Ms-Ratelimit-Remaining-Resource": {"Microsoft.Compute/HighCostSnapshotCreateHydrate3Min;0"}}
		if err := snapshot("first"); provisioner.KindOf(err) != provisioner.RateLimited {
			t.Fatalf("the throttled snapshot: got %v, want RateLimited", err)
		}
		if err := snapshot("second"); provisioner.KindOf(err) != provisioner.RateLimited {
			t.Errorf("another snapshot in the same minute: got %v, want RateLimited", err)
		}
		l.header = nil
		if op, err := l.attach(vm, disk); err != nil {
			t.Errorf("an attach in the same minute: %v, want no error", err)
		} else {
			l.must(op, nil)
		}
	})
}
