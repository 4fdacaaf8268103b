package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/inuse"
	"github.com/azuredisk-csi/azuredisk/internal/crashpoint"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// taint adds the taints that a step wants to the Node, and removes the taints that it no longer
// wants.
func (r *Reconciler) taint(ctx context.Context, o observed, step lostnode.Step) error {
	if step.Quarantine == lostnode.TaintAsIs && step.Unresponsive == lostnode.TaintAsIs &&
		step.OutOfService == lostnode.TaintAsIs {
		return nil
	}
	node := &corev1.Node{}
	if err := r.Reader.Get(ctx, client.ObjectKey{Name: o.NodeName}, node); err != nil {
		return fmt.Errorf("read Node: %w", err)
	}
	if node.UID != o.Node.UID {
		// The step is about the Node that had this name before. The out-of-service taint would end
		// all pods of its successor.
		return apierrors.NewConflict(corev1.Resource("nodes"), o.NodeName,
			fmt.Errorf("the Node was replaced while its failover was decided"))
	}
	var notRecorded error
	if step.OutOfService == lostnode.TaintAdd {
		// Written down first, for people: the taint itself says whose it is.
		notRecorded = r.recordInService(ctx, o, metav1.ConditionFalse, apiv1.ReasonVMDown, o.Health.Evidence)
		if _, other := refusals(notRecorded); other != nil {
			return notRecorded
		}
		crashpoint.At("failover-after-out-of-service-record")
	}
	before := node.DeepCopy()
	change(node, step.Quarantine, corev1.Taint{Key: apiv1.TaintNodeLost, Effect: corev1.TaintEffectNoSchedule})
	change(node, step.Unresponsive, corev1.Taint{Key: apiv1.TaintNodeUnresponsive, Effect: corev1.TaintEffectNoSchedule})
	since := metav1.NewTime(r.Clock.Now())
	change(node, step.OutOfService, corev1.Taint{
		Key:       corev1.TaintNodeOutOfService,
		Value:     lostnode.OutOfServiceValue,
		Effect:    corev1.TaintEffectNoExecute,
		TimeAdded: &since,
	})
	if !equality.Semantic.DeepEqual(before.Spec.Taints, node.Spec.Taints) {
		if err := kube.Patch(ctx, r.Client, node, before); err != nil {
			return errors.Join(notRecorded, fmt.Errorf("write taints of Node: %w", err))
		}
		crashpoint.At("failover-after-taint")
		r.journal.tainted(ctx, o, step)
	}
	if step.OutOfService == lostnode.TaintRemove {
		return r.recordInService(ctx, o, metav1.ConditionTrue, apiv1.ReasonNodeBack, "")
	}
	return notRecorded
}

// change adds or removes one taint.
func change(node *corev1.Node, what lostnode.TaintChange, taint corev1.Taint) {
	same := func(t corev1.Taint) bool { return t.Key == taint.Key && t.Effect == taint.Effect }
	switch what {
	case lostnode.TaintAdd:
		if !slices.ContainsFunc(node.Spec.Taints, same) {
			node.Spec.Taints = append(node.Spec.Taints, taint)
		}
	case lostnode.TaintRemove:
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, same)
	case lostnode.TaintAsIs:
	}
}

func (r *Reconciler) recordInService(ctx context.Context, o observed, status metav1.ConditionStatus,
	reason, message string) error {
	changed := o.DriverNode.DeepCopy()
	if !meta.SetStatusCondition(&changed.Status.Conditions, metav1.Condition{
		Type:               apiv1.NodeConditionInService,
		Status:             status,
		Reason:             reason,
		Message:            operation.Shorten(message),
		LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	}) {
		return nil
	}
	if err := kube.PatchStatus(ctx, r.Client, changed, o.DriverNode); err != nil {
		return fmt.Errorf("record the out-of-service taint: %w", err)
	}
	return nil
}

// prune removes volumes from the Node's status.volumesInUse, after which Kubernetes unpublishes
// them.
func (r *Reconciler) prune(ctx context.Context, o observed, volumes []lostnode.Volume) error {
	if len(volumes) == 0 {
		return nil
	}
	disks := make([]volumehandle.Handle, 0, len(volumes))
	for _, v := range volumes {
		disks = append(disks, volumehandle.Of(v.Volume.Spec.Disk))
	}
	crashpoint.At("failover-before-prune")
	pruned, err := inuse.Pruner{Client: r.Client, Reader: r.Reader, DriverName: r.DriverName}.Prune(ctx, o.NodeName, disks)
	if err != nil {
		return err
	}
	crashpoint.At("failover-after-prune")
	for i, v := range volumes {
		if len(cluster.InUseNames(pruned, r.DriverName, disks[i])) > 0 {
			r.journal.pruned(ctx, o, v)
		}
	}
	return nil
}
