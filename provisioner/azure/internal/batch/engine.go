// Package batch attaches and detaches the data disks of VMs in as few calls as it can. One call for
// a VM is in flight; requests that arrive meanwhile are sent together in the next one. It knows
// Azure as a Platform, and does no I/O itself.
package batch

import (
	"context"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/pacing"
)

// Options of New.
type Options struct {
	Platform Platform
	Sizes    Sizes
	Clock    *pacing.Clock
	Metrics  prometheus.Registerer // none if nil
	Logger   logr.Logger
}

// Engine sends what queues decides, with a goroutine for each batch; see run. It implements
// provisioner.Attachments except List.
type Engine struct {
	Options

	ctx   context.Context // of the batches, which go on after a caller has left
	disks prometheus.Histogram

	mu     sync.Mutex
	queues *queues
	serial int
	last   map[string]*request // by VM and disk: the last request that has not ended
}

// New makes an Engine. Batches in flight end with ctx, with its error.
func New(ctx context.Context, options Options) *Engine {
	return &Engine{
		Options: options,
		ctx:     ctx,
		queues:  newQueues(),
		last:    map[string]*request{},
		disks: promauto.With(options.Metrics).NewHistogram(prometheus.HistogramOpts{
			Name:    "azuredisk_azure_disks_per_vm_update",
			Help:    "Disks in one update of a VM.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64},
		}),
	}
}

// Attach implements provisioner.Attachments.
func (e *Engine) Attach(ctx context.Context, params provisioner.AttachRequest) (provisioner.Operation, error) {
	if !slices.Contains([]string{"", "None", "ReadOnly", "ReadWrite"}, params.CachingMode) {
		return nil, provisioner.Errorf(provisioner.InvalidArgument,
			"attach disk %s: the caching mode is %q; expected None, ReadOnly or ReadWrite",
			params.DiskID, params.CachingMode)
	}
	return e.submit(ctx, operation.Attach, params)
}

// Detach implements provisioner.Attachments.
func (e *Engine) Detach(ctx context.Context, vmID, diskID string) (provisioner.Operation, error) {
	return e.submit(ctx, operation.Detach, provisioner.AttachRequest{VMID: vmID, DiskID: diskID})
}

// ForceDetach implements provisioner.Attachments.
func (e *Engine) ForceDetach(ctx context.Context, vmID, diskID string) (provisioner.Operation, error) {
	return e.submit(ctx, operation.ForceDetach, provisioner.AttachRequest{VMID: vmID, DiskID: diskID})
}

// submit queues a request, or joins an equal one, and waits for Azure's answer.
func (e *Engine) submit(ctx context.Context, k operation.Kind, params provisioner.AttachRequest) (provisioner.Operation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := e.Platform.Validate(params.VMID, params.DiskID); err != nil {
		return nil, err
	}
	r := e.enqueue(newRequest(k, params))
	select {
	case <-r.answered:
	case <-ctx.Done():
		e.leave(r, ctx.Err())
		return nil, ctx.Err()
	case <-e.ctx.Done():
		return nil, e.ctx.Err()
	}
	if err := e.refusal(r); err != nil {
		return nil, err
	}
	return r, nil
}

// refusal returns why an answered request was not accepted; nil if it was accepted.
func (e *Engine) refusal(r *request) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.token != "" {
		return nil
	}
	return r.err
}

func (e *Engine) enqueue(r *request) *request {
	e.mu.Lock()
	defer e.mu.Unlock()
	if before, ok := e.last[r.pair()]; ok && before.kind == r.kind {
		before.callers++
		return before
	}
	e.serial++
	r.serial, r.callers, r.arrived = e.serial, 1, e.Clock.Now()
	e.last[r.pair()] = r
	e.queues.add(r)
	e.start()
	return r
}

// leave is called by a caller who stops waiting. A queued request without a caller ends.
func (e *Engine) leave(r *request, why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.callers--
	if r.callers == 0 && r.token == "" && e.queues.withdraw(r) {
		e.finishLocked(r, why)
	}
}

// start begins the batches that can begin. The caller holds mu.
func (e *Engine) start() {
	for _, b := range e.queues.start() {
		b.began = e.Clock.Now()
		go e.send(b)
	}
}

