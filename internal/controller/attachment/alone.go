package attachment

import (
	"context"
	"fmt"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/work"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// alone adds a question to the job that attaches a disk, as long as it is not confirmed that this
// cluster uses the disk: Azure is asked again, now that the disk is attached here, whether a VM
// outside of this cluster has it. The publish asked before that, and another cluster may have done
// the same at the same time. Each cluster attaches the disk first and asks then, so at least one of
// the two sees the other, and no node stages a disk that is not Attached.
func (r *Reconciler) alone(in attaching.Input, attach work.Func) work.Func {
	v := in.Volume
	asked := v.Spec.Access == apiv1.AccessMultiNode || v.Status.Primary != nil && v.Status.Primary.Exclusive
	if !asked || ownership.Confirmed(v) {
		return attach
	}
	return func(ctx context.Context, accepted func(provisioner.Operation)) (operation.Truth, error) {
		truth, err := attach(ctx, accepted)
		if err != nil || !truth.Attached {
			return truth, err
		}
		disk, err := r.Cloud.Disks().Get(ctx, v.Status.DiskURI)
		if err != nil {
			return operation.Truth{}, fmt.Errorf("read disk after its attach: %w", err)
		}
		attachments, err := cluster.Attachments(ctx, r.Reader, v.Namespace, cluster.AttachmentVolume, v.Name)
		if err != nil {
			return operation.Truth{}, err
		}
		foreign, err := cluster.ForeignVM(ctx, r.Client, v.Namespace, disk.AttachedTo, attachments)
		if err == nil && foreign != "" {
			err = provisioner.Errorf(provisioner.FailedPrecondition,
				"attach disk: it was attached elsewhere at the same time: %s",
				ownership.ForeignUse(foreign, v.Spec.Disk.Name))
		}
		if err != nil {
			return operation.Truth{}, err
		}
		return truth, nil
	}
}
