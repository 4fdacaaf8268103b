package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attachdetach"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// rereadInterval is how often the node reads ownership and attachment again while it waits: it does not watch the
// ownership, and a watch may end without an error.
const rereadInterval = 5 * time.Second

// lookup returns the volume of a disk and this node's attachment, which is nil if there is none.
type lookup func(ctx context.Context, disk volumehandle.Handle) (*apiv1.AzVolume, *apiv1.AzVolumeAttachment, error)

// read reads the volume of a disk and this node's attachment at the API server. Errors: NotFound if the volume does not
// exist, errOtherDisk if it is another disk's.
func (s *Server) read(ctx context.Context, disk volumehandle.Handle) (*apiv1.AzVolume, *apiv1.AzVolumeAttachment, error) {
	name, volume := disk.VolumeName(), &apiv1.AzVolume{}
	err := s.options.Client.Get(ctx, client.ObjectKey{Namespace: s.options.Namespace, Name: name}, volume)
	if apierrors.IsNotFound(err) {
		return nil, nil, provisioner.Errorf(provisioner.NotFound, "volume %s does not exist", name)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read volume: %w", err)
	}
	if err := checkVolume(volume, disk); err != nil {
		return nil, nil, err
	}
	s.options.Report.Observe(volume)
	attachment, err := s.readAttachment(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	return volume, attachment, nil
}

// readAttachment reads this node's attachment of a volume at the API server. It returns nil if there is none.
func (s *Server) readAttachment(ctx context.Context, volume string) (*apiv1.AzVolumeAttachment, error) {
	attachment := &apiv1.AzVolumeAttachment{}
	err := s.options.Client.Get(ctx, s.attachmentKey(volume), attachment)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read attachment: %w", err)
	}
	return attachment, nil
}

// publishPatience is how long a NodeStageVolume waits for the publish. The kubelet waits longer for the answer, so that
// the answer can say what is missing.
const publishPatience = time.Minute

// look reads the volume and this node's attachment. With AwaitPublish it repeats that until the node may stage the
// volume or only has to wait for the attach. The node has not announced the volume yet, so that a hand-over to another
// node does not wait for this one. Errors: NotFound if the volume does not exist.
func (s *Server) look(ctx context.Context, disk volumehandle.Handle) (*apiv1.AzVolume, *apiv1.AzVolumeAttachment, error) {
	name := disk.VolumeName()
	volume, attachment, err := s.read(ctx, disk)
	if !s.options.AwaitPublish || !s.unpublished(volume, attachment, err) {
		return volume, attachment, err
	}
	logr.FromContextOrDiscard(ctx).Info("waiting for the volume to be published to this node", "volumeName", name)
	waiting, cancel := context.WithTimeout(ctx, publishPatience)
	defer cancel()
	err = s.await(waiting, name, func() (bool, error) {
		v, a, err := s.read(waiting, disk)
		if err == nil || errors.Is(err, provisioner.NotFound) {
			volume, attachment = v, a // a read that failed because the wait ended says nothing about the volume
		}
		if s.unpublished(v, a, err) {
			return false, nil
		}
		return true, err
	})
	if waiting.Err() != nil && s.unpublished(volume, attachment, nil) {
		return nil, nil, provisioner.Errorf(provisioner.FailedPrecondition, "%s", s.whyUnpublished(ctx, name, volume, attachment))
	}
	return volume, attachment, err
}

// unpublished says that the node may not stage the volume yet, and that this can change without an action of the node.
func (s *Server) unpublished(volume *apiv1.AzVolume, attachment *apiv1.AzVolumeAttachment, err error) bool {
	if err != nil {
		return errors.Is(err, provisioner.NotFound) // the controller may still adopt the disk
	}
	return volume == nil || s.mayStage(volume, attachment).Outcome == ownership.StageRefused
}

