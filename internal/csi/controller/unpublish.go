package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/crashpoint"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attachdetach"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attachment"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// attachmentVolume is the index, and the selectable field, of attachments by volume.
const attachmentVolume = "spec.volumeName"

// ControllerUnpublishVolume takes the volume back from a node, or from all nodes if it names none. It returns when there is proof that the node
// let go, and the node's attachment is a replica or gone. What is not there is
// unpublished already.
func (s *Server) ControllerUnpublishVolume(ctx context.Context, request *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if request.GetVolumeId() == "" {
		return nil, invalidArgument("volume ID: missing")
	}
	handle, err := volumehandle.Parse(request.GetVolumeId())
	if err != nil {
		return &csi.ControllerUnpublishVolumeResponse{}, nil // a volume that cannot be was never published
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	nodes := []string{request.GetNodeId()}
	if request.GetNodeId() == "" {
		if nodes, err = s.publishedTo(ctx, handle); err != nil {
			return nil, statusOf(err)
		}
	}
	for _, node := range nodes {
		if err := s.unpublishLocked(ctx, handle, node); err != nil {
			return nil, statusOf(err)
		}
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// publishedTo returns the nodes that hold the volume as primaries, from the API server.
func (s *Server) publishedTo(ctx context.Context, handle volumehandle.Handle) ([]string, error) {
	var list apiv1.AzVolumeAttachmentList
	err := s.Reader.List(ctx, &list, client.InNamespace(s.Namespace), client.MatchingFields{attachmentVolume: handle.VolumeName()})
	if err != nil {
		return nil, fmt.Errorf("list attachments: %w", err)
	}
	var nodes []string
	for i := range list.Items {
		if list.Items[i].Spec.Role == apiv1.RolePrimary {
			nodes = append(nodes, list.Items[i].Spec.NodeName)
		}
	}
	v, err := s.volume(ctx, handle)
	if err != nil || v == nil {
		return nodes, err
	}
	if c := v.Status.Primary; c != nil && c.State != apiv1.OwnershipReleased && !slices.Contains(nodes, c.NodeName) {
		nodes = append(nodes, c.NodeName)
	}
	return nodes, nil
}

func (s *Server) unpublishLocked(ctx context.Context, handle volumehandle.Handle, node string) error {
	unlock, err := s.lock(handle.VolumeName() + " on node " + node)
	if err != nil {
		return err
	}
	defer unlock()
	return s.unpublish(ctx, handle, node)
}

// unpublish does the work; the volume is locked for the node.
func (s *Server) unpublish(ctx context.Context, handle volumehandle.Handle, node string) error {
	v, err := s.volume(ctx, handle)
	if err != nil {
		return err
	}
	others, err := s.foreign(ctx, v, node)
	if err != nil {
		return err
	}
	var reader client.Reader = s.Client
	if others {
		taken, err := s.takeOver(ctx, handle, node)
		if err != nil {
			return err
		}
		if taken != nil {
			v = taken
		}
		if v == nil {
			return s.unpublishUnrecorded(ctx, handle, node)
		}
		reader = s.Reader // the cache need not have the attachment yet, and without it nothing would be detached
	}
	if v.Spec.Access == apiv1.AccessMultiNode {
		return s.unpublishMultiNode(ctx, v, node)
	}
	holder, err := s.startRelease(ctx, handle, v, node)
	if err != nil {
		return err
	}
	a, err := s.attachment(ctx, reader, v.Name, node)
	if err != nil {
		return err
	}
	if !holder && a != nil && a.Spec.Epoch > epochOf(v) {
		// The attachment is of a claim that the AzVolume has lost, or that was made after it was read. A proof under a claim that is held would keep the node from
		// the volume for as long as it holds it.
		if err := s.refresh(ctx, handle, v); err != nil {
			return err
		}
		if holder, err = s.startRelease(ctx, handle, v, node); err != nil {
			return err
		}
	}
	if holder {
		crashpoint.At("unpublish-releasing-seen")
		if a, err = s.finishRelease(ctx, handle, v, node, a); err != nil {
			return err
		}
	} else if a != nil && a.DeletionTimestamp == nil && !ownership.ProvedReleased(v, a) {
		proven, why, err := s.proveForgotten(ctx, v, a)
		if err == nil && !proven {
			err = grpcstatus.Errorf(codes.Aborted, "no proof yet that node %s let go of volume %s, which it held under epoch %d: %s", node, v.Name, a.Spec.Epoch, why)
		}
		if err != nil {
			return err
		}
	}
	return s.lookAfter(ctx, v, a)
}

// startRelease writes the node's claim as Releasing, and says whether the node holds it at all.
func (s *Server) startRelease(ctx context.Context, handle volumehandle.Handle, v *apiv1.AzVolume, node string) (bool, error) {
	for range maxTries {
		claim, holder, changed := ownership.StartRelease(v.Status.Primary, node, apiv1.CauseUnpublished, s.Clock.Now())
		if !holder || !changed {
			return holder, nil
		}
		err := s.writeClaim(ctx, v, claim, nil)
		if !apierrors.IsConflict(err) {
			return true, err
		}
		if err := s.refresh(ctx, handle, v); err != nil {
			return false, err
		}
	}
	return false, grpcstatus.Errorf(codes.Aborted, "volume %s changes too often", v.Name)
}

func (s *Server) refresh(ctx context.Context, handle volumehandle.Handle, v *apiv1.AzVolume) error {
	current, err := s.volume(ctx, handle)
	if err != nil {
		return err
	}
	if current == nil {
		return grpcstatus.Errorf(codes.NotFound, "volume %s has just gone", v.Name)
	}
	*v = *current
	return nil
}

// finishRelease waits for the proof, records it, and writes the claim as Released. It returns the attachment as it is then.
func (s *Server) finishRelease(ctx context.Context, handle volumehandle.Handle, v *apiv1.AzVolume, node string, a *apiv1.AzVolumeAttachment) (*apiv1.AzVolumeAttachment, error) {
	releasing := *v.Status.Primary
	proof, err := s.awaitProof(ctx, v, node, releasing.Epoch)
	if err != nil {
		return nil, err
	}
	if a, err = s.recordProof(ctx, v.Name, node, a, proof); err != nil {
		return nil, err
	}
	for range maxTries {
		now := s.Clock.Now()
		crashpoint.At("unpublish-before-released")
		err := s.writeClaim(ctx, v, ownership.CompleteRelease(releasing, now), &apiv1.ReleaseRecord{NodeName: node, Cause: v.Status.Primary.Cause, Proof: *proof})
		if err == nil {
			crashpoint.At("unpublish-after-released")
			s.metrics.releases.WithLabelValues(string(proof.Kind)).Inc()
			return a, nil
		}
		if !apierrors.IsConflict(err) {
			return nil, err
		}
		if err := s.refresh(ctx, handle, v); err != nil {
			return nil, err
		}
		c := v.Status.Primary
		if c == nil || c.NodeName != node || c.Epoch != releasing.Epoch || c.State != apiv1.OwnershipReleasing {
			return nil, grpcstatus.Errorf(codes.Aborted, "the claim of node %s changed while it was being released", node)
		}
	}
	return nil, grpcstatus.Errorf(codes.Aborted, "volume %s changes too often", v.Name)
}

// awaitProof waits for the proof that a node let go of a volume (law 3): its own report, read from the API server after the
// claim was written, or what the attachment reconciler got from Azure.
func (s *Server) awaitProof(ctx context.Context, v *apiv1.AzVolume, node string, epoch int64) (*apiv1.ReleaseProof, error) {
	var proof *apiv1.ReleaseProof
	why, holder := "", attachdetach.Wait{}
	name := apiv1.AttachmentName(v.Name, node)
	err := s.Watch.until(ctx, func() (bool, error) {
		var err error
		proof, why, holder, err = s.findProof(ctx, v, node, epoch)
		return proof != nil, err
	}, watched{kindNode, node}, watched{kindAttachment, name})
	if errors.Is(err, context.DeadlineExceeded) {
		if holder.Failing {
			why = holder.Message
		}
		return nil, grpcstatus.Errorf(codes.Aborted, "no proof yet that node %s released the volume: %s", node, why)
	}
	return proof, err
}

// findProof looks for the proof once. Where there is none, why says what is missing, and holder what is being done about it.
func (s *Server) findProof(ctx context.Context, v *apiv1.AzVolume, node string, epoch int64) (proof *apiv1.ReleaseProof, why string, holder attachdetach.Wait, err error) {
	d := &apiv1.AzDriverNode{}
	err = s.Reader.Get(ctx, s.key(node), d)
	if apierrors.IsNotFound(err) {
		d, err = nil, nil
	}
	if err != nil {
		return nil, "", holder, fmt.Errorf("read AzDriverNode: %w", err)
	}
	a, err := s.attachment(ctx, s.Reader, v.Name, node)
	if err != nil {
		return nil, "", holder, err
	}
	another := false
	if a != nil && d != nil {
		identity, err := s.identity(ctx, d)
		if err != nil {
			return nil, "", holder, err
		}
		another = identity.Another(a)
	}
	if another {
		why = "the node says to be VM " + d.Spec.VMID + " now, which cannot speak for " + a.Status.VMID
	} else if proof, why = ownership.UnstagedProof(d, v.Name, epoch, s.Clock.Now()); proof != nil {
		return proof, "", holder, nil
	}
	if a == nil && d == nil {
		proof, why, err = s.proofFromAzure(ctx, v, node, epoch)
		return proof, why, holder, err
	}
	if a != nil && a.Status.Proof != nil && a.Status.Proof.Epoch >= epoch {
		return a.Status.Proof, "", holder, nil
	}
	return nil, why, attachdetach.Holder(v, a), nil
}

// proofFromAzure is for a node of which nothing is left: neither its report nor
// an attachment that names its VM. Then the disk must not be attached to any VM but those of other attachments.
func (s *Server) proofFromAzure(ctx context.Context, v *apiv1.AzVolume, node string, epoch int64) (*apiv1.ReleaseProof, string, error) {
	disk, err := s.Disks.Get(ctx, handleOf(v).String())
	if err != nil && !errors.Is(err, provisioner.NotFound) {
		return nil, "", fmt.Errorf("read disk: %w", err)
	}
	others, err := s.ofVolume(ctx, v.Name)
	if err != nil {
		return nil, "", err
	}
	if vms, _ := attachment.VMsToDetach(disk.AttachedTo, node, others, nil); len(vms) > 0 {
		return nil, "node and attachment are gone, and the disk is attached to " + vms[0], nil
	}
	return &apiv1.ReleaseProof{
		Kind: apiv1.ProofDetached, Epoch: epoch, Time: metav1.NewTime(s.Clock.Now()),
		Message: "Azure says that the disk is attached to no VM that could be this node's",
	}, "", nil
}

// recordProof writes the proof to the attachment, if there is one, and returns it as it is then. It is not for an attachment that was made anew
// meanwhile: those of a multi-node volume all have one epoch, and the node may use the volume under the new one.
func (s *Server) recordProof(ctx context.Context, volume, node string, a *apiv1.AzVolumeAttachment, proof *apiv1.ReleaseProof) (*apiv1.AzVolumeAttachment, error) {
	var err error
	uid := types.UID("")
	if a != nil {
		uid = a.UID
	}
	for range maxTries {
		if a != nil && a.UID != uid {
			return nil, grpcstatus.Errorf(codes.Aborted, "the attachment of %s to node %s was made anew meanwhile", volume, node)
		}
		if a == nil || (a.Status.Proof != nil && a.Status.Proof.Epoch >= proof.Epoch) {
			return a, nil
		}
		before := a.DeepCopy()
		a.Status.Proof = proof
		err = s.Client.Status().Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if err == nil {
			return a, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("record proof: %w", err)
		}
		if a, err = s.attachment(ctx, s.Reader, volume, node); err != nil {
			return nil, err
		}
	}
	return nil, grpcstatus.Errorf(codes.Aborted, "the attachment of %s to node %s changes too often", volume, node)
}

// lookAfter makes the attachment of a node that let go a replica, or removes it. For a disk that only one VM can have it waits
// until it is gone; a shared one can be attached elsewhere meanwhile, and nobody shall wait for a detach from a VM that is down.
func (s *Server) lookAfter(ctx context.Context, v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) error {
	for range maxTries {
		if a == nil || (a.Spec.Role == apiv1.RoleReplica && a.DeletionTimestamp == nil) {
			return nil
		}
		if a.DeletionTimestamp != nil {
			return s.awaitDetached(ctx, v, a)
		}
		if !ownership.ProvedReleased(v, a) {
			return grpcstatus.Errorf(codes.Aborted, "no proof that node %s let go of epoch %d", a.Spec.NodeName, a.Spec.Epoch)
		}
		all, err := s.ofVolume(ctx, v.Name)
		if err != nil {
			return err
		}
		if ownership.Demotion(v, a, all) == ownership.Demote {
			before := a.DeepCopy()
			a.Spec.Role = apiv1.RoleReplica
			err = s.Client.Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		} else if err = s.remove(ctx, a); err == nil {
			err = s.awaitDetached(ctx, v, a)
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
		if a, err = s.attachment(ctx, s.Reader, v.Name, a.Spec.NodeName); err != nil {
			return err
		}
	}
	return grpcstatus.Errorf(codes.Aborted, "attachment %s changes too often", a.Name)
}

// unpublishMultiNode takes a volume without a claim back from one of its nodes. The deletion of the attachment is what Releasing is for a claim: it is written
// before the node's report is read, and nobody stages the volume there from then on.
func (s *Server) unpublishMultiNode(ctx context.Context, v *apiv1.AzVolume, node string) error {
	a, err := s.leaving(ctx, v, node)
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
		s.metrics.releases.WithLabelValues(string(proof.Kind)).Inc()
	}
	return s.lookAfter(ctx, v, a)
}

// leaving returns the node's attachment after its deletion has been written; nil if there is none.
func (s *Server) leaving(ctx context.Context, v *apiv1.AzVolume, node string) (*apiv1.AzVolumeAttachment, error) {
	for range maxTries {
		a, err := s.attachment(ctx, s.Reader, v.Name, node)
		if err != nil || a == nil || a.DeletionTimestamp != nil {
			return a, err
		}
		if err := s.remove(ctx, a); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return nil, grpcstatus.Errorf(codes.Aborted, "the attachment of %s to node %s changes too often", v.Name, node)
}

// attachment returns an attachment, or nil if there is none.
func (s *Server) attachment(ctx context.Context, reader client.Reader, volume, node string) (*apiv1.AzVolumeAttachment, error) {
	a := &apiv1.AzVolumeAttachment{}
	err := reader.Get(ctx, s.key(apiv1.AttachmentName(volume, node)), a)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get attachment: %w", err)
	}
	return a, nil
}

// ofVolume returns the attachments of a volume, from the cache.
func (s *Server) ofVolume(ctx context.Context, volume string) ([]*apiv1.AzVolumeAttachment, error) {
	return s.attachmentsOf(ctx, s.Client, volume)
}

func (s *Server) attachmentsOf(ctx context.Context, reader client.Reader, volume string) ([]*apiv1.AzVolumeAttachment, error) {
	var list apiv1.AzVolumeAttachmentList
	if err := reader.List(ctx, &list, client.InNamespace(s.Namespace), client.MatchingFields{attachmentVolume: volume}); err != nil {
		return nil, fmt.Errorf("list attachments: %w", err)
	}
	found := make([]*apiv1.AzVolumeAttachment, 0, len(list.Items))
	for i := range list.Items {
		found = append(found, &list.Items[i])
	}
	return found, nil
}

// remove deletes an attachment, if it has not changed since it was read. It goes when the disk is detached.
func (s *Server) remove(ctx context.Context, a *apiv1.AzVolumeAttachment) error {
	crashpoint.At("unpublish-before-removal")
	err := s.Client.Delete(ctx, a, client.Preconditions{UID: &a.UID, ResourceVersion: &a.ResourceVersion})
	if err != nil {
		return fmt.Errorf("delete attachment: %w", err)
	}
	crashpoint.At("unpublish-after-removal")
	return nil
}

// awaitDetached waits until an attachment that is being deleted is gone, if that is what keeps the disk from being attached elsewhere.
func (s *Server) awaitDetached(ctx context.Context, v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) error {
	if v.Spec.Disk.MaxShares > 1 {
		return nil
	}
	return s.awaitAttachmentGone(ctx, a)
}

func (s *Server) awaitAttachmentGone(ctx context.Context, a *apiv1.AzVolumeAttachment) error {
	var failed *apiv1.Error
	err := s.Watch.until(ctx, func() (bool, error) {
		current := &apiv1.AzVolumeAttachment{}
		err := s.Reader.Get(ctx, s.key(a.Name), current)
		if apierrors.IsNotFound(err) || (err == nil && current.UID != a.UID) {
			return true, nil
		}
		failed = current.Status.Error
		return false, err
	}, watched{kindAttachment, a.Name})
	if errors.Is(err, context.DeadlineExceeded) {
		if failed != nil {
			return failureOf(failed)
		}
		return grpcstatus.Errorf(codes.Aborted, "the disk is still being detached from node %s", a.Spec.NodeName)
	}
	return err
}
