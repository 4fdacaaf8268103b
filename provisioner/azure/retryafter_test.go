package azure_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/faults"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func exactly(d time.Duration) latency.Range {
	return latency.Range{Min: latency.Duration(d), Max: latency.Duration(d)}
}

// asking is Azure whose answers ask not to poll for 10 s, with operations that take an exact time.
func asking() *latency.Profile {
	p := calm()
	p.Steps[latency.Attach] = exactly(8 * time.Second)
	p.Steps[latency.Detach] = exactly(16 * time.Second)
	p.Steps[latency.ForceDetachRunning] = exactly(500 * time.Millisecond)
	p.Steps[latency.ForceDetach] = exactly(13 * time.Second)
	return p
}

// pollsBetween counts the polls of operations.
func (l *lab) pollsBetween(from, to time.Time) int {
	n := 0
	for _, r := range l.since(from) {
		if strings.HasSuffix(r.API, "Operations.Get") && r.Time.Before(to.UTC()) {
			n++
		}
	}
	return n
}

func TestARequestToPollLaterDelaysNoAttachOrFence(t *testing.T) {
	attach := func(l *lab, vm, disk string) (provisioner.Operation, error) { return l.attach(vm, disk) }
	detach := func(l *lab, vm, disk string) (provisioner.Operation, error) {
		return l.cloud.Attachments().Detach(l.Context(), vm, disk)
	}
	force := func(l *lab, vm, disk string) (provisioner.Operation, error) {
		return l.cloud.Attachments().ForceDetach(l.Context(), vm, disk)
	}
	for name, test := range map[string]struct {
		do       func(l *lab, vm, disk string) (provisioner.Operation, error)
		attached bool // before
		lost     bool // the VM's host does not answer
		most     time.Duration
	}{
		"an attach of 8 s":                           {do: attach, most: 9500 * time.Millisecond},
		"a detach of 16 s":                           {do: detach, attached: true, most: 18 * time.Second},
		"a forced detach from a VM that runs, 0.5 s": {do: force, attached: true, most: 2 * time.Second},
		"a forced detach from a lost VM, 13 s":       {do: force, attached: true, lost: true, most: 14500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			for _, goalState := range []bool{false, true} {
				inLab(t, asking(), 1, func(l *lab) {
					l.sim.ListGoalState(goalState)
					vm, disk := l.newVM(), l.newDisks(1)[0]
					if test.attached {
						l.must(l.attach(vm, disk))
					}
					if test.lost {
						if err := l.sim.CutPower(l.Context(), nameOf(vm), false); err != nil {
							l.Fatal(err)
						}
					}
					time.Sleep(3 * time.Minute) // the quotas are full again
					began := time.Now()
					op, err := test.do(l, vm, disk)
					accepted := time.Now()
					l.must(op, err)
					took, reads := time.Since(began), len(l.since(began))
					l.Logf("%v, %d calls", took, reads)
					if took > test.most {
						l.Errorf("it took %v, want at most %v", took, test.most)
					}
					if polls := l.pollsBetween(began, accepted.Add(9*time.Second)); polls > 0 {
						l.Errorf("the operation was polled %d times in the 10 s that Azure asked for, want none", polls)
					}
					if reads > 20 {
						l.Errorf("it took %d calls, want at most 20 of the VM's quota of 36 reads", reads)
					}
				})
			}
		})
	}
}

func TestAFailedForcedDetachIsNotProvedByTheReads(t *testing.T) {
	for _, goalState := range []bool{false, true} {
		inLab(t, asking(), 1, func(l *lab) {
			l.sim.ListGoalState(goalState)
			vm, disk := l.newVM(), l.newDisks(1)[0]
			l.must(l.attach(vm, disk))
			l.rule(faults.Rule{
				Stage:  faults.Operation,
				Name:   nameOf(vm),
				Times:  1,
				Status: 500,
				Code:   "InternalExecutionError",
			})
			op, err := l.cloud.Attachments().ForceDetach(l.Context(), vm, disk)
			if err == nil {
				err = op.Wait(l.Context())
			}
			if err == nil {
				l.Error("the forced detach failed at Azure, and ended without an error")
			}
		})
	}
}

func TestAFenceThatIsResumedIsNotDelayedByARequestToPollLater(t *testing.T) {
	profile := asking()
	profile.Steps[latency.ForceDetachRunning] = exactly(3 * time.Second)
	inLab(t, profile, 1, func(l *lab) {
		vm, disk := l.newVM(), l.newDisks(1)[0]
		l.must(l.attach(vm, disk))
		time.Sleep(3 * time.Minute)
		began := time.Now()
		ctx, kill := context.WithCancel(l.Context())
		op, err := l.open(ctx).Attachments().ForceDetach(ctx, vm, disk)
		if err != nil {
			l.Fatal(err)
		}
		kill()
		l.must(l.cloud.Attachments().Resume(l.Context(), op.Token()))
		if took := time.Since(began); took > 6*time.Second {
			l.Errorf("a forced detach of 3 s took %v after it was resumed, want at most 6 s", took)
		}
	})
}

