package csi_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

func (m *machine) expand(s *csinode.Server, path string, size int64) error {
	_, err := s.NodeExpandVolume(m.t.Context(), &csi.NodeExpandVolumeRequest{
		VolumeId:          volumeID,
		VolumePath:        path,
		StagingTargetPath: m.stagingPath(),
		CapacityRange:     &csi.CapacityRange{RequiredBytes: size},
	})
	return err
}

func TestExpansionIsDeclaredOnRequest(t *testing.T) {
	t.Parallel()
	for _, want := range []bool{true, false} {
		m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
		m.edit = func(o *csinode.Options) { o.Expansion = want }
		answer, err := m.start().NodeGetCapabilities(t.Context(), &csi.NodeGetCapabilitiesRequest{})
		m.must(err)
		if got := slices.ContainsFunc(answer.GetCapabilities(), func(c *csi.NodeServiceCapability) bool {
			return c.GetRpc().GetType() == csi.NodeServiceCapability_RPC_EXPAND_VOLUME
		}); got != want {
			t.Errorf("got expansion declared: %t, want %t", got, want)
		}
	}
}

// A filesystem is expanded through a mount. A raw block device has one only where a pod has it.
func TestAVolumeThatIsNotMountedIsNotExpanded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		capability *csi.VolumeCapability
		boot       string
		code       codes.Code
	}{
		"a filesystem":                          {mountCapability("ext4"), "boot-1", codes.NotFound},
		"a raw block device":                    {kindsOfVolume()["raw block"], "boot-1", codes.OK},
		"a raw block device of before a reboot": {kindsOfVolume()["raw block"], "boot-2", codes.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
			m.publish(nil)
			m.must(m.stage(m.start(), test.capability))
			m.bootID = test.boot
			wantCode(t, m.expand(m.start(), m.target(), 1), test.code)
		})
	}
}

// remount takes the volume from its pod and the node, and gives it back.
func (m *machine) remount(s *csinode.Server, capability *csi.VolumeCapability) {
	m.t.Helper()
	for _, step := range []func() error{
		func() error { return m.unpublishVolume(s) }, func() error { return m.unstage(s) },
		func() error { return m.stage(s, capability) }, func() error { return m.publishVolume(s, capability, false) },
	} {
		if err := step(); err != nil {
			m.t.Fatal(err)
		}
	}
}

func mustBe(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Fatalf("%v, want %s", err, want)
	}
}

// Between the growth of the disk and the writing of its new size the volume is staged as before and
// after.
func TestLaw4TheSizeOfADiskThatIsGrowing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		recorded, asked, device int64
		code                    codes.Code
	}{
		"as recorded":                         {1, 1, 1, codes.OK},
		"asked to grow, and not grown yet":    {1, 2, 1, codes.OK},
		"grown, and not recorded yet":         {1, 2, 2, codes.OK},
		"grown, recorded, and not shown yet":  {2, 2, 1, codes.FailedPrecondition},
		"grown without a request":             {1, 1, 2, codes.FailedPrecondition},
		"larger than requested":               {1, 2, 3, codes.FailedPrecondition},
		"smaller, while something larger was": {2, 3, 1, codes.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			const unit = 1 << 30
			h := newMemoryHost()
			h.Size = test.device * unit
			m := newMachine(t, h, t.TempDir(), quiet)
			m.publish(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
				v.Spec.CapacityBytes, v.Status.SizeBytes = test.asked*unit, test.recorded*unit
			})
			mustBe(t, m.stage(m.start(), mountCapability("ext4")), test.code)
		})
	}
}

// The volume is read before the device is found, which can take long enough for both to change.
func TestADiskThatGrowsWhileItsDeviceIsFoundIsUsed(t *testing.T) {
	t.Parallel()
	h := newMemoryHost()
	m := newMachine(t, h, t.TempDir(), quiet)
	m.publish(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
		v.Spec.CapacityBytes, v.Status.SizeBytes = 1<<30, 1<<30
	})
	grown := false
	h.OnFind = func() {
		if grown {
			return
		}
		grown = true
		m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Spec.CapacityBytes = 2 << 30 })
		h.Size = 2 << 30
	}
	if err := m.stage(m.start(), mountCapability("ext4")); err != nil || !grown {
		t.Fatal(err)
	}
}

