package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// nodePowerCutLeader is node-power-cut for the node on which the controller's leader runs too: another
// controller has to take the lead before anything is done about the node.
func nodePowerCutLeader(ctx context.Context, e *Environment) error {
	f, err := e.beginLeaderLoss(ctx, single)
	if err != nil {
		return err
	}
	if err := e.awaitTypicalTime(ctx, &f); err != nil {
		return err
	}
	leads, err := e.leader(ctx)
	if err != nil {
		return err
	}
	e.metric("controller_leader_node", leads.Node)
	e.check("the controller's leader is on the node that is going to be lost", leads.Node == f.From, "the leader is on %s, the pod on %s", leads.Node, f.From)
	return e.cutPower(ctx, f, func(f Failover) error { return e.checkNextLeader(ctx, f, leads) })
}

// beginLeaderLoss makes the workload on the node of the controller's leader and lets it write.
func (e *Environment) beginLeaderLoss(ctx context.Context, w Workload) (Failover, error) {
	leads, err := e.leader(ctx)
	if err != nil {
		return Failover{}, err
	}
	nodes, err := e.controllerNodes(ctx)
	if err != nil {
		return Failover{}, err
	}
	if len(nodes) < 2 {
		return Failover{}, fmt.Errorf("all controllers run on %q: another node needs one that can take the lead", nodes)
	}
	e.Progress("making a pod on %s, where the controller's leader runs, that writes to a disk with a replica", leads.Node)
	volumes, err := e.startOn(ctx, leads.Node, w)
	if err != nil {
		return Failover{}, err
	}
	return e.lossOf(ctx, w, volumes[0])
}

// checkNextLeader checks that another controller leads, and measures how long after the fault it took the lease.
func (e *Environment) checkNextLeader(ctx context.Context, f Failover, before leader) error {
	lease, err := e.kube.CoordinationV1().Leases(driverNamespace).Get(ctx, controllerLease, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the lease of the controller's leader: %w", err)
	}
	if lease.Spec.AcquireTime == nil {
		return errors.New("the lease of the controller's leader does not say when it was taken")
	}
	next, err := e.leader(ctx)
	if err != nil {
		return err
	}
	took := max(lease.Spec.AcquireTime.Sub(f.Fault), time.Duration(0))
	e.metric("next_leader_node", next.Node)
	e.metric("next_leader_seconds", milli(took))
	e.check("another controller leads", next.Pod != before.Pod && next.Node != f.From, "%s on %s took the lease %s after the power cut; before that it was %s on %s",
		next.Pod, next.Node, timeline.Round(took), before.Pod, before.Node)
	return nil
}