// send reads the VM, fills the batch, and brings its requests to their end.
func (e *Engine) send(b *batch) {
	r := &run{engine: e, batch: b}
	// Requests that arrive while this waits are in the batch; later they would not be.
	vm, err := e.read(b)
	if err == nil && !vm.Gone && !b.forced {
		r.slots = e.Sizes.KnownDataDisks(vm.Location, vm.Size)
	}
	requests, sending := e.fill(b)
	if len(sending) > 0 {
		vm, err = r.afterAnswers(sending)
	}
	r.run(requests, vm, err)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queues.end(b)
	e.start()
}

// read waits for the quota of the VM, and until no more requests are likely to arrive, and reads
// the VM.
func (e *Engine) read(b *batch) (VM, error) {
	delay := e.Platform.UpdateDelay(b.vmID)
	e.mu.Lock()
	b.quotaAt = e.Clock.Now().Add(delay)
	e.mu.Unlock()
	if err := e.Clock.Pause(e.ctx, delay); err != nil {
		return VM{}, err
	}
	e.gather(b)
	return e.Platform.VM(e.ctx, b.vmID)
}

// fill fills a batch. A forced batch supersedes earlier attaches of its disks; see supersede.
func (e *Engine) fill(b *batch) (requests, sending []*request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queues.fill(b)
	b.filled = e.Clock.Now()
	if b.forced && len(b.requests) > 0 {
		if ordinary := e.queues.ordinaryInFlight(b.vm); ordinary != nil {
			ordinary.preempted = true
		}
		sending = e.supersede(b.vm, b.requests)
	}
	return slices.Clone(b.requests), sending
}

// finish ends requests.
func (e *Engine) finish(err error, requests ...*request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range requests {
		e.finishLocked(r, err)
	}
}

func (e *Engine) finishLocked(r *request, err error) {
	if e.last[r.pair()] == r {
		delete(e.last, r.pair())
	}
	e.queues.release(r)
	r.finish(err)
}

// accept answers the callers of a request whose operation has begun.
func (e *Engine) accept(r *request, token string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.accept(token)
}

// putBack returns requests to their line, to be sent in the next call.
func (e *Engine) putBack(requests []*request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queues.putBack(e.withoutSuperseded(requests)...)
}

// split returns requests to their line, to be sent in two calls.
func (e *Engine) split(requests []*request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queues.split(e.withoutSuperseded(requests)...)
}

// withoutSuperseded ends the superseded requests, and returns the others. In its line a superseded
// request would wait for the end of the forced detach, which waits for the request's answer. The
// caller holds mu.
func (e *Engine) withoutSuperseded(requests []*request) []*request {
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

// Resume implements provisioner.Attachments. Until the operation has ended, the engine makes no
// ordinary call for the VM.
func (e *Engine) Resume(ctx context.Context, text string) (provisioner.Operation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := operation.ParseToken(text, operation.Attach, operation.Detach, operation.ForceDetach)
	if err != nil {
		return nil, err
	}
	params := provisioner.AttachRequest{
		VMID:   t.ID,
		DiskID: t.DiskID,
		Shared: t.Shared,
	}
	if err := e.Platform.Validate(t.ID, t.DiskID); err != nil {
		return nil, err
	}
	switch {
	case t.SDK == "" && t.Kind == operation.ForceDetach:
		return e.submit(ctx, operation.ForceDetach, params) // the earlier process only watched the operation, see watchDetaching
	case t.SDK == "":
		return nil, provisioner.Errorf(provisioner.InvalidArgument, "resume an operation: %q is not the token of an operation",
			text)
	}
	r := newRequest(t.Kind, params)
	resumed := &run{engine: e, batch: &batch{
		vm:       r.vm,
		vmID:     t.ID,
		together: t.Together,
	}}
	op, err := e.Platform.Resume(ctx, t, resumed.look([]*request{r}))
	if err != nil {
		return nil, provisioner.Errorf(provisioner.InvalidArgument, "resume the %s of disk %s: %w", t.Kind, t.DiskID, err)
	}
	r.accept(text)
	if known := e.beginResumed(r); known != r {
		return known, nil
	}
	go func() {
		resumed.conclude([]*request{r}, op.Wait(e.ctx))
		e.mu.Lock()
		defer e.mu.Unlock()
		e.queues.endResumed(r)
		e.start()
	}()
	return r, nil
}

// beginResumed enters a resumed request, unless this process has it already.
func (e *Engine) beginResumed(r *request) *request {
	e.mu.Lock()
	defer e.mu.Unlock()
	before, ok := e.last[r.pair()]
	switch {
	case ok && before.token == r.token:
		return before
	case !ok:
		e.last[r.pair()] = r
	}
	e.queues.beginResumed(r)
	return r
}
