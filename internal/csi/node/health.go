package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/azuredisk-csi/azuredisk/internal/csi/status"
	"github.com/azuredisk-csi/azuredisk/internal/nodereport"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// answerTimeout is how long a disk has to answer a read before it counts as failed. Azure's slowest take well under a second.
const answerTimeout = 5 * time.Second

// Reasons of what is wrong with a volume on this node.
const (
	reasonDeviceGone      = "DeviceGone"
	reasonReadFailed      = "ReadFailed"
	reasonFilesystemStops = "FilesystemTakesNoWrites"
	reasonAttachment      = "AttachmentFailed"
	reasonNoDiskAnswers   = "NoDiskAnswers"
)

// NodeGetVolumeHealth implements csi.NodeServer. Errors: NotFound for a volume that is neither staged here nor published to this node.
func (s *Server) NodeGetVolumeHealth(ctx context.Context, request *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	entries, err := s.volumeHealth(ctx, request.GetVolumeId())
	if err != nil {
		return nil, status.From(err)
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: &csi.VolumeHealth{VolumeId: request.GetVolumeId(), HealthStatuses: entries}}, nil
}

func (s *Server) volumeHealth(ctx context.Context, volumeID string) ([]*csi.VolumeHealth_VolumeHealthEntry, error) {
	if volumeID == "" {
		return nil, invalid("volume_id is missing")
	}
	disk, err := parseID(volumeID)
	if err != nil {
		return nil, err
	}
	record, recorded, err := s.record(disk)
	if err != nil {
		return nil, err
	}
	if recorded && record.BootID == s.options.BootID {
		return s.faults(ctx, record)
	}
	_, attachment, err := s.read(ctx, disk)
	if err != nil {
		return nil, err
	}
	if attachment == nil {
		return nil, provisioner.Errorf(provisioner.NotFound, "volume %s is not published to node %s", disk.VolumeName(), s.options.NodeName)
	}
	if failure := attachment.Status.Error; failure != nil {
		return []*csi.VolumeHealth_VolumeHealthEntry{unhealthy(csi.VolumeHealthErrorType_INACCESSIBLE, reasonAttachment, failure.Message)}, nil
	}
	return nil, nil
}

// faults looks at a volume that is staged here: whether its disk answers, and whether its filesystem takes writes.
func (s *Server) faults(ctx context.Context, record nodereport.Record) ([]*csi.VolumeHealth_VolumeHealthEntry, error) {
	var found []*csi.VolumeHealth_VolumeHealthEntry
	if err := s.answers(ctx, record.Device); err != nil {
		reason := reasonReadFailed
		if errors.Is(err, provisioner.NotFound) {
			reason = reasonDeviceGone
		}
		found = append(found, unhealthy(csi.VolumeHealthErrorType_INACCESSIBLE, reason, err.Error()))
	}
	if record.Block || record.ReadOnly {
		return found, nil
	}
	mount, mounted, err := s.mountAt(ctx, record.StagingPath)
	if err != nil {
		return nil, err
	}
	if mounted && mount.Sealed {
		found = append(found, unhealthy(csi.VolumeHealthErrorType_DEGRADED, reasonFilesystemStops,
			fmt.Sprintf("the %s on %s takes no writes any more; the kernel does so after an error", mount.FSType, mount.Source)))
	}
	return found, nil
}

func (s *Server) answers(ctx context.Context, device string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return s.options.Host.Devices().Read(ctx, device)
}

func unhealthy(kind csi.VolumeHealthErrorType, reason, message string) *csi.VolumeHealth_VolumeHealthEntry {
	return &csi.VolumeHealth_VolumeHealthEntry{Status: kind, Reason: reason, Message: message}
}

// abnormal puts what is wrong with a volume into one line; "" for nothing.
func abnormal(entries []*csi.VolumeHealth_VolumeHealthEntry) string {
	lines := make([]string, 0, len(entries))
	for _, entry := range entries {
		lines = append(lines, entry.GetReason()+": "+entry.GetMessage())
	}
	return strings.Join(lines, "; ")
}

// NodeGetStorageHealth implements csi.NodeServer. Storage as a whole is out of reach when there is more than one disk here and none
// answers; a single disk that fails is the volume's own matter.
func (s *Server) NodeGetStorageHealth(ctx context.Context, _ *csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse, error) {
	silent, total, err := s.silentDisks(ctx)
	if err != nil {
		return nil, status.From(err)
	}
	response := &csi.NodeGetStorageHealthResponse{}
	if total > 1 && silent == total {
		response.BackendHealth = []*csi.NodeGetStorageHealthResponse_StorageBackendHealth{{
			Status: csi.StorageHealthErrorType_STORAGE_UNREACHABLE, Reason: reasonNoDiskAnswers,
			Message: fmt.Sprintf("none of the %d disks that are in use on node %s answers", total, s.options.NodeName),
		}}
	}
	return response, nil
}

// silentDisks counts the disks that are in use here, and those of them that do not answer. All are asked at once.
func (s *Server) silentDisks(ctx context.Context) (silent, total int, err error) {
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
			if s.answers(ctx, record.Device) != nil {
				mu.Lock()
				defer mu.Unlock()
				silent++
			}
		})
	}
	wait.Wait()
	return silent, total, nil
}