// whyUnpublished says why the volume was not published during the wait: which node holds the ownership, and what the
// controller does about it.
func (s *Server) whyUnpublished(ctx context.Context, name string, volume *apiv1.AzVolume, attachment *apiv1.AzVolumeAttachment) string {
	if volume == nil {
		return fmt.Sprintf("volume %s is not published to node %s: AzVolume %s does not exist", name, s.options.NodeName, name)
	}
	reason := s.mayStage(volume, attachment).Reason
	primary := volume.Status.Primary
	if primary == nil || primary.NodeName == "" || primary.NodeName == s.options.NodeName {
		return reason
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	holder := &apiv1.AzVolumeAttachment{}
	err := s.options.Client.Get(ctx, client.ObjectKey{Namespace: s.options.Namespace, Name: apiv1.AttachmentName(name, primary.NodeName)}, holder)
	switch {
	case apierrors.IsNotFound(err):
		holder = nil
	case err != nil:
		return reason
	}
	if wait := attachdetach.Holder(volume, holder); wait.Message != "" {
		return wait.Message
	}
	return reason
}

func (s *Server) mayStage(volume *apiv1.AzVolume, attachment *apiv1.AzVolumeAttachment) ownership.StageDecision {
	return ownership.MayStage(s.options.NodeName, s.options.Instance.VMID, volume, attachment)
}

func (s *Server) attachmentKey(volume string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.options.Namespace, Name: apiv1.AttachmentName(volume, s.options.NodeName)}
}

// awaitGrant reads the volume and the attachment until the node may stage the volume, or staging is refused, or ctx
// ends. It decides only on objects that this call has read, so the caller must announce the volume first.
func (s *Server) awaitGrant(ctx context.Context, disk volumehandle.Handle) (*apiv1.AzVolume, ownership.StageDecision, error) {
	name := disk.VolumeName()
	var volume *apiv1.AzVolume
	var decision ownership.StageDecision
	err := s.await(ctx, name, func() (bool, error) {
		current, attachment, err := s.read(ctx, disk)
		if err != nil {
			return false, err
		}
		first := decision.Outcome == ""
		volume, decision = current, s.mayStage(current, attachment)
		switch {
		case decision.Outcome == ownership.StageRefused:
			return false, provisioner.Errorf(provisioner.FailedPrecondition, "%s", decision.Reason)
		case decision.Outcome == ownership.StageMustWait && first:
			logr.FromContextOrDiscard(ctx).Info("waiting for the disk to be attached", "volumeName", name, "reason", decision.Reason)
		}
		return decision.Outcome == ownership.StageAllowed, nil
	})
	switch {
	case err == nil:
		return volume, decision, nil
	case decision.Outcome == ownership.StageMustWait && ctx.Err() != nil:
		return nil, ownership.StageDecision{}, fmt.Errorf("wait for volume %s: %s: %w", name, decision.Reason, ctx.Err())
	default:
		return nil, ownership.StageDecision{}, err
	}
}

// await calls check until it reports done, fails, or ctx ends: immediately, after each change of this node's
// attachment, and every rereadInterval.
func (s *Server) await(ctx context.Context, name string, check func() (bool, error)) error {
	var events <-chan watch.Event
	ticker := s.options.Clock.NewTicker(rereadInterval)
	defer ticker.Stop()
	for {
		if done, err := check(); done || err != nil {
			return err
		}
		if events == nil {
			attachments, err := s.watchAttachment(ctx, name)
			if err != nil {
				return err
			}
			defer attachments.Stop()
			events = attachments.ResultChan()
			// Check again: the attachment may have changed before the watch began.
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case _, open := <-events:
			if !open {
				events = nil
			}
		case <-ticker.C():
		}
	}
}

func (s *Server) watchAttachment(ctx context.Context, volume string) (watch.Interface, error) {
	attachments, err := s.options.Client.Watch(ctx, &apiv1.AzVolumeAttachmentList{},
		client.InNamespace(s.options.Namespace), client.MatchingFields{"metadata.name": s.attachmentKey(volume).Name})
	if err != nil {
		return nil, fmt.Errorf("watch attachment: %w", err)
	}
	return attachments, nil
}
