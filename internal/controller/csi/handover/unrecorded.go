package handover

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// The V1 driver attaches a volume without custom resources, so that only Azure has a record of it.
// An unpublish by this driver has to detach it.

// unrecorded reports whether another driver may have published the volume to the node. Then the
// volume has no AzVolume; or the AzVolume was adopted, another node does not own it, and Azure was
// not asked about an attachment to the node. The last also holds after an interrupted
// recordPublished.
func (s *Publisher) unrecorded(ctx context.Context, v *apiv1.AzVolume, node string) (bool, error) {
	if v == nil {
		return true, nil
	}
	if v.Spec.Origin != apiv1.OriginAdopted || v.Leaving() {
		return false, nil
	}
	if o := v.Status.Primary; o != nil && (o.State != apiv1.OwnershipHeld || o.NodeName != node) {
		return false, nil
	}
	a, err := s.Attachment(ctx, s.Reader, v.Name, node)
	return err == nil && (a == nil || a.DeletionTimestamp == nil && a.Status.VMID == ""), err
}

// recordPublished writes the records of a volume that another driver published to the node, as a
// publish would, so that it can be unpublished like a volume of this driver. It returns nil if the
// disk is not attached to the node's VM.
func (s *Publisher) recordPublished(ctx context.Context, handle volumehandle.Handle, node string) (*apiv1.AzVolume, error) {
	d, err := s.attachedByOthers(ctx, handle, node)
	if d == nil {
		return nil, err
	}
	v, err := s.AdoptUnused(ctx, handle, call.Access{Pattern: apiv1.AccessSingleNode})
	if err != nil {
		return nil, err
	}
	epoch := int64(ownership.MultiNodeEpoch)
	if v.Spec.Access == apiv1.AccessSingleNode {
		// The node uses the volume already, and this call ends that: it does not matter which other
		// VMs have the disk.
		o, err := s.acquireFrom(ctx, v, node, nil)
		if err != nil {
			return nil, err
		}
		epoch = o.Epoch
	}
	a, _, err := s.promote(ctx, v, *d, apiv1.AzVolumeAttachmentSpec{
		VolumeName: v.Name,
		NodeName:   d.Name,
		Role:       apiv1.RolePrimary,
		Epoch:      epoch,
	})
	if err != nil {
		return nil, err
	}
	// The reconciler removes an attachment about which it never asked Azure without a detach.
	if err := s.awaitAccepted(ctx, a); err != nil {
		return nil, err
	}
	return s.Volume(ctx, handle)
}

// unpublishUnrecorded removes the primary attachment of a volume whose AzVolume was lost and whose
// disk is not attached to the node, and waits until it is gone: the attachment reconciler proves
// that the node has released the volume.
func (s *Publisher) unpublishUnrecorded(ctx context.Context, handle volumehandle.Handle, node string) error {
	a, err := s.Attachment(ctx, s.Reader, handle.VolumeName(), node)
	if a == nil || a.Spec.Role != apiv1.RolePrimary {
		return err
	}
	if a.DeletionTimestamp == nil {
		if err := s.remove(ctx, a); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	return s.awaitAttachmentGone(ctx, a)
}

// attachedByOthers returns the node's identity if Azure says that the disk is attached to its VM,
// and nil if Azure says that it is not. The error is Aborted if the node's VM is not known and may
// be a VM that Azure names.
func (s *Publisher) attachedByOthers(ctx context.Context, handle volumehandle.Handle, node string) (*identity.Identity, error) {
	disk, err := s.Disk(ctx, handle)
	if err != nil || len(disk.AttachedTo) == 0 {
		return nil, err
	}
	d, err := s.report(ctx, node)
	if err != nil {
		return nil, err
	}
	this, err := s.identity(ctx, node, d)
	if err != nil {
		return nil, err
	}
	if this.VMID == "" {
		// This driver has written the VM when it attached the disk.
		a, err := s.Attachment(ctx, s.Reader, handle.VolumeName(), node)
		if err != nil {
			return nil, err
		}
		if a != nil && !ownership.Copied(a) {
			this.Name, this.VMID = node, a.Status.VMID // the Node and its record may be gone
		}
	}
	for _, vm := range disk.AttachedTo {
		if strings.EqualFold(vm, this.VMID) {
			return &this, nil
		}
		if this.VMID != "" || !s.nodeExists(ctx, node) {
			continue
		}
		another, err := s.established(ctx, vm)
		if err != nil {
			return nil, err
		}
		if !another {
			return nil, grpcstatus.Errorf(codes.Aborted,
				"unpublish volume %s from node %s: its disk is attached to %s, which may be the node's VM: start the node plug-in there, so that the VM of the node is known (%s)",
				handle.VolumeName(), node, vm, this.Message)
		}
	}
	return nil, nil
}

// established reports whether a node is known to be a VM.
func (s *Publisher) established(ctx context.Context, vm string) (bool, error) {
	nodes, err := cluster.NodesOfVM(ctx, s.Client, s.Namespace, vm)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(nodes, func(n identity.Node) bool {
		return strings.EqualFold(identity.Identify(n, nodes).VMID,
			vm)
	}), nil
}

// nodeExists reports whether Kubernetes has the node, or may have it.
func (s *Publisher) nodeExists(ctx context.Context, node string) bool {
	return !apierrors.IsNotFound(s.Reader.Get(ctx, client.ObjectKey{Name: node}, &corev1.Node{}))
}
