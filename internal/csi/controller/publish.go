package controller

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/crashpoint"
	"github.com/azuredisk-csi/azuredisk/internal/nodeidentity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attachdetach"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// ControllerPublishVolume makes a node primary and its attachment so. It returns when the disk is attached or Azure has
// accepted to attach it; the node waits for the rest. On a node that has a
// replica it costs one read and two writes, and no wait.
func (s *Server) ControllerPublishVolume(ctx context.Context, request *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	nodeName := request.GetNodeId()
	switch {
	case request.GetVolumeId() == "":
		return nil, invalidArgument("volume ID: missing")
	case nodeName == "":
		return nil, invalidArgument("node ID: missing")
	case request.GetVolumeCapability() == nil:
		return nil, invalidArgument("volume capability: missing")
	}
	handle, err := volumehandle.Parse(request.GetVolumeId())
	if err != nil {
		return nil, grpcstatus.Error(codes.NotFound, err.Error())
	}
	unlock, err := s.lock(handle.VolumeName() + " on node " + nodeName)
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if err := s.publish(ctx, handle, request); err != nil {
		return nil, statusOf(err)
	}
	return &csi.ControllerPublishVolumeResponse{}, nil
}

func (s *Server) publish(ctx context.Context, handle volumehandle.Handle, request *csi.ControllerPublishVolumeRequest) error {
	node, err := s.node(ctx, request.GetNodeId())
	if err != nil {
		return err
	}
	if node.VMID == "" {
		return grpcstatus.Errorf(codes.Unavailable, "publish to node %s: it is not known which VM the node is: %s", node.Name, node.Message)
	}
	v, err := s.usable(ctx, handle, request)
	if err != nil {
		return err
	}
	epoch, before := int64(ownership.MultiNodeEpoch), int64(ownership.MultiNodeEpoch)
	if v.Spec.Access == apiv1.AccessSingleNode {
		before = epochOf(v)
		claim, err := s.claim(ctx, handle, v, node.Name)
		if err != nil {
			return err
		}
		epoch = claim.Epoch
	}
	crashpoint.At("publish-after-claim")
	a, changed, err := s.promote(ctx, v, node, apiv1.AzVolumeAttachmentSpec{
		VolumeName: v.Name, NodeName: node.Name, Role: apiv1.RolePrimary, Epoch: epoch, ReadOnly: request.GetReadonly(),
	})
	if err != nil {
		return err
	}
	crashpoint.At("publish-after-promotion")
	warm := a.Status.State == apiv1.AttachmentAttached
	if changed {
		s.metrics.promotions.WithLabelValues(strconv.FormatBool(warm)).Inc()
	}
	if warm {
		return nil
	}
	err = s.awaitAccepted(ctx, a)
	if epoch > before && provisioner.KindOf(err) != "" {
		return s.withdraw(ctx, handle, node.Name, err)
	}
	return err
}

func epochOf(v *apiv1.AzVolume) int64 {
	if v.Status.Primary == nil {
		return 0
	}
	return v.Status.Primary.Epoch
}

// withdraw takes back a claim that this call made and that Azure's refusal left without a use: a publish that failed
// leaves nothing behind, so that the volume can go elsewhere or be deleted. It returns refused.
func (s *Server) withdraw(ctx context.Context, handle volumehandle.Handle, node string, refused error) error {
	if err := s.unpublish(ctx, handle, node); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "cannot withdraw the claim of a refused publish", "volume", handle.VolumeName(), "node", node)
	}
	return refused
}

// newcomerPatience is how long a publish waits for the node plug-in of a Node that exists. It is short, because
// the caller has only so many workers, and comes again.
const newcomerPatience = 10 * time.Second

