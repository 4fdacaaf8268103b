// Package reattach attaches disks again that are not where the driver has recorded them.
package reattach

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Reset makes an attachment one whose disk is attached like a new one, unless the node has staged
// the volume. vmID is the VM whose disks Azure listed, and seen the disk as it was listed there at
// now; nil if it was not. The write succeeds only if nothing has changed since a was read. The
// attachment's own reconciler continues from there.
func Reset(
	ctx context.Context, writer client.Client, reader client.Reader, a *apiv1.AzVolumeAttachment, vmID string,
	seen *provisioner.Attachment, now time.Time,
) error {
	report, err := cluster.ReportOfVM(ctx, reader, client.ObjectKey{Namespace: a.Namespace, Name: a.Spec.NodeName}, vmID)
	if err != nil {
		return err
	}
	log := ctrl.LoggerFrom(ctx).WithValues("volume", a.Spec.VolumeName, "node", a.Spec.NodeName, "reason",
		attaching.ReasonDetachedOutside)
	if why := attaching.MayReattach(report, a.Spec.VolumeName); why != "" {
		log.Info("Azure does not have the disk where it is recorded, and it remains so", "message", why)
		return nil
	}
	changed := a.DeepCopy()
	changed.Status = attaching.StatusToAttachAgain(a, seen, now)
	if err := writer.Status().Patch(ctx, changed,
		client.MergeFromWithOptions(a, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reset the status of an attachment: %w", err)
	}
	log.Info("Azure does not have the disk where it is recorded; attaching it again")
	return nil
}
