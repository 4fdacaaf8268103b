package batch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/pacing"
)

func TestHowLongABatchWaitsForMore(t *testing.T) {
	t.Parallel()
	const usual, ms = 10 * time.Second, time.Millisecond
	now := time.Unix(1000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, test := range map[string]struct {
		gathering
		want time.Duration
	}{
		"nothing waits": {gathering{}, 0},
		"a single request is sent at once if no other one is expected": {gathering{
			waiting: 1,
			first:   now,
			last:    now,
		}, 0},
		"the second of two has just arrived": {gathering{
			waiting: 2,
			first:   ago(40 * ms),
			last:    now,
		}, quiet},
		"requests arrive at the pace of Kubernetes": {gathering{
			waiting: 9,
			first:   ago(400 * ms),
			last:    ago(50 * ms),
		}, quiet - 50*ms},
		"no request has arrived for a while": {gathering{
			waiting: 9,
			first:   ago(400 * ms),
			last:    ago(quiet),
		}, 0},
		"requests keep on arriving": {gathering{
			waiting: 30,
			first:   ago(990 * ms),
			last:    now,
		}, 10 * ms},
		"requests have waited for an update": {gathering{
			waiting:  30,
			expected: 30,
			first:    ago(5 * time.Second),
			last:     now,
		}, 0},
		"a single request, and 39 are expected": {gathering{
			waiting:  1,
			expected: 39,
			first:    now,
			last:     now,
		}, longestExpected},
		"all but one of 40 have arrived, and the one saves less than they lose": {gathering{
			waiting:  39,
			expected: 1,
			first:    ago(300 * ms),
			last:     ago(200 * ms),
		}, 0},
		"all but one of 40 have arrived a moment ago": {gathering{
			waiting:  40,
			expected: 1,
			first:    ago(50 * ms),
			last:     ago(50 * ms),
		}, 200 * ms},
		"none of the expected has arrived": {gathering{expected: 7}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := test.wait(now, usual); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// steadyVM is a platform with one VM: a read takes 80 ms, and an update ten seconds.
type steadyVM struct {
	oneVM
	mu      sync.Mutex
	began   time.Time
	reads   int
	updates []update
	delay   time.Duration // until the quota of the VM allows an update
}

// disks returns how many disks each update had.
func (p *steadyVM) disks() (each []int) {
	for _, u := range p.updates {
		each = append(each, u.disks)
	}
	return each
}

type update struct {
	at    time.Duration
	disks int
}

func (p *steadyVM) VM(ctx context.Context, vmID string) (VM, error) {
	time.Sleep(80 * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads++
	return p.oneVM.VM(ctx, vmID)
}

func (p *steadyVM) UpdateDelay(string) time.Duration { return p.delay }

func (p *steadyVM) Update(_ context.Context, vmID string, k operation.Kind, changes []Change) (*operation.Operation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updates = append(p.updates, update{time.Since(p.began), len(changes)})
	p.delay = 0
	return p.follower.Follow(k, len(changes), vmID,
		&tenSeconds{preemptedPoller{time.Now().Add(10 * time.Second)}, fmt.Sprint(len(p.updates))}, false), nil
}

// tenSeconds is an operation that succeeds.
type tenSeconds struct {
	preemptedPoller
	token string
}

func (p *tenSeconds) ResumeToken() (string, error) { return p.token, nil }

func (p *tenSeconds) Outcome(context.Context) (outcome, err error) { return nil, nil }

func newSteadyVM(ctx context.Context) (*Engine, *steadyVM) {
	c := pacing.NewClock(nil, nil)
	p := &steadyVM{
		oneVM: oneVM{
			follower: operation.NewFollower(ctx, operation.Options{Clock: c, Logger: logr.Discard()}),
			state:    operation.StateSucceeded,
		},
		began: time.Now(),
	}
	return New(ctx, Options{
		Platform: p,
		Sizes:    anySize{},
		Clock:    c,
		Logger:   logr.Discard(),
	}), p
}

type anySize struct{ Sizes }

func (anySize) KnownDataDisks(string, string) int { return 0 }

func TestABurstIsOneUpdate(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		arrive   func(i int) time.Duration // when the request for a disk arrives
		announce bool                      // all requests are announced at first
		n, reads int
		first    time.Duration // when the first update is sent
		disks    []int         // in each update
	}{
		"a single attach leaves after the read of the VM": {func(int) time.Duration { return 0 },
			false, 1, 1, 80 * ms, []int{1}},
		"a single attach that was announced leaves as early": {func(int) time.Duration { return 0 },
			true, 1, 1, 80 * ms, []int{1}},
		"two attaches without an announcement are in one update": {
			func(i int) time.Duration { return time.Duration(i) * 60 * ms }, false, 2, 2, 240 * ms, []int{2},
		},
		"attaches at the pace of Kubernetes are in one update": {
			func(i int) time.Duration { return time.Duration(i) * 50 * ms }, false, 12, 2, 730 * ms, []int{12},
		},
		"announced attaches leave when the last has arrived": {
			func(i int) time.Duration { return time.Duration(i) * 15 * ms }, true, 20, 1, 465 * ms, []int{20},
		},
		"attaches that keep on arriving do not hold the first ones for more than a second": {func(i int) time.Duration { return time.Duration(i) * 47 * ms }, false, 40, 3, 1080 * ms, []int{23, 17}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				e, p := newSteadyVM(ctx)
				var all sync.WaitGroup
				for i := range test.n {
					disk := fmt.Sprint("disk", i)
					if test.announce {
						defer e.Expect("vm", disk)()
					}
					all.Go(func() {
						time.Sleep(test.arrive(i))
						if _, err := e.Attach(ctx, provisioner.AttachRequest{VMID: "vm", DiskID: disk}); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				if !slices.Equal(p.disks(), test.disks) || p.updates[0].at != test.first || p.reads != test.reads {
					t.Errorf("got updates of %v disks, the first after %v, and %d reads; want updates of %v disks, the first after %v, and %d reads",
						p.disks(), p.updates[0].at, p.reads, test.disks, test.first, test.reads)
				}
			})
		})
	}
}

// A call that waits for something else must not hold other requests for the VM again and again.
func TestAnAnnouncementThatIsNotKeptHoldsABatchOnlyForAShortTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		e, p := newSteadyVM(ctx)
		done := e.Expect("vm", "other")
		time.Sleep(400 * time.Millisecond)
		if _, err := e.Attach(ctx, provisioner.AttachRequest{VMID: "vm", DiskID: "disk"}); err != nil {
			t.Fatal(err)
		}
		if got := p.updates[0].at; got > 5500*time.Millisecond {
			t.Errorf("the update was sent after %v", got)
		}
		time.Sleep(20 * time.Second)
		before := time.Since(p.began)
		if _, err := e.Attach(ctx, provisioner.AttachRequest{VMID: "vm", DiskID: "disk2"}); err != nil {
			t.Fatal(err)
		}
		if got := p.updates[1].at - before; got != 80*time.Millisecond {
			t.Errorf("later the update was sent after %v, want 80ms", got)
		}
		done()
	})
}

func TestARequestSaysWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		e, p := newSteadyVM(ctx)
		p.delay = 30 * time.Second
		expect := func(disk string, want provisioner.Waiting) {
			t.Helper()
			if got := e.Waiting("VM", disk); got.For != want.For || !got.Since.Equal(want.Since) || !got.Until.Equal(want.Until) {
				t.Errorf("after %v got %+v, want %+v", time.Since(p.began), got, want)
			}
		}
		attach := func(disk string) {
			go func() { _, _ = e.Attach(ctx, provisioner.AttachRequest{VMID: "vm", DiskID: disk}) }()
			synctest.Wait()
		}
		expect("a", provisioner.Waiting{})
		attach("a")
		expect("a", provisioner.Waiting{
			For:   provisioner.WaitingForQuota,
			Since: p.began,
			Until: p.began.Add(30 * time.Second),
		})
		time.Sleep(30*time.Second + 40*time.Millisecond)
		expect("a", provisioner.Waiting{For: provisioner.WaitingForMore, Since: p.began})
		time.Sleep(60 * time.Millisecond)
		expect("a", provisioner.Waiting{}) // accepted
		attach("b")
		sent := p.began.Add(30*time.Second + 80*time.Millisecond)
		expect("b", provisioner.Waiting{
			For:   provisioner.WaitingForUpdate,
			Since: sent,
			Until: sent.Add(e.Platform.Usual(operation.Attach, 1).To),
		})
		time.Sleep(time.Minute)
		expect("b", provisioner.Waiting{})
	})
}
