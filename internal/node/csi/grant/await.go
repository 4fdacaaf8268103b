package grant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/publishing"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// RereadInterval is how often the node reads ownership and attachment again while it waits: it does
// not watch the ownership, and a watch may end without an error.
const RereadInterval = 5 * time.Second

// publishPatience is how long a NodeStageVolume waits for the publish. The kubelet waits longer for
// the answer, so that the answer can say what is missing.
const publishPatience = time.Minute

// holderTimeout limits the last read of a wait whose own context has ended.
const holderTimeout = 10 * time.Second

// Look reads the volume and this node's attachment. With AwaitPublish it repeats that until the
// node may stage the volume or only has to wait for the attach. The node has not announced the
// volume yet, so that a hand-over to another node does not wait for this one. Errors: NotFound if
// the volume does not exist.
func (r *Reader) Look(ctx context.Context, disk volumehandle.Handle) (*apiv1.AzVolume, *apiv1.AzVolumeAttachment, error) {
	name := disk.VolumeName()
	volume, attachment, err := r.Read(ctx, disk)
	if !r.AwaitPublish || !r.unpublished(volume, attachment, err) {
		return volume, attachment, err
	}
	logr.FromContextOrDiscard(ctx).Info("waiting for the volume to be published to this node", "volumeName", name)
	waiting, cancel := context.WithTimeout(ctx, publishPatience)
	defer cancel()
	err = r.await(waiting, name, func() (bool, error) {
		v, a, err := r.Read(waiting, disk)
		if err == nil || errors.Is(err, provisioner.NotFound) {
			volume, attachment = v, a // a read that failed because the wait ended says nothing about the volume
		}
		if r.unpublished(v, a, err) {
			return false, nil
		}
		return true, err
	})
	if waiting.Err() != nil && r.unpublished(volume, attachment, nil) {
		return nil, nil, provisioner.Errorf(provisioner.FailedPrecondition, "%s", r.whyUnpublished(ctx, name, volume, attachment))
	}
	return volume, attachment, err
}

// unpublished reports whether the node may not stage the volume yet, and this can change without an
// action of the node.
func (r *Reader) unpublished(volume *apiv1.AzVolume, attachment *apiv1.AzVolumeAttachment, err error) bool {
	if err != nil {
		return errors.Is(err, provisioner.NotFound) // the controller may still adopt the disk
	}
	return volume == nil || r.MayStage(volume, attachment).Outcome == ownership.StageRefused
}

// whyUnpublished says why the volume was not published during the wait: which node holds the
// ownership, and what the controller does about it.
func (r *Reader) whyUnpublished(ctx context.Context, name string, volume *apiv1.AzVolume,
	attachment *apiv1.AzVolumeAttachment) string {
	if volume == nil {
		return fmt.Sprintf("volume %s is not published to node %s: AzVolume %s does not exist", name, r.NodeName, name)
	}
	reason := r.MayStage(volume, attachment).Reason
	primary := volume.Status.Primary
	if primary == nil || primary.NodeName == r.NodeName {
		return reason
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), holderTimeout)
	defer cancel()
	holder, err := r.Attachment(ctx, name, primary.NodeName)
	if wait := publishing.Holder(volume, holder); err == nil && wait.Message != "" {
		return wait.Message
	}
	return reason
}

// Await reads the volume and the attachment until the node may stage the volume, or staging is
// refused, or ctx ends. It decides only on objects that this call has read, so the caller must
// announce the volume first.
func (r *Reader) Await(ctx context.Context, disk volumehandle.Handle) (*apiv1.AzVolume, ownership.StageDecision, error) {
	name := disk.VolumeName()
	var volume *apiv1.AzVolume
	var decision ownership.StageDecision
	err := r.await(ctx, name, func() (bool, error) {
		current, attachment, err := r.Read(ctx, disk)
		if err != nil {
			return false, err
		}
		first := decision.Outcome == ""
		volume, decision = current, r.MayStage(current, attachment)
		switch {
		case decision.Outcome == ownership.StageRefused:
			return false, provisioner.Errorf(provisioner.FailedPrecondition, "%s", decision.Reason)
		case decision.Outcome == ownership.StageMustWait && first:
			logr.FromContextOrDiscard(ctx).Info("waiting for the disk to be attached", "volumeName", name, "reason",
				decision.Reason)
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

// await calls check until it reports done, fails, or ctx ends: immediately, after each change of
// this node's attachment, and every RereadInterval.
func (r *Reader) await(ctx context.Context, name string, check func() (bool, error)) error {
	var events <-chan watch.Event
	ticker := r.Clock.NewTicker(RereadInterval)
	defer ticker.Stop()
	for {
		if done, err := check(); done || err != nil {
			return err
		}
		if events == nil {
			attachments, err := r.watchAttachment(ctx, name)
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

func (r *Reader) watchAttachment(ctx context.Context, volume string) (watch.Interface, error) {
	attachments, err := r.Client.Watch(ctx, &apiv1.AzVolumeAttachmentList{},
		client.InNamespace(r.Namespace), client.MatchingFields{"metadata.name": apiv1.AttachmentName(volume, r.NodeName)})
	if err != nil {
		return nil, fmt.Errorf("watch attachment: %w", err)
	}
	return attachments, nil
}
