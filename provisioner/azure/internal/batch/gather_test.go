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
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/pacing"
)

// steadyVM is a platform with one VM: a read takes 80 ms, and an update ten seconds.
type steadyVM struct {
	oneVM
	mu      sync.Mutex
	began   time.Time
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
	return p.oneVM.VM(ctx, vmID)
}

func (p *steadyVM) UpdateDelay(string) time.Duration { return p.delay }

func (p *steadyVM) Update(_ context.Context, u Update) (*operation.Operation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updates = append(p.updates, update{time.Since(p.began), len(u.Changes)})
	p.delay = 0
	return p.follower.Follow(following(u),
		&tenSeconds{preemptedPoller{until: time.Now().Add(10 * time.Second)}, fmt.Sprint(len(p.updates))}), nil
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
	return New(ctx, Options{Platform: p, Sizes: anySize{}, Clock: c, Logger: logr.Discard()}), p
}

type anySize struct{ Sizes }

func (anySize) KnownDataDisks(string, string) int { return 0 }

func TestABurstIsOneUpdate(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		every time.Duration // between two requests
		n     int
		first time.Duration // when the first update is sent
		disks []int         // in each update
	}{
		"a single attach leaves after the quiet time and the read of the VM": {0, 1, 380 * ms, []int{1}},
		"attaches at once are in one update":                                 {0, 40, 380 * ms, []int{40}},
		"attaches at the pace of Kubernetes are in one update":               {50 * ms, 12, 930 * ms, []int{12}},
		"an attach during the read of the VM is in the update":               {350 * ms, 2, 380 * ms, []int{2}},
		"attaches that keep on arriving hold the first for a second":         {47 * ms, 40, 1080 * ms, []int{23, 17}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				e, p := newSteadyVM(ctx)
				var all sync.WaitGroup
				for i := range test.n {
					all.Go(func() {
						time.Sleep(time.Duration(i) * test.every)
						if _, err := e.Attach(ctx, provisioner.AttachRequest{
							VMID:   "vm",
							DiskID: fmt.Sprint("disk", i),
						}); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				if !slices.Equal(p.disks(), test.disks) || p.updates[0].at != test.first {
					t.Errorf("got updates of %v disks, the first after %v; want updates of %v disks, the first after %v",
						p.disks(), p.updates[0].at, test.disks, test.first)
				}
			})
		})
	}
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
		expect("a", provisioner.Waiting{For: provisioner.WaitingForQuota, Since: p.began, Until: p.began.Add(30 * time.Second)})
		time.Sleep(30*time.Second + 40*time.Millisecond)
		expect("a", provisioner.Waiting{For: provisioner.WaitingForMore, Since: p.began})
		time.Sleep(60 * time.Millisecond)
		expect("a", provisioner.Waiting{}) // accepted
		attach("b")
		sent := p.began.Add(30*time.Second + 80*time.Millisecond)
		expect("b", provisioner.Waiting{
			For:   provisioner.WaitingForUpdate,
			Since: sent,
			Until: sent.Add(operation.Usual(operation.Attach, 1).To),
		})
		time.Sleep(time.Minute)
		expect("b", provisioner.Waiting{})
	})
}
