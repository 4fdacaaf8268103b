package handover

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/crashpoint"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/refusal"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// ControllerPublishVolume acquires the ownership of a volume for a node, and makes the node's
// attachment the primary. It returns when the disk is attached, or Azure has accepted to attach it;
// the node waits until it is attached. If a change of the disk is due that Azure makes only while the
// disk is attached nowhere, it waits for that, within disk.HoldsFor. Of a paused volume it is refused unless the node has
// the disk. On a node that has a replica, a publish costs one read and two writes, and does not wait.
func (s *Publisher) ControllerPublishVolume(ctx context.Context,
	request *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	handle, err := call.Volume(request.GetVolumeId())
	switch {
	case request.GetNodeId() == "":
		return nil, call.InvalidArgument("node ID: missing")
	case request.GetVolumeCapability() == nil:
		return nil, call.InvalidArgument("volume capability: missing")
	case err != nil:
		return nil, err
	}
	return &csi.ControllerPublishVolumeResponse{},
		s.Do(ctx, handle.VolumeName()+" on node "+request.GetNodeId(),
			func(ctx context.Context) error { return s.publish(ctx, handle, request) })
}

func (s *Publisher) publish(ctx context.Context, handle volumehandle.Handle, request *csi.ControllerPublishVolumeRequest) error {
	node, err := s.node(ctx, request.GetNodeId())
	if err != nil {
		return err
	}
	if node.VMID == "" {
		return grpcstatus.Errorf(codes.Unavailable, "publish to node %s: the VM of the node is not known: %s", node.Name,
			node.Message)
	}
	v, err := s.usable(ctx, handle, request)
	if err != nil {
		return err
	}
	if err := s.unpaused(ctx, v, node); err != nil {
		return err
	}
	epoch, acquired, err := s.mayPublish(ctx, v, node.Name)
	for changing := (*beingChanged)(nil); errors.As(err, &changing); {
		if err := s.awaitChange(ctx, v, changing); err != nil {
			return err
		}
		epoch, acquired, err = s.mayPublish(ctx, v, node.Name)
	}
	if err != nil {
		return err
	}
	crashpoint.At("publish-after-acquire")
	a, changed, err := s.promote(ctx, v, node, apiv1.AzVolumeAttachmentSpec{
		VolumeName: v.Name,
		NodeName:   node.Name,
		Role:       apiv1.RolePrimary,
		Epoch:      epoch,
		ReadOnly:   request.GetReadonly(),
	})
	if err != nil {
		return err
	}
	crashpoint.At("publish-after-promotion")
	warm := a.Status.State == apiv1.AttachmentAttached
	if changed {
		s.promotions.WithLabelValues(strconv.FormatBool(warm)).Inc()
	}
	if warm {
		return nil
	}
	err = s.awaitAccepted(ctx, a)
	if acquired && provisioner.KindOf(err) == provisioner.InsufficientCapacity {
		return s.withdraw(ctx, handle, node.Name, err)
	}
	return err
}

// unpaused refuses to publish a paused volume to a node that does not have the disk: the node would hold the
// ownership until the pause ends, and another one, with a replica, could not use the volume.
func (s *Publisher) unpaused(ctx context.Context, v *apiv1.AzVolume, node identity.Identity) error {
	refused := refusal.Paused(v, "publish volume "+v.Name+" to node "+node.Name)
	if refused == nil {
		return nil
	}
	a, err := s.Attachment(ctx, s.Client, v.Name, node.Name)
	if err != nil || ownership.MayPromote(a) && !node.Another(a) {
		return err
	}
	return refused
}

