package handover

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/controller/keeper"
	"github.com/azuredisk-csi/azuredisk/internal/crashpoint"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// promote makes the node's attachment the primary, and reports whether it changed it. The first try
// reads the cache, and counts only if it writes: its write succeeds only if the cache is current.
func (s *Publisher) promote(ctx context.Context, v *apiv1.AzVolume, node identity.Identity,
	wanted apiv1.AzVolumeAttachmentSpec) (a *apiv1.AzVolumeAttachment, changed bool, err error) {
	tries := 0
	err = cluster.RetryChanged("attachment of "+v.Name+" to node "+node.Name, func() error {
		var reader client.Reader = s.Client
		if tries++; tries > 1 {
			reader = s.Reader
		}
		changed = false
		if a, err = s.Attachment(ctx, reader, v.Name, node.Name); err != nil {
			return err
		}
		if a == nil {
			changed = true
			a, err = s.createAttachment(ctx, wanted)
			return err
		}
		if a.DeletionTimestamp != nil {
			return s.promoteDeleted(ctx, v, a, wanted)
		}
		if node.Another(a) || ownership.Preempted(a) {
			// The disk is still attached to another VM, or is being detached from this one by
			// force. The next try waits until it is deleted.
			if err := s.remove(ctx, a); err != nil {
				return err
			}
			return cluster.ErrChanged
		}
		if v.Spec.Access == apiv1.AccessMultiNode && ownership.MultiNodeFenceDecided(a) {
			// The failover has fenced the attachment, and has not deleted it yet. The detach would
			// follow a success of this call.
			return grpcstatus.Errorf(codes.Aborted,
				"publish volume %s to node %s: the node was lost, and its attachment is still being fenced", v.Name, node.Name)
		}
		if a, changed, err = s.makePrimary(ctx, a, wanted); !changed && tries == 1 {
			return cluster.ErrChanged
		}
		return err
	})
	return a, changed, err
}

func (s *Publisher) createAttachment(ctx context.Context, wanted apiv1.AzVolumeAttachmentSpec) (*apiv1.AzVolumeAttachment,
	error) {
	a, err := keeper.Create(ctx, s.Client, s.Namespace, wanted)
	if apierrors.IsAlreadyExists(err) {
		return nil, cluster.ErrChanged
	}
	return a, err
}

// promoteDeleted accepts an attachment that is being deleted if it is the wanted primary. Otherwise
// it waits until the attachment is gone, and returns cluster.ErrChanged.
func (s *Publisher) promoteDeleted(ctx context.Context, v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment,
	wanted apiv1.AzVolumeAttachmentSpec) error {
	switch {
	case ownership.HasProof(a):
	case v.Spec.Access == apiv1.AccessMultiNode:
		// The volume is being unpublished from the node. There is no ownership with a new epoch, so
		// the unpublish has to end first.
		if err := s.unpublishMultiNode(ctx, v, wanted.NodeName); err != nil {
			return err
		}
		return cluster.ErrChanged
	case a.Spec.Role == apiv1.RolePrimary && a.Spec.Epoch == wanted.Epoch:
		// Another client has deleted the object of a primary. Its finalizer keeps it until the
		// release.
		return compatible(a, wanted)
	}
	if err := s.awaitAttachmentGone(ctx, a); err != nil {
		return err
	}
	if err := s.ownershipUnchanged(ctx, v); errors.Is(err, cluster.ErrChanged) {
		return grpcstatus.Errorf(codes.Aborted,
			"publish volume %s to node %s: another call changed the ownership of the volume during this call", v.Name,
			wanted.NodeName)
	} else if err != nil {
		return err
	}
	return cluster.ErrChanged
}

// compatible refuses a second publish to a node with another value of readonly: the node may be
// using the volume under the first one.
func compatible(a *apiv1.AzVolumeAttachment, wanted apiv1.AzVolumeAttachmentSpec) error {
	if a.Spec.ReadOnly == wanted.ReadOnly {
		return nil
	}
	return grpcstatus.Errorf(codes.AlreadyExists,
		"volume %s is published to node %s with readonly=%t already, and the request has readonly=%t",
		a.Spec.VolumeName, a.Spec.NodeName, a.Spec.ReadOnly, wanted.ReadOnly)
}

