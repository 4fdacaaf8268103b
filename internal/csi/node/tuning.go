package node

import (
	"context"
	"fmt"
	"strconv"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/volumeparams"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// tune writes the kernel's settings for the volume's disk that its performance profile asks for. A setting that cannot be
// made fails the call: the volume would not do what its StorageClass says.
func (s *Server) tune(ctx context.Context, use usage, volume *apiv1.AzVolume, disk string) error {
	settings := deviceSettings(use.tuning, volume)
	if len(settings) == 0 {
		return nil
	}
	if err := s.options.Host.Tuner().Tune(ctx, disk, settings); err != nil {
		return fmt.Errorf("tune device of volume %s: %w", use.volume, err)
	}
	return nil
}

func deviceSettings(tuning volumeparams.Tuning, volume *apiv1.AzVolume) []provisioner.DeviceSetting {
	switch tuning.Profile {
	case volumeparams.ProfileBasic:
		return basicSettings(performanceOf(volume))
	case volumeparams.ProfileAdvanced:
		settings := make([]provisioner.DeviceSetting, 0, len(tuning.Settings))
		for _, setting := range tuning.Settings {
			settings = append(settings, provisioner.DeviceSetting{Path: setting.Path, Value: setting.Value})
		}
		return settings
	default:
		return nil
	}
}

// performanceOf returns what the volume's disk can do, as it is now: also after a modification.
func performanceOf(volume *apiv1.AzVolume) volumeparams.Performance {
	disk := volume.Spec.Disk
	p := volumeparams.Parameters{
		SKUName: disk.SKUName, Tier: disk.Tier, DiskIOPSReadWrite: disk.DiskIOPSReadWrite, DiskMBpsReadWrite: disk.DiskMBpsReadWrite,
	}
	return p.Performance(max(volume.Status.SizeBytes, volume.Spec.CapacityBytes))
}

const (
	// basicScheduler is V1's: requests are merged and none waits for ever.
	basicScheduler = "mq-deadline"
	// basicReadAheadKB is V1's. Most that runs on such a disk is a database, which reads at random.
	basicReadAheadKB = 8
	// typicalLatencyMS is how long a request takes that a disk serves within its limits.
	typicalLatencyMS = 4
	minQueueDepth    = 8
	maxQueueDepth    = 256
	// pageKB is what the kernel rounds a request's size to.
	pageKB = 4
)

// basicSettings computes settings for a disk of the performance.
//
// Requests are cut to the size at which the disk reaches both of its limits at once, so that a large one does not
// hold up the small ones for longer than need be. As many are let out to the disk as it takes to have the IOPS at the usual
// latency (Little's law), and the scheduler may keep twice as many to choose from. The scheduler comes first: the kernel
// allows the larger number of requests only with one. The read-ahead comes last: the kernel computes it anew when the size of requests changes.
func basicSettings(p volumeparams.Performance) []provisioner.DeviceSetting {
	if p.IOPS <= 0 || p.MBps <= 0 {
		return nil
	}
	depth := min(max(ceiling(p.IOPS*typicalLatencyMS, 1000), minQueueDepth), maxQueueDepth)
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	return []provisioner.DeviceSetting{
		{Path: "queue/scheduler", Value: basicScheduler},
		{Path: "queue/max_sectors_kb", Value: number(ceiling(ceiling(p.MBps*1000, p.IOPS), pageKB) * pageKB), Ceiling: "queue/max_hw_sectors_kb"},
		// Devices other than SCSI have no such setting.
		{Path: "device/queue_depth", Value: number(depth), Optional: true},
		{Path: "queue/nr_requests", Value: number(2 * depth)},
		{Path: "queue/read_ahead_kb", Value: number(basicReadAheadKB)},
	}
}

func ceiling(a, b int64) int64 { return (a + b - 1) / b }
