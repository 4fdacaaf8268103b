package attachment

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/work"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// fence makes the job that fences the node, and records for which epoch it counts.
func (r *Reconciler) fence(in attaching.Input, diskID, vmID, token string) work.Func {
	fence := r.fenceBy(in, diskID, vmID, token)
	return func(ctx context.Context, accepted func(provisioner.Operation)) (operation.Truth, error) {
		truth, err := fence(ctx, accepted)
		truth.Epoch = in.Attachment.Spec.Epoch
		return truth, err
	}
}

// fenceBy goes by the disk where it is not certain which VM is to be fenced. If another attachment
// names the VM, the disk would otherwise be detached from the VM of that one.
func (r *Reconciler) fenceBy(in attaching.Input, diskID, vmID, token string) work.Func {
	a := in.Attachment
	if in.Volume == nil || a.Status.VMID != "" && in.SharedWith == "" {
		return r.disks.fence(a.Spec.VolumeName, diskID, vmID, token)
	}
	return r.disks.fenceByDisk(diskID, token, func(ctx context.Context, attachedTo []string) ([]string, error) {
		return r.suspects(ctx, in.Volume, a, attachedTo)
	})
}

// suspects returns the VMs from which a disk has to be cut off so that an attachment's node cannot
// write any more; see attaching.VMsToDetach. Where the providerID of the Node names a VM, that is
// the node's, also if its AzDriverNode is gone or contradicts it.
func (r *Reconciler) suspects(
	ctx context.Context, volume *apiv1.AzVolume, a *apiv1.AzVolumeAttachment, attachedTo []string,
) ([]string, error) {
	attachments, err := cluster.Attachments(ctx, r.Reader, a.Namespace, cluster.AttachmentVolume, a.Spec.VolumeName)
	if err != nil {
		return nil, err
	}
	nodes, err := cluster.Identities(ctx, r.Reader, a.Namespace)
	if err != nil {
		return nil, err
	}
	node := &corev1.Node{}
	if err := r.Reader.Get(ctx, client.ObjectKey{Name: a.Spec.NodeName}, node); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read Node %s: %w", a.Spec.NodeName, err)
	}
	if vm := identity.ProviderVM(node); vm != "" {
		nodes[a.Spec.NodeName] = identity.Identity{Name: a.Spec.NodeName, VMID: vm}
	}
	cut, contested, unknown := attaching.VMsToDetach(attachedTo, a.Spec.NodeName, attachments, nodes)
	if contested != "" {
		return nil, provisioner.Errorf(provisioner.Conflict,
			"fence node %s: it is not certain to which of its VMs the disk was attached, and Azure says that it is attached to that of node %s (%s); "+
				"there is no proof while it is; if no pod that runs on that node uses the volume, detach the disk there at Azure",
			a.Spec.NodeName, contested, nodes[contested].VMID)
	}
	if len(unknown) > 0 {
		return nil, provisioner.Errorf(provisioner.FailedPrecondition,
			"fence node %s: it is not recorded to which VM the disk was attached, and there is no proof while another VM may be the node's: %s",
			a.Spec.NodeName, ownership.OtherClusterUse(unknown[0], volume.Spec.Disk.Name))
	}
	return cut, nil
}

// diskID returns the ID of the disk of an attachment's volume. Where the AzVolume is lost, a
// PersistentVolume names the disk; "" if none does. Without the ID, a disk that Azure is attaching
// cannot be detached: Azure does not list it yet.
func (r *Reconciler) diskID(ctx context.Context, in attaching.Input) (string, error) {
	if in.Volume != nil {
		return cmp.Or(in.Volume.Status.DiskID, volumehandle.Of(in.Volume.Spec.Disk).String()), nil
	}
	handle, ok, err := cluster.Disk(ctx, r.Client, in.Attachment.Spec.VolumeName)
	if err != nil || !ok {
		return "", err
	}
	return handle.String(), nil
}
