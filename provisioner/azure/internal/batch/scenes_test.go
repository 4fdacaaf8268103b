package batch

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

// scene is a number of calls, how they end, and the updates that they lead to.
type scene struct {
	given   []given
	do      string
	ended   string
	updates []string
}

func play(t *testing.T, scenes map[string]scene) {
	t.Helper()
	for name, s := range scenes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in(t, s.given, func(w *world) {
				w.do(s.do)
				w.check(s.ended, s.updates...)
			})
		})
	}
}

func updates(each ...string) []string { return each }

func TestCalls(t *testing.T) {
	t.Parallel()
	none := updates()
	play(t, map[string]scene{
		"the same call twice is one request": {nil,
			"attach a; attach a", "attach a: ok; attach a: ok", updates("vm: Attach a")},
		"a disk is attached, detached and attached again": {nil, "attach a; wait 1m; detach a; wait 1m; attach a",
			"attach a: ok; attach a: ok; detach a: ok", updates("vm: Attach a", "vm: Detach a", "vm: Attach a")},
		"calls for a disk that is still being attached keep their order, and are joined": {nil,
			"attach a; wait 5s; detach a; wait 8s; detach a", "attach a: ok; detach a: ok; detach a: ok",
			updates("vm: Attach a", "vm: Detach a")},
		"a disk that the VM has is attached":           {on(has("a")), "attach a", "attach a: ok", none},
		"a disk that the VM does not have is detached": {nil, "detach a", "detach a: ok", none},
		"a disk that does not exist is detached":       {on(unreadDisk("a", missing)), "detach a", "detach a: ok", none},
		"a disk is attached to a VM that is gone":      {on(gone, slots(8)), "attach a", "attach a: refused, NotFound", none},
		"a disk is detached from a VM that is gone": {on(gone, named("vm", "a")), "detach a; force b",
			"detach a: ok; force b: ok", none},
		"a disk is attached that is being detached": {on(has("a"), detaching), "attach a", "attach a: refused, Conflict", none},
		"a disk is attached that the VM lists and does not have": {on(listed("a")), "attach a", "attach a: ok",
			updates("vm: Attach a")},
		"a disk is attached while the VM is being updated": {on(has("a"), vmIs(operation.StateUpdating)), "attach a",
			"attach a: ok", updates("vm: Attach a")},
		"the VM cannot be read": {on(unread(denied), slots(8)), "attach a", "attach a: refused, Unauthorized", none},
		"the disk of a detach cannot be read": {on(unreadDisk("a", busy)), "detach a; attach b",
			"attach b: ok; detach a: refused, Unavailable", updates("vm: Attach b")},
		"a detach that another operation may make": {on(named("vm", "a"), vmIs(operation.StateUpdating)), "detach a",
			"detach a: refused, Conflict", none},
		"a VM is full": {on(has("a"), slots(1)), "attach b", "attach b: refused, InsufficientCapacity", none},
		"a VM has one slot": {on(has("a"), slots(2)), "attach b; attach c",
			"attach b: ok; attach c: refused, InsufficientCapacity", updates("vm: Attach b")},
		"a slot becomes free": {on(has("a"), slots(1)),
			"attach b; detach a", "attach b: ok; detach a: ok", updates("vm: Detach a", "vm: Attach b")},
		"one slot becomes free for two": {on(has("a"), slots(1)), "attach b; attach c; detach a",
			"attach b: ok; attach c: refused, InsufficientCapacity; detach a: ok", updates("vm: Detach a", "vm: Attach b")},
		"a disk of a full VM is detached": {on(has("a"), slots(1)), "detach a", "detach a: ok", updates("vm: Detach a")},
		"a disk that a full VM lists is attached again": {on(listed("a"), slots(1)), "attach a", "attach a: ok",
			updates("vm: Attach a")},
		"a disk is attached again while another leaves": {on(has("b"), listed("a"), slots(2)), "attach a; detach b",
			"attach a: ok; detach b: ok", updates("vm: Attach a, Detach b")},
		"a disk that a full VM does not list is detached": {on(has("b"), named("vm", "c"), slots(1)), "detach c; detach b",
			"detach b: ok; detach c: ok", updates("vm: Detach b, Detach c")},
		"a full VM does not list the only disk that is detached": {on(has("b"), named("vm", "c"), slots(1)), "detach c",
			"detach c: ok", updates("vm: Detach c")},
		"a disk that is attached again takes no further slot": {on(listed("a"), slots(2)), "attach a; attach b",
			"attach a: ok; attach b: ok", updates("vm: Attach a, Attach b")},
		"a disk that is detached takes no slot": {on(named("vm", "c"), slots(1)), "detach c; attach b",
			"attach b: ok; detach c: ok", updates("vm: Attach b, Detach c")},
		"an ordinary detach does not watch another operation": {on(has("a"), detaching, vmIs(operation.StateUpdating),
			after(4*time.Second, otherDetachEnds)), "detach a", "detach a: ok", updates("vm: Detach a")},
		"a full VM has the disk": {on(has("a"), slots(1)), "attach a", "attach a: ok", none},
		"a shared disk is attached to two VMs one after the other": {on(disk("s", shares(2))), "share s; wait 1s; share s vm2",
			"share s vm2: ok; share s: ok", updates("vm: Attach s", "vm2: Attach s")},
		"a shared disk is free for the next VM when its request has ended, and not its batch": {
			on(has("s"), disk("s", shares(2))), "attach b; share s; wait 2s; share s vm2; wait 1s; attach c vm2",
			"attach b: ok; attach c vm2: ok; share s vm2: ok; share s: ok", updates("vm: Attach b", "vm2: Attach s", "vm2: Attach c")},
	})
}

