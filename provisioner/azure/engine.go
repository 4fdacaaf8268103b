package azure

import (
	"context"
	"slices"
	"sync"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// engine runs what the dispatcher decides: a goroutine for each departure (see flight). It implements
// provisioner.Attachments.
type engine struct {
	cloud *Cloud

	mu         sync.Mutex
	dispatcher *dispatcher
	serial     int
	last       map[string]*request      // by VM and disk: the last one that has not ended
	inFlight   map[string][]*request    // by VM: of the ordinary departure
	preempted  map[string]bool          // VMs whose ordinary departure a forced one of ours takes the place of
	boarding   map[string]chan struct{} // by VM: tells the forced departure that somebody could board
}

func newEngine(c *Cloud) *engine {
	return &engine{
		cloud: c, dispatcher: newDispatcher(),
		last: map[string]*request{}, inFlight: map[string][]*request{}, preempted: map[string]bool{},
		boarding: map[string]chan struct{}{},
	}
}

// request is an attach or detach from its submission to its end. It is an Operation too.
type request struct {
	entry
	params provisioner.AttachRequest
	serial int
	// answered is closed when the platform has accepted or refused, ended when there is no more to come; of a refusal
	// ended is closed first.
	answered, ended chan struct{}

	// Guarded by the engine's mu; token and err don't change after answered and ended are closed.
	callers    int
	superseded bool // a forced detach of the same disk takes its place
	token      string
	err        error
}

func newRequest(v verb, params provisioner.AttachRequest) *request {
	r := &request{
		entry:  entry{vm: key(params.VMID), disk: key(params.DiskID), verb: v, shared: params.Shared},
		params: params, answered: make(chan struct{}), ended: make(chan struct{}),
	}
	r.request = r
	return r
}

func (r *request) pair() string { return r.vm + "|" + r.disk }

// Token implements provisioner.Operation.
func (r *request) Token() string { return r.token }

// Wait implements provisioner.Operation.
func (r *request) Wait(ctx context.Context) error {
	select {
	case <-r.ended:
		return r.err
	default:
	}
	select {
	case <-r.ended:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refusal returns why an answered request was not accepted; nil if it was.
func (r *request) refusal() error {
	select {
	case <-r.ended:
		if r.token == "" {
			return r.err
		}
	default:
	}
	return nil
}

// Attach implements provisioner.Attachments.
func (e *engine) Attach(ctx context.Context, params provisioner.AttachRequest) (provisioner.Operation, error) {
	if !slices.Contains([]string{"", "None", "ReadOnly", "ReadWrite"}, params.CachingMode) {
		return nil, provisioner.Errorf(provisioner.InvalidArgument, "caching mode %q is none of None, ReadOnly and ReadWrite", params.CachingMode)
	}
	return e.submit(ctx, verbAttach, params)
}

// Detach implements provisioner.Attachments.
func (e *engine) Detach(ctx context.Context, vmID, diskID string) (provisioner.Operation, error) {
	return e.submit(ctx, verbDetach, provisioner.AttachRequest{VMID: vmID, DiskID: diskID})
}

// ForceDetach implements provisioner.Attachments.
func (e *engine) ForceDetach(ctx context.Context, vmID, diskID string) (provisioner.Operation, error) {
	return e.submit(ctx, verbForce, provisioner.AttachRequest{VMID: vmID, DiskID: diskID})
}

// List implements provisioner.Attachments.
func (e *engine) List(ctx context.Context, vmID string) ([]provisioner.Attachment, error) {
	seen, err := e.cloud.readVM(ctx, vmID, false)
	return seen.DataDisks, err
}

// submit queues a request, or joins the same one, and waits for the platform's answer.
func (e *engine) submit(ctx context.Context, v verb, params provisioner.AttachRequest) (provisioner.Operation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if _, err := e.cloud.vm(params.VMID); err != nil {
		return nil, err
	}
	if _, err := e.cloud.parse(params.DiskID, typeDisk); err != nil {
		return nil, err
	}
	r := e.enqueue(newRequest(v, params))
	select {
	case <-r.answered:
	case <-ctx.Done():
		e.leave(r, ctx.Err())
		return nil, ctx.Err()
	case <-e.cloud.ctx.Done():
		return nil, e.cloud.ctx.Err()
	}
	if err := r.refusal(); err != nil {
		return nil, err
	}
	return r, nil
}

func (e *engine) enqueue(r *request) *request {
	e.mu.Lock()
	defer e.mu.Unlock()
	if before, ok := e.last[r.pair()]; ok && before.verb == r.verb {
		before.callers++
		return before
	}
	e.serial++
	r.serial, r.callers = e.serial, 1
	e.last[r.pair()] = r
	e.dispatcher.add(&r.entry)
	e.depart()
	return r
}

// leave is called by a caller who does not wait any more. A request that nobody waits for and that has not been sent is dropped.
func (e *engine) leave(r *request, why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.callers--
	select {
	case <-r.answered:
		return
	default:
	}
	if r.callers == 0 && e.dispatcher.withdraw(&r.entry) {
		e.finishLocked(r, why)
	}
}

// depart begins whatever can begin. The caller holds mu.
func (e *engine) depart() {
	for _, t := range e.dispatcher.startable() {
		l := e.dispatcher.lane(t.vm)
		next := l.queue
		if t.forced {
			next = l.forced
		}
		go e.fly(t, next[0].request.params.VMID)
	}
	for vm, told := range e.boarding {
		if e.dispatcher.boardable(vm) {
			select {
			case told <- struct{}{}:
			default:
			}
		}
	}
}

// fly makes one departure: it reads the VM, takes everybody who can go, and brings them to their end.
func (e *engine) fly(t turn, vmID string) {
	f := &flight{engine: e, turn: t}
	var err error
	var seen view
	if f.vm, err = e.cloud.vm(vmID); err == nil {
		err = e.awaitQuota(t)
	}
	if err == nil {
		seen, err = f.vm.get(e.cloud.ctx, false)
	}
	if err == nil && !seen.gone && !t.forced {
		f.slots = e.cloud.skus.known(seen.Location, seen.Size)
	}
	taken, settling := e.take(t)
	if len(taken) == 0 {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.depart()
		return
	}
	if len(settling) > 0 {
		for _, r := range settling {
			<-r.answered
		}
		seen, err = f.vm.get(e.cloud.ctx, false)
	}
	taken = append(taken, f.run(taken, seen, err)...)

	e.mu.Lock()
	defer e.mu.Unlock()
	entries := entriesOf(taken)
	if t.forced {
		delete(e.boarding, t.vm)
	} else {
		delete(e.inFlight, t.vm)
		delete(e.preempted, t.vm)
	}
	e.dispatcher.end(t, entries)
	e.depart()
}

// awaitQuota waits until the VM may be updated. Whoever comes meanwhile gets on, which would be too late once the call is made up.
func (e *engine) awaitQuota(t turn) error {
	c := e.cloud
	return c.sleep(c.ctx, c.pacer.wait(c.clock.Now(), scope{policy: policyUpdateVM, resource: t.vm}))
}

// slotsOf returns how many data disks the VM can have, 0 if that is not known; then the platform's refusal counts.
func (e *engine) slotsOf(seen view) int {
	limits, err := e.cloud.skus.VM(e.cloud.ctx, seen.Location, seen.Size)
	if err != nil {
		e.cloud.log.V(1).Info("the number of data disks is not known", "vm", seen.ID, "size", seen.Size, "reason", err.Error())
		return 0
	}
	return int(limits.MaxDataDisks)
}

// take fills a departure. A forced one supersedes earlier attaches of the same disks: those that wait end here; those
// whose call is being sent are returned, since the VM has to be read once more when the platform has answered.
func (e *engine) take(t turn) (taken, settling []*request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, en := range e.dispatcher.take(t) {
		taken = append(taken, en.request)
	}
	if !t.forced {
		if len(taken) > 0 {
			e.inFlight[t.vm] = taken
		}
		return taken, nil
	}
	if len(taken) > 0 {
		e.boarding[t.vm] = make(chan struct{}, 1)
		if e.dispatcher.flyingNormally(t.vm) {
			e.preempted[t.vm] = true
		}
	}
	return taken, e.supersede(t.vm, taken)
}

// finish ends a request.
func (e *engine) finish(r *request, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.finishLocked(r, err)
}

func (e *engine) finishLocked(r *request, err error) {
	select {
	case <-r.ended:
		return
	default:
	}
	r.err = err
	if e.last[r.pair()] == r {
		delete(e.last, r.pair())
	}
	e.dispatcher.settled(&r.entry)
	// In this order: whoever is woken by the answer asks at once whether that was all.
	close(r.ended)
	select {
	case <-r.answered:
	default:
		close(r.answered)
	}
}

// accepted answers the callers of a request whose operation has begun.
func (e *engine) accepted(r *request, token string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-r.answered: // already, and preempted since: callers keep the first token
	default:
		r.token = token
		close(r.answered)
	}
}

// putBack returns requests to the queue, to travel in the next call.
func (e *engine) putBack(requests []*request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dispatcher.putBack(entriesOf(e.notSuperseded(requests))...)
}

// split returns requests to the queue, to travel in two calls.
func (e *engine) split(requests []*request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dispatcher.split(entriesOf(e.notSuperseded(requests))...)
}

// notSuperseded ends the requests whose place a forced detach takes, and returns the others. The forced detach waits for the end of the first ones, and the queue for
// the end of the forced detach. The caller holds mu.
func (e *engine) notSuperseded(requests []*request) []*request {
	var rest []*request
	for _, r := range requests {
		if r.superseded {
			e.finishLocked(r, superseded(r))
			continue
		}
		rest = append(rest, r)
	}
	return rest
}

func entriesOf(requests []*request) []*entry {
	entries := make([]*entry, len(requests))
	for i, r := range requests {
		entries[i] = &r.entry
	}
	return entries
}

// Resume implements provisioner.Attachments. The operation keeps the VM's lane busy as one of this process would.
func (e *engine) Resume(ctx context.Context, text string) (provisioner.Operation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := parseToken(text, kindAttach, kindDetach, kindForceDetach)
	if err != nil {
		return nil, err
	}
	vm, err := e.cloud.vm(t.ID)
	if err != nil {
		return nil, err
	}
	if _, err := e.cloud.parse(t.DiskID, typeDisk); err != nil {
		return nil, err
	}
	params := provisioner.AttachRequest{VMID: t.ID, DiskID: t.DiskID, Shared: t.Shared}
	switch {
	case t.SDK == "" && t.Kind == kindForceDetach:
		return e.submit(ctx, verbForce, params) // somebody else's was watched, see forced
	case t.SDK == "":
		return nil, provisioner.Errorf(provisioner.InvalidArgument, "%q is not the token of an operation", text)
	}
	p, err := vm.resume(ctx, t.SDK)
	if err != nil {
		return nil, provisioner.Errorf(provisioner.InvalidArgument, "resume: %w", err)
	}
	r := newRequest(map[kind]verb{kindAttach: verbAttach, kindDetach: verbDetach, kindForceDetach: verbForce}[t.Kind], params)
	r.token = text
	close(r.answered)
	if known := e.occupy(r); known != r {
		return known, nil
	}
	l := e.cloud.follow(t.Kind, t.ID, p, true)
	f := &flight{engine: e, vm: vm, resumed: true, together: t.Together}
	go func() {
		f.landed([]*request{r}, l.wait(e.cloud.ctx))
		e.mu.Lock()
		defer e.mu.Unlock()
		e.dispatcher.vacate(&r.entry)
		e.depart()
	}()
	return r, nil
}

// occupy enters a resumed request, unless this process has it already.
func (e *engine) occupy(r *request) *request {
	e.mu.Lock()
	defer e.mu.Unlock()
	before, ok := e.last[r.pair()]
	switch {
	case ok && before.token == r.token:
		return before
	case !ok:
		e.last[r.pair()] = r
	}
	e.dispatcher.occupy(&r.entry)
	return r
}
