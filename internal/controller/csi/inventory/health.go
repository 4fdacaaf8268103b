package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/pagetoken"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/refusal"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Reasons of the faults of a volume, besides those of internal/plan.
const (
	reasonDiskMissing      = "DiskMissing"
	reasonAttachmentFailed = "AttachmentFailed"
	reasonPrimaryNodeLost  = "PrimaryNodeLost"
)

// healthList is the kind of the list in its paging tokens.
const healthList = "volume health"

// ControllerGetVolumeHealth reports the faults of a volume. It asks Azure whether the disk exists, unless the
// volume is paused.
func (s *Lister) ControllerGetVolumeHealth(ctx context.Context,
	request *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	handle, err := call.Volume(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	entries, err := s.healthOf(ctx, handle)
	if err != nil {
		return nil, status.From(err)
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: &csi.VolumeHealth{
		VolumeId:       request.GetVolumeId(),
		HealthStatuses: entries,
	}}, nil
}

func (s *Lister) healthOf(ctx context.Context, handle volumehandle.Handle) ([]*csi.VolumeHealth_VolumeHealthEntry, error) {
	v, err := s.Volume(ctx, handle)
	if err != nil {
		return nil, err
	}
	if refusal.Paused(v, "") == nil {
		_, err = s.Disks.Get(ctx, handle.String())
	}
	missing := errors.Is(err, provisioner.NotFound)
	switch {
	case err != nil && !missing:
		return nil, fmt.Errorf("read disk: %w", err)
	case missing && v == nil:
		return nil, grpcstatus.Errorf(codes.NotFound, "there is no disk %s", handle)
	case v == nil:
		return nil, nil
	}
	entries, err := s.volumeFaults(ctx, v)
	if missing && v.Status.DiskID != "" && !v.Leaving() {
		entries = append(entries, diskMissing(handle))
	}
	return entries, err
}

func diskMissing(handle volumehandle.Handle) *csi.VolumeHealth_VolumeHealthEntry {
	return unhealthy(csi.VolumeHealthErrorType_DATA_LOSS, reasonDiskMissing,
		fmt.Sprintf("disk %s does not exist at Azure any more", handle))
}

// diskGone reports whether the disk of a volume that was created is not at Azure any more.
func (s *Lister) diskGone(ctx context.Context, v *apiv1.AzVolume, left *int) bool {
	if v.Status.DiskID == "" || v.Leaving() || refusal.Paused(v, "") != nil {
		return false
	}
	since := v.CreationTimestamp.Time
	if c := meta.FindStatusCondition(v.Status.Conditions, apiv1.VolumeConditionReady); c != nil &&
		c.LastTransitionTime.After(since) {
		since = c.LastTransitionTime.Time
	}
	gone, err := s.cached.gone(ctx, volumehandle.Of(v.Spec.Disk), since, left)
	if err != nil {
		logr.FromContextOrDiscard(ctx).V(1).Info("cannot read whether the disk exists", "volume", v.Name, "reason", err.Error())
	}
	return gone
}

// ControllerListVolumeHealth lists the volumes with a fault that the custom resources show, and
// those whose disk Azure does not have any more, by a list of disks that is at most a few minutes
// old. If Azure does not answer, it lists the first kind only.
func (s *Lister) ControllerListVolumeHealth(ctx context.Context,
	request *csi.ControllerListVolumeHealthRequest) (*csi.ControllerListVolumeHealthResponse, error) {
	var all apiv1.AzVolumeList
	if err := s.Client.List(ctx, &all, client.InNamespace(s.Namespace)); err != nil {
		return nil, status.From(fmt.Errorf("list volumes: %w", err))
	}
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	var faulty []*csi.VolumeHealth
	left := mostLookedFor
	for i := range all.Items {
		entries, err := s.volumeFaults(ctx, &all.Items[i])
		if err != nil {
			return nil, status.From(err)
		}
		if s.diskGone(ctx, &all.Items[i], &left) {
			entries = append(entries, diskMissing(volumehandle.Of(all.Items[i].Spec.Disk)))
		}
		if len(entries) > 0 {
			faulty = append(faulty, &csi.VolumeHealth{
				VolumeId:       volumehandle.Of(all.Items[i].Spec.Disk).String(),
				HealthStatuses: entries,
			})
		}
	}
	page := pagetoken.Page{
		Of:            healthList,
		StartingToken: request.GetStartingToken(),
		MaxEntries:    request.GetMaxEntries(),
	}
	entries, next, err := pagetoken.Cut(page, faulty, (*csi.VolumeHealth).GetVolumeId)
	if err != nil {
		return nil, status.From(err)
	}
	return &csi.ControllerListVolumeHealthResponse{Entries: entries, NextToken: next}, nil
}

// volumeFaults returns the faults of a volume that the custom resources show.
func (s *Lister) volumeFaults(ctx context.Context, v *apiv1.AzVolume) ([]*csi.VolumeHealth_VolumeHealthEntry, error) {
	var found []*csi.VolumeHealth_VolumeHealthEntry
	if v.Status.State == apiv1.VolumeCreationFailed {
		found = append(found, unhealthy(csi.VolumeHealthErrorType_INACCESSIBLE, apiv1.ReasonDiskCreationFailed,
			messageOf(v.Status.Error)))
	}
	if c := meta.FindStatusCondition(v.Status.Conditions, apiv1.VolumeConditionReplicasAttached); c != nil &&
		c.Reason == apiv1.ReasonReplicasMissing {
		found = append(found, unhealthy(csi.VolumeHealthErrorType_DEGRADED, c.Reason, c.Message))
	}
	// If one of several nodes has no access, the others still have it.
	kind := csi.VolumeHealthErrorType_INACCESSIBLE
	if v.Spec.Access == apiv1.AccessMultiNode {
		kind = csi.VolumeHealthErrorType_DEGRADED
	}
	attachments, err := s.Attachments(ctx, s.Client, v.Name)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, a := range attachments {
		if a.Spec.Role != apiv1.RolePrimary {
			continue
		}
		reason, message, err := s.primaryFault(ctx, a)
		if err != nil {
			return nil, err
		}
		// One entry for a reason.
		if reason != "" && !seen[reason] {
			seen[reason] = true
			found = append(found, unhealthy(kind, reason, message))
		}
	}
	return found, nil
}

// primaryFault says why the node of a primary cannot use the volume; "" if it can.
func (s *Lister) primaryFault(ctx context.Context, a *apiv1.AzVolumeAttachment) (reason, message string, err error) {
	if a.Status.State == apiv1.AttachmentFailed {
		return reasonAttachmentFailed, fmt.Sprintf("node %s: %s", a.Spec.NodeName, messageOf(a.Status.Error)), nil
	}
	d, err := kube.Find[apiv1.AzDriverNode](ctx, s.Client, s.Key(a.Spec.NodeName))
	if err != nil || d == nil {
		return "", "", err
	}
	if state, c := nodehealth.Published(d); state.LostOrDown() {
		return reasonPrimaryNodeLost, fmt.Sprintf("node %s: %s", d.Name, c.Message), nil
	}
	return "", "", nil
}

func messageOf(e *apiv1.Error) string {
	if e == nil {
		return ""
	}
	return e.Message
}

func unhealthy(kind csi.VolumeHealthErrorType, reason, message string) *csi.VolumeHealth_VolumeHealthEntry {
	return &csi.VolumeHealth_VolumeHealthEntry{
		Status:  kind,
		Reason:  reason,
		Message: message,
	}
}