// makePrimary gives an attachment the role primary and the epoch of an ownership, and reports
// whether it did not have them. If another call acquired ownership while this call waited, the
// error is Aborted: the attachment belongs to the later epoch.
func (s *Publisher) makePrimary(ctx context.Context, a *apiv1.AzVolumeAttachment,
	wanted apiv1.AzVolumeAttachmentSpec) (promoted *apiv1.AzVolumeAttachment, changed bool, err error) {
	if a.Spec.Epoch > wanted.Epoch {
		return nil, false, grpcstatus.Errorf(codes.Aborted,
			"publish volume %s to node %s: another call acquired ownership during this call: the attachment has epoch %d, and this call has epoch %d",
			a.Spec.VolumeName, a.Spec.NodeName, a.Spec.Epoch, wanted.Epoch)
	}
	if a.Spec.Role == apiv1.RolePrimary && a.Spec.Epoch == wanted.Epoch && !ownership.HasProof(a) {
		return a, false, compatible(a, wanted)
	}
	promoted, err = keeper.Promote(ctx, s.Client, a, wanted)
	return promoted, true, err
}

// retire makes the attachment of a node that has released the volume a replica, or deletes it. If
// only one VM can have the disk, it waits until the attachment is gone. A shared disk can be
// attached to another VM before that, so no call waits for a detach from a VM that is down.
func (s *Publisher) retire(ctx context.Context, v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) error {
	if a == nil {
		return nil
	}
	node := a.Spec.NodeName
	return cluster.RetryChanged("attachment "+a.Name, func() error {
		err := s.tryRetire(ctx, v, a)
		if !cluster.IsChanged(err) {
			return err
		}
		current, readErr := s.Attachment(ctx, s.Reader, v.Name, node)
		if current == nil {
			return readErr
		}
		a = current
		return err
	})
}

func (s *Publisher) tryRetire(ctx context.Context, v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) error {
	switch {
	case a.DeletionTimestamp != nil:
		return s.awaitDetached(ctx, v, a)
	case a.Spec.Role == apiv1.RoleReplica:
		return nil
	case !ownership.ProvedReleased(v, a):
		return grpcstatus.Errorf(codes.Aborted, "no proof yet that node %s released volume %s under epoch %d", a.Spec.NodeName,
			v.Name, a.Spec.Epoch)
	}
	all, err := s.Attachments(ctx, s.Client, v.Name)
	if err != nil {
		return err
	}
	if ownership.Demotion(v, a, all) == ownership.Demote {
		_, err := keeper.Demote(ctx, s.Client, v, a)
		return err
	}
	if err := s.remove(ctx, a); err != nil {
		return err
	}
	return s.awaitDetached(ctx, v, a)
}

// removed deletes the node's attachment, and returns it after the deletion; nil if there is none.
func (s *Publisher) removed(ctx context.Context, v *apiv1.AzVolume, node string) (a *apiv1.AzVolumeAttachment, err error) {
	err = cluster.RetryChanged("attachment of "+v.Name+" to node "+node, func() error {
		if a, err = s.Attachment(ctx, s.Reader, v.Name, node); a == nil || a.DeletionTimestamp != nil {
			return err
		}
		if err := s.remove(ctx, a); err != nil {
			return err
		}
		a, err = s.Attachment(ctx, s.Reader, v.Name, node)
		return err
	})
	return a, err
}

// remove deletes an attachment, if it has not changed since it was read. The object is removed when
// the disk is detached, or there is nothing to detach.
func (s *Publisher) remove(ctx context.Context, a *apiv1.AzVolumeAttachment) error {
	crashpoint.At("unpublish-before-removal")
	if err := keeper.Delete(ctx, s.Client, a); err != nil {
		return err
	}
	crashpoint.At("unpublish-after-removal")
	return nil
}

// awaitDetached waits until an attachment that is being deleted is gone, if the disk cannot be
// attached to another VM before.
func (s *Publisher) awaitDetached(ctx context.Context, v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) error {
	if v.Shares() > 1 {
		return nil
	}
	return s.awaitAttachmentGone(ctx, a)
}

func (s *Publisher) awaitAttachmentGone(ctx context.Context, a *apiv1.AzVolumeAttachment) error {
	var failed *apiv1.Error
	reason := ""
	err := s.Watch.Until(ctx, func() (bool, error) {
		current, err := kube.Find[apiv1.AzVolumeAttachment](ctx, s.Reader, s.Key(a.Name))
		if current == nil || current.UID != a.UID {
			return err == nil, err
		}
		failed, reason = current.Status.Error, lastReason(current, reason)
		return false, nil
	}, cluster.AttachmentNamed(a.Name))
	if errors.Is(err, context.DeadlineExceeded) {
		if failed != nil {
			return call.Failure(failed)
		}
		return grpcstatus.Errorf(codes.Aborted, "Azure is still detaching volume %s from node %s (%s)", a.Spec.VolumeName,
			a.Spec.NodeName, reason)
	}
	return err
}

// lastReason returns the reason of the last condition of an attachment; otherwise if there is none.
func lastReason(a *apiv1.AzVolumeAttachment, otherwise string) string {
	for _, c := range a.Status.Conditions {
		otherwise = c.Reason
		if c.Message != "" {
			otherwise += ": " + c.Message
		}
	}
	return otherwise
}
