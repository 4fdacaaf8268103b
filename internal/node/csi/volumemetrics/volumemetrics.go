// Package volumemetrics serves metrics of the volumes that are in use on a node. Their number is
// bounded by the disks that the VM can have.
//
// It computes no rates and no shares: Prometheus does, with the recording rules of the chart. A
// scrape reads what the node plug-in already has and the kernel's counters; it asks neither the API
// server nor a device.
package volumemetrics

import (
	"cmp"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// bytesPerMB is Azure's MB.
const bytesPerMB = 1000 * 1000

// Options of the metrics.
type Options struct {
	// NodeName is the Node's name.
	NodeName string
	// InUse returns the volumes that are in use on the node.
	InUse func() []nodereport.InUse
	// Capacity returns the capacity of the VM; nil if it is not known.
	Capacity func() *apiv1.NodeCapacity
	// Counters returns the kernel's counters of a device. If Counters is nil, there are only the
	// info metrics.
	Counters func(device string) (provisioner.DeviceCounters, error)
}

// collector implements prometheus.Collector.
type collector struct{ options Options }

// New returns the metrics of a node.
func New(options Options) prometheus.Collector { return collector{options} }

var (
	info = prometheus.NewDesc("azuredisk_volume_info",
		"1 for each volume that is in use on the node, with its claim, its disk and its device.",
		[]string{"volume", "node", "claim_namespace", "persistentvolumeclaim", "persistentvolume", "disk", "device"}, nil)

	provisionedIOPS = ofVolume("azuredisk_volume_provisioned_iops",
		"IOPS of the volume's disk, without bursts.")
	provisionedBytes = ofVolume("azuredisk_volume_provisioned_bytes_per_second",
		"Throughput of the volume's disk, without bursts.")
	vmIOPS = prometheus.NewDesc("azuredisk_vm_uncached_iops",
		"IOPS of the node's VM on all its disks together, without what the host's cache answers.", []string{"node"}, nil)
	vmBytes = prometheus.NewDesc("azuredisk_vm_uncached_bytes_per_second",
		"Throughput of the node's VM on all its disks together, without what the host's cache answers.", []string{"node"}, nil)

	reads        = ofVolume("azuredisk_volume_reads_total", "Reads of the volume's device that have ended.")
	writes       = ofVolume("azuredisk_volume_writes_total", "Writes of the volume's device that have ended.")
	readBytes    = ofVolume("azuredisk_volume_read_bytes_total", "Bytes that were read from the volume's device.")
	writtenBytes = ofVolume("azuredisk_volume_written_bytes_total", "Bytes that were written to the volume's device.")
	readTime     = ofVolume("azuredisk_volume_read_seconds_total", "Sum of the durations of the reads.")
	writeTime    = ofVolume("azuredisk_volume_write_seconds_total", "Sum of the durations of the writes.")
	busyTime     = ofVolume("azuredisk_volume_busy_seconds_total", "Time for which a request to the volume's device was in flight.")
)

func ofVolume(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"volume", "node"}, nil)
}

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	to <- info
	if c.options.Counters == nil {
		return
	}
	for _, d := range []*prometheus.Desc{
		provisionedIOPS, provisionedBytes, vmIOPS, vmBytes,
		reads, writes, readBytes, writtenBytes, readTime, writeTime, busyTime,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	for _, used := range c.options.InUse() {
		v, claim := used.Volume, used.Volume.Claim()
		to <- gauge(info, 1, v.Name, c.options.NodeName, claim.Namespace, claim.Name, v.Status.PersistentVolume, v.Spec.Disk.Name,
			filepath.Base(used.Device))
		if c.options.Counters != nil {
			c.collectVolume(to, used)
		}
	}
	if c.options.Counters == nil {
		return
	}
	if capacity := c.options.Capacity(); capacity != nil {
		for desc, value := range map[*prometheus.Desc]int64{
			vmIOPS:  capacity.UncachedIOPS,
			vmBytes: capacity.UncachedBytesPerSecond,
		} {
			if value > 0 {
				to <- gauge(desc, float64(value), c.options.NodeName)
			}
		}
	}
}

func (c collector) collectVolume(to chan<- prometheus.Metric, used nodereport.InUse) {
	if limits, known := performanceOf(used.Volume); known {
		to <- gauge(provisionedIOPS, float64(limits.IOPS), used.Volume.Name, c.options.NodeName)
		to <- gauge(provisionedBytes, float64(limits.MBps*bytesPerMB), used.Volume.Name, c.options.NodeName)
	}
	counters, err := c.options.Counters(used.Device)
	if err != nil {
		return // the device is gone; NodeGetVolumeStats and the volume's condition say so
	}
	for desc, value := range map[*prometheus.Desc]float64{
		reads:        float64(counters.Reads),
		writes:       float64(counters.Writes),
		readBytes:    float64(counters.ReadBytes),
		writtenBytes: float64(counters.WrittenBytes),
		readTime:     counters.ReadTime.Seconds(),
		writeTime:    counters.WriteTime.Seconds(),
		busyTime:     counters.BusyTime.Seconds(),
	} {
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value, used.Volume.Name, c.options.NodeName)
	}
}

func gauge(desc *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

// performanceOf returns the performance to which the disk has been brought, as far as it is known: a
// change that waits, also for a growth, does not count. How much performance plus adds is not known.
func performanceOf(v *apiv1.AzVolume) (volumeparams.Performance, bool) {
	p := volumeparams.Parameters{DiskParameters: v.Spec.Disk}
	if applied := v.Status.Applied; applied != nil {
		p.DiskSettings = applied.DiskSettings
	}
	p.SKUName = disk.SKU(v)
	size := cmp.Or(v.Status.SizeBytes, v.Spec.CapacityBytes)
	if p.SKUName == "" || p.PerformancePlusEnabled || size == 0 {
		return volumeparams.Performance{}, false
	}
	return p.Performance(size), true
}
