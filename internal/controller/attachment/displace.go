package attachment

import (
	"context"
	"fmt"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attachment"
)

// displace attaches the disks again that were detached outside the driver and whose LUN the disk of
// a has by now, before a is recorded as attached: a node that stages one of their volumes must not
// take a's disk for it. A volume that the node has staged keeps its record, because another
// attachment beneath the pod repairs nothing.
func (r *Reconciler) displace(ctx context.Context, a *apiv1.AzVolumeAttachment, status apiv1.AzVolumeAttachmentStatus) error {
	if status.State != apiv1.AttachmentAttached || a.Status.State == apiv1.AttachmentAttached || status.LUN == nil {
		return nil
	}
	here, err := cluster.AttachmentsOfNode(ctx, r.Client, a.Namespace, a.Spec.NodeName)
	if err != nil {
		return err
	}
	for _, other := range attachment.Displaced(here, a.Name, status.VMID, *status.LUN) {
		report, err := cluster.Find[apiv1.AzDriverNode](ctx, r.Reader,
			client.ObjectKey{Namespace: a.Namespace, Name: a.Spec.NodeName})
		if err != nil {
			return err
		}
		if report != nil && !strings.EqualFold(report.Spec.VMID, status.VMID) {
			report = nil // it does not speak for this VM
		}
		log := ctrl.LoggerFrom(ctx).WithValues("volume", other.Spec.VolumeName, "node", a.Spec.NodeName, "reason",
			attachment.ReasonDetachedOutside)
		if why := attachment.MayReattach(report, other.Spec.VolumeName); why != "" {
			log.Info("another disk has the LUN at which the disk is recorded, and it remains so", "message", why)
			continue
		}
		changed := other.DeepCopy()
		changed.Status = attachment.StatusToAttachAgain(other, nil, r.Clock.Now())
		if err := r.Client.Status().Patch(ctx, changed,
			client.MergeFromWithOptions(other, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reset the status of an attachment: %w", err)
		}
		log.Info("another disk has the LUN at which the disk is recorded; attaching it again")
	}
	return nil
}
