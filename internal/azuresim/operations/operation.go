// Package operations runs long-running operations: it accepts them inside the caller's transaction,
// lets those of one lane run one after the other, waits until each is due, has its effects made
// outside the store and then its model change inside one transaction together with the operation's
// final state.
//
//	            lane free                due, effects made
//	accepted ──────────────▶ Running ───────────────────────▶ Succeeded
//	   │ lane busy              │ │ refused, or effects failed for too long
//	   ▼       predecessor done │ └──────────────────────────▶ Failed
//	 Queued ────────────────────┘
//	   └───────── a newer operation takes over (either state) ─▶ Canceled
//
// Everything is in the store: after a kill the engine finds the same lanes and due times and
// continues. Effects may therefore be made twice and must be idempotent.
package operations

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// State of an operation, as kept. Clients see Queued and Running as InProgress.
type State string

// The states of the drawing above.
const (
	Queued    State = "Queued"
	Running   State = "Running"
	Succeeded State = "Succeeded"
	Failed    State = "Failed"
	Canceled  State = "Canceled"
)

// Operation is one long-running operation. The caller of Enqueue fills the first group; the engine
// the second.
type Operation struct {
	ID           string          `json:"id"`
	Kind         string          `json:"kind"`
	Lane         string          `json:"lane"`         // operations of one lane never overlap
	Target       string          `json:"target"`       // resource ID
	Subscription string          `json:"subscription"` //
	Location     string          `json:"location"`
	Route        string          `json:"route"` // path segment of its status URL: operations or DiskOperations
	Payload      json.RawMessage `json:"payload,omitempty"`
	Duration     time.Duration   `json:"duration"`

	Seq      uint64          `json:"seq"`
	State    State           `json:"state"`
	Accepted time.Time       `json:"accepted"`
	Due      time.Time       `json:"due"` // zero while Queued
	Ended    time.Time       `json:"ended"`
	Error    *armerror.Error `json:"error,omitempty"`
}

// Done reports whether the state is final.
func (o *Operation) Done() bool { return o.State != Queued && o.State != Running }

// ErrNotYet is what Apply returns while the operation waits for something else.
var ErrNotYet = errors.New("not yet")

// Executor knows what the kinds of operations mean.
type Executor interface {
	// Apply makes the operation's effects outside the store. It is repeated, possibly by another
	// process, until it succeeds. ErrNotYet says that something else has to end first; the
	// operation then waits for as long as that takes.
	Apply(ctx context.Context, op *Operation) error
	// Complete changes the model to what the operation was for. An *armerror.Error makes the
	// operation fail instead.
	Complete(tx *store.Tx, op *Operation) error
	// Undo undoes what Apply may have begun, before the operation fails. It is repeated until it
	// succeeds: an effect of an operation that is said to have failed must not stay.
	Undo(ctx context.Context, op *Operation) error
	// Fail changes the model after the operation failed with cause.
	Fail(tx *store.Tx, op *Operation, cause *armerror.Error) error
}
