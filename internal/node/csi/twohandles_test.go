package csi_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
)

// user is a PersistentVolume of the disk with a pod. Each text of the handle has a staging path of
// its own.
type user struct {
	m               *machine
	handle          string
	staging, target string
	capability      *csi.VolumeCapability
}

func (m *machine) user(name, handle string, capability *csi.VolumeCapability) user {
	return user{m, handle, filepath.Join(m.dir, name, "globalmount"), filepath.Join(m.dir, "pods", name, "mount"), capability}
}

// twoUsers have handles that differ in case.
func (m *machine) twoUsers(first, second *csi.VolumeCapability) (user, user) {
	return m.user("first", volumeID, first), m.user("second", strings.ToUpper(volumeID), second)
}

func (u user) start(s *csinode.Server) error {
	u.m.t.Helper()
	_, err := s.NodeStageVolume(u.m.t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId:          u.handle,
		StagingTargetPath: u.staging,
		VolumeCapability:  u.capability,
	})
	if err != nil {
		return err
	}
	return u.publish(s)
}

func (u user) publish(s *csinode.Server) error {
	_, err := s.NodePublishVolume(u.m.t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId:          u.handle,
		StagingTargetPath: u.staging,
		TargetPath:        u.target,
		VolumeCapability:  u.capability,
	})
	return err
}

func (u user) unpublished(s *csinode.Server) error {
	_, err := s.NodeUnpublishVolume(u.m.t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: u.handle, TargetPath: u.target})
	return err
}

func (u user) unpublish(s *csinode.Server) {
	u.m.t.Helper()
	u.m.must(u.unpublished(s))
}

func (u user) unstage(s *csinode.Server) error {
	_, err := s.NodeUnstageVolume(u.m.t.Context(), &csi.NodeUnstageVolumeRequest{
		VolumeId:          u.handle,
		StagingTargetPath: u.staging,
	})
	return err
}

func (u user) end(s *csinode.Server) {
	u.m.t.Helper()
	u.unpublish(s)
	u.m.must(u.unstage(s))
}

func (m *machine) wantStagedAt(path string) {
	m.t.Helper()
	if entry := m.entry(); entry == nil || entry.Phase != apiv1.PhaseStaged || entry.StagingPath != path {
		m.t.Errorf("the report has the entry %+v, want it Staged at %s", entry, path)
	}
}

func TestTwoHandlesOfOneDiskOnARealDevice(t *testing.T) {
	for name, second := range map[string]*csi.VolumeCapability{
		"the same options": mountCapability("ext4"), "another option": mountCapability("ext4", "noexec"),
		"read-only": mountCapability("ext4", "ro"),
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := newRealMachine(t)
			m.publish(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.SizeBytes = diskSize })
			s := m.start()
			one, two := m.twoUsers(mountCapability("ext4"), second)
			for range 2 {
				m.must(one.start(s))
				m.must(two.start(s))
			}
			m.must(os.WriteFile(filepath.Join(one.target, "file"), []byte("kept"), 0o600))
			if got, err := os.ReadFile(filepath.Join(two.target, "file")); string(got) != "kept" {
				t.Errorf("the second pod reads %q, %v, want what the first one wrote", got, err)
			}
			if err := os.WriteFile(filepath.Join(two.target, "second"), nil, 0o600); (err != nil) != (name == "read-only") {
				t.Errorf("the second pod writes: %v", err)
			}
			s = m.start() // a restart of the plug-in loses no path
			for range 2 {
				one.end(s)
				m.wantStagedAt(two.staging)
			}
			m.must(one.start(s))
			two.end(s)
			m.wantStagedAt(one.staging)
			one.end(s)
			m.assertClean()
		})
	}
}

// The kubelet does not unstage a path whose device is mounted at another path, and waited at each
// of two for the other.
func TestOneStagingPathStaysMountedWhenNoPodUsesTheVolume(t *testing.T) {
	m, _ := newRealMachine(t)
	m.publish(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.SizeBytes = diskSize })
	s := m.start()
	one, two := m.twoUsers(mountCapability("ext4"), mountCapability("ext4"))
	mounted := func(when string, want ...string) {
		t.Helper()
		content, err := os.ReadFile("/proc/self/mounts")
		m.must(err)
		var got []string
		for _, u := range []user{one, two} {
			if strings.Contains(string(content), " "+u.staging+" ") {
				got = append(got, u.staging)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got mounts at %v, want %v", when, got, want)
		}
	}
	m.must(one.start(s))
	m.must(two.start(s))
	one.unpublish(s)
	mounted("one pod uses the volume", one.staging, two.staging)
	two.unpublish(s)
	kept := m.entry().StagingPath
	mounted("no pod uses the volume", kept)
	m.must(one.publish(s)) // the next pod, at a path that the kubelet holds as staged
	m.must(two.publish(s))
	one.unpublish(s)
	two.unpublish(s)
	mounted("no pod uses the volume again", m.entry().StagingPath)
	m.must(one.unstage(s))
	m.must(two.unstage(s))
	m.assertClean()
}

