package csi_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner/host"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

const diskSize = 320 * hosttest.MiB

// newRealMachine is a machine with real devices and mounts.
func newRealMachine(t *testing.T) (*machine, *hosttest.Disk) {
	t.Helper()
	disk := hosttest.NewDisk(t, diskSize)
	links := t.TempDir()
	disk.Link(t, links, lun)
	return newMachine(t, host.New(host.Options{Links: links}), hosttest.MountDir(t), quiet), disk
}

func TestAVolumeOnARealDevice(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			m, disk := newRealMachine(t)
			m.publish(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.SizeBytes = diskSize })
			s := m.start()
			capability := mountCapability(fsType, "noatime")
			for range 2 {
				if err := m.stage(s, capability); err != nil {
					t.Fatal(err)
				}
				if err := m.publishVolume(s, capability, false); err != nil {
					t.Fatal(err)
				}
			}
			entry := m.entry()
			if entry == nil || entry.Phase != apiv1.PhaseStaged || entry.Filesystem.Type != fsType ||
				entry.Device != disk.Device || entry.SizeBytes != diskSize {
				t.Fatalf("entry = %+v", entry)
			}
			if err := os.WriteFile(filepath.Join(m.target(), "file"), []byte("kept"), 0o600); err != nil {
				t.Fatal(err)
			}
			stats, err := s.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{
				VolumeId:   volumeID,
				VolumePath: m.target(),
			})
			if err != nil || len(stats.GetUsage()) != 2 || stats.GetUsage()[0].GetTotal() == 0 {
				t.Errorf("stats = %v, %v", stats, err)
			}
			for range 2 {
				if err := m.unpublishVolume(s); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if err := m.unstage(s); err != nil {
					t.Fatal(err)
				}
			}
			m.assertClean()
			moveAndGrow(t, m, disk, *entry.Filesystem)
		})
	}
}

func TestARealDeviceIsFormattedWithTheOptionsOfItsVolume(t *testing.T) {
	m, disk := newRealMachine(t)
	m.publish(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
		v.Status.SizeBytes = diskSize
		v.Spec.Filesystem = &apiv1.Filesystem{Type: "ext4", FilesystemOptions: apiv1.FilesystemOptions{
			BlockSizeBytes: 2048,
			InodeSizeBytes: 512,
			BytesPerInode:  8192,
		}}
	})
	s, capability := m.start(), mountCapability("ext4")
	if err := m.stage(s, capability); err != nil {
		t.Fatal(err)
	}
	shown := hosttest.Run(t, "dumpe2fs", "-h", disk.Device)
	for _, want := range []string{`Block size: +2048\n`, `Inode size:\s+512\n`, `Inode count: +40960\n`} {
		if !regexp.MustCompile(want).MatchString(shown) {
			t.Errorf("got %s, want %s", shown, want)
		}
	}
	m.must(m.unstage(s))
}

// moveAndGrow stages the volume again, under the next epoch, with its filesystem on record, on a
// disk that has grown.
func moveAndGrow(t *testing.T, m *machine, disk *hosttest.Disk, record apiv1.FilesystemRecord) {
	t.Helper()
	disk.Grow(t, 2*diskSize)
	m.change(func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
		v.Status.SizeBytes, v.Status.Filesystem = 2*diskSize, &record
		v.Status.Primary.Epoch, a.Spec.Epoch = 2, 2
	})
	s := m.start()
	capability := mountCapability(record.Type)
	if err := m.stage(s, capability); err != nil {
		t.Fatal(err)
	}
	if err := m.publishVolume(s, capability, true); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(m.target(), "file")); err != nil || string(data) != "kept" {
		t.Errorf("the file holds %q, %v", data, err)
	}
	if err := os.WriteFile(filepath.Join(m.target(), "other"), nil, 0o600); err == nil {
		t.Error("a volume that is published read-only took a file")
	}
	stats, err := s.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{
		VolumeId:   volumeID,
		VolumePath: m.stagingPath(),
	})
	if err != nil || stats.GetUsage()[0].GetTotal() < diskSize+diskSize/2 {
		t.Errorf("the filesystem has not grown: %v, %v", stats, err)
	}
	if err := m.unpublishVolume(s); err != nil {
		t.Error(err)
	}
	if err := m.unstage(s); err != nil {
		t.Error(err)
	}
	m.assertClean()
}

func TestARawBlockVolumeOnARealDevice(t *testing.T) {
	m, disk := newRealMachine(t)
	m.publish(func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
		v.Spec.Access, v.Status.Primary = apiv1.AccessMultiNode, nil
	})
	s := m.start()
	capability := blockCapability(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)
	for range 2 {
		if err := m.stage(s, capability); err != nil {
			t.Fatal(err)
		}
		if err := m.publishVolume(s, capability, false); err != nil {
			t.Fatal(err)
		}
	}
	device, err := os.OpenFile(m.target(), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := device.WriteString("raw data"); err != nil {
		t.Error(err)
	}
	if err := device.Close(); err != nil {
		t.Error(err)
	}
	stats, err := s.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: volumeID, VolumePath: m.target()})
	if err != nil || len(stats.GetUsage()) != 1 || stats.GetUsage()[0].GetTotal() != diskSize {
		t.Errorf("stats = %v, %v", stats, err)
	}
	// The plug-in is killed: only the record tells that the device is in use.
	s = m.start()
	if err := m.unstage(s); status.Code(err) != codes.Aborted {
		t.Errorf("unstage of what is published: %v, want Aborted", err)
	}
	if m.entry() == nil {
		t.Error("the report does not name a raw block volume that is in use")
	}
	if err := m.unpublishVolume(s); err != nil {
		t.Error(err)
	}
	if err := m.unstage(s); err != nil {
		t.Error(err)
	}
	m.assertClean()
	if !bytes.HasPrefix(disk.Content(t), []byte("raw data")) {
		t.Error("what was written is not on the disk")
	}
}

func TestLaw4ARealDeviceWithTheWrongContentIsNotTouched(t *testing.T) {
	record := &apiv1.FilesystemRecord{Type: "ext4", UUID: "0b6a2c3e-9f11-4f0b-8a53-0d4f6a1c7e55"}
	tests := map[string]struct {
		prepare func(*testing.T, *hosttest.Disk)
		edit    func(*apiv1.AzVolume, *apiv1.AzVolumeAttachment)
	}{
		"another ext4 than recorded": {
			prepare: func(t *testing.T, d *hosttest.Disk) { hosttest.Run(t, "mkfs.ext4", "-q", d.Device) },
			edit:    func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.Filesystem = record },
		},
		"data of a raw block volume": {prepare: func(t *testing.T, d *hosttest.Disk) { d.WriteAt(t, []byte("data"), 512) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m, disk := newRealMachine(t)
			if test.prepare != nil {
				test.prepare(t, disk)
			}
			m.publish(test.edit)
			before := disk.Content(t)
			if err := m.stage(m.start(), mountCapability("ext4")); status.Code(err) != codes.FailedPrecondition {
				t.Errorf("stage: %v, want FailedPrecondition", err)
			}
			m.assertClean()
			if !bytes.Equal(before, disk.Content(t)) {
				t.Error("the device was written to")
			}
		})
	}
}
