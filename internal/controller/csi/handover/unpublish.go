package handover

import (
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/crashpoint"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// ControllerUnpublishVolume unpublishes a volume from a node, or from all nodes if the request
// names none. It returns when there is proof that the node has released the volume, and the node's
// attachment is a replica or deleted. A volume that does not exist counts as unpublished.
func (s *Publisher) ControllerUnpublishVolume(ctx context.Context,
	request *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	handle, err := call.Volume(request.GetVolumeId())
	if grpcstatus.Code(err) == codes.NotFound {
		return &csi.ControllerUnpublishVolumeResponse{}, nil // no volume has such an ID
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	nodes := []string{request.GetNodeId()}
	if request.GetNodeId() == "" {
		if nodes, err = s.publishedTo(ctx, handle); err != nil {
			return nil, status.From(err)
		}
	}
	for _, node := range nodes {
		if err := s.unpublishLocked(ctx, request.GetVolumeId(), handle, node); err != nil {
			return nil, status.From(err)
		}
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// publishedTo returns the nodes that are primaries of the volume, from the API server.
func (s *Publisher) publishedTo(ctx context.Context, handle volumehandle.Handle) ([]string, error) {
	attachments, err := s.Attachments(ctx, s.Reader, handle.VolumeName())
	if err != nil {
		return nil, err
	}
	var nodes []string
	for _, a := range attachments {
		if a.Spec.Role == apiv1.RolePrimary {
			nodes = append(nodes, a.Spec.NodeName)
		}
	}
	v, err := s.Volume(ctx, handle)
	if v == nil {
		return nodes, err
	}
	if o := v.Status.Primary; o != nil && o.State != apiv1.OwnershipReleased && !slices.Contains(nodes, o.NodeName) {
		nodes = append(nodes, o.NodeName)
	}
	return nodes, nil
}

func (s *Publisher) unpublishLocked(ctx context.Context, id string, handle volumehandle.Handle, node string) error {
	unlock, err := s.Lock(handle.VolumeName() + " on node " + node)
	if err != nil {
		return err
	}
	defer unlock()
	if by, err := s.neededBy(ctx, id, handle, node); err != nil {
		return err
	} else if by != "" {
		logr.FromContextOrDiscard(ctx).Info("the volume stays with the node, which needs it by another spelling of its handle",
			"volume", handle.VolumeName(), "node", node, "volumeAttachment", by)
		return nil
	}
	return s.unpublish(ctx, handle, node)
}

// unpublish does the work; the volume is locked for the node.
func (s *Publisher) unpublish(ctx context.Context, handle volumehandle.Handle, node string) error {
	v, err := s.Volume(ctx, handle)
	if err != nil {
		return err
	}
	others, err := s.unrecorded(ctx, v, node)
	if err != nil {
		return err
	}
	if others {
		recorded, err := s.recordPublished(ctx, handle, node)
		if err != nil {
			return err
		}
		if recorded != nil {
			v = recorded
		}
		if v == nil {
			return s.unpublishUnrecorded(ctx, handle, node)
		}
	}
	if v.Spec.Access == apiv1.AccessMultiNode {
		return s.unpublishMultiNode(ctx, v, node)
	}
	a, err := s.release(ctx, v, node)
	if err != nil {
		return err
	}
	return s.retire(ctx, v, a)
}

// release releases the node's ownership. If the AzVolume does not have the ownership under which
// the node was the primary, it looks for the proof that the node released the volume. It returns
// the node's attachment, nil if there is none.
func (s *Publisher) release(ctx context.Context, v *apiv1.AzVolume, node string) (*apiv1.AzVolumeAttachment, error) {
	holder, err := s.startRelease(ctx, v, node)
	if err != nil {
		return nil, err
	}
	a, err := s.Attachment(ctx, s.Reader, v.Name, node)
	if err != nil {
		return nil, err
	}
	if !holder && a != nil && a.Spec.Epoch > cluster.EpochOf(v) {
		// The AzVolume has lost the ownership that the attachment belongs to, or the ownership was
		// written after the AzVolume was read. A proof under an epoch that is Held would refuse the
		// volume to the node for as long as the node is the owner.
		if err := s.refresh(ctx, v); err != nil {
			return nil, err
		}
		if holder, err = s.startRelease(ctx, v, node); err != nil {
			return nil, err
		}
	}
	if holder {
		crashpoint.At("unpublish-releasing-seen")
		return s.finishRelease(ctx, v, node, a)
	}
	if a == nil || a.DeletionTimestamp != nil || ownership.ProvedReleased(v, a) {
		return a, nil
	}
	proven, why, err := s.proveUnrecorded(ctx, v, a)
	if err != nil {
		return nil, err
	}
	if !proven {
		return nil, grpcstatus.Errorf(codes.Aborted, "no proof yet that node %s released volume %s, which it held under epoch %d: %s",
			node, v.Name, a.Spec.Epoch, why)
	}
	return s.Attachment(ctx, s.Reader, v.Name, node) // with the proof
}

// removedLost creates the attachment of a multi-node volume again that was lost while the node uses
// the volume, and deletes it, so that the release gets its proof. It returns nil if the node does
// not report the volume, or Azure does not have the disk there: no node gets a disk by its report.
func (s *Publisher) removedLost(ctx context.Context, v *apiv1.AzVolume, node string) (*apiv1.AzVolumeAttachment, error) {
	d, err := s.report(ctx, node)
	if !ownership.Reports(d, v.Name) {
		return nil, err
	}
	if there, err := s.attachedByOthers(ctx, volumehandle.Of(v.Spec.Disk), node); there == nil {
		return nil, err
	}
	_, err = s.createAttachment(ctx, apiv1.AzVolumeAttachmentSpec{
		VolumeName: v.Name,
		NodeName:   node,
		Role:       apiv1.RolePrimary,
		Epoch:      ownership.MultiNodeEpoch,
	})
	if err != nil && !cluster.IsChanged(err) {
		return nil, err
	}
	return s.removed(ctx, v, node)
}

// unpublishMultiNode unpublishes a multi-node volume, which has no ownership, from one of its
// nodes. The deletion of the attachment has the effect that the state Releasing has for an
// ownership: it is written before the node's report is read, and after it the node may not stage
// the volume.
func (s *Publisher) unpublishMultiNode(ctx context.Context, v *apiv1.AzVolume, node string) error {
	a, err := s.removed(ctx, v, node)
	if err == nil && a == nil {
		a, err = s.removedLost(ctx, v, node)
	}
	if err != nil || a == nil {
		return err
	}
	if !ownership.ProvedReleased(v, a) {
		crashpoint.At("unpublish-releasing-seen")
		proof, err := s.awaitProof(ctx, v, node, a.Spec.Epoch)
		if err != nil {
			return err
		}
		if a, err = s.recordProof(ctx, v.Name, node, a, proof); err != nil {
			return err
		}
		s.releases.WithLabelValues(string(proof.Type)).Inc()
	}
	return s.retire(ctx, v, a)
}