// mayPublish returns the epoch of the publish, and whether the node has acquired the ownership by
// this call. A volume of several nodes has no ownership.
func (s *Publisher) mayPublish(ctx context.Context, v *apiv1.AzVolume, node string) (epoch int64, acquired bool, err error) {
	if v.Spec.Access == apiv1.AccessSingleNode {
		if err := s.completeRelease(ctx, v, node); err != nil {
			return 0, false, err
		}
		before := cluster.EpochOf(v)
		o, err := s.acquire(ctx, v, node)
		return o.Epoch, o.Epoch > before, err
	}
	attached, err := s.Attachment(ctx, s.Client, v.Name, node)
	if err != nil {
		return 0, false, err
	}
	if left := disk.Holds(v, s.clock.Now()); left > 0 && attached == nil {
		return 0, false, &beingChanged{volume: v.Name, node: node, left: left}
	}
	if asked := attached != nil && attached.Status.VMID != "" && !ownership.Copied(attached); !asked {
		err = s.checkCustody(ctx, v, node)
	}
	return ownership.MultiNodeEpoch, false, err
}

// withdraw releases the ownership that this call acquired, if the node is full: the volume can then
// be published to another node at once. It returns refused. After another refusal, which does not
// depend on the node, the ownership and the attachment remain until an unpublish. The reconciler
// repeats the attach at its own pace, and a repeated publish acquires nothing, asks Azure for
// nothing, and returns what Azure answered last.
func (s *Publisher) withdraw(ctx context.Context, handle volumehandle.Handle, node string, refused error) error {
	v, err := kube.Find[apiv1.AzVolume](ctx, s.Client, s.Key(handle.VolumeName()))
	if err != nil {
		return err
	}
	attachments, err := s.Attachments(ctx, s.Client, handle.VolumeName())
	if err != nil {
		return err
	}
	if attaching.DiskFull(v, attachments) {
		return refused
	}
	if err := s.unpublish(ctx, handle, node); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "cannot release the ownership after a refused publish", "volume",
			handle.VolumeName(), "node", node)
	}
	return refused
}

// reportTimeout limits how long a publish waits for the first report of a node's plug-in. It is
// short, because the call occupies a worker of the caller, and the caller calls again.
const reportTimeout = 10 * time.Second

// node returns which VM a node is, from the cache if it has the node. It waits for the first report
// of a node's plug-in; without one the error is Unavailable. Only a node that does not exist is
// NotFound.
func (s *Publisher) node(ctx context.Context, name string) (identity.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	var d *apiv1.AzDriverNode
	err := s.Watch.Until(ctx, func() (bool, error) {
		var err error
		if d, err = kube.Find[apiv1.AzDriverNode](ctx, s.Client, s.Key(name)); err == nil && d == nil {
			d, err = kube.Find[apiv1.AzDriverNode](ctx, s.Reader, s.Key(name))
		}
		if err != nil || d != nil {
			return err == nil, err
		}
		node, err := kube.Find[corev1.Node](ctx, s.Reader, client.ObjectKey{Name: name})
		if err == nil && node == nil {
			err = grpcstatus.Errorf(codes.NotFound, "publish to node %s: Kubernetes has no such Node", name)
		}
		return false, err
	}, cluster.NodeNamed(name))
	if errors.Is(err, context.DeadlineExceeded) {
		return identity.Identity{}, grpcstatus.Errorf(codes.Unavailable,
			"publish to node %s: its node plug-in has not reported yet; check that it runs there", name)
	}
	if err != nil {
		return identity.Identity{}, err
	}
	return s.identity(ctx, name, d)
}

// identity returns which VM a node is; d is nil if it has no AzDriverNode.
func (s *Publisher) identity(ctx context.Context, name string, d *apiv1.AzDriverNode) (identity.Identity, error) {
	node, err := kube.Find[corev1.Node](ctx, s.Client, client.ObjectKey{Name: name})
	if err == nil && node == nil {
		node, err = kube.Find[corev1.Node](ctx, s.Reader, client.ObjectKey{Name: name})
	}
	if err != nil {
		return identity.Identity{}, err
	}
	return cluster.IdentityOf(ctx, s.Client, node, d)
}

