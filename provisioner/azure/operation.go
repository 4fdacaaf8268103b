package azure

import (
	"context"
	"errors"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// resourceOperation is an operation on a disk or snapshot.
type resourceOperation struct {
	cloud *Cloud
	text  string
	id    string
	lro   *lro
}

// begun makes the Operation of a call that has been answered.
func (c *Cloud) begun(k kind, id string, p poller, err error) (provisioner.Operation, error) {
	if err != nil {
		return nil, translate(err, c.clock.Now(), "%s %s", k, id)
	}
	l := c.follow(k, id, p, false)
	if l.token == "" {
		if l.err != nil {
			return nil, l.err
		}
		return ended{}, nil
	}
	return resourceOperation{cloud: c, lro: l, id: id, text: token{Kind: k, ID: id, SDK: l.token}.text()}, nil
}

// Token implements provisioner.Operation.
func (o resourceOperation) Token() string { return o.text }

// Wait implements provisioner.Operation. Where Azure has forgotten how an old operation ended, the resource tells.
func (o resourceOperation) Wait(ctx context.Context) error {
	err := o.lro.wait(ctx)
	if codeOf(err) == codeForgotten {
		return o.cloud.observe(o.lro.kind, o.id).Wait(ctx)
	}
	return err
}

// observation is an operation that somebody else began and that shows in the resource's provisioning state.
type observation struct {
	cloud *Cloud
	kind  kind
	id    string
}

func (c *Cloud) observe(k kind, id string) provisioner.Operation {
	return observation{cloud: c, kind: k, id: id}
}

// Token implements provisioner.Operation.
func (o observation) Token() string { return token{Kind: o.kind, ID: o.id}.text() }

// Wait implements provisioner.Operation.
func (o observation) Wait(ctx context.Context) error {
	began := o.cloud.clock.Now()
	for {
		state, err := o.state(ctx)
		deletes := o.kind == kindDeleteDisk || o.kind == kindDeleteSnapshot
		switch {
		case deletes && errors.Is(err, provisioner.NotFound):
			return nil
		case err != nil:
			return err
		case state == stateFailed || deletes && state == stateSucceeded:
			return provisioner.Errorf(provisioner.Unavailable, "%s of %s: the resource's state is %s", o.kind, o.id, state)
		case state == stateSucceeded:
			return nil
		}
		if err := o.cloud.sleep(ctx, nextPoll(o.cloud.habits.of(o.kind), o.cloud.clock.Since(began), false)); err != nil {
			return err
		}
	}
}

func (o observation) state(ctx context.Context) (string, error) {
	if o.kind == kindCreateSnapshot || o.kind == kindDeleteSnapshot {
		seen, err := o.cloud.readSnapshot(ctx, o.id)
		return seen.state, err
	}
	seen, err := o.cloud.readDisk(ctx, o.id)
	return seen.state, err
}
