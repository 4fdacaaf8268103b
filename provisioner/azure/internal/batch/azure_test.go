package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/pacing"
)

// azure is a Platform in memory. An update takes ten seconds. A forced detach takes the place of an
// update in flight.
type azure struct {
	*testing.T
	follower *operation.Follower

	mu      sync.Mutex
	vms     map[string]*VM
	disks   map[string]*Disk
	updates []string
	calls   map[string]*sent // by token
	delay   time.Duration    // until the quota of the VM allows an update
	slow    time.Duration    // how long Azure takes to answer an update
	slots   int              // that are known for each size
	limit   int              // that a size has, which takes a request; 0 for an error
	reads   int              // that are left of the quota
	// refuse are the answers to the next updates, nil for an acceptance, and fail the outcomes of the next
	// operations.
	refuse, fail []error
	// unread are the errors of the next reads of a VM, nil for none, and unreadDisk those of each read of a disk.
	unread     []error
	unreadDisk map[string]error
	// still is an operation of another process: the VM's state stays.
	still bool
	// keeps has a failed attach leave the disk at the VM, and instant has an update end at once.
	keeps, instant bool
	log            []string
	// begun is called when an update has been accepted.
	begun func()
}

// sent is an update in flight.
type sent struct {
	azure *azure
	token string
	vm    *VM
	Update
	done    bool
	outcome error
}

func (p *azure) vm(id string) *VM {
	if p.vms[id] == nil {
		p.vms[id] = &VM{
			Instance: provisioner.Instance{ID: id, Location: "here", Size: "size"}, State: operation.StateSucceeded,
		}
	}
	return p.vms[id]
}

func (p *azure) disk(id string) *Disk {
	if p.disks[id] == nil {
		p.disks[id] = &Disk{
			Disk:  provisioner.Disk{ID: id, Location: "here", MaxShares: 1},
			State: operation.StateSucceeded,
		}
	}
	return p.disks[id]
}

func (p *azure) Validate(_, diskID string) error {
	if diskID == "" {
		return provisioner.Errorf(provisioner.InvalidArgument, "no disk ID")
	}
	return nil
}

// next takes the next answer.
func next(answers *[]error) error {
	if len(*answers) == 0 {
		return nil
	}
	err := (*answers)[0]
	*answers = (*answers)[1:]
	return err
}

func (p *azure) VM(_ context.Context, id string) (VM, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := next(&p.unread); err != nil {
		return *p.vm(id), err
	}
	vm := *p.vm(id)
	vm.DataDisks = slices.Clone(vm.DataDisks)
	if vm.Gone {
		return VM{Gone: true}, nil
	}
	return vm, nil
}

func (p *azure) Disk(_ context.Context, id string) (Disk, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.unreadDisk[id]; err != nil {
		return *p.disk(id), err
	}
	d := *p.disk(id)
	d.AttachedTo = slices.Clone(d.AttachedTo)
	return d, nil
}

func (p *azure) UpdateDelay(string) time.Duration { return p.delay }

func (p *azure) HasReads(_ string, n int) bool { return p.reads >= n }

func (p *azure) Update(_ context.Context, u Update) (*operation.Operation, error) {
	time.Sleep(p.slow)
	f, err := p.begin(u)
	if err != nil {
		return nil, err
	}
	return p.follower.Follow(following(u), f), nil
}

func (p *azure) begin(u Update) (*sent, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var changes []string
	for _, c := range u.Changes {
		changes = append(changes, fmt.Sprintf("%s %s", c.Kind, c.DiskID))
	}
	slices.Sort(changes)
	p.updates = append(p.updates, u.VMID+": "+strings.Join(changes, ", "))
	if err := next(&p.refuse); err != nil {
		return nil, err
	}
	if p.instant {
		return &sent{azure: p, done: true}, nil
	}
	f := &sent{azure: p, token: fmt.Sprint(len(p.updates)), vm: p.vm(u.VMID), Update: u}
	for _, other := range p.calls {
		if u.Kind() == operation.ForceDetach && other.VMID == u.VMID {
			other.end(preemption)
		}
	}
	p.calls[f.token] = f
	f.vm.State = operation.StateUpdating
	for _, c := range u.Changes {
		i := slices.IndexFunc(f.vm.DataDisks, func(a provisioner.Attachment) bool { return a.DiskID == c.DiskID })
		switch {
		case c.Kind != operation.Attach && i >= 0:
			f.vm.DataDisks[i].Detaching = true
		case c.Kind == operation.Attach && i < 0:
			f.vm.DataDisks = append(f.vm.DataDisks, provisioner.Attachment{DiskID: c.DiskID})
		}
	}
	if p.begun != nil {
		p.begun()
	}
	time.AfterFunc(10*time.Second, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		f.end(next(&p.fail))
	})
	return f, nil
}