func TestRefusedCalls(t *testing.T) {
	t.Parallel()
	const ab, a, b = "vm: Attach a, Attach b", "vm: Attach a", "vm: Attach b"
	other := func(d *Disk) { d.Location = "elsewhere" }
	play(t, map[string]scene{
		"no request is at fault, and the call is not repeated": {on(refusing(denied)), "attach a; attach b",
			"attach a: refused, Unauthorized; attach b: refused, Unauthorized", updates(ab)},
		"one request of two is at fault": {on(refusing(bad), disk("a", other)), "attach a; attach b",
			"attach a: refused, InvalidArgument; attach b: ok", updates(ab, b)},
		"the disk of one of two does not exist": {on(refusing(bad), unreadDisk("a", missing)), "attach a; attach b",
			"attach a: refused, NotFound; attach b: ok", updates(ab, b)},
		"the only request is at fault": {on(refusing(bad), disk("a", other)),
			"attach a", "attach a: refused, InvalidArgument Bad", updates(a)},
		"it is not known which of two is at fault": {on(refusing(bad, bad)), "attach a; attach b",
			"attach a: refused, InvalidArgument Bad; attach b: ok", updates(ab, a, b)},
		"it is not known which of two is at fault, and their disks cannot be read": {
			on(refusing(bad, bad, bad), unreadDisk("a", busy), unreadDisk("b", busy)), "attach a; attach b",
			"attach a: refused, InvalidArgument Bad; attach b: refused, InvalidArgument Bad", updates(ab, a, b)},
		"the VM is busy": {on(refusing(occupied)), "attach a; attach b", "attach a: refused, Conflict Busy; attach b: refused, Conflict Busy",
			updates(ab)},
		"the VM cannot be read after the refusal": {on(refusing(bad), unread(nil, denied)),
			"attach a", "attach a: refused, Unauthorized", updates(a)},
		"a detach is refused, and the VM does not list the disk": {
			on(named("vm", "a"), refusing(bad)), "detach a", "detach a: refused, Conflict Bad", updates("vm: Detach a")},
		"a detach is refused": {on(has("a"), refusing(bad)),
			"detach a", "detach a: refused, InvalidArgument Bad", updates("vm: Detach a")},
		"a shared disk is being attached elsewhere": {on(refusing(inUse), disk("a", shares(2))), "share a",
			"share a: refused, Conflict ConflictingUserInput", updates(a)},
		"a disk that is not shared is in use": {on(refusing(inUse)), "attach a",
			"attach a: refused, FailedPrecondition ConflictingUserInput", updates(a)},
		"a shared disk is refused for another reason": {on(refusing(bad), disk("a", shares(2))), "share a",
			"share a: refused, InvalidArgument Bad", updates(a)},
		"the VM is full, and its size is learnt": {on(has("x"), refusing(full), limited(2)), "attach a; attach b",
			"attach a: ok; attach b: refused, InsufficientCapacity", updates(ab, a)},
		"the VM is full, and its size is not known": {on(has("x"), refusing(full, full, full)), "attach a; attach b",
			"attach a: refused, InsufficientCapacity Full; attach b: refused, InsufficientCapacity Full", updates(ab, a, b)},
		"the VM is full beyond what was known of its size": {on(has("x"), slots(4), refusing(full), limited(1)), "attach a",
			"attach a: refused, InsufficientCapacity Full", updates(a)},
		"the VM is gone since": {on(func(p *azure) { p.slow = time.Second }, refusing(full), after(800*time.Millisecond, gone)),
			"attach a", "attach a: refused, NotFound", updates(a)},
		"one request of three is at fault, and the others are repeated together": {on(refusing(bad), disk("a", other)),
			"attach a; attach b; attach c", "attach a: refused, InvalidArgument; attach b: ok; attach c: ok",
			updates("vm: Attach a, Attach b, Attach c", "vm: Attach b, Attach c")},
		"the VM is refused for another reason, and its size is not asked for": {on(refusing(bad, nil, nil), limited(1)),
			"attach a; attach b", "attach a: ok; attach b: ok", updates(ab, a, b)},
	})
}

