package attachdetach

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/publishing"
)

// reject fails the pods that were placed on a node without a free slot, as the kubelet does where
// there are VolumeAttachments.
func (r *Reconciler) reject(ctx context.Context, o observed, node, message string) error {
	if o.Volume == nil {
		return nil
	}
	slots, err := r.slots(ctx, o, node)
	if err != nil {
		return err
	}
	for _, p := range o.Rejected(node, slots) {
		if err := r.fail(ctx, p, node, message); err != nil {
			return err
		}
	}
	return nil
}

// slots reads how many disks the scheduler places on a node, and how many others are there.
func (r *Reconciler) slots(ctx context.Context, o observed, node string) (publishing.Slots, error) {
	slots := publishing.Slots{}
	n, err := kube.Find[storagev1.CSINode](ctx, r.Client, client.ObjectKey{Name: node})
	if err != nil {
		return slots, err
	}
	if n != nil {
		for _, d := range n.Spec.Drivers {
			if d.Name == r.DriverName && d.Allocatable != nil {
				slots.Allocatable = d.Allocatable.Count
			}
		}
	}
	here, err := cluster.Attachments(ctx, r.Client, o.Volume.Namespace, cluster.AttachmentNode, node)
	own := apiv1.AttachmentName(o.name, node)
	slots.Occupied, slots.Shared = attaching.Occupied(here, own), attaching.Occupied(o.Attachments, own)
	return slots, err
}

// fail writes that a pod has failed, if it is still as the cache says. The kubelet then ends what
// there is of it.
func (r *Reconciler) fail(ctx context.Context, cached *corev1.Pod, node, message string) error {
	p := &corev1.Pod{}
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(cached), p); err != nil {
		return client.IgnoreNotFound(err)
	}
	if p.UID != cached.UID || !publishing.MayReject(p, node) {
		return nil
	}
	before := p.DeepCopy()
	p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, apiv1.ReasonVolumeAttachmentLimitExceeded, message
	err := kube.PatchStatus(ctx, r.Client, p, before)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the change is an event
	}
	if err != nil {
		return fmt.Errorf("fail pod %s, whose volume has no slot on node %s: %w", client.ObjectKeyFromObject(p), node, err)
	}
	ctrl.LoggerFrom(ctx).Info("the pod was failed, because its node has no free slot", "pod",
		client.ObjectKeyFromObject(p).String(), "node", node)
	r.event(p, corev1.EventTypeWarning, apiv1.ReasonVolumeAttachmentLimitExceeded, message)
	return nil
}