// node returns which VM a node is. The cache is good enough for a node that is there. A node whose plug-in has not
// reported yet is waited for, and then Unavailable; only a node that does not exist is NotFound.
func (s *Server) node(ctx context.Context, name string) (identity.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, newcomerPatience)
	defer cancel()
	d := &apiv1.AzDriverNode{}
	err := s.Watch.until(ctx, func() (bool, error) {
		err := s.Client.Get(ctx, s.key(name), d)
		if apierrors.IsNotFound(err) {
			err = s.Reader.Get(ctx, s.key(name), d)
		}
		switch {
		case err == nil:
			return true, nil
		case !apierrors.IsNotFound(err):
			return false, fmt.Errorf("get AzDriverNode: %w", err)
		}
		err = s.Reader.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{})
		switch {
		case apierrors.IsNotFound(err):
			return false, grpcstatus.Errorf(codes.NotFound, "there is no node %s", name)
		case err != nil:
			return false, fmt.Errorf("get Node: %w", err)
		}
		return false, nil
	}, watched{kindNode, name})
	if errors.Is(err, context.DeadlineExceeded) {
		return identity.Identity{}, grpcstatus.Errorf(codes.Unavailable, "the node plug-in of node %s has not reported yet", name)
	}
	if err != nil {
		return identity.Identity{}, err
	}
	return s.identity(ctx, d)
}

// identity returns which VM the node of an AzDriverNode is.
func (s *Server) identity(ctx context.Context, d *apiv1.AzDriverNode) (identity.Identity, error) {
	node := &corev1.Node{}
	err := s.Client.Get(ctx, client.ObjectKey{Name: d.Name}, node)
	if apierrors.IsNotFound(err) {
		err = s.Reader.Get(ctx, client.ObjectKey{Name: d.Name}, node)
	}
	if apierrors.IsNotFound(err) {
		node, err = nil, nil
	}
	if err != nil {
		return identity.Identity{}, fmt.Errorf("get Node: %w", err)
	}
	return nodeidentity.Of(ctx, s.Client, node, d)
}

// usable returns the AzVolume, adopted if need be, if it can be used as the request asks.
func (s *Server) usable(ctx context.Context, handle volumehandle.Handle, request *csi.ControllerPublishVolumeRequest) (*apiv1.AzVolume, error) {
	v, err := s.volume(ctx, handle)
	if err != nil {
		return nil, err
	}
	capabilities := []*csi.VolumeCapability{request.GetVolumeCapability()}
	if v == nil {
		// Whether the disk has the shares is known only when it has been read.
		a, _, err := accessOf(capabilities, 2)
		if err != nil {
			return nil, err
		}
		if v, err = s.adopt(ctx, handle, request.GetVolumeContext(), a); err != nil {
			return nil, err
		}
	}
	if v.DeletionTimestamp != nil {
		return nil, grpcstatus.Errorf(codes.NotFound, "volume %s is being deleted", v.Name)
	}
	if err := s.heed(ctx, v, request.GetVolumeContext()); err != nil {
		return nil, err
	}
	a, fault, err := accessOf(capabilities, v.Spec.Disk.MaxShares)
	if err != nil {
		return nil, err
	}
	if fault != "" {
		return nil, invalidArgument("%s", fault)
	}
	if a.pattern == apiv1.AccessMultiNode && v.Spec.Access != apiv1.AccessMultiNode {
		return nil, invalidArgument("access mode %s: volume %s is for one node at a time", request.GetVolumeCapability().GetAccessMode().GetMode(), v.Name)
	}
	return v, nil
}

// maxTries bounds the rounds of a compare-and-swap. Each lost round is somebody else's success.
const maxTries = 10