func limited(n int) given { return func(p *azure) { p.limit = n } }

func TestFailedOperations(t *testing.T) {
	t.Parallel()
	const ab, a, b = "vm: Attach a, Attach b", "vm: Attach a", "vm: Attach b"
	other := func(d *Disk) { d.Location = "elsewhere" }
	play(t, map[string]scene{
		"no request is at fault": {on(failing(denied)), "attach a; attach b", "attach a: accepted, Unauthorized; attach b: accepted, Unauthorized",
			updates(ab)},
		"one request of two is at fault": {on(failing(bad), disk("a", other)), "attach a; attach b",
			"attach a: accepted, InvalidArgument; attach b: ok", updates(ab, b)},
		"it is not known which of two is at fault": {on(failing(bad, bad)), "attach a; attach b",
			"attach a: accepted, InvalidArgument Bad; attach b: ok", updates(ab, a, b)},
		"the only request is at fault": {on(failing(bad)), "attach a", "attach a: accepted, InvalidArgument Bad", updates(a)},
		"the only request is at fault, as its disk shows": {on(failing(bad), disk("a", other)), "attach a",
			"attach a: accepted, InvalidArgument Bad", updates(a)},
		"one of two has been done": {on(has("a"), failing(bad), offAtOnce), "detach a; attach b",
			"attach b: accepted, InvalidArgument Bad; detach a: ok", updates("vm: Attach b, Detach a")},
		"the VM cannot be read until later": {on(failing(bad), unread(nil, busy, busy)), "attach a",
			"attach a: accepted, InvalidArgument Bad", updates(a)},
		"the VM cannot be read after it": {on(failing(bad), unread(nil, denied)),
			"attach a", "attach a: accepted, InvalidArgument Bad", updates(a)},
		"one request of three is at fault, and the others are repeated together": {on(failing(bad), disk("a", other)),
			"attach a; attach b; attach c", "attach a: accepted, InvalidArgument; attach b: ok; attach c: ok",
			updates("vm: Attach a, Attach b, Attach c", "vm: Attach b, Attach c")},
		"the VM cannot be read after a success": {on(unread(nil, denied)), "attach a", "attach a: ok", updates(a)},
		"the VM cannot be read after a failure, and the disk is off": {on(has("a"), failing(bad), unread(nil, denied), offAtOnce),
			"detach a", "detach a: accepted, InvalidArgument Bad", updates("vm: Detach a")},
		"the VM has the disk of an attach that failed": {on(keeps, failing(bad)), "attach a",
			"attach a: accepted, InvalidArgument Bad", updates(a)},
		"the VM has the disk of an attach that failed, and was replaced then": {on(keeps, failing(bad, preemption)),
			"attach a; attach b", "attach a: accepted, Conflict OperationPreempted; attach b: ok", updates(ab, a, b)},
		"another process replaced it, and the VM has the disk": {on(keeps, failing(preemption), unread(nil, busy)), "attach a",
			"attach a: ok", updates(a)},
		"another process replaced a forced detach, which has ended": {on(has("a"), failing(preemption)), "force a",
			"force a: accepted, Conflict OperationPreempted", updates("vm: ForceDetach a")},
		"another process replaced it": {on(failing(preemption)),
			"attach a", "attach a: accepted, Conflict OperationPreempted", updates(a)},
	})
}