// end ends an update, which does what it was to do unless there is an error.
func (f *sent) end(outcome error) {
	if f.done {
		return
	}
	p := f.azure
	f.done, f.outcome = true, outcome
	if !p.still {
		f.vm.State = operation.StateSucceeded
	}
	for _, c := range f.Changes {
		d, attach := p.disk(c.DiskID), c.Kind == operation.Attach
		if outcome == nil || p.keeps {
			d.AttachedTo = slices.DeleteFunc(d.AttachedTo, func(id string) bool { return id == c.VMID })
			if attach {
				d.AttachedTo = append(d.AttachedTo, c.VMID)
			}
		}
		if attach == (outcome != nil) && !p.keeps {
			is := func(a provisioner.Attachment) bool { return a.DiskID == c.DiskID }
			f.vm.DataDisks = slices.DeleteFunc(f.vm.DataDisks, is)
		}
	}
	for i := range f.vm.DataDisks {
		f.vm.DataDisks[i].Detaching = false
	}
}

func (f *sent) Done() bool {
	f.azure.mu.Lock()
	defer f.azure.mu.Unlock()
	return f.done
}

func (f *sent) ResumeToken() (string, error)                   { return f.token, nil }
func (f *sent) Poll(context.Context) (operation.Answer, error) { return operation.Answer{}, nil }
func (f *sent) FirstPause() time.Duration                      { return 0 }
func (f *sent) Scarce() bool                                   { return false }
func (f *sent) Outcome(context.Context) (outcome, err error)   { return f.outcome, nil }
func (f *sent) Close()                                         {}

func (p *azure) Resume(_ context.Context, token operation.Token, _ *operation.Look) (*operation.Operation, error) {
	p.mu.Lock()
	f := p.calls[token.SDK]
	p.mu.Unlock()
	if f != nil {
		return p.follower.Follow(following(f.Update), f), nil
	}
	return nil, errors.New("no such operation")
}

// KnownDataDisks implements Sizes.
func (p *azure) KnownDataDisks(_, size string) int {
	if size == "" {
		p.Error("asked about the size of a VM that was not read")
	}
	return p.slots
}

type sizes struct{ *azure }

func (s sizes) VM(_ context.Context, location, size string) (provisioner.VMLimits, error) {
	s.KnownDataDisks(location, size)
	if s.limit == 0 {
		return provisioner.VMLimits{}, errors.New("not known")
	}
	return provisioner.VMLimits{MaxDataDisks: int32(s.limit)}, nil
}

// What a world begins with.

type given = func(*azure)

func on(prepare ...given) []given { return prepare }

// has attaches disks to the VM.
func has(disks ...string) given {
	return func(p *azure) {
		listed(disks...)(p)
		named("vm", disks...)(p)
	}
}

// listed has the VM list disks, whether or not they are attached.
func listed(disks ...string) given {
	return func(p *azure) {
		for _, d := range disks {
			p.vm("vm").DataDisks = append(p.vm("vm").DataDisks, provisioner.Attachment{DiskID: d})
		}
	}
}

// named has disks name a VM.
func named(vm string, disks ...string) given {
	return func(p *azure) {
		for _, d := range disks {
			p.disk(d).AttachedTo = append(p.disk(d).AttachedTo, vm)
		}
	}
}

func detaching(p *azure) { p.vm("vm").DataDisks[0].Detaching = true }

func vmIs(s string) given { return func(p *azure) { p.vm("vm").State, p.still = s, true } }

func gone(p *azure) { p.vm("vm").Gone = true }

func keeps(p *azure) { p.keeps = true }

func slots(n int) given { return func(p *azure) { p.slots = n } }

func refusing(answers ...error) given { return func(p *azure) { p.refuse = answers } }

func failing(outcomes ...error) given { return func(p *azure) { p.fail = outcomes } }

func unread(answers ...error) given { return func(p *azure) { p.unread = answers } }

func unreadDisk(id string, err error) given {
	return func(p *azure) { p.unreadDisk[id] = err }
}

func disk(id string, change func(*Disk)) given { return func(p *azure) { change(p.disk(id)) } }

func shares(n int32) func(*Disk) { return func(d *Disk) { d.MaxShares = n } }

