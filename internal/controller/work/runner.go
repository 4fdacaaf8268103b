// Package work runs the calls to the platform that may take long beside the reconcilers, so that no
// reconciler ever waits for Azure. A reconciler starts a job for an object, and is called again
// when the platform has accepted it and when it has ended.
//
// Jobs are lost with the process. That does no harm: the status of the objects records what they
// are for, with the token to resume them.
package work

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Func does a piece of work. It calls accepted once the platform has accepted the operation, and
// returns when it has ended and the result has been read, or at once when ctx ends.
type Func func(ctx context.Context, accepted func(provisioner.Operation)) (operation.Truth, error)

// Runner runs at most one job for each object.
type Runner struct {
	ctx    context.Context
	clock  clock.PassiveClock
	limit  chan struct{}
	events chan event.GenericEvent

	mu   sync.Mutex
	jobs map[types.NamespacedName]*job
}

type job struct {
	uid  types.UID
	work operation.Work
	plan operation.Job // guarded by the Runner's mu
	// cancel ends the job's context; returned is closed when the job no longer calls the platform.
	cancel   context.CancelFunc
	returned chan struct{}
}

// New makes a Runner whose jobs end with ctx. At most limit of them run at once; more wait. Fences
// do not wait: a pod waits for its data until the fence is complete, and when many nodes are lost
// no other work is more urgent.
func New(ctx context.Context, c clock.PassiveClock, limit int) *Runner {
	return &Runner{
		ctx:    ctx,
		clock:  c,
		limit:  make(chan struct{}, limit),
		events: make(chan event.GenericEvent, 1024),
		jobs:   map[types.NamespacedName]*job{},
	}
}

// Source is the source of events that name objects to reconcile.
func (r *Runner) Source() source.Source {
	return source.Channel(r.events, &handler.EnqueueRequestForObject{})
}

// Job returns the state of the job for an object. A job of an earlier object of the same name is
// returned while it runs, and forgotten when it has ended.
func (r *Runner) Job(object client.Object) operation.Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := client.ObjectKeyFromObject(object)
	j, ok := r.jobs[name]
	if !ok {
		return operation.Job{}
	}
	if j.uid != object.GetUID() && j.plan.Phase == operation.PhaseEnded {
		delete(r.jobs, name)
		return operation.Job{}
	}
	return j.plan
}

// Forget drops the job for an object if it has ended.
func (r *Runner) Forget(name types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if j, ok := r.jobs[name]; ok && j.plan.Phase == operation.PhaseEnded {
		delete(r.jobs, name)
	}
}

// Start starts a job for an object, unless one runs already. begun is the operation that the
// object's status records. A fence supersedes a job of another kind: that job is cancelled, and the
// fence begins when the job has returned, so that the platform receives no request of the job after
// the requests of the fence.
func (r *Runner) Start(object client.Object, w operation.Work, begun *apiv1.Operation, do Func) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := client.ObjectKeyFromObject(object)
	before, ok := r.jobs[name]
	if ok && before.plan.Phase == operation.PhaseEnded {
		before = nil
	}
	if before != nil && (w != operation.WorkFence || before.work == operation.WorkFence) {
		return
	}
	ctx, cancel := context.WithCancel(r.ctx)
	j := &job{
		uid:  object.GetUID(),
		work: w,
		plan: operation.Job{
			Work:  w,
			Phase: operation.PhaseBegun,
			Begun: begun,
		},
		cancel:   cancel,
		returned: make(chan struct{}),
	}
	r.jobs[name] = j
	go func() {
		defer cancel()
		if before != nil {
			before.cancel()
			<-before.returned
		}
		r.run(ctx, j, object, do)
	}()
}

func (r *Runner) run(ctx context.Context, j *job, object client.Object, do Func) {
	defer close(j.returned)
	if j.work != operation.WorkFence {
		select {
		case r.limit <- struct{}{}:
			defer func() { <-r.limit }()
		case <-ctx.Done():
			return
		}
	}
	truth, err := do(ctx, func(op provisioner.Operation) {
		r.update(j, object, func(p *operation.Job) {
			p.Phase, p.Accepted = operation.PhaseAccepted, r.now()
			p.Tokens = append(slices.Clone(p.Tokens), op.Token()) // others have the job as it was
		})
	})
	if ctx.Err() != nil {
		return
	}
	r.update(j, object, func(p *operation.Job) {
		p.Phase, p.Truth, p.Err, p.Ended = operation.PhaseEnded, truth, err, r.now()
	})
}

// now has whole seconds, as times in the API do, so that a time that was written compares equal.
func (r *Runner) now() time.Time { return r.clock.Now().Truncate(time.Second) }

func (r *Runner) update(j *job, object client.Object, change func(*operation.Job)) {
	r.mu.Lock()
	change(&j.plan)
	r.mu.Unlock()
	select {
	case r.events <- event.GenericEvent{Object: object}:
	case <-r.ctx.Done():
	}
}
