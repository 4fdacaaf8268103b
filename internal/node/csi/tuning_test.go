package csi_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/host"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

// stageWith stages with a volume context.
func (m *machine) stageWith(s *csinode.Server, capability *csi.VolumeCapability, volumeContext map[string]string) error {
	m.t.Helper()
	_, err := s.NodeStageVolume(m.t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId:          volumeID,
		StagingTargetPath: m.stagingPath(),
		VolumeCapability:  capability,
		VolumeContext:     volumeContext,
	})
	return err
}

func TestProfilesThatDoNotTuneOrCannot(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		context map[string]string
		want    []provisioner.DeviceSetting
		code    codes.Code
	}{
		"none":         {context: map[string]string{"perfProfile": "none", "device-setting/queue/scheduler": "none"}},
		"nothing said": {},
		"advanced": {context: map[string]string{"perfProfile": "advanced", "device-setting/queue/scheduler": "none"},
			want: []provisioner.DeviceSetting{{Path: "queue/scheduler", Value: "none"}}},
		"advanced and no setting": {context: map[string]string{"perfProfile": "advanced"}, code: codes.InvalidArgument},
		"a path that leads out": {
			context: map[string]string{"perfProfile": "advanced", "device-setting/../sda/queue/scheduler": "none"},
			code:    codes.InvalidArgument},
		"a profile that is none":     {context: map[string]string{"perfProfile": "fast"}, code: codes.InvalidArgument},
		"a partition that is none":   {context: map[string]string{"partition": "one"}, code: codes.InvalidArgument},
		"a partition that is absent": {context: map[string]string{"partition": "3"}, code: codes.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			memory := newMemoryHost()
			m := newMachine(t, memory, t.TempDir(), quiet)
			m.publish(nil)
			err := m.stageWith(m.start(), mountCapability("ext4"), test.context)
			if status.Code(err) != test.code {
				t.Fatalf("stage: %v, want %v", err, test.code)
			}
			if diff := cmp.Diff(test.want, memory.Tuned); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
			if err != nil {
				m.assertClean()
			}
		})
	}
}

func TestSettingsOfARealDeviceAreMadeBeforeItIsUsed(t *testing.T) {
	m, disk := newRealMachine(t)
	t.Cleanup(func() {
		hosttest.Run(t, "sh", "-c", "echo none > /sys/class/block/"+filepath.Base(disk.Device)+"/queue/scheduler")
	})
	m.publish(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Spec.Disk.SKUName = "Premium_LRS" })
	s := m.start()
	setting := func(path string) string {
		raw, err := os.ReadFile(filepath.Join("/sys/class/block", filepath.Base(disk.Device), path))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(raw))
	}
	err := m.stageWith(s, mountCapability("ext4"), map[string]string{
		"perfProfile":                    "advanced",
		"device-setting/queue/scheduler": "fastest",
	})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "queue/scheduler") ||
		!strings.Contains(err.Error(), "fastest") {
		t.Errorf("a value that the kernel refuses: %v", err)
	}
	m.assertClean()
	if _, blank, err := m.host.Filesystems().Probe(t.Context(), disk.Device); !blank || err != nil {
		t.Errorf("content of the device: got blank %v, %v, want blank: the device may not be used", blank, err)
	}
	if err := m.stageWith(s, mountCapability("ext4"), map[string]string{"perfProfile": "basic"}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(setting("queue/scheduler"), "[mq-deadline]") || setting("queue/nr_requests") != "16" ||
		setting("queue/max_sectors_kb") != "212" || setting("queue/read_ahead_kb") != "8" {
		t.Errorf("scheduler %s, nr_requests %s, max_sectors_kb %s, read_ahead_kb %s", setting("queue/scheduler"),
			setting("queue/nr_requests"),
			setting("queue/max_sectors_kb"), setting("queue/read_ahead_kb"))
	}
	if err := m.unstage(s); err != nil {
		t.Fatal(err)
	}
	block := blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	if err := m.stageWith(s, block, map[string]string{
		"perfProfile":                        "advanced",
		"device-setting/queue/read_ahead_kb": "64",
	}); err != nil {
		t.Fatal(err)
	}
	if setting("queue/read_ahead_kb") != "64" {
		t.Errorf("a raw block volume is not tuned: %s", setting("queue/read_ahead_kb"))
	}
	if err := m.unstage(s); err != nil {
		t.Fatal(err)
	}
}

// TestAPartitionThatHoldsDataIsUsed is the life of a static PersistentVolume with the attribute
// partition, as V1 and the in-tree driver have them: the filesystem is in the partition, and the
// driver does not change the rest of the disk.
func TestAPartitionThatHoldsDataIsUsed(t *testing.T) {
	disk := hosttest.NewDisk(t, diskSize)
	disk.Partition(t, 64*hosttest.MiB, 128*hosttest.MiB)
	part := disk.Device + "p1"
	hosttest.Run(t, "mkfs.ext4", "-q", part)
	before := disk.Content(t)
	links := t.TempDir()
	disk.Link(t, links, lun)
	m := newMachine(t, host.New(host.Options{Links: links}), hosttest.MountDir(t), quiet)
	m.publish(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
		v.Spec.Origin, v.Status.SizeBytes = apiv1.OriginAdopted, diskSize
	})
	s := m.start()
	capability := mountCapability("ext4")
	if err := m.stage(s, capability); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the whole disk, which carries partitions: %v, want FailedPrecondition", err)
	}
	m.assertClean()
	volumeContext := map[string]string{"Partition": "1", "fsType": "ext4"}
	for range 2 {
		if err := m.stageWith(s, capability, volumeContext); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.publishVolume(s, capability, false); err != nil {
		t.Fatal(err)
	}
	if entry := m.entry(); entry == nil || entry.Device != part || entry.SizeBytes != 64*hosttest.MiB {
		t.Errorf("entry %+v", entry)
	}
	if err := os.WriteFile(filepath.Join(m.target(), "file"), []byte("in the partition"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.unpublishVolume(s); err != nil {
		t.Fatal(err)
	}
	if err := m.unstage(s); err != nil {
		t.Fatal(err)
	}
	m.assertClean()
	after := disk.Content(t)
	first, end := hosttest.MiB, 65*hosttest.MiB
	if string(before[:first]) != string(after[:first]) || string(before[end:]) != string(after[end:]) {
		t.Error("something outside of the partition was written to")
	}
	if string(before[first:end]) == string(after[first:end]) {
		t.Error("nothing was written to the partition")
	}
}

func TestAPartitionAsRawBlock(t *testing.T) {
	disk := hosttest.NewDisk(t, diskSize)
	disk.Partition(t, 64*hosttest.MiB, 128*hosttest.MiB)
	links := t.TempDir()
	disk.Link(t, links, lun)
	m := newMachine(t, host.New(host.Options{Links: links}), hosttest.MountDir(t), quiet)
	m.publish(nil)
	s := m.start()
	capability := blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	if err := m.stageWith(s, capability, map[string]string{"partition": "2"}); err != nil {
		t.Fatal(err)
	}
	if err := m.publishVolume(s, capability, false); err != nil {
		t.Fatal(err)
	}
	size := strings.TrimSpace(hosttest.Run(t, "blockdev", "--getsize64", m.target()))
	if want := fmt.Sprint(128 * hosttest.MiB); size != want {
		t.Errorf("the volume has %s bytes, its partition %s", size, want)
	}
	if err := m.unpublishVolume(s); err != nil {
		t.Error(err)
	}
	if err := m.unstage(s); err != nil {
		t.Error(err)
	}
	m.assertClean()
}
