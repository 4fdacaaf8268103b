package volumeparams_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestAttributesOfAPersistentVolume(t *testing.T) {
	t.Parallel()
	two := int32(2)
	for name, test := range map[string]struct {
		raw  map[string]string
		want volumeparams.Attributes
	}{
		"none": {nil, volumeparams.Attributes{}},
		"those of an in-tree volume, as Kubernetes translates them": {
			map[string]string{"cachingMode": "ReadWrite", "fsType": "ext4", "kind": "Managed"},
			volumeparams.Attributes{CachingMode: "ReadWrite", FSType: "ext4"}},
		"in any case": {map[string]string{"CACHINGMODE": "readonly", "FSTYPE": "XFS", "Partition": "1"},
			volumeparams.Attributes{CachingMode: "ReadOnly", FSType: "xfs", Partition: 1}},
		"those that V1 gives to the volumes that it makes": {
			map[string]string{"skuName": "UltraSSD_LRS", "kind": "Managed", "cachingMode": "None", "requestedsizegib": "10",
				"resizeRequired": "true", "csi.storage.k8s.io/pvc/name": "c",
				"storage.kubernetes.io/csiProvisionerIdentity": "1-2-disk.csi.azure.com", "maxShares": "2",
				"attachDiskInitialDelay": "60000", "tags": "a", "enableBursting": "yes", "networkAccessPolicy": "AllowPrivate"},
			volumeparams.Attributes{CachingMode: "None"}},
		"empty ones": {map[string]string{"cachingMode": "", "fsType": "", "partition": "", "perfProfile": ""},
			volumeparams.Attributes{}},
		"replicas": {
			map[string]string{"maxMountReplicaCount": "2"}, volumeparams.Attributes{MaxMountReplicaCount: &two}},
		"IOPS for each GiB": {map[string]string{"IopsPerGB": "5"}, volumeparams.Attributes{IOPSPerGiB: 5}},
		"IOPS for each GiB, which a VolumeAttributesClass replaced": {
			map[string]string{"iopsPerGB": "5", "DiskIOPSReadWrite": "4000"}, volumeparams.Attributes{}},
		"a performance profile": {
			map[string]string{"perfProfile": "Advanced", "device-setting/queue/read_ahead_kb": "8",
				"device-setting/device/queue_depth": "32"},
			volumeparams.Attributes{Tuning: volumeparams.Tuning{Profile: "advanced",
				Settings: []volumeparams.DeviceSetting{{Path: "device/queue_depth", Value: "32"},
					{Path: "queue/read_ahead_kb", Value: "8"}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := volumeparams.ParseAttributes(test.raw, false)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFaultsOfAttributesNameThem(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		raw  map[string]string
		says []string
	}{
		"a caching mode that is none": {map[string]string{"cachingMode": "Always"},
			[]string{"cachingMode", "Always", "ReadOnly"}},
		"a filesystem of Windows":     {map[string]string{"fsType": "ntfs"}, []string{"fsType", "ntfs", "ext4"}},
		"a partition that is none":    {map[string]string{"partition": "0"}, []string{"partition", "0", "1 to 128"}},
		"a partition by its name":     {map[string]string{"partition": "sdc1"}, []string{"partition", "sdc1"}},
		"replicas that are no number": {map[string]string{"maxMountReplicaCount": "-1"}, []string{"maxMountReplicaCount", "-1"}},
		"IOPS that are too many":      {map[string]string{"iopsPerGB": "1001"}, []string{"iopsPerGB", "1001", "1 to 1000"}},
		"an unknown profile":          {map[string]string{"perfProfile": "fast"}, []string{"perfProfile", "fast", "basic"}},
		"advanced without a setting":  {map[string]string{"perfProfile": "advanced"}, []string{"perfProfile", "device-setting/"}},
		"a setting that leads out": {
			map[string]string{"perfProfile": "advanced",
				"device-setting/../sda/queue/scheduler": "none"}, []string{"device-setting/../sda/queue/scheduler"}},
		"two faults at once, of both kinds": {map[string]string{"fsType": "ntfs", "perfProfile": "fast"},
			[]string{"fsType", "perfProfile"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := volumeparams.ParseAttributes(test.raw, false)
			if !errors.Is(err, provisioner.InvalidArgument) {
				t.Fatalf("error %v", err)
			}
			for _, text := range test.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not name %q", err, text)
				}
			}
		})
	}
}

func TestSettingPathsStayBelowTheDevice(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"queue/scheduler": true, "device/queue_depth": true, "bdi/read_ahead_kb": true, "..hidden": true,
		"": false, ".": false, "..": false, "../sda": false, "queue/../../sda/queue/scheduler": false,
		"/sys/block/sda/queue/scheduler": false,
		"queue//scheduler":               false, "queue/./scheduler": false, "queue/": false, "a\x00b": false, "queue/..": false,
	} {
		if got := volumeparams.CheckSettingPath(path); got != want {
			t.Errorf("%q: %v, want %v", path, got, want)
		}
	}
}