// offAtOnce has the first disk of the VM off when an update has been accepted.
var offAtOnce = begunWith(func(p *azure) {
	p.disk("a").AttachedTo, p.vm("vm").DataDisks = nil, p.vm("vm").DataDisks[1:]
})

// begunWith changes Azure when an update has been accepted.
func begunWith(f func(*azure)) given { return func(p *azure) { p.begun = func() { f(p) } } }

func TestForcedDetaches(t *testing.T) {
	t.Parallel()
	const forceA = "vm: ForceDetach a"
	play(t, map[string]scene{
		"a forced detach takes the place of an attach in flight": {nil, "attach a; wait 3s; force a",
			"attach a: accepted, Conflict DataDisksForceDetached; force a: ok", updates("vm: Attach a", forceA)},
		"an attach of another disk goes on after it": {on(has("a")), "attach b; wait 3s; force a",
			"attach b: ok; force a: ok", updates("vm: Attach b", forceA, "vm: Attach b")},
		"a detach of the same disk is replaced by it": {on(has("a")), "detach a; attach b; wait 3s; force a",
			"attach b: ok; detach a: ok; force a: ok", updates("vm: Attach b, Detach a", forceA, "vm: Attach b")},
		"an attach that Azure has not answered is awaited": {on(func(p *azure) { p.slow = 3 * time.Second }),
			"attach a; wait 1s; force a", "attach a: accepted, Conflict DataDisksForceDetached; force a: ok",
			updates("vm: Attach a", forceA)},
		"an attach that waits ends by it": {on(has("b")), "detach b; wait 3s; attach a; attach c; force a",
			"attach a: refused, Conflict DataDisksForceDetached; attach c: ok; detach b: ok; force a: ok",
			updates("vm: Detach b", "vm: Attach c")},
		"an attach that was asked for later is made after it": {on(has("a", "b")), "force b; wait 3s; force a; attach a",
			"attach a: ok; force a: ok; force b: ok", updates("vm: ForceDetach b", forceA, "vm: Attach a")},
		"a detach that waits is made after it": {on(has("a", "b")), "detach b; wait 3s; detach a; force a",
			"detach a: ok; detach b: ok; force a: ok", updates("vm: Detach b", forceA, "vm: Detach b")},
		"the detach of a VM that does not become Succeeded is not proved": {on(named("vm", "a"), vmIs(operation.StateFailed),
			refusing(occupied)), "force a", "force a: refused, Conflict Busy", updates(forceA)},
		"another process detaches the disk by force, and ends": {on(has("a"), detaching, vmIs(operation.StateUpdating),
			after(4*time.Second, func(p *azure) {
				p.vm("vm").DataDisks, p.vm("vm").State = nil, operation.StateSucceeded
				p.disk("a").AttachedTo = nil
			})),
			"force a", "force a: ok", nil},
		"another process detaches the disk by force, and fails": {on(has("a"), detaching, vmIs(operation.StateUpdating),
			after(4*time.Second, func(p *azure) { p.still, p.vm("vm").State = false, operation.StateFailed })),
			"force a", "force a: ok", updates(forceA)},
		"another process detaches the disk by force, and does not end": {on(has("a"), detaching, vmIs(operation.StateUpdating),
			after(11*time.Second, func(p *azure) { p.still = false })), "force a", "force a: ok", updates(forceA)},
		"the VM cannot be read while another process detaches the disk": {on(has("a"), detaching, vmIs(operation.StateUpdating),
			unread(nil, denied)), "force a", "force a: accepted, Unauthorized", nil},
		"the VM cannot be read for a time while another process detaches the disk": {on(has("a"), detaching,
			vmIs(operation.StateUpdating), unread(nil, busy, busy), after(4*time.Second, func(p *azure) {
				p.vm("vm").DataDisks, p.vm("vm").State, p.disk("a").AttachedTo = nil, operation.StateSucceeded, nil
			})), "force a", "force a: ok", nil},
		"another operation of another process is at work": {on(has("a"), vmIs(operation.StateUpdating),
			after(time.Second, func(p *azure) { p.still = false })), "force a", "force a: ok", updates(forceA)},
	})
}

