package device

import (
	"context"
	"fmt"
	"strconv"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/usage"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Tune writes the kernel settings of the volume's performance profile for its disk. If a setting
// cannot be written, the call fails, because the volume would not perform as its StorageClass says.
func (f *Finder) Tune(ctx context.Context, use usage.Usage, volume *apiv1.AzVolume, disk string) error {
	settings := deviceSettings(use.Tuning, volume)
	if len(settings) == 0 {
		return nil
	}
	if err := f.Host.Tuner().Tune(ctx, disk, settings); err != nil {
		return fmt.Errorf("tune device of volume %s: %w", use.Volume, err)
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

// performanceOf returns the current performance of the volume's disk, also after a modification.
func performanceOf(volume *apiv1.AzVolume) volumeparams.Performance {
	p := volumeparams.Parameters{DiskParameters: volume.Spec.Disk}
	return p.Performance(max(volume.Status.SizeBytes, volume.Spec.CapacityBytes))
}

const (
	// basicScheduler is the V1 driver's: it merges requests, and no request waits for ever.
	basicScheduler = "mq-deadline"
	// basicReadAheadKB is the V1 driver's. Most workloads on data disks are databases, which
	// read at random.
	basicReadAheadKB = 8
	// typicalLatencyMS is the latency of a request while the disk is within its limits.
	typicalLatencyMS = 4
	minQueueDepth    = 8
	maxQueueDepth    = 256
	// pageKB is the unit to which the kernel rounds a request's size.
	pageKB = 4
)

// basicSettings computes the settings for a disk with the given performance.
//
// The request size is limited to the size at which the disk reaches its IOPS and its throughput
// limit at the same time, so that large requests delay small ones as little as possible. The queue
// depth is the number of requests in flight that gives the IOPS at the typical latency (Little's
// law); the scheduler may queue twice as many. The scheduler is set first, because the kernel
// allows the larger number of requests only with a scheduler. The read-ahead is set last, because
// the kernel computes it again when the request size changes.
func basicSettings(p volumeparams.Performance) []provisioner.DeviceSetting {
	if p.IOPS <= 0 || p.MBps <= 0 {
		return nil
	}
	depth := min(max(ceiling(p.IOPS*typicalLatencyMS, 1000), minQueueDepth), maxQueueDepth)
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	return []provisioner.DeviceSetting{
		{Path: "queue/scheduler", Value: basicScheduler},
		{
			Path:    "queue/max_sectors_kb",
			Value:   number(ceiling(ceiling(p.MBps*1000, p.IOPS), pageKB) * pageKB),
			Ceiling: "queue/max_hw_sectors_kb",
		},
		// Only SCSI devices have the setting.
		{Path: "device/queue_depth", Value: number(depth), Optional: true},
		{Path: "queue/nr_requests", Value: number(2 * depth)},
		{Path: "queue/read_ahead_kb", Value: number(basicReadAheadKB)},
	}
}

func ceiling(a, b int64) int64 { return (a + b - 1) / b }
