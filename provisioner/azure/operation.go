package azure

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/batch"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/client"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

// resourceOperation is an operation on a disk or snapshot.
type resourceOperation struct {
	cloud *Cloud
	text  string
	id    string
	*operation.Operation
	made *atomic.Pointer[batch.Disk] // that a read found before the operation could be polled; nil for none
}

// begun makes the operation of a call that has been answered.
func (c *Cloud) begun(k operation.Kind, id string, p client.SDKPoller, err error) (provisioner.Operation, error) {
	if err != nil {
		return nil, c.api.Translate(err, "%s %s", k, id)
	}
	what := operation.Following{
		Kind:     k,
		Usual:    operation.Usual(k, 1),
		Resource: id,
	}
	made := &atomic.Pointer[batch.Disk]{}
	if k == operation.CreateDisk {
		what.Look = c.lookAtDisk(id, made)
	}
	op := c.api.Follow(what, p)
	if op.Token() == "" {
		if err := op.Err(); err != nil {
			return nil, err
		}
		return operation.Ended{}, nil
	}
	return resourceOperation{
		cloud:     c,
		Operation: op,
		id:        id,
		made:      made,
		text: operation.Token{
			Kind: k,
			ID:   id,
			SDK:  op.Token(),
		}.Text(),
	}, nil
}

// lookAtDisk finds out whether a disk has been created. Azure asks to wait for two seconds before
// the first poll of an operation that takes a third of a second.
func (c *Cloud) lookAtDisk(id string, made *atomic.Pointer[batch.Disk]) *operation.Look {
	return &operation.Look{
		Every: 400 * time.Millisecond,
		Proved: func(ctx context.Context) bool {
			seen, err := c.readDisk(provisioner.Deferrable(ctx), id)
			if err != nil || seen.State != operation.StateSucceeded {
				return false
			}
			made.Store(&seen)
			return true
		},
	}
}

// Token implements provisioner.Operation.
func (o resourceOperation) Token() string { return o.text }

// Wait implements provisioner.Operation. If Azure does not know any more how an old operation
// ended, the state of the resource shows it.
func (o resourceOperation) Wait(ctx context.Context) error {
	err := o.Operation.Wait(ctx)
	if operation.CodeOf(err) == operation.CodeForgotten {
		return o.cloud.observe(o.Kind, o.id).Wait(ctx)
	}
	return err
}

// Disk implements provisioner.DiskOperation.
func (o resourceOperation) Disk() (provisioner.Disk, bool) {
	if o.made != nil {
		if seen := o.made.Load(); seen != nil {
			return seen.Disk, true
		}
	}
	var made armcompute.Disk
	if o.Kind != operation.CreateDisk || o.Output() == nil || json.Unmarshal(o.Output(), &made) != nil ||
		operation.Key(client.Value(made.ID)) != operation.Key(o.id) {
		return provisioner.Disk{}, false
	}
	view := viewOfDisk(&made)
	return view.Disk, view.State == operation.StateSucceeded
}

// observation is an operation of another process that shows in the resource's provisioning state.
type observation struct {
	cloud *Cloud
	kind  operation.Kind
	id    string
}

func (c *Cloud) observe(k operation.Kind, id string) provisioner.Operation {
	return observation{
		cloud: c,
		kind:  k,
		id:    id,
	}
}

// Token implements provisioner.Operation.
func (o observation) Token() string { return operation.Token{Kind: o.kind, ID: o.id}.Text() }

// Wait implements provisioner.Operation.
func (o observation) Wait(ctx context.Context) error {
	began := o.cloud.api.Clock.Now()
	for {
		state, err := o.state(ctx)
		deletes := o.kind == operation.DeleteDisk || o.kind == operation.DeleteSnapshot
		switch {
		case deletes && errors.Is(err, provisioner.NotFound):
			return nil
		case err != nil:
			return err
		case state == operation.StateFailed || deletes && state == operation.StateSucceeded:
			return provisioner.Errorf(provisioner.Unavailable, "%s of %s: the state of the resource is %s", o.kind, o.id, state)
		case state == operation.StateSucceeded:
			return nil
		}
		if err := o.cloud.api.Clock.Pause(ctx,
			operation.Usual(o.kind, 1).NextPoll(o.cloud.api.Clock.Since(began), false)); err != nil {
			return err
		}
	}
}

func (o observation) state(ctx context.Context) (string, error) {
	if o.kind == operation.CreateSnapshot || o.kind == operation.DeleteSnapshot {
		seen, err := o.cloud.readSnapshot(ctx, o.id)
		return seen.state, err
	}
	seen, err := o.cloud.readDisk(ctx, o.id)
	return seen.State, err
}
