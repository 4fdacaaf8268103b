package csi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/usage"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/problem"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Reasons why a volume is unhealthy on this node.
const (
	reasonDeviceGone    = apiv1.ReasonDeviceGone
	reasonReadFailed    = apiv1.ReasonReadFailed
	reasonAttachment    = "AttachmentFailed"
	reasonNoDiskAnswers = "NoDiskAnswers"
)

// NodeGetVolumeHealth implements csi.NodeServer. Errors: NotFound for a volume that is neither
// staged on nor published to this node.
func (s *Server) NodeGetVolumeHealth(ctx context.Context,
	request *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	entries, err := s.volumeHealth(ctx, request.GetVolumeId())
	if err != nil {
		return nil, status.From(err)
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: &csi.VolumeHealth{
		VolumeId:       request.GetVolumeId(),
		HealthStatuses: entries,
	}}, nil
}

func (s *Server) volumeHealth(ctx context.Context, volumeID string) ([]*csi.VolumeHealth_VolumeHealthEntry, error) {
	if volumeID == "" {
		return nil, provisioner.Errorf(provisioner.InvalidArgument, "volume_id is missing")
	}
	disk, err := usage.ParseID(volumeID)
	if err != nil {
		return nil, err
	}
	record, _, err := s.options.Records.Of(disk)
	if err != nil {
		return nil, err
	}
	if record.BootID == s.options.BootID {
		return s.faults(ctx, record)
	}
	_, attachment, err := s.grants.Read(ctx, disk)
	if err != nil {
		return nil, err
	}
	if attachment == nil {
		return nil, provisioner.Errorf(provisioner.NotFound, "volume %s is not published to node %s", disk.VolumeName(),
			s.options.NodeName)
	}
	if failure := attachment.Status.Error; failure != nil {
		return []*csi.VolumeHealth_VolumeHealthEntry{unhealthy(csi.VolumeHealthErrorType_INACCESSIBLE, reasonAttachment,
			failure.Message)}, nil
	}
	return nil, nil
}

// faults checks a volume that is staged on this node: whether its disk answers, and whether its
// filesystem is writable.
func (s *Server) faults(ctx context.Context, record nodereport.Record) ([]*csi.VolumeHealth_VolumeHealthEntry, error) {
	var found []*csi.VolumeHealth_VolumeHealthEntry
	if err := s.devices.Answers(ctx, record.Device); err != nil {
		reason := reasonReadFailed
		if errors.Is(err, provisioner.NotFound) {
			reason = reasonDeviceGone
		}
		found = append(found, unhealthy(csi.VolumeHealthErrorType_INACCESSIBLE, reason, err.Error()))
	}
	if record.Block || record.ReadOnly {
		return found, nil
	}
	mount, mounted, err := s.devices.MountAt(ctx, record.StagingPath)
	if err != nil {
		return nil, err
	}
	if mounted && mount.Sealed {
		reason, message := problem.OfFilesystem(filesystemAt(mount))
		found = append(found, unhealthy(csi.VolumeHealthErrorType_DEGRADED, reason, message))
	}
	return found, nil
}

func unhealthy(kind csi.VolumeHealthErrorType, reason, message string) *csi.VolumeHealth_VolumeHealthEntry {
	return &csi.VolumeHealth_VolumeHealthEntry{
		Status:  kind,
		Reason:  reason,
		Message: message,
	}
}

// abnormal joins the entries into one line; "" for none.
func abnormal(entries []*csi.VolumeHealth_VolumeHealthEntry) string {
	lines := make([]string, 0, len(entries))
	for _, entry := range entries {
		lines = append(lines, entry.GetReason()+": "+entry.GetMessage())
	}
	return strings.Join(lines, "; ")
}

// NodeGetStorageHealth implements csi.NodeServer. It reports storage as unreachable if more than
// one disk is in use on this node and none answers. The failure of a single disk is reported with
// its volume.
func (s *Server) NodeGetStorageHealth(ctx context.Context, _ *csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse,
	error) {
	unanswering, total, err := s.unansweringDisks(ctx)
	if err != nil {
		return nil, status.From(err)
	}
	response := &csi.NodeGetStorageHealthResponse{}
	if total > 1 && unanswering == total {
		response.BackendHealth = []*csi.NodeGetStorageHealthResponse_StorageBackendHealth{{
			Status: csi.StorageHealthErrorType_STORAGE_UNREACHABLE, Reason: reasonNoDiskAnswers,
			Message: fmt.Sprintf("none of the %d disks that are in use on node %s answers", total, s.options.NodeName),
		}}
	}
	return response, nil
}

// unansweringDisks counts the disks that are in use on this node, and those among them that do not
// answer. It reads all of them at the same time.
func (s *Server) unansweringDisks(ctx context.Context) (unanswering, total int, err error) {
	records, err := s.options.Records.List()
	if err != nil {
		return 0, 0, err
	}
	var wait sync.WaitGroup
	var mu sync.Mutex
	for _, record := range records {
		if record.BootID != s.options.BootID {
			continue
		}
		total++
		wait.Go(func() {
			if s.devices.Answers(ctx, record.Device) != nil {
				mu.Lock()
				defer mu.Unlock()
				unanswering++
			}
		})
	}
	wait.Wait()
	return unanswering, total, nil
}