// claim writes the node's claim to be primary (law 1). v has just been read from the API server.
func (s *Server) claim(ctx context.Context, handle volumehandle.Handle, v *apiv1.AzVolume, node string) (apiv1.Ownership, error) {
	for range maxTries {
		claim, changed, err := ownership.Acquire(v.Status.Primary, node, 0, s.Clock.Now())
		if err != nil {
			return claim, s.refused(ctx, v, err)
		}
		if !changed {
			return claim, nil
		}
		last, err := s.history(ctx, v, node)
		if err != nil {
			return claim, err
		}
		claim, _, _ = ownership.Acquire(v.Status.Primary, node, last, claim.Since.Time)
		err = s.writeClaim(ctx, v, claim, nil)
		if !apierrors.IsConflict(err) {
			return claim, err
		}
		if v, err = s.volume(ctx, handle); err != nil {
			return claim, err
		}
		if v == nil || v.DeletionTimestamp != nil {
			return claim, grpcstatus.Errorf(codes.NotFound, "volume %s is being deleted", handle.VolumeName())
		}
	}
	return apiv1.Ownership{}, grpcstatus.Errorf(codes.Aborted, "volume %s changes too often", v.Name)
}

// refused returns the refusal of a claim with what is being done to release the volume. The cache is good enough for that.
func (s *Server) refused(ctx context.Context, v *apiv1.AzVolume, refusal error) error {
	a, err := s.attachment(ctx, s.Client, v.Name, v.Status.Primary.NodeName)
	wait := attachdetach.Holder(v, a)
	if err != nil || wait.Message == "" || !errors.Is(refusal, provisioner.FailedPrecondition) {
		return refusal
	}
	return provisioner.Errorf(provisioner.FailedPrecondition, "%s", wait.Message)
}

// writeClaim writes a claim if nothing of the AzVolume has changed since v was read, and updates v.
func (s *Server) writeClaim(ctx context.Context, v *apiv1.AzVolume, claim apiv1.Ownership, release *apiv1.ReleaseRecord) error {
	before := v.DeepCopy()
	v.Status.Primary = &claim
	if release != nil {
		v.Status.LastReleasedTime, v.Status.LastRelease = claim.Since, release
	}
	if err := s.Client.Status().Patch(ctx, v, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write claim of node %q: %w", claim.NodeName, err)
	}
	return nil
}

// promote makes the node's attachment a primary as wanted, and says whether it was not. The first look is at the cache: the write
// succeeds only if it showed the truth.
func (s *Server) promote(ctx context.Context, v *apiv1.AzVolume, node identity.Identity, wanted apiv1.AzVolumeAttachmentSpec) (*apiv1.AzVolumeAttachment, bool, error) {
	name := apiv1.AttachmentName(v.Name, node.Name)
	var reader client.Reader = s.Client
	for range maxTries {
		a := &apiv1.AzVolumeAttachment{}
		err := reader.Get(ctx, s.key(name), a)
		reader = s.Reader
		switch {
		case apierrors.IsNotFound(err):
			a = &apiv1.AzVolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: name, Finalizers: []string{apiv1.Finalizer}}, Spec: wanted,
			}
			if err = s.Client.Create(ctx, a); err == nil {
				return a, true, nil
			}
			if !apierrors.IsAlreadyExists(err) {
				return nil, false, fmt.Errorf("create attachment: %w", err)
			}
			continue
		case err != nil:
			return nil, false, fmt.Errorf("get attachment: %w", err)
		case a.DeletionTimestamp != nil && v.Spec.Access == apiv1.AccessMultiNode && !ownership.HasProof(a):
			// It is being taken from the node. There is no claim that could be made anew, so that this has to come to its end first.
			if err := s.unpublishMultiNode(ctx, v, node.Name); err != nil {
				return nil, false, err
			}
			continue
		case a.DeletionTimestamp != nil && a.Spec.Role == apiv1.RolePrimary && a.Spec.Epoch == wanted.Epoch && !ownership.HasProof(a):
			// Somebody deleted the object of a primary. It stays until the release.
			return a, false, compatible(a, wanted)
		case a.DeletionTimestamp != nil:
			if err := s.awaitAttachmentGone(ctx, a); err != nil {
				return nil, false, err
			}
			continue
		case node.Another(a):
			if err := s.remove(ctx, a); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				return nil, false, err
			}
			continue // and wait until it is gone
		case v.Spec.Access == apiv1.AccessMultiNode && ownership.FenceDecided(a):
			// Decided, and not yet deleted. A success now would be taken back a moment later.
			return nil, false, grpcstatus.Errorf(codes.Aborted, "volume %s is being taken from node %s, which was lost", v.Name, node.Name)
		}
		changed, err := s.makePrimary(ctx, a, wanted)
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return a, changed, err
		}
	}
	return nil, false, grpcstatus.Errorf(codes.Aborted, "attachment %s changes too often", name)
}

