package azure_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/audit"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/faults"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure"
)

// lostNode makes a VM with n disks whose host does not answer any more.
func (l *lab) lostNode(n int) (vm string, disks []string) {
	l.Helper()
	vm, disks = l.newVM(), l.newDisks(n)
	var all sync.WaitGroup
	for _, disk := range disks {
		all.Go(func() { l.must(l.attach(vm, disk)) })
	}
	all.Wait()
	if err := l.sim.CutPower(l.Context(), nameOf(vm), false); err != nil {
		l.Fatal(err)
	}
	time.Sleep(3 * time.Minute) // the quotas are full again
	return vm, disks
}

// fence is what the controller does: it reads the VM, detaches the disk by force, and after a
// failure tries again at the next multiple of four, and later of eight, seconds. It returns how
// long it took.
func (l *lab) fence(ctx context.Context, cloud *azure.Cloud, vm, disk, token string) time.Duration {
	began := time.Now()
	for {
		err := fenceOnce(ctx, cloud, vm, disk, token)
		if err == nil || ctx.Err() != nil {
			return time.Since(began)
		}
		if provisioner.KindOf(err) == "" {
			l.Errorf("fence: %v", err)
		}
		period := 4 * time.Second
		if time.Since(began) > 8*time.Second {
			period = 8 * time.Second
		}
		time.Sleep(time.Until(time.Now().Truncate(period).Add(period)))
	}
}

func fenceOnce(ctx context.Context, cloud *azure.Cloud, vm, disk, token string) error {
	if _, err := cloud.Instances().Get(ctx, vm); err != nil {
		return err
	}
	if token != "" {
		op, err := cloud.Attachments().Resume(ctx, token)
		if err != nil {
			return err
		}
		if err := op.Wait(ctx); err != nil && ctx.Err() != nil {
			return err
		}
	}
	op, err := cloud.Attachments().ForceDetach(ctx, vm, disk)
	if err == nil {
		err = op.Wait(ctx)
	}
	if err != nil {
		return err
	}
	left, err := cloud.Attachments().List(ctx, vm)
	if err == nil && holds(left, disk) {
		return provisioner.Errorf(provisioner.Conflict, "still attached")
	}
	return err
}

func holds(list []provisioner.Attachment, disk string) bool {
	for _, a := range list {
		if strings.EqualFold(a.DiskID, disk) {
			return true
		}
	}
	return false
}

func (l *lab) updates(since time.Time) int {
	n := 0
	for _, r := range l.since(since) {
		if r.Method == http.MethodPost {
			n++
		}
	}
	return n
}

func (l *lab) rule(r faults.Rule) {
	l.Helper()
	if _, err := l.faults.Add(r); err != nil {
		l.Fatal(err)
	}
}

func TestForcedDetachesOfALostNodeShareCalls(t *testing.T) {
	for name, apart := range map[string]time.Duration{
		"at once":          0,
		"within 100 ms":    8 * time.Millisecond,
		"over two seconds": 160 * time.Millisecond, // those after the first second wait for the first call
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, calm(), 3, func(l *lab) {
				vm, disks := l.lostNode(12)
				began := time.Now()
				var all sync.WaitGroup
				for i, disk := range disks {
					all.Go(func() {
						time.Sleep(time.Duration(i) * apart)
						l.fence(l.Context(), l.cloud, vm, disk, "")
					})
				}
				all.Wait()
				took, updates := time.Since(began), l.updates(began)
				l.Logf("%d forced calls, %v", updates, took)
				most, limit := 1, 17*time.Second
				if apart > 100*time.Millisecond {
					most, limit = 2, 32*time.Second
				}
				if took > limit || updates > most {
					l.Errorf("%d forced calls, %v; want at most %d and %v", updates, took, most, limit)
				}
			})
		})
	}
}

func TestAForcedDetachSurvivesTheProcessThatBeganIt(t *testing.T) {
	for name, recorded := range map[string]bool{"with its token": true, "and whose token was lost": false} {
		t.Run(name, func(t *testing.T) {
			inLab(t, calm(), 3, func(l *lab) {
				vm, disks := l.lostNode(1)
				began := time.Now()
				ctx, kill := context.WithCancel(l.Context())
				op, err := l.open(ctx).Attachments().ForceDetach(ctx, vm, disks[0])
				if err != nil {
					l.Fatal(err)
				}
				time.Sleep(4 * time.Second)
				kill()
				token := op.Token()
				if !recorded {
					token = ""
				}
				l.fence(l.Context(), l.cloud, vm, disks[0], token)
				if took, updates := time.Since(began), l.updates(began); updates != 1 || took > 16*time.Second {
					l.Errorf("%d forced calls, %v", updates, took)
				}
			})
		})
	}
}

