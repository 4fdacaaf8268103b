package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/nodeidentity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// A volume that the V1 driver published was attached without a record of this driver's. Only Azure knows of it, until
// it is taken back: then it must not stay attached for good.

// foreign says whether somebody else may have published the volume to the node: it has no AzVolume, or one that was
// adopted, is no other node's, and has no attachment to the node of which Azure was asked. The last is so also where an
// earlier call was taking the volume over and did not come to its end.
func (s *Server) foreign(ctx context.Context, v *apiv1.AzVolume, node string) (bool, error) {
	if v == nil {
		return true, nil
	}
	if v.Spec.Origin != apiv1.OriginAdopted || v.DeletionTimestamp != nil {
		return false, nil
	}
	if c := v.Status.Primary; c != nil && (c.State != apiv1.OwnershipHeld || c.NodeName != node) {
		return false, nil
	}
	a, err := s.attachment(ctx, s.Reader, v.Name, node)
	return err == nil && (a == nil || a.DeletionTimestamp == nil && a.Status.VMID == ""), err
}

// takeOver makes a volume that somebody else published to the node this driver's, as a publish would, so that it can be
// taken back like any other. It returns nil if the disk is not attached to the node's VM.
func (s *Server) takeOver(ctx context.Context, handle volumehandle.Handle, node string) (*apiv1.AzVolume, error) {
	d, err := s.attachedByOthers(ctx, handle, node)
	if err != nil || d == nil {
		return nil, err
	}
	v, err := s.adopt(ctx, handle, nil, access{pattern: apiv1.AccessSingleNode})
	if err != nil {
		return nil, err
	}
	epoch := int64(ownership.MultiNodeEpoch)
	if v.Spec.Access == apiv1.AccessSingleNode {
		claim, err := s.claim(ctx, handle, v, node)
		if err != nil {
			return nil, err
		}
		epoch = claim.Epoch
	}
	a, _, err := s.promote(ctx, v, *d, apiv1.AzVolumeAttachmentSpec{VolumeName: v.Name, NodeName: d.Name, Role: apiv1.RolePrimary, Epoch: epoch})
	if err != nil {
		return nil, err
	}
	// An attachment of which Azure was never asked goes without a detach.
	if err := s.awaitAccepted(ctx, a); err != nil {
		return nil, err
	}
	return s.volume(ctx, handle)
}

// unpublishUnrecorded removes the primary attachment of a volume whose AzVolume was lost and whose disk is not attached to the node, and waits until it is gone:
// the attachment reconciler proves that the node let go.
func (s *Server) unpublishUnrecorded(ctx context.Context, handle volumehandle.Handle, node string) error {
	a, err := s.attachment(ctx, s.Reader, handle.VolumeName(), node)
	if err != nil || a == nil || a.Spec.Role != apiv1.RolePrimary {
		return err
	}
	if a.DeletionTimestamp == nil {
		if err := s.remove(ctx, a); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	return s.awaitAttachmentGone(ctx, a)
}

// attachedByOthers returns the node's identity if Azure says that the disk is attached to its VM, and nil if it says
// that it is not. Aborted: the node's VM is not known, and may be the one that Azure names.
func (s *Server) attachedByOthers(ctx context.Context, handle volumehandle.Handle, node string) (*identity.Identity, error) {
	disk, err := s.Disks.Get(ctx, handle.String())
	if errors.Is(err, provisioner.NotFound) || err == nil && len(disk.AttachedTo) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read disk: %w", err)
	}
	nodes, err := nodeidentity.All(ctx, s.Reader, s.Namespace)
	if err != nil {
		return nil, err
	}
	vms := map[string]string{}
	for name, identity := range nodes {
		if identity.VMID != "" {
			vms[strings.ToLower(identity.VMID)] = name
		}
	}
	this := nodes[node]
	for _, vm := range disk.AttachedTo {
		switch owner := vms[strings.ToLower(vm)]; {
		case owner == node:
			return &this, nil
		case owner == "" && this.VMID == "" && s.nodeExists(ctx, node):
			return nil, grpcstatus.Errorf(codes.Aborted, "the disk is attached to %s, and whether that is node %s is not known until its node plug-in runs and its VM is established (%s)",
				vm, node, this.Message)
		}
	}
	return nil, nil
}

// nodeExists says whether Kubernetes has the node, or may have it.
func (s *Server) nodeExists(ctx context.Context, node string) bool {
	return !apierrors.IsNotFound(s.Reader.Get(ctx, client.ObjectKey{Name: node}, &corev1.Node{}))
}