// otherDetachEnds is the end of another process's detach of disk a.
func otherDetachEnds(p *azure) {
	p.vm("vm").DataDisks, p.vm("vm").State, p.disk("a").AttachedTo = nil, operation.StateSucceeded, nil
}

func after(d time.Duration, f func(*azure)) given {
	return func(p *azure) {
		time.AfterFunc(d, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			f(p)
		})
	}
}

func TestACallThatIsRefusedBeforeItIsQueued(t *testing.T) {
	t.Parallel()
	in(t, on(unread(busy)), func(w *world) {
		ended, cancel := context.WithCancel(w.ctx)
		cancel()
		plain := provisioner.AttachRequest{VMID: "vm", DiskID: "a"}
		cached := provisioner.AttachRequest{VMID: "vm", DiskID: "a", CachingMode: "Sometimes"}
		token := operation.Token{Kind: operation.Attach, ID: "vm", DiskID: "a"}
		unknown, none := token, token
		unknown.SDK, none.Kind, none.SDK = "gone", operation.DeleteDisk, "t"
		noDisk := token
		noDisk.DiskID = ""
		attach := func(ctx context.Context, r provisioner.AttachRequest) error { _, err := w.Attach(ctx, r); return err }
		resume := func(ctx context.Context, t operation.Token) error {
			_, err := w.Engine.Resume(ctx, t.Text())
			return err
		}
		_, nonsense := w.Engine.Resume(w.ctx, "nonsense")
		for name, test := range map[string]struct {
			err, want error
			says      string
		}{
			"an unknown caching mode":             {attach(w.ctx, cached), provisioner.InvalidArgument, "caching mode"},
			"no disk":                             {attach(w.ctx, provisioner.AttachRequest{}), provisioner.InvalidArgument, "no disk ID"},
			"a caller that has left":              {attach(ended, plain), context.Canceled, ""},
			"a resumption of nonsense":            {nonsense, provisioner.InvalidArgument, "is not the token"},
			"a resumption of another operation":   {resume(w.ctx, none), provisioner.InvalidArgument, "of the kind"},
			"a resumption without a disk":         {resume(w.ctx, noDisk), provisioner.InvalidArgument, "no disk ID"},
			"a resumption of what was not a call": {resume(w.ctx, token), provisioner.InvalidArgument, "is not the token"},
			"a resumption of an unknown call":     {resume(w.ctx, unknown), provisioner.InvalidArgument, "no such operation"},
			"a resumption after the caller left":  {resume(ended, unknown), context.Canceled, ""},
		} {
			if !errors.Is(test.err, test.want) || !strings.Contains(test.err.Error(), test.says) {
				t.Errorf("%s: got error %v, want %v with %q", name, test.err, test.want, test.says)
			}
		}
		time.Sleep(time.Minute)
		if w.check(""); len(w.unread) != 1 {
			t.Error("the VM was read, want nothing to be done")
		}
	})
}

