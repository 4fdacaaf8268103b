package batch

import (
	"context"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

// state of a request:
//
//	queued ──fill, join──▶ inFlight ──finish──▶ ended
//	   ▲──────putBack─────────┘
//
// A queued request also ends when its last caller leaves, or when a forced detach supersedes it.
type state int

const (
	queued   state = iota // in the line of its VM
	inFlight              // in a batch
	ended
)

// request is an attach or detach from its submission to its end. It implements
// provisioner.Operation.
type request struct {
	kind     operation.Kind
	params   provisioner.AttachRequest
	vm, disk string // the keys of params.VMID and params.DiskID
	serial   int    // in the order of submission
	arrived  time.Time
	// answered is closed when Azure has accepted the request, or when it has ended without that;
	// done when it has ended.
	answered, done chan struct{}

	// The engine's mutex guards the rest. token does not change after answered is closed, nor err
	// after done is closed.
	state      state
	token      string // Azure has accepted the request: the token to resume it
	err        error
	callers    int
	group      int  // only requests of one group share a batch; see split
	holdsDisk  bool // see queues.inFlightShared
	superseded bool // a forced detach of the same disk takes its place
	failed     bool // an operation for it has failed: only the success of another one ends it well
}

func newRequest(k operation.Kind, params provisioner.AttachRequest) *request {
	return &request{
		kind:     k,
		params:   params,
		vm:       operation.Key(params.VMID),
		disk:     operation.Key(params.DiskID),
		answered: make(chan struct{}),
		done:     make(chan struct{}),
	}
}

func (r *request) attaches() bool { return r.kind == operation.Attach }

func (r *request) pair() string { return r.vm + "|" + r.disk }

// Token implements provisioner.Operation.
func (r *request) Token() string { return r.token }

// Wait implements provisioner.Operation.
func (r *request) Wait(ctx context.Context) error {
	if err := operation.Await(ctx, r.done); err != nil {
		return err
	}
	return r.err
}

// accept records that Azure has accepted the request. After a preemption it may be accepted again;
// callers keep the first token.
func (r *request) accept(token string) {
	if r.token == "" && r.state != ended {
		r.token = token
		close(r.answered)
	}
}

// finish ends the request, unless it has ended before.
func (r *request) finish(err error) {
	if r.state == ended {
		return
	}
	r.state, r.err = ended, err
	close(r.done)
	if r.token == "" {
		close(r.answered)
	}
}
