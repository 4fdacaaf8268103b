package compute

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/dataplane"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// Options of a cloud. All but Intercept and Notify are required.
type Options struct {
	Store *store.Store // opened with Tables and operations.Tables
	Clock clock.WithTicker
	Log   *slog.Logger
	Plane dataplane.DataPlane
	// LosesReservations reports whether a VM loses its reservation and registration at a disk when
	// the disk is detached from it and when it is deallocated; nil for never.
	LosesReservations func(diskUID string) bool
	Latency           *latency.Sampler
	Subscriptions     []string
	// GoalState makes VMs list what they are to have; see ListGoalState.
	GoalState bool
	// AttachDetachOff makes Azure refuse attachDetachDataDisks: "subscription" or "region", for which
	// it is not enabled; "" if it is enabled.
	AttachDetachOff string
	// Intercept may delay operations or make them fail; see operations.Options.
	Intercept func(op *operations.Operation) (time.Duration, *armerror.Error)
	// Notify is called with power and network changes of VMs, after they are committed. It must not
	// block.
	Notify func(Event)
}

// Event is a change of a VM that concerns the program that simulates its machine.
type Event struct {
	Time  time.Time `json:"time"`
	VM    string    `json:"vm"`   // data-plane key
	ID    string    `json:"id"`   // resource ID
	Kind  string    `json:"kind"` // power, network or deleted
	State string    `json:"state"`
}

// Cloud is the model over its store. All methods may be called concurrently.
type Cloud struct {
	Options
	engine     *operations.Engine
	planeLocks sync.Map // VM key -> *sync.Mutex
	goalState  atomic.Bool
}

// ListGoalState chooses what VMs list of the disks whose detach is accepted from now on. With the
// goal state, the VM does not list the disk any more, also after the detach has failed. Otherwise
// the VM lists it with toBeDetached until the detach has succeeded. In both cases the disk stays at
// the host, and names the VM in managedBy or managedByExtended, until then. With the goal state, a
// disk whose attach fails stays listed and names the VM, and the host does not have it: the next
// update of the VM's disks attaches it, unless that update detaches it.
func (c *Cloud) ListGoalState(on bool) { c.goalState.Store(on) }

// ListsGoalState reports whether VMs list what they are to have.
func (c *Cloud) ListsGoalState() bool { return c.goalState.Load() }

// New returns a cloud. Run advances its operations.
func New(o Options) *Cloud {
	c := &Cloud{Options: o}
	c.ListGoalState(o.GoalState)
	c.engine = operations.New(operations.Options{
		Store:     o.Store,
		Clock:     o.Clock,
		Log:       o.Log,
		Executor:  c,
		Intercept: o.Intercept,
	})
	return c
}

// Run brings the data plane to what the store says and then runs operations until ctx ends. ready
// is called when the first part is done.
func (c *Cloud) Run(ctx context.Context, ready func()) error {
	if err := c.ReconcilePlane(ctx); err != nil {
		return fmt.Errorf("reconcile data plane: %w", err)
	}
	ready()
	return c.engine.Run(ctx)
}

// view runs fn in a read transaction and returns what it returns.
func view[T any](c *Cloud, fn func(tx *store.Tx) (T, error)) (T, error) {
	var out T
	err := c.Store.View(func(tx *store.Tx) (err error) {
		out, err = fn(tx)
		return err
	})
	return out, err
}

// change runs fn in a write transaction and returns what it returns.
func change[T any](c *Cloud, fn func(tx *store.Tx) (T, error)) (T, error) {
	var out T
	err := c.Store.Update(func(tx *store.Tx) (err error) {
		out, err = fn(tx)
		return err
	})
	return out, err
}

// Operation returns a long-running operation, or nil.
func (c *Cloud) Operation(id string) (*operations.Operation, error) {
	return view(c, func(tx *store.Tx) (*operations.Operation, error) { return c.engine.Get(tx, id) })
}

// job describes an operation to enqueue.
type job struct {
	kind     string
	lane     string
	target   ID
	location string
	duration time.Duration
	payload  any
}

func (c *Cloud) enqueue(tx *store.Tx, j job) (*operations.Operation, error) {
	return c.enqueueAs(tx, uuid.NewString(), j)
}

func (c *Cloud) enqueueAs(tx *store.Tx, id string, j job) (*operations.Operation, error) {
	raw, err := json.Marshal(j.payload)
	if err != nil {
		return nil, fmt.Errorf("encode payload of %s: %w", j.kind, err)
	}
	route := "operations"
	switch j.target.Kind {
	case KindDisk, KindSnapshot, KindEncryptionSet, KindDiskAccess:
		route = "DiskOperations"
	}
	op := &operations.Operation{
		ID:           id,
		Kind:         j.kind,
		Lane:         j.lane,
		Target:       j.target.String(),
		Subscription: j.target.Subscription,
		Location:     j.location,
		Route:        route,
		Payload:      raw,
		Duration:     j.duration,
	}
	return op, c.engine.Enqueue(tx, op)
}

// laneFree refuses when an operation of the lane is not done.
func (c *Cloud) laneFree(tx *store.Tx, lane string) error {
	ops, err := c.engine.Lane(tx, lane)
	if err != nil {
		return err
	}
	if len(ops) > 0 {
		return armerror.Conflict()
	}
	return nil
}

// CheckSubscription refuses subscriptions that the simulator was not started with.
func (c *Cloud) CheckSubscription(subscription string) error {
	if uuid.Validate(subscription) != nil {
		return armerror.BadRequest("InvalidSubscriptionId", "The provided subscription identifier '%s' is malformed or invalid.",
			subscription)
	}
	known := slices.ContainsFunc(c.Subscriptions, func(s string) bool { return strings.EqualFold(s, subscription) })
	if !known {
		return armerror.New(404, "SubscriptionNotFound", "The subscription '%s' could not be found.", subscription)
	}
	return nil
}

// get reads a resource, which must be there.
func get[T any](tx *store.Tx, table store.Table[T], id ID) (*T, error) {
	found, err := table.Get(tx, id.Key())
	if err == nil && found == nil {
		return nil, resourceNotFound(id)
	}
	return found, err
}

func resourceNotFound(id ID) *armerror.Error {
	return armerror.New(404, "ResourceNotFound",
		"The Resource 'Microsoft.Compute/%s/%s' under resource group '%s' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix", id.Kind, id.Name, id.Group)
}

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}