// A process without CAP_SYS_RESOURCE cannot grow what is mounted, and a disk may grow after the mount.
func TestADiskThatGrowsAfterTheMountIsStaged(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fails error
		want  codes.Code
	}{
		"growing takes another stage": {
			fails: provisioner.Errorf(provisioner.FailedPrecondition, "cannot grow while it is mounted"),
			want:  codes.OK,
		},
		"growing fails": {
			fails: provisioner.Errorf(provisioner.Unavailable, "input/output error"),
			want:  codes.Unavailable,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			host := newMemoryHost()
			host.GrowFails = test.fails
			m := newMachine(t, host, t.TempDir(), func(string) {})
			m.publish(nil)
			if err := m.stage(m.start(), mountCapability("ext4")); status.Code(err) != test.want {
				t.Errorf("stage: %v, want %s", err, test.want)
			}
		})
	}
}

func TestAFilesystemOnARealDeviceGrowsInUse(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			m, disk := newRealMachine(t)
			m.publish(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
				v.Spec.CapacityBytes, v.Status.SizeBytes = diskSize, diskSize
			})
			s := m.start()
			capability := mountCapability(fsType)
			if err := m.stage(s, capability); err != nil {
				t.Fatal(err)
			}
			if err := m.publishVolume(s, capability, false); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(m.target(), "file")
			if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
				t.Fatal(err)
			}
			// The filesystem waits for the device.
			mustBe(t, m.expand(s, m.target(), 2*diskSize), codes.Unavailable)
			disk.Grow(t, 2*diskSize)
			if fsType == "ext4" && !hosttest.MayGrowMounted(t) {
				// The kubelet takes this for "not while it is in use", and leaves it to the next
				// mount.
				mustBe(t, m.expand(s, m.target(), 2*diskSize), codes.FailedPrecondition)
				m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Spec.CapacityBytes = 2 * diskSize })
				m.remount(s, capability)
			}
			for range 2 {
				if err := m.expand(s, m.target(), 2*diskSize); err != nil {
					t.Fatal(err)
				}
			}
			stats, err := s.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{
				VolumeId:   volumeID,
				VolumePath: m.target(),
			})
			if err != nil || stats.GetUsage()[0].GetTotal() < diskSize+diskSize/2 {
				t.Errorf("the filesystem has not grown: %v, %v", stats, err)
			}
			if data, err := os.ReadFile(file); err != nil || string(data) != "kept" {
				t.Errorf("the file holds %q, %v", data, err)
			}
			if record, _, err := m.records.Get(volume); err != nil || record.SizeBytes != 2*diskSize {
				t.Errorf("record %+v, %v", record, err)
			}
			if entry := m.entry(); entry.SizeBytes != 2*diskSize || entry.Phase != apiv1.PhaseStaged {
				t.Errorf("entry %+v", entry)
			}
			// The controller has not written the size yet when the node stages again.
			m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Spec.CapacityBytes = 2 * diskSize })
			if err := m.stage(m.start(), capability); err != nil {
				t.Error(err)
			}
			for _, undo := range []func(*csinode.Server) error{m.unpublishVolume, m.unstage} {
				if err := undo(s); err != nil {
					t.Error(err)
				}
			}
			m.assertClean()
		})
	}
}

// V1 looked again at devices of the names sda to sdz only, and never at NVMe devices.
func TestARawBlockDeviceOfAnyNameIsLookedAtAgain(t *testing.T) {
	m, disk := newRealMachine(t) // a loop device, which V1 would not have looked at either
	m.publish(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
		v.Spec.CapacityBytes, v.Status.SizeBytes = diskSize, diskSize
	})
	s := m.start()
	capability := blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	if err := m.stage(s, capability); err != nil {
		t.Fatal(err)
	}
	if err := m.publishVolume(s, capability, false); err != nil {
		t.Fatal(err)
	}
	mustBe(t, m.expand(s, m.target(), 2*diskSize), codes.Unavailable)
	disk.Grow(t, 2*diskSize)
	// The kubelet gives the path of the publish, or after its restart another one.
	for _, path := range []string{m.target(), filepath.Join(m.dir, "elsewhere")} {
		if err := m.expand(s, path, 2*diskSize); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	stats, err := s.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: volumeID, VolumePath: m.target()})
	if err != nil || stats.GetUsage()[0].GetTotal() != 2*diskSize {
		t.Errorf("%v, %v", stats, err)
	}
	if entry := m.entry(); entry.SizeBytes != 2*diskSize {
		t.Errorf("entry %+v", entry)
	}
	for _, undo := range []func(*csinode.Server) error{m.unpublishVolume, m.unstage} {
		if err := undo(s); err != nil {
			t.Error(err)
		}
	}
	mustBe(t, m.expand(s, m.target(), 2*diskSize), codes.NotFound)
	m.assertClean()
}
