package node

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// rereadInterval is how often claim and attachment are read again while the node waits: the claim is
// not watched, and a watch may end silently.
const rereadInterval = 5 * time.Second

// read reads a volume and this node's attachment at the API server. Errors: NotFound for a volume that does not exist.
func (s *Server) read(ctx context.Context, name string) (*apiv1.AzVolume, *apiv1.AzVolumeAttachment, error) {
	volume := &apiv1.AzVolume{}
	err := s.options.Client.Get(ctx, client.ObjectKey{Namespace: s.options.Namespace, Name: name}, volume)
	if apierrors.IsNotFound(err) {
		return nil, nil, provisioner.Errorf(provisioner.NotFound, "volume %s does not exist", name)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read volume: %w", err)
	}
	s.options.Report.Observe(volume)
	attachment := &apiv1.AzVolumeAttachment{}
	err = s.options.Client.Get(ctx, s.attachmentKey(name), attachment)
	if apierrors.IsNotFound(err) {
		return volume, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read attachment: %w", err)
	}
	return volume, attachment, nil
}

func (s *Server) attachmentKey(volume string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.options.Namespace, Name: apiv1.AttachmentName(volume, s.options.NodeName)}
}

// awaitGrant reads until the node may stage the volume, or may not, or ctx ends. Each verdict comes from
// objects that were read by this call, so the caller must have announced the volume before.
func (s *Server) awaitGrant(ctx context.Context, name string) (*apiv1.AzVolume, Decision, error) {
	var events <-chan watch.Event
	ticker := s.options.Clock.NewTicker(rereadInterval)
	defer ticker.Stop()
	for {
		volume, attachment, err := s.read(ctx, name)
		if err != nil {
			return nil, Decision{}, err
		}
		decision := MayStage(s.options.NodeName, volume, attachment)
		switch decision.Verdict {
		case Stage:
			return volume, decision, nil
		case Refuse:
			return nil, Decision{}, provisioner.Errorf(provisioner.FailedPrecondition, "%s", decision.Reason)
		case Wait:
		}
		if events == nil {
			attachments, err := s.watchAttachment(ctx, name)
			if err != nil {
				return nil, Decision{}, err
			}
			defer attachments.Stop()
			events = attachments.ResultChan()
			logr.FromContextOrDiscard(ctx).Info("waiting for the disk to be attached", "volumeName", name, "reason", decision.Reason)
			// Read once more: it may have been attached before the watch began.
			continue
		}
		select {
		case <-ctx.Done():
			return nil, Decision{}, fmt.Errorf("wait for volume %s: %s: %w", name, decision.Reason, ctx.Err())
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
