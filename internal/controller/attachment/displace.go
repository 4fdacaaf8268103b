package attachment

import (
	"context"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/reattach"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
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
	for _, other := range attaching.Displaced(here, a.Name, status.VMID, *status.LUN) {
		if err := reattach.Reset(ctx, r.Client, r.Reader, other, status.VMID, nil, r.Clock.Now()); err != nil {
			return err
		}
	}
	return nil
}