var (
	missing    = fault(provisioner.NotFound, "")
	denied     = fault(provisioner.Unauthorized, "")
	busy       = fault(provisioner.Unavailable, "")
	bad        = fault(provisioner.InvalidArgument, "Bad")
	full       = fault(provisioner.InsufficientCapacity, "Full")
	occupied   = fault(provisioner.Conflict, "Busy")
	inUse      = fault(provisioner.FailedPrecondition, operation.CodeConflictingUserInput)
	preemption = fault(provisioner.Conflict, operation.CodeOperationPreempted)
)

// fault is an error of Azure.
func fault(kind provisioner.Kind, code string) error {
	return &provisioner.Error{Kind: kind, Code: code, Message: "Azure refuses"}
}

// world is an Engine, and Azure.
type world struct {
	*Engine
	*azure
	ctx     context.Context
	stop    context.CancelFunc
	metrics *prometheus.Registry
	calls   sync.WaitGroup
	ended   []string
}

// in runs a test in a world in which time passes at once.
func in(t *testing.T, prepare []given, do func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		c := pacing.NewClock(nil, nil)
		p := &azure{
			T: t, reads: 36, follower: operation.NewFollower(ctx, operation.Options{Clock: c, Logger: logr.Discard()}),
			vms: map[string]*VM{}, disks: map[string]*Disk{}, calls: map[string]*sent{}, unreadDisk: map[string]error{},
		}
		for _, f := range prepare {
			f(p)
		}
		w := &world{azure: p, ctx: ctx, stop: stop}
		log := funcr.New(func(_, args string) { p.log = append(p.log, args) }, funcr.Options{Verbosity: 1})
		w.metrics = prometheus.NewRegistry()
		w.Engine = New(ctx, Options{Platform: p, Sizes: sizes{p}, Clock: c, Logger: log, Metrics: w.metrics})
		do(w)
	})
}

// do makes calls that are separated by semicolons, as in "attach a; wait 5s; share b vm2". The VM is
// vm unless another one is named. It returns while the calls go on.
func (w *world) do(script string) {
	w.Helper()
	for text := range strings.SplitSeq(script, "; ") {
		words := append(strings.Fields(text), "vm")
		if words[0] == "wait" {
			d, err := time.ParseDuration(words[1])
			if err != nil {
				w.Fatal(err)
			}
			time.Sleep(d)
			synctest.Wait()
			continue
		}
		w.calls.Go(func() {
			answer, err := w.call(words[0], words[1], words[2])
			w.note(text, answer, err)
		})
		synctest.Wait()
	}
}

func (w *world) call(what, disk, vm string) (answer string, err error) {
	params := provisioner.AttachRequest{VMID: vm, DiskID: disk, Shared: what == "share"}
	var op provisioner.Operation
	switch what {
	case "detach":
		op, err = w.Detach(w.ctx, vm, disk)
	case "force":
		op, err = w.ForceDetach(w.ctx, vm, disk)
	default:
		op, err = w.Attach(w.ctx, params)
	}
	if err != nil {
		return "refused", err
	}
	return "accepted", op.Wait(w.ctx)
}

// note takes down how a call ended, as in "attach a: ok" or "attach a: accepted, Conflict Busy".
func (w *world) note(what, answer string, err error) {
	how := "ok"
	if err != nil {
		how = strings.TrimSpace(answer + ", " + string(provisioner.KindOf(err)) + " " + operation.CodeOf(err))
	}
	w.azure.mu.Lock()
	defer w.azure.mu.Unlock()
	w.ended = append(w.ended, what+": "+how)
}

// soFar is how calls have ended, sorted, and the updates that were sent.
func (w *world) soFar() (ended string, updates []string) {
	w.azure.mu.Lock()
	defer w.azure.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(w.ended)), "; "), slices.Clone(w.updates)
}

// check waits for all calls, and compares how they ended, and the updates.
func (w *world) check(ended string, updates ...string) {
	w.Helper()
	w.calls.Wait()
	synctest.Wait()
	gotEnded, gotUpdates := w.soFar()
	if gotEnded != ended {
		w.Errorf("got %q, want %q", gotEnded, ended)
	}
	if !slices.Equal(gotUpdates, updates) {
		w.Errorf("got updates %q, want %q", gotUpdates, updates)
	}
	if len(w.last) != 0 || len(w.queues.vms) != 0 || len(w.queues.inFlightShared) != 0 {
		w.Errorf("left: requests %v, queues %v, shared disks %v", w.last, w.queues.vms, w.queues.inFlightShared)
	}
}