func TestAQueuedRequestEndsWithItsLastCaller(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		callers int // of whom one leaves
		after   time.Duration
		updates []string
	}{
		"the only caller leaves before the call": {1, 100 * time.Millisecond, nil},
		"one of two callers leaves":              {2, 100 * time.Millisecond, updates("vm: Attach a")},
		"the only caller leaves during the call": {1, 5 * time.Second, updates("vm: Attach a")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in(t, nil, func(w *world) {
				ctx, leave := context.WithTimeout(w.ctx, test.after)
				defer leave()
				for range test.callers {
					c := ctx
					ctx = w.ctx
					w.calls.Go(func() { _, _ = w.Attach(c, provisioner.AttachRequest{VMID: "vm", DiskID: "a"}) })
				}
				w.calls.Wait()
				time.Sleep(time.Minute)
				w.check("", test.updates...)
			})
		})
	}
	in(t, nil, func(w *world) { // after a preemption an accepted request waits in the line again
		r := newRequest(operation.Attach, provisioner.AttachRequest{VMID: "vm", DiskID: "a"})
		r.token, r.callers = "t", 1
		w.queues.add(r)
		w.leave(r, context.Canceled)
		if r.state != queued || len(w.queues.lineOf(r).waiting) != 1 {
			t.Errorf("got state %v, want an accepted request to stay in the line", r.state)
		}
	})
}

func TestAnEngineThatHasEndedSendsNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		given []given
		do    string
	}{
		"while a request waits for the quota of the VM": {on(func(p *azure) { p.delay = time.Minute }), "attach a; wait 1s"},
		"while another process detaches the disk by force": {
			on(has("a"), detaching, vmIs(operation.StateUpdating)), "force a; wait 3s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in(t, test.given, func(w *world) {
				w.do(test.do)
				w.stop()
				time.Sleep(time.Minute)
				w.calls.Wait()
				if ended, updates := w.soFar(); len(updates) != 0 || ended == "" || strings.HasSuffix(ended, "ok") {
					t.Errorf("got updates %q and %q, want none, and an error", updates, ended)
				}
			})
		})
	}
}

// The operation of another process has no token that this process knows, and the controller records that
// the detach is under way.
func TestAWatchedForcedDetachIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	in(t, on(has("a"), detaching, vmIs(operation.StateUpdating)), func(w *world) {
		began := time.Now()
		op, err := w.ForceDetach(w.ctx, "vm", "a")
		if took := time.Since(began); err != nil || op.Token() == "" || took > time.Second {
			t.Errorf("got %v, %v after %s, want a token within a second", op, err, took)
		}
		w.stop()
	})
}

// The forced detach was not sent, so that it is another process that took the place of the attach.
func TestAForcedDetachWithoutACallerPreemptsNothing(t *testing.T) {
	t.Parallel()
	in(t, on(has("b"), failing(preemption)), func(w *world) {
		w.do("attach a; wait 1s")
		ctx, leave := context.WithTimeout(w.ctx, 100*time.Millisecond)
		defer leave()
		if _, err := w.ForceDetach(ctx, "vm", "b"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want the caller's", err)
		}
		w.check("attach a: accepted, Conflict OperationPreempted", "vm: Attach a")
	})
}

func TestARepeatedCallIsTheSameOperation(t *testing.T) {
	t.Parallel()
	in(t, nil, func(w *world) {
		request := provisioner.AttachRequest{VMID: "vm", DiskID: "a"}
		one, err := w.Attach(w.ctx, request)
		two, again := w.Attach(w.ctx, request)
		resumed, third := w.Engine.Resume(w.ctx, one.Token())
		if errors.Join(err, again, third) != nil || one != two || one != resumed {
			t.Errorf("got %v, %v, %v and %v, want one operation", one, two, resumed, errors.Join(err, again, third))
		}
		ended, cancel := context.WithCancel(w.ctx)
		cancel()
		if err := one.Wait(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v for a caller that has left, want its error", err)
		}
		time.Sleep(time.Minute)
		w.check("", "vm: Attach a")
	})
}

func TestAnUpdateThatEndsAtOnceHasNoToken(t *testing.T) {
	t.Parallel()
	in(t, on(func(p *azure) { p.instant = true }), func(w *world) {
		op, err := w.Attach(w.ctx, provisioner.AttachRequest{VMID: "vm", DiskID: "a"})
		if err != nil || op.Token() != "" || op.Wait(w.ctx) != nil {
			t.Errorf("got %v, %v, want an operation that has ended", op, err)
		}
	})
}