// The platform is at its limit for a minute, in the middle of a forced detach or when one is asked
// for.
func TestAFenceOutlivesABrownoutAndEndsSoonAfter(t *testing.T) {
	for name, fault := range map[string]faults.Rule{
		"429 with Retry-After": {Status: 429, Code: "TooManyRequests", RetryAfter: latency.Duration(5 * time.Second)},
		"503":                  {Status: 503, Code: "ServerBusy"},
		"503 with Retry-After": {Status: 503, Code: "ServerBusy", RetryAfter: latency.Duration(10 * time.Second)},
		"500":                  {Status: 500, Code: "InternalServerError"},
		"401":                  {Status: 401, Code: "ExpiredAuthenticationToken"},
		"no answer":            {Disconnect: true},
	} {
		t.Run(name, func(t *testing.T) {
			fault.For = latency.Duration(time.Minute)
			for _, when := range []time.Duration{0, 3 * time.Second} {
				inLab(t, calm(), 3, func(l *lab) {
					vm, disks := l.lostNode(1)
					began := time.Now()
					var all sync.WaitGroup
					if when == 0 {
						l.rule(fault)
					}
					for _, disk := range disks {
						all.Go(func() { l.fence(l.Context(), l.cloud, vm, disk, "") })
					}
					if when > 0 {
						time.Sleep(when)
						l.rule(fault)
					}
					all.Wait()
					after, updates := time.Since(began)-when-time.Minute, l.updates(began)
					limit := 12 * time.Second // the longest Retry-After, and reading the VM
					if when == 0 {
						limit += 13 * time.Second // the detach itself
					}
					l.Logf("begun %v before: ended %v after the brownout", when, after)
					if after > limit || when > 0 && updates != 1 {
						l.Errorf("begun %v before: ended %v after the brownout, with %d forced calls", when, after, updates)
					}
				})
			}
		})
	}
}

func TestAFenceSupersedesAnAttachInFlight(t *testing.T) {
	for name, test := range map[string]struct {
		sending time.Duration // how long the platform takes to answer the attach
		before  time.Duration // how long before the fence the attach is asked for
		limit   time.Duration
	}{
		"accepted a moment ago":             {before: time.Second, limit: 16 * time.Second},
		"accepted long ago":                 {before: 8 * time.Second, limit: 16 * time.Second},
		"being sent":                        {before: time.Second, sending: 3 * time.Second, limit: 19 * time.Second},
		"asked for at the moment of fence":  {limit: 16 * time.Second},
		"of another disk, in the same call": {before: time.Second, limit: 16 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, calm(), 3, func(l *lab) {
				vm, disks := l.newVM(), l.newDisks(2)
				lost, other := disks[0], disks[1]
				if test.sending > 0 {
					l.rule(faults.Rule{
						Method: http.MethodPost,
						Kind:   "virtualMachines",
						Delay:  latency.Duration(test.sending),
						Times:  1,
					})
				}
				ctx, cancel := context.WithCancel(l.Context())
				var all sync.WaitGroup
				all.Go(func() { _, _ = l.attachUntil(ctx, vm, lost) })
				all.Go(func() { l.must(l.attach(vm, other)) })
				time.Sleep(test.before)
				cancel() // the runner of jobs cancels the attach
				began := time.Now()
				l.must(l.cloud.Attachments().ForceDetach(l.Context(), vm, lost))
				if took := time.Since(began); took > test.limit {
					l.Errorf("the fence took %v, want at most %v", took, test.limit)
				}
				for _, later := range []time.Duration{0, time.Minute} {
					time.Sleep(later)
					list, err := l.cloud.Attachments().List(l.Context(), vm)
					if err != nil || holds(list, lost) {
						l.Errorf("%v after the fence the VM has %v (%v), want it without %s", later, list, err, lost)
					}
				}
				all.Wait()
			})
		})
	}
}

// attachUntil attaches a disk, for a caller who leaves when ctx ends.
func (l *lab) attachUntil(ctx context.Context, vm, disk string) (provisioner.Operation, error) {
	return l.cloud.Attachments().Attach(ctx, provisioner.AttachRequest{
		VMID:        vm,
		DiskID:      disk,
		CachingMode: "None",
		Shared:      true,
	})
}