// usable returns the AzVolume if it can be used as the request asks. It adopts a disk that has
// none.
func (s *Publisher) usable(ctx context.Context, handle volumehandle.Handle,
	request *csi.ControllerPublishVolumeRequest) (*apiv1.AzVolume, error) {
	v, err := s.Volume(ctx, handle)
	if err != nil {
		return nil, err
	}
	if err := s.notForStrangers(ctx, handle, v, request.GetNodeId()); err != nil {
		return nil, err
	}
	capabilities := []*csi.VolumeCapability{request.GetVolumeCapability()}
	if v == nil {
		// Whether the disk has enough shares is checked after it has been read.
		a, _, err := call.AccessOf(capabilities, 2)
		if err != nil {
			return nil, err
		}
		if err := s.absent.find(handle, s.clock.Now()); err != nil {
			return nil, err
		}
		if v, err = s.Adopt(ctx, handle, request.GetVolumeContext(), a); err != nil {
			s.absent.note(handle, err, s.clock.Now())
			return nil, err
		}
	}
	if v.Leaving() {
		return nil, grpcstatus.Errorf(codes.NotFound, "volume %s is being deleted", v.Name)
	}
	if err := s.ApplyCachingMode(ctx, v, request.GetVolumeContext(),
		request.GetVolumeCapability().GetBlock() != nil); err != nil {
		return nil, err
	}
	a, fault, err := call.AccessOf(capabilities, v.Shares())
	if err != nil {
		return nil, err
	}
	if fault != "" {
		return nil, call.InvalidArgument("%s", fault)
	}
	if a.Pattern == apiv1.AccessMultiNode && v.Spec.Access != apiv1.AccessMultiNode {
		return nil, call.InvalidArgument("access mode %s: volume %s is for one node at a time",
			request.GetVolumeCapability().GetAccessMode().GetMode(), v.Name)
	}
	return v, nil
}

// awaitAccepted waits until Azure has accepted to attach the disk, or refused it as the disk is: a
// refusal leads to a read of the disk, and to another request if the disk is not what the AzVolume
// says.
func (s *Publisher) awaitAccepted(ctx context.Context, written *apiv1.AzVolumeAttachment) error {
	reason := "the controller has not yet reconciled the attachment"
	err := s.Watch.Until(ctx, func() (bool, error) {
		a := &apiv1.AzVolumeAttachment{}
		err := s.Client.Get(ctx, s.Key(written.Name), a)
		if apierrors.IsNotFound(err) || (err == nil && a.UID != written.UID) {
			return false, nil // the cache does not have it yet
		}
		if err != nil {
			return false, err
		}
		switch a.Status.State {
		case apiv1.AttachmentAttached:
			return true, nil
		case apiv1.AttachmentAttaching:
			if a.Status.Operation != nil {
				return true, nil
			}
		case apiv1.AttachmentFailed:
			if a.Status.ObservedGeneration < written.Generation || a.Status.Error == nil {
				break
			}
			v, err := kube.Find[apiv1.AzVolume](ctx, s.Client, s.Key(a.Spec.VolumeName), client.UnsafeDisableDeepCopy)
			if err != nil {
				return false, err
			}
			if !disk.DiskMustBeRead(v, a) && !disk.DiskDiffers(v, a) {
				return true, call.Failure(a.Status.Error)
			}
		case apiv1.AttachmentPending, apiv1.AttachmentDetaching, apiv1.AttachmentDetachFail:
		}
		reason = lastReason(a, reason)
		return false, nil
	}, cluster.AttachmentNamed(written.Name), cluster.VolumeNamed(written.Spec.VolumeName))
	if errors.Is(err, context.DeadlineExceeded) {
		return grpcstatus.Errorf(codes.Aborted, "attach volume %s to node %s: Azure has not accepted yet (%s)",
			written.Spec.VolumeName, written.Spec.NodeName, reason)
	}
	return err
}