func TestTheDisksOfAnUpdateAreCounted(t *testing.T) {
	t.Parallel()
	in(t, nil, func(w *world) {
		w.do("attach a; attach b")
		w.check("attach a: ok; attach b: ok", "vm: Attach a, Attach b")
		families, err := w.metrics.Gather()
		if err != nil || families[0].GetMetric()[0].GetHistogram().GetSampleSum() != 2 {
			t.Errorf("got %v, %v, want one update of two disks", families, err)
		}
	})
}

// Without the size of a VM, Azure is asked what it refuses.
func TestASizeThatIsNotKnownIsLogged(t *testing.T) {
	t.Parallel()
	in(t, on(refusing(full)), func(w *world) {
		w.do("attach a")
		w.check("attach a: refused, InsufficientCapacity Full", "vm: Attach a")
		if len(w.log) != 1 || !strings.Contains(w.log[0], "the number of data disks is not known") {
			t.Errorf("got log %q, want that the size is not known", w.log)
		}
	})
}

// Azure does not answer, and the process ends.
func TestAnEngineThatHasEndedReadsNothing(t *testing.T) {
	t.Parallel()
	answers := []error{nil}
	for range 1000 {
		answers = append(answers, busy)
	}
	in(t, on(failing(bad), unread(answers...)), func(w *world) {
		w.do("attach a; wait 15s")
		w.stop()
		time.Sleep(time.Hour)
		if len(w.unread) < 900 {
			t.Errorf("got %d reads of the VM, want few, and none after the end", 1001-len(w.unread))
		}
		w.calls.Wait()
	})
}

func TestWhatACallWaitsForBesideOthers(t *testing.T) {
	t.Parallel()
	during := func(given []given, do string) (waiting provisioner.Waiting, after time.Duration) {
		in(t, given, func(w *world) {
			began := time.Now()
			w.do(do)
			waiting = w.Waiting("vm", "a")
			after = waiting.Since.Sub(began).Round(100 * time.Millisecond)
			w.calls.Wait()
		})
		return waiting, after
	}
	slow := func(p *azure) { p.slow = 5 * time.Second }
	const sent = 300 * time.Millisecond
	for name, test := range map[string]struct {
		given []given
		do    string
		want  provisioner.WaitingFor
		after time.Duration
		until bool
	}{
		"Azure has not answered":       {on(slow), "attach a; wait 1s", provisioner.WaitingForAnswer, sent, false},
		"a forced detach is in flight": {on(has("b")), "force b; wait 1s; attach a", provisioner.WaitingForUpdate, sent, true},
		"another VM attaches a shared disk": {nil,
			"share a vm2; wait 1s; share a", provisioner.WaitingForUpdate, time.Second, false},
	} {
		got, after := during(test.given, test.do)
		if got.For != test.want || after != test.after || got.Until.IsZero() == test.until {
			t.Errorf("%s: got %+v, after %s, want %s after %s, with an end: %t", name, got, after,
				test.want, test.after, test.until)
		}
	}
}

// Only a disk that a call detaches leaves a slot, for which an attach waits.
func TestAFullVMRefusesAnAttachAtOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		given []given
		do    string
	}{
		"while a disk of the VM is attached again": {on(listed("a"), slots(1)), "attach a; attach b; wait 5s"},
		"while a disk is detached that takes no slot of it": {
			on(has("a"), named("vm", "c"), slots(1)), "detach c; attach b; wait 5s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in(t, test.given, func(w *world) {
				w.do(test.do)
				if got, _ := w.soFar(); got != "attach b: refused, InsufficientCapacity" {
					t.Errorf("got %q within five seconds, want the refusal of disk b", got)
				}
				w.calls.Wait()
			})
		})
	}
}

