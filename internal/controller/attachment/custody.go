package attachment

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/work"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// withCustody adds the question who has the disk to the job that attaches it; see
// ownership.AskAfterAttach. It is asked when the disk is attached here, and not from what the objects
// say: a person may have detached the disk from every VM of this cluster, and started it in another
// one. If the other cluster is likely to use the disk, it is also asked before the attach, so that
// the disk stays off this VM. A disk that must not be used here is detached again by the next steps of
// the attachment; see attaching.AttachUnproved.
func (r *Reconciler) withCustody(in attaching.Input, vmID string, attach work.Func) work.Func {
	if !ownership.AskAfterAttach(in.Volume) {
		return attach
	}
	return func(ctx context.Context, accepted func(provisioner.Operation)) (operation.Truth, error) {
		if attaching.AskBeforeAttach(in.Volume, in.Attachment) {
			other, here, err := r.whoHas(ctx, in, vmID)
			if err != nil {
				return operation.Truth{}, err
			}
			if other != "" && !here {
				return operation.Truth{OtherClusterVM: other}, r.refuse(ctx, in, other)
			}
		}
		truth, err := attach(ctx, accepted)
		if err != nil || !truth.Attached {
			return truth, err
		}
		other, _, err := r.whoHas(ctx, in, vmID)
		switch {
		case err != nil:
			truth.Unasked = true
			return truth, err
		case other != "":
			truth.OtherClusterVM = other
			return truth, r.refuse(ctx, in, other)
		}
		truth.Exclusive = true
		return truth, nil
	}
}

// whoHas asks Azure for a VM outside of this cluster that has the disk, and whether vmID has it.
func (r *Reconciler) whoHas(ctx context.Context, in attaching.Input, vmID string) (other string, here bool, err error) {
	v := in.Volume
	if in.Attachment.Spec.Role == apiv1.RoleReplica {
		ctx = provisioner.Deferrable(ctx)
	}
	disk, err := r.Cloud.Disks().Get(ctx, v.Status.DiskID)
	if err != nil {
		return "", false, fmt.Errorf("attach disk: ask which VMs have it: %w", err)
	}
	attachments, err := cluster.Attachments(ctx, r.Reader, v.Namespace, cluster.AttachmentVolume, v.Name)
	if err != nil {
		return "", false, err
	}
	here = slices.ContainsFunc(disk.AttachedTo, func(vm string) bool { return strings.EqualFold(vm, vmID) })
	other, err = cluster.OtherClusterVM(ctx, r.Client, v.Namespace, disk.AttachedTo, attachments)
	return other, here, err
}

// refuse returns the error of an attach to a disk that a VM outside of this cluster has. It removes
// the confirmation that this cluster uses the disk, so that the next publish asks first. A replica is
// refused alone: its primary may be using the disk.
func (r *Reconciler) refuse(ctx context.Context, in attaching.Input, other string) error {
	if in.Attachment.Spec.Role == apiv1.RolePrimary {
		if err := cluster.UnconfirmCustody(ctx, r.Client, client.ObjectKeyFromObject(in.Volume)); err != nil {
			return err
		}
	}
	return provisioner.Errorf(provisioner.FailedPrecondition, "attach disk: %s",
		ownership.OtherClusterUse(other, in.Volume.Spec.Disk.Name))
}