func TestTwoHandlesOfOneRawBlockDisk(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
	m.publish(nil)
	s := m.start()
	block := blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	one, two := m.twoUsers(block, block)
	m.must(one.start(s))
	m.must(two.start(s))
	one.end(s)
	m.wantStagedAt(two.staging)
	m.must(one.start(s))
	one.unpublish(s)
	two.unpublish(s)
	m.must(two.unstage(s)) // for PersistentVolumes with one handle the kubelet calls once
	m.assertClean()
	m.must(one.unstage(s))
}

// A pod of one PersistentVolume decides how the others can be used, as long as it runs.
func TestTwoHandlesThatExcludeEachOther(t *testing.T) {
	t.Parallel()
	filesystem, writer := mountCapability("ext4"), blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	reader := blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY)
	single := mountCapability("ext4")
	single.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	for name, test := range map[string]struct {
		first, second *csi.VolumeCapability
		code          codes.Code
		words         string
	}{
		"a raw block device beside a filesystem":     {filesystem, writer, codes.Unavailable, "as a filesystem"},
		"a filesystem beside a raw block device":     {writer, filesystem, codes.Unavailable, "as a raw block device"},
		"a write-protected device beside a writable": {writer, reader, codes.Unavailable, "for writing"},
		"a writable device beside a write-protected": {reader, writer, codes.Unavailable, "read-only"},
		"a writable filesystem beside a read-only": {mountCapability("ext4", "ro"), filesystem, codes.Unavailable,
			"its filesystem is read-only"},
		"a pod that must be the only one beside a pod": {single, single, codes.FailedPrecondition, "allows one target path"},
		"another SELinux label than that of the mount": {filesystem, mountCapability("ext4", "context=a"), codes.Unavailable,
			"SELinux"},
	} {
		t.Run(name, func(t *testing.T) {
			host := newMemoryHost()
			host.Content.FS.Type, host.Content.FS.UUID = "ext4", "1"
			m := newMachine(t, host, t.TempDir(), quiet)
			m.publish(nil)
			s := m.start()
			one, two := m.twoUsers(test.first, test.second)
			m.must(one.start(s))
			protected := host.Protected
			wantCode(t, two.start(s), test.code, test.words)
			if host.Protected != protected {
				t.Errorf("the device is write-protected: %t, want it as for the first pod: %t", host.Protected, protected)
			}
			m.must(two.unstage(s))
			m.must(one.publish(s))
			one.end(s)
			m.assertClean()
			m.must(two.start(s))
			two.end(s)
			m.assertClean()
		})
	}
}

// Both mounts are out of date after another node has used the volume. The kubelet stages neither of
// them again.
func TestTwoHandlesAreStagedInPlace(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.publish(nil)
	s := m.start()
	one, two := m.twoUsers(mountCapability("ext4"), mountCapability("ext4"))
	m.must(one.start(s))
	m.must(two.start(s))
	one.unpublish(s)
	m.change(func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { v.Status.Primary.Epoch, a.Spec.Epoch = 3, 3 })
	wantCode(t, one.publish(s), codes.Unavailable, two.target)
	two.unpublish(s)
	m.must(one.publish(s))
	m.must(two.publish(s))
	if record := m.record(); record.Epoch != 3 || len(record.OtherPaths) != 1 {
		t.Errorf("record %+v, want it of epoch 3 with two paths", record)
	}
	one.end(s)
	two.end(s)
	m.assertClean()
}

// Wherever the plug-in is killed, the report names the volume while it is mounted, and repeated
// calls end both uses.
func TestLaw5AKillWhileTwoHandlesAreUsedLosesNothing(t *testing.T) {
	t.Parallel()
	calls := map[string]func(*csinode.Server, user, user) error{
		"stage the second":   func(s *csinode.Server, _, two user) error { return two.start(s) },
		"unstage the first":  func(s *csinode.Server, one, _ user) error { one.unpublish(s); return one.unstage(s) },
		"unstage the second": func(s *csinode.Server, _, two user) error { two.unpublish(s); return two.unstage(s) },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			for n, at := 1, "first"; at != ""; n++ {
				m, _, k := bench(t)
				m.publish(nil)
				one, two := m.twoUsers(mountCapability("ext4"), mountCapability("ext4"))
				s := m.start()
				m.must(one.start(s))
				if name != "stage the second" {
					m.must(two.start(s))
				}
				at, _ = k.during(n, func() error { return call(s, one, two) })
				s = m.start()
				m.must(call(s, one, two))
				one.end(s)
				two.end(s)
				m.assertClean()
			}
		})
	}
}