func TestResume(t *testing.T) {
	t.Parallel()
	tokenOf := func(w *world) string {
		op, err := w.Attach(w.ctx, provisioner.AttachRequest{VMID: "vm", DiskID: "a"})
		if err != nil {
			w.Fatal(err)
		}
		return op.Token()
	}
	// next is the engine of a new process.
	next := func(w *world) *Engine {
		options := w.Options
		options.Metrics = nil
		return New(w.ctx, options)
	}
	resumed := func(w *world, e *Engine, token string) provisioner.Operation {
		op, err := e.Resume(w.ctx, token)
		if err != nil {
			w.Fatal(err)
		}
		return op
	}
	t.Run("another process waits for its end, and makes no call before", func(t *testing.T) {
		in(t, nil, func(w *world) {
			token := tokenOf(w)
			w.Engine = next(w)
			end, again := resumed(w, w.Engine, token), resumed(w, w.Engine, token)
			if end != again || end.Token() != token {
				t.Errorf("got %v and %v, want one operation with the token", end, again)
			}
			w.do("attach b; wait 5s")
			if _, updates := w.soFar(); len(updates) != 1 {
				t.Errorf("got updates %q during the first one, want no other", updates)
			}
			if err := end.Wait(w.ctx); err != nil {
				t.Error(err)
			}
			w.check("attach b: ok", "vm: Attach a", "vm: Attach b")
		})
	})
	t.Run("the failure of one of several is nothing that the request did", func(t *testing.T) {
		for _, together := range []int{1, 2} {
			in(t, on(failing(bad)), func(w *world) {
				parsed, err := operation.ParseToken(tokenOf(w), operation.Attach)
				if err != nil {
					t.Fatal(err)
				}
				parsed.Together = together
				w.Engine = next(w)
				want := map[int]provisioner.Kind{1: provisioner.InvalidArgument, 2: provisioner.Conflict}[together]
				if err := resumed(w, w.Engine, parsed.Text()).Wait(w.ctx); provisioner.KindOf(err) != want {
					t.Errorf("one of %d: got error %v, want %s", together, err, want)
				}
				time.Sleep(time.Minute)
				w.check("", "vm: Attach a")
			})
		}
	})
	t.Run("a forced detach that only watched another one is asked for again", func(t *testing.T) {
		in(t, on(has("a")), func(w *world) {
			token := operation.Token{Kind: operation.ForceDetach, ID: "vm", DiskID: "a"}
			if err := resumed(w, w.Engine, token.Text()).Wait(w.ctx); err != nil {
				t.Error(err)
			}
			w.check("", "vm: ForceDetach a")
		})
	})
	t.Run("a forced detach goes on", func(t *testing.T) {
		in(t, on(has("a")), func(w *world) {
			op, err := w.ForceDetach(w.ctx, "vm", "a")
			if err != nil {
				t.Fatal(err)
			}
			again := resumed(w, next(w), op.Token())
			if err := again.Wait(w.ctx); err != nil || again.Token() != op.Token() {
				t.Errorf("got %v, %v, want the same operation", again, err)
			}
			w.check("", "vm: ForceDetach a")
		})
	})
	t.Run("a detach that another process replaces is not made again", func(t *testing.T) {
		unlisted := begunWith(func(p *azure) { p.vm("vm").DataDisks = nil })
		in(t, on(has("a"), vmIs(operation.StateUpdating), failing(preemption), unlisted), func(w *world) {
			op, err := w.Detach(w.ctx, "vm", "a")
			if err != nil {
				t.Fatal(err)
			}
			w.Engine = next(w)
			if err := resumed(w, w.Engine, op.Token()).Wait(w.ctx); operation.CodeOf(err) != operation.CodeOperationPreempted {
				t.Errorf("got error %v, want that of the operation", err)
			}
			time.Sleep(time.Minute)
			w.check("", "vm: Detach a")
		})
	})
	t.Run("a later request for the disk goes on", func(t *testing.T) {
		in(t, nil, func(w *world) {
			token := tokenOf(w)
			w.Engine = next(w)
			w.do("detach a; wait 100ms")
			op := resumed(w, w.Engine, token)
			if err := op.Wait(w.ctx); err != nil || op.Token() != token {
				t.Errorf("got %v, %v, want the end of the attach", op, err)
			}
			w.check("detach a: ok", "vm: Attach a", "vm: Detach a")
		})
	})
}
