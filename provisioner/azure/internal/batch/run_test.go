package batch

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/pacing"
)

// oneVM is a platform with one VM, on which another process detaches the disks by force.
type oneVM struct {
	follower *operation.Follower

	mu    sync.Mutex
	disks []provisioner.Attachment
	state string
	calls int
	// code of the error with which an update ends, and stays, whether the disks stay as they were.
	code  string
	stays bool
}

func (p *oneVM) Validate(string, string) error { return nil }

func (p *oneVM) VM(context.Context, string) (VM, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return VM{
		Instance: provisioner.Instance{ID: "vm", DataDisks: append([]provisioner.Attachment(nil), p.disks...)},
		State:    p.state,
	}, nil
}

func (p *oneVM) Disk(_ context.Context, id string) (Disk, error) {
	return Disk{}, provisioner.Errorf(provisioner.NotFound, "no disk %s", id)
}

func (p *oneVM) UpdateDelay(string) time.Duration { return 0 }

func (p *oneVM) HasReads(string, int) bool { return true }

func (p *oneVM) Resume(context.Context, operation.Token, *operation.Look) (*operation.Operation, error) {
	return nil, errors.New("not expected")
}

// Update accepts the call. After a second another process replaces it.
func (p *oneVM) Update(_ context.Context, u Update) (*operation.Operation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if !p.stays {
		for i := range p.disks {
			p.disks[i].Detaching = true
		}
		p.state = operation.StateUpdating
	}
	return p.follower.Follow(following(u), &preemptedPoller{until: time.Now().Add(time.Second), code: p.code}), nil
}

// following describes the operation of an update.
func following(u Update) operation.Following {
	return operation.Following{Kind: u.Kind(), Usual: u.Usual(), Resource: u.VMID, Look: u.Look}
}

func (p *oneVM) detachAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disks, p.state = nil, operation.StateSucceeded
}

// preemptedPoller is an operation that another one replaces.
type preemptedPoller struct {
	until time.Time
	code  string
}

func (p *preemptedPoller) Done() bool                   { return !time.Now().Before(p.until) }
func (p *preemptedPoller) ResumeToken() (string, error) { return "token", nil }
func (p *preemptedPoller) Scarce() bool                 { return false }
func (p *preemptedPoller) FirstPause() time.Duration    { return 0 }
func (p *preemptedPoller) Close()                       {}

func (p *preemptedPoller) Poll(context.Context) (operation.Answer, error) {
	return operation.Answer{}, nil
}

func (p *preemptedPoller) Outcome(context.Context) (outcome, err error) {
	return &provisioner.Error{Kind: provisioner.Conflict, Code: p.code, Message: "ended"}, nil
}

// The engine used to lock its mutex twice here, after which no attach or detach of any VM went on.
func TestAPreemptedForcedDetachGoesOnWhileTheDiskIsDetached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		c := pacing.NewClock(nil, nil)
		p := &oneVM{
			follower: operation.NewFollower(ctx, operation.Options{Clock: c, Logger: logr.Discard()}),
			disks:    []provisioner.Attachment{{DiskID: "disk"}},
			state:    operation.StateSucceeded,
			code:     operation.CodeOperationPreempted,
		}
		e := New(ctx, Options{Platform: p, Clock: c, Logger: logr.Discard()})
		op, err := e.ForceDetach(ctx, "vm", "disk")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		p.detachAll()
		if err := op.Wait(ctx); err != nil || p.calls != 1 {
			t.Errorf("got %v after %d calls, want the end of the other detach after one call", err, p.calls)
		}
	})
}

// No request is to blame for an operation whose outcome Azure has forgotten: the requests of its batch
// are not tried one by one, and their callers learn what happened.
func TestAnOperationThatAzureHasForgottenIsNoFaultOfARequest(t *testing.T) {
	for code, calls := range map[string]int{operation.CodeForgotten: 1, operation.CodeOperationPreempted: 1, "Other": 3} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			c := pacing.NewClock(nil, nil)
			p := &oneVM{
				follower: operation.NewFollower(ctx, operation.Options{Clock: c, Logger: logr.Discard()}),
				disks:    []provisioner.Attachment{{DiskID: "one"}, {DiskID: "two"}},
				state:    operation.StateSucceeded,
				code:     code,
				stays:    true,
			}
			e := New(ctx, Options{Platform: p, Sizes: anySize{}, Clock: c, Logger: logr.Discard()})
			var wg sync.WaitGroup
			for _, disk := range []string{"one", "two"} {
				wg.Go(func() {
					op, err := e.Detach(ctx, "vm", disk)
					if err == nil {
						err = op.Wait(ctx)
					}
					if provisioner.CodeOf(err) != code {
						t.Errorf("%s: got %v, want that code", code, err)
					}
				})
			}
			if wg.Wait(); p.calls != calls {
				t.Errorf("%s: got %d calls, want %d", code, p.calls, calls)
			}
		})
	}
}