// compatible refuses a second publish to one node that differs in what may be done there: the node may be using the
// volume as the first one said.
func compatible(a *apiv1.AzVolumeAttachment, wanted apiv1.AzVolumeAttachmentSpec) error {
	if a.Spec.ReadOnly == wanted.ReadOnly {
		return nil
	}
	return grpcstatus.Errorf(codes.AlreadyExists, "volume %s is published to node %s with readonly=%t already, and readonly=%t was asked for",
		a.Spec.VolumeName, a.Spec.NodeName, a.Spec.ReadOnly, wanted.ReadOnly)
}

// makePrimary gives an attachment the role and the epoch of a claim, and says whether it did not have them. A claim that another has overtaken since it was
// written, while this call waited, is Aborted: the attachment is the later one's.
func (s *Server) makePrimary(ctx context.Context, a *apiv1.AzVolumeAttachment, wanted apiv1.AzVolumeAttachmentSpec) (bool, error) {
	if a.Spec.Epoch > wanted.Epoch {
		return false, grpcstatus.Errorf(codes.Aborted, "volume %s was claimed again meanwhile: its attachment to node %s is of epoch %d, and this call's claim of epoch %d",
			a.Spec.VolumeName, a.Spec.NodeName, a.Spec.Epoch, wanted.Epoch)
	}
	again := a.Spec.Role == apiv1.RolePrimary && a.Spec.Epoch == wanted.Epoch
	if again && !ownership.HasProof(a) {
		return false, compatible(a, wanted)
	}
	if a.Spec != wanted {
		before := a.DeepCopy()
		a.Spec = wanted
		if err := s.Client.Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return true, err
		}
	}
	if !again {
		return true, nil
	}
	// The node of a multi-node volume comes back under the same epoch: the
	// proof of the last time must not count for this one.
	before := a.DeepCopy()
	a.Status.Proof = nil
	return true, s.Client.Status().Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// awaitAccepted waits until Azure has accepted to attach the disk, or refused.
func (s *Server) awaitAccepted(ctx context.Context, written *apiv1.AzVolumeAttachment) error {
	reason := "the attachment has not been looked at yet"
	err := s.Watch.until(ctx, func() (bool, error) {
		a := &apiv1.AzVolumeAttachment{}
		err := s.Client.Get(ctx, s.key(written.Name), a)
		if apierrors.IsNotFound(err) || (err == nil && a.UID != written.UID) {
			return false, nil // the cache does not know it yet
		}
		if err != nil {
			return false, err
		}
		switch a.Status.State {
		case apiv1.AttachmentAttached:
			return true, nil
		case apiv1.AttachmentAttaching:
			return a.Status.Operation != nil, nil
		case apiv1.AttachmentFailed:
			if a.Status.ObservedGeneration >= written.Generation && a.Status.Error != nil {
				return true, failureOf(a.Status.Error)
			}
		case apiv1.AttachmentPending, apiv1.AttachmentDetaching, apiv1.AttachmentDetachFail:
		}
		for _, c := range a.Status.Conditions {
			reason = c.Reason + ": " + c.Message
		}
		return false, nil
	}, watched{kindAttachment, written.Name})
	if errors.Is(err, context.DeadlineExceeded) {
		return grpcstatus.Errorf(codes.Aborted, "the disk is not yet being attached (%s)", reason)
	}
	return err
}