func TestADiskIsCreatedBeforeItsOperationMayBePolled(t *testing.T) {
	inLab(t, calm(), 1, func(l *lab) {
		calls, _, took := l.createAtOnce(1)
		if took > time.Second || len(calls) > 4 {
			l.Errorf("a disk that Azure creates in a third of a second took %v and %d calls, want at most 1 s and 4", took,
				len(calls))
		}
	})
}

// Azure refuses the 241st snapshot within three minutes.
func TestSnapshotsStayWithinTheirQuota(t *testing.T) {
	inLab(t, calm(), 1, func(l *lab) {
		disk := l.newDisks(1)[0]
		began := time.Now()
		var work sync.WaitGroup
		for i := range 300 {
			work.Go(func() {
				op, err := l.cloud.Snapshots().Create(l.Context(), provisioner.SnapshotSpec{
					ID:          fmt.Sprintf("%s-%d", strings.Replace(disk, "/disks/", "/snapshots/", 1), i),
					SourceID:    disk,
					Location:    "eastus",
					Incremental: true,
				})
				if err == nil {
					err = op.Wait(l.Context())
				}
				if err != nil {
					l.Errorf("snapshot %d: %v", i, err)
				}
			})
		}
		work.Wait()
		for _, c := range l.since(began) {
			if c.Status == http.StatusTooManyRequests {
				l.Errorf("%s was refused: %s", c.Path, c.Code)
			}
		}
		if took := time.Since(began); took > 4*time.Minute {
			l.Errorf("300 snapshots took %v, want at most 4 minutes: the rest of them is taken when the first window has passed", took)
		}
	})
}

func TestATokenHasNoURLThatIsNotPolled(t *testing.T) {
	inLab(t, calm(), 1, func(l *lab) {
		vm, disk := l.newVM(), l.newDisks(1)[0]
		op, err := l.attach(vm, disk)
		if err != nil {
			l.Fatal(err)
		}
		// One URL of Azure has 4 KB, and an answer names two.
		if got := len(op.Token()); got < 4000 || got > 5000 {
			l.Errorf("the token has %d bytes, want one URL of 4 KB", got)
		}
		l.must(op, nil)
	})
}

func TestACloneOfADiskInAnotherRegionIsRefusedWithTheRegion(t *testing.T) {
	inLab(t, calm(), 1, func(l *lab) {
		spec := newDiskSpec("clone")
		spec.SourceID, spec.Location = l.newDisks(1)[0], "westus2"
		_, err := l.cloud.Disks().Create(l.Context(), spec)
		if provisioner.KindOf(err) != provisioner.InvalidArgument || !strings.Contains(err.Error(), "eastus") {
			l.Errorf("got %v (%s), want InvalidArgument with the region", err, provisioner.KindOf(err))
		}
	})
}

// Between two operations of a VM its state may be Succeeded, and it lists what the second one attaches.
func TestAnAttachBehindAnotherOneIsNotProvedByTheEndOfThatOne(t *testing.T) {
	inLab(t, asking(), 1, func(l *lab) {
		vm, disks := l.newVM(), l.newDisks(2)
		other, err := l.open(l.Context()).Attachments().Attach(l.Context(), provisioner.AttachRequest{
			VMID:   vm,
			DiskID: disks[0],
			Shared: true,
		})
		if err != nil {
			l.Fatal(err)
		}
		l.must(l.attach(vm, disks[1]))
		seen, err := l.cloud.Disks().Get(l.Context(), disks[1])
		if err != nil || len(seen.AttachedTo) == 0 {
			l.Errorf("the attach ended, and the disk is attached to %v (%v), want the VM", seen.AttachedTo, err)
		}
		l.must(other, nil)
	})
}

func TestADiskThatAVMListsMayNotBeAttachedYet(t *testing.T) {
	inLab(t, asking(), 1, func(l *lab) {
		vm, disks := l.newVM(), l.newDisks(2)
		for _, disk := range disks { // the second waits for the first
			if _, err := l.open(l.Context()).Attachments().Attach(l.Context(), provisioner.AttachRequest{
				VMID:   vm,
				DiskID: disk,
				Shared: true,
			}); err != nil {
				l.Fatal(err)
			}
		}
		time.Sleep(8 * time.Second) // the first has ended
		l.must(l.attach(vm, disks[1]))
		seen, err := l.cloud.Disks().Get(l.Context(), disks[1])
		if err != nil || len(seen.AttachedTo) == 0 {
			l.Errorf("the attach ended, and the disk is attached to %v (%v), want the VM", seen.AttachedTo, err)
		}
	})
}
