package volumemetrics

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func volumeOf(edit func(*apiv1.AzVolume)) *apiv1.AzVolume {
	v := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1-hash"},
		Spec: apiv1.AzVolumeSpec{
			ClaimRef: objects.Claim("shop/data"),
			Disk:     apiv1.DiskParameters{Name: "pvc-1", DiskSettings: apiv1.DiskSettings{SKUName: "Premium_LRS"}},
		},
		Status: apiv1.AzVolumeStatus{PersistentVolume: "pvc-1", SizeBytes: 64 * volumeparams.GiB},
	}
	if edit != nil {
		edit(v)
	}
	return v
}

func optionsFor(counters func(string) (provisioner.DeviceCounters, error), used ...nodereport.InUse) Options {
	return Options{
		NodeName: "node-a",
		InUse:    func() []nodereport.InUse { return used },
		Capacity: func() *apiv1.NodeCapacity { return &apiv1.NodeCapacity{UncachedIOPS: 6400} },
		Counters: counters,
	}
}

const wantInfo = `# HELP azuredisk_volume_info 1 for each volume that is in use on the node, with its claim, its disk and its device.
# TYPE azuredisk_volume_info gauge
azuredisk_volume_info{claim_namespace="shop",device="sdc",disk="pvc-1",node="node-a",` +
	`persistentvolume="pvc-1",persistentvolumeclaim="data",volume="pvc-1-hash"} 1
`

func TestOnlyInfoWithoutCounters(t *testing.T) {
	c := New(optionsFor(nil, nodereport.InUse{Device: "/dev/sdc", Volume: volumeOf(nil)}))
	if err := testutil.CollectAndCompare(c, strings.NewReader(wantInfo)); err != nil {
		t.Error(err)
	}
}

func TestEachVolumeHasTenSeries(t *testing.T) {
	counters := func(string) (provisioner.DeviceCounters, error) {
		return provisioner.DeviceCounters{Reads: 7, WrittenBytes: 512, WriteTime: 1500 * time.Millisecond}, nil
	}
	one := nodereport.InUse{Device: "/dev/sdc", Volume: volumeOf(nil)}
	other := nodereport.InUse{Device: "/dev/sdd", Volume: volumeOf(func(v *apiv1.AzVolume) { v.Name = "pvc-2-hash" })}
	// The VM's throughput is not known.
	if got, want := testutil.CollectAndCount(New(optionsFor(counters, one, other))), 2*10+1; got != want {
		t.Errorf("got %d series, want %d", got, want)
	}
	err := testutil.CollectAndCompare(New(optionsFor(counters, one)), strings.NewReader(wantInfo+`
# HELP azuredisk_volume_provisioned_iops IOPS of the volume's disk, without bursts.
# TYPE azuredisk_volume_provisioned_iops gauge
azuredisk_volume_provisioned_iops{node="node-a",volume="pvc-1-hash"} 240
# HELP azuredisk_volume_reads_total Reads of the volume's device that have ended.
# TYPE azuredisk_volume_reads_total counter
azuredisk_volume_reads_total{node="node-a",volume="pvc-1-hash"} 7
# HELP azuredisk_volume_write_seconds_total Sum of the durations of the writes.
# TYPE azuredisk_volume_write_seconds_total counter
azuredisk_volume_write_seconds_total{node="node-a",volume="pvc-1-hash"} 1.5
`), "azuredisk_volume_info", "azuredisk_volume_provisioned_iops", "azuredisk_volume_reads_total",
		"azuredisk_volume_write_seconds_total")
	if err != nil {
		t.Error(err)
	}
}

func TestADeviceThatIsGoneHasNoCounters(t *testing.T) {
	gone := func(string) (provisioner.DeviceCounters, error) {
		return provisioner.DeviceCounters{}, errors.New("gone")
	}
	c := New(optionsFor(gone, nodereport.InUse{Device: "/dev/sdc", Volume: volumeOf(nil)}))
	if got := testutil.CollectAndCount(c, "azuredisk_volume_reads_total"); got != 0 {
		t.Errorf("got %d counters, want none", got)
	}
	if got := testutil.CollectAndCount(c, "azuredisk_volume_info"); got != 1 {
		t.Errorf("got %d infos, want 1", got)
	}
}

func TestPerformanceIsThatOfTheDiskAsItIs(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(*apiv1.AzVolume)
		want volumeparams.Performance // nothing: not known
	}{
		"by its size": {nil, volumeparams.Performance{IOPS: 240, MBps: 50}},
		"a growth that waits": {func(v *apiv1.AzVolume) { v.Spec.CapacityBytes = 1024 * volumeparams.GiB },
			volumeparams.Performance{IOPS: 240, MBps: 50}},
		"a tier that waits": {func(v *apiv1.AzVolume) {
			v.Status.Applied = &apiv1.AppliedSettings{DiskSettings: v.Spec.Disk.DiskSettings}
			v.Spec.Disk.Tier = "P30"
		}, volumeparams.Performance{IOPS: 240, MBps: 50}},
		"a tier": {func(v *apiv1.AzVolume) {
			v.Status.Applied = &apiv1.AppliedSettings{DiskSettings: apiv1.DiskSettings{SKUName: "Premium_LRS", Tier: "P30"}}
		}, volumeparams.Performance{IOPS: 5000, MBps: 200}},
		"provisioned": {func(v *apiv1.AzVolume) {
			v.Spec.Disk.DiskSettings = apiv1.DiskSettings{SKUName: "PremiumV2_LRS", DiskIOPSReadWrite: ptr.To(int64(9000))}
		}, volumeparams.Performance{IOPS: 9000, MBps: 125}},
		"changed outside the driver": {func(v *apiv1.AzVolume) { v.Status.Disk = &apiv1.DiskReading{SKUName: "StandardSSD_LRS"} },
			volumeparams.Performance{IOPS: 500, MBps: 100}},
		"performance plus": {func(v *apiv1.AzVolume) { v.Spec.Disk.PerformancePlusEnabled = true },
			volumeparams.Performance{}},
		"a volume that is gone": {func(v *apiv1.AzVolume) { *v = apiv1.AzVolume{} }, volumeparams.Performance{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, known := performanceOf(volumeOf(test.edit))
			if got != test.want || known != (test.want != volumeparams.Performance{}) {
				t.Errorf("got %+v, %t, want %+v", got, known, test.want)
			}
		})
	}
}