// The forced detach waited for the answer to the attach, and the attach, back in the queue, for the
// end of the forced detach.
func TestAFenceDoesNotWaitForAnAttachThatIsPutBackInTheQueue(t *testing.T) {
	for name, code := range map[string]string{
		"refused for no known disk": "BadRequest",
		"refused for want of room":  "OperationNotAllowed",
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, calm(), 3, func(l *lab) {
				vm, disks := l.newVM(), l.newDisks(2)
				l.rule(faults.Rule{
					Method: http.MethodGet,
					Kind:   "virtualMachines",
					Delay:  latency.Duration(500 * time.Millisecond),
					Times:  1,
				}) // one call for both
				l.rule(faults.Rule{
					Method: http.MethodPost,
					Kind:   "virtualMachines",
					Delay:  latency.Duration(5 * time.Second),
					Status: 400,
					Code:   code,
					Times:  1,
				})
				var all sync.WaitGroup
				for _, disk := range disks {
					all.Go(func() { _, _ = l.attach(vm, disk) })
				}
				time.Sleep(2 * time.Second)
				began := time.Now()
				l.must(l.cloud.Attachments().ForceDetach(l.Context(), vm, disks[0]))
				if took := time.Since(began); took > 6*time.Second {
					l.Errorf("the fence of a disk that is not attached took %v, want at most 6s", took)
				}
				all.Wait()
			})
		})
	}
}

// The reads of the VM that failed had used up its quota: the forced detach began 37 seconds after
// Azure answered again, and that of a second disk 12 seconds later.
func TestAfterABrownoutALostNodesDisksAreDetachedTogether(t *testing.T) {
	const brownout = 2 * time.Minute
	for name, fault := range map[string]faults.Rule{
		"every call is answered 503":             {Status: 503, Code: "ServerBusy"},
		"only updates of the VM are so answered": {Method: http.MethodPost, Status: 503, Code: "ServerBusy"},
		"503 with Retry-After": {
			Status: 503, Code: "ServerBusy", RetryAfter: latency.Duration(5 * time.Second)},
		"429 with Retry-After": {
			Status: 429, Code: "TooManyRequests", RetryAfter: latency.Duration(5 * time.Second)},
		"no answer": {Disconnect: true},
	} {
		t.Run(name, func(t *testing.T) {
			for offset := range 8 {
				inLab(t, calm(), 3, func(l *lab) {
					vm, disks := l.lostNode(2)
					if fault.Method == http.MethodPost {
						disks = disks[:1] // here each fence reads the VM for itself; the controller joins these reads
					}
					time.Sleep(time.Duration(offset) * time.Second)
					fault.For = latency.Duration(brownout)
					began := time.Now()
					l.rule(fault)
					ctx, stop := context.WithCancel(l.Context())
					var monitors, fences sync.WaitGroup
					for _, cloud := range []*azure.Cloud{l.cloud, l.open(ctx)} { // the leader's and the standby's
						monitors.Go(func() { l.watch(ctx, cloud, vm) })
					}
					ends := make([]time.Duration, len(disks))
					for i, disk := range disks {
						fences.Go(func() {
							time.Sleep(time.Duration(i) * 3 * time.Second)
							l.fence(l.Context(), l.cloud, vm, disk, "")
							ends[i] = time.Since(began) - brownout
						})
					}
					fences.Wait()
					stop()
					monitors.Wait()
					calls := l.since(began.Add(brownout))
					updated := slices.IndexFunc(calls,
						func(r audit.Record) bool { return r.Method == http.MethodPost && r.Status < 300 })
					if updated < 0 {
						l.Fatalf("no update of the VM was accepted: %+v", calls)
					}
					begun, apart := calls[updated].Time.Sub(began.Add(brownout).UTC()), slices.Max(ends)-slices.Min(ends)
					l.Logf("the first forced detach began %v after the brownout, and the disks were off after %v", begun, ends)
					limit := 10 * time.Second
					if fault.Method == http.MethodPost {
						limit = 16 * time.Second // Azure allows one update of a VM in 15 seconds
					}
					if begun > limit || apart > time.Second {
						l.Errorf("the first forced detach began %v after the brownout, and the disks were off %v apart; want at most %v and 1s", begun, apart, limit)
					}
				})
			}
		})
	}
}

// watch reads a VM as a monitor of nodes does.
func (l *lab) watch(ctx context.Context, cloud *azure.Cloud, vm string) {
	for began := time.Now(); ctx.Err() == nil; {
		_, _ = cloud.Instances().Get(ctx, vm)
		pause := 15 * time.Second
		if time.Since(began) > time.Minute {
			pause = 30 * time.Second
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}
