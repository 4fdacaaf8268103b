package csi_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/volumecondition"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// publishAt publishes to a target of the caller's choice.
func (m *machine) publishAt(s *csinode.Server, target string, capability *csi.VolumeCapability, readOnly bool) error {
	m.t.Helper()
	_, err := s.NodePublishVolume(m.t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId:          volumeID,
		StagingTargetPath: m.stagingPath(),
		TargetPath:        target,
		VolumeCapability:  capability,
		Readonly:          readOnly,
	})
	return err
}

func (m *machine) unpublishAt(s *csinode.Server, target string) {
	m.t.Helper()
	if _, err := s.NodeUnpublishVolume(m.t.Context(), &csi.NodeUnpublishVolumeRequest{
		VolumeId:   volumeID,
		TargetPath: target,
	}); err != nil {
		m.t.Error(err)
	}
}

func wantCode(t *testing.T, err error, code codes.Code, words ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("%v, want %s", err, code)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func TestSeveralPodsOfANodeShareAVolume(t *testing.T) {
	m, _ := newRealMachine(t)
	m.publish(nil)
	s := m.start()
	capability := mountCapability("ext4")
	m.must(m.stage(s, capability))
	writer, reader := filepath.Join(m.dir, "pods/1/mount"), filepath.Join(m.dir, "pods/2/mount")
	m.must(m.publishAt(s, writer, capability, false))
	m.must(m.publishAt(s, reader, capability, true))
	m.must(os.WriteFile(filepath.Join(writer, "file"), []byte("seen by both"), 0o600))
	if content, err := os.ReadFile(filepath.Join(reader, "file")); err != nil || string(content) != "seen by both" {
		t.Errorf("the second pod reads %q, %v", content, err)
	}
	if err := os.WriteFile(filepath.Join(reader, "other"), nil, 0o600); err == nil {
		t.Error("the pod that may only read wrote a file")
	}
	wantCode(t, m.publishAt(s, reader, capability, false), codes.AlreadyExists, reader, "read-only")
	wantCode(t, m.unstage(s), codes.Aborted, "still published")
	m.unpublishAt(s, writer)
	m.unpublishAt(s, reader)
	m.must(m.unstage(s))
	m.assertClean()
}

// fsGroup and subPath are the kubelet's work on our mount: it changes owners below the target, and
// binds a directory of it elsewhere.
func TestTheKubeletsWorkOnAMountIsNotHindered(t *testing.T) {
	m, _ := newRealMachine(t)
	m.publish(nil)
	s := m.start()
	capability := mountCapability("ext4")
	m.must(m.stage(s, capability))
	m.must(m.publishVolume(s, capability, false))
	part := filepath.Join(m.target(), "part")
	m.must(os.Mkdir(part, 0o770))
	for _, path := range []string{m.target(), part} {
		m.must(os.Chown(path, -1, 4711))
		m.must(os.Chmod(path, os.ModeSetgid|0o775))
	}
	subPath := filepath.Join(m.dir, "pods/1/volume-subpaths/pv/container/0")
	m.must(m.host.Mounts().Bind(t.Context(), part, subPath, false, nil))
	m.must(os.WriteFile(filepath.Join(subPath, "file"), []byte("x"), 0o600))
	if info, err := os.Stat(subPath); err != nil || info.Mode()&os.ModeSetgid == 0 {
		t.Errorf("the directory of the subPath: %v, %v", info, err)
	}
	// The kubelet may ask for the volume again while the subPath is mounted.
	single := mountCapability("ext4")
	single.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	m.must(m.publishVolume(s, single, false))
	m.must(m.host.Mounts().Unmount(t.Context(), subPath))
	m.must(m.unpublishVolume(s))
	m.must(m.unstage(s))
	m.assertClean()
}

func TestAVolumePublishedForReadingTakesNoWrite(t *testing.T) {
	m, _ := newRealMachine(t)
	m.publish(func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Spec.ReadOnly = true })
	s := m.start()
	capability := mountCapability("ext4")
	wantCode(t, m.stage(s, capability), codes.FailedPrecondition, "blank")
	m.assertClean()

	readOnly := func(is bool) {
		m.change(func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Spec.ReadOnly = is })
	}
	readOnly(false)
	m.must(m.stage(s, capability))
	m.must(os.WriteFile(filepath.Join(m.stagingPath(), "file"), []byte("kept"), 0o600))
	m.must(m.unstage(s))

	readOnly(true)
	m.must(m.stage(s, capability))
	// The kubelet does not know: it asks for a mount with writing.
	m.must(m.publishVolume(s, capability, false))
	m.must(m.publishVolume(s, capability, false))
	if content, err := os.ReadFile(filepath.Join(m.target(), "file")); err != nil || string(content) != "kept" {
		t.Errorf("the file holds %q, %v", content, err)
	}
	if err := os.WriteFile(filepath.Join(m.target(), "other"), nil, 0o600); err == nil {
		t.Error("a volume that was published for reading took a file")
	}
	m.must(m.unpublishVolume(s))
	m.must(m.unstage(s))
	m.assertClean()
}

func TestADevicePublishedForReadingTakesNoWrite(t *testing.T) {
	write := func(path string) error {
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer file.Close()
		if _, err := file.WriteAt([]byte("x"), 0); err != nil {
			return err
		}
		return file.Sync()
	}
	for name, test := range map[string]struct {
		mode     csi.VolumeCapability_AccessMode_Mode
		readOnly bool
	}{
		"by ControllerPublishVolume":     {csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, true},
		"by its access mode on one node": {csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY, false},
		"by its access mode on several":  {csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, disk := newRealMachine(t)
			m.publish(func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
				if test.mode == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY {
					v.Spec.Access, v.Status.Primary = apiv1.AccessMultiNode, nil
				}
				a.Spec.ReadOnly = test.readOnly
			})
			s := m.start()
			capability := blockCapability(test.mode)
			m.must(m.stage(s, capability))
			m.must(m.publishVolume(s, capability, false))
			if err := write(m.target()); err == nil {
				t.Error("the device took a write")
			}
			m.must(m.unpublishVolume(s))
			m.must(m.unstage(s))
			// The next use of the same attachment is for writing.
			m.change(func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Spec.ReadOnly = false })
			capability.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
			m.must(m.stage(s, capability))
			m.must(m.publishVolume(s, capability, false))
			m.must(write(m.target()))
			if content := disk.Content(t); content[0] != 'x' {
				t.Error("what was written is not on the disk")
			}
			m.must(m.unpublishVolume(s))
			m.must(m.unstage(s))
			m.assertClean()
		})
	}
}

func TestMountOptionsReachTheMountAndBadOnesEndInItsWords(t *testing.T) {
	m, _ := newRealMachine(t)
	m.publish(nil)
	s := m.start()
	wantCode(t, m.stage(s, mountCapability("ext4", "nosuchoption=1")), codes.Internal, "nosuchoption", "exit code 32")
	if entry := m.entry(); entry != nil {
		t.Errorf("after the refusal: entry %+v", entry)
	}
	m.must(m.stage(s, mountCapability("ext4", "noatime", "nodiratime", "noatime")))
	options, err := os.ReadFile("/proc/self/mountinfo")
	m.must(err)
	for line := range strings.Lines(string(options)) {
		if strings.Contains(line, m.stagingPath()) && !strings.Contains(line, "noatime") {
			t.Errorf("mounted without the option: %s", line)
		}
	}
	m.must(m.unstage(s))
	m.assertClean()
}

// The kubelet gives the label of the pods with the mount options. All pods on the node see files of
// that label.
func TestAVolumeIsMountedUnderOneSELinuxLabel(t *testing.T) {
	t.Parallel()
	const label = `context="system_u:object_r:container_file_t:s0:c1,c2"`
	const other = `context="system_u:object_r:container_file_t:s0:c3,c4"`
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.publish(nil)
	s := m.start()
	m.must(m.stage(s, mountCapability("ext4", label)))
	if host.Options != label {
		t.Errorf("mounted with %q", host.Options)
	}
	m.must(m.publishVolume(s, mountCapability("ext4", label), false))
	wantCode(t, m.publishVolume(s, mountCapability("ext4", other), false), codes.AlreadyExists, "c1,c2", "c3,c4")
	wantCode(t, m.publishVolume(s, mountCapability("ext4"), false), codes.AlreadyExists, "c1,c2")
	// the mount stays, so the code is not final
	wantCode(t, m.stage(s, mountCapability("ext4", other)), codes.Unavailable, "c1,c2", "c3,c4")
	m.must(m.stage(s, mountCapability("ext4", label)))
	m.must(m.unpublishVolume(s))
	m.must(m.unstage(s))
	m.must(m.stage(s, mountCapability("ext4", other)))
	// A record of an earlier version does not say which label it was.
	record, _, err := m.records.Get(volume)
	m.must(err)
	record.SELinuxLabel = nil
	m.must(m.records.Put(record))
	m.must(m.publishVolume(s, mountCapability("ext4", label), false))
	m.must(m.unpublishVolume(s))
	m.must(m.unstage(s))
}

func TestTheHealthOfAVolumeOnItsNode(t *testing.T) {
	t.Parallel()
	gone := provisioner.Errorf(provisioner.NotFound, "the device is gone")
	for name, test := range map[string]struct {
		edit  func(*memoryHost, *machine)
		block bool
		flags []string // of the mount
		want  []string
		kind  csi.VolumeHealthErrorType
	}{
		"a disk that works": {},
		"a disk that is gone": {edit: func(h *memoryHost, _ *machine) { h.Broken = gone }, want: []string{"DeviceGone"},
			kind: csi.VolumeHealthErrorType_INACCESSIBLE},
		"a raw block disk that is gone": {edit: func(h *memoryHost, _ *machine) { h.Broken = gone }, block: true,
			want: []string{"DeviceGone"}, kind: csi.VolumeHealthErrorType_INACCESSIBLE},
		"a filesystem that is mounted to be read": {flags: []string{"ro"}},
		"a disk that fails": {edit: func(h *memoryHost, _ *machine) { h.Broken = provisioner.Unavailable },
			want: []string{"ReadFailed"}, kind: csi.VolumeHealthErrorType_INACCESSIBLE},
		"a filesystem that the kernel shut": {edit: func(h *memoryHost, m *machine) { h.Seal(m.stagingPath()) },
			want: []string{"FilesystemTakesNoWrites"}, kind: csi.VolumeHealthErrorType_DEGRADED},
	} {
		t.Run(name, func(t *testing.T) {
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), quiet)
			m.publish(nil)
			s := m.start()
			capability := mountCapability("ext4", test.flags...)
			if test.block {
				capability = blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
			}
			m.must(m.stage(s, capability))
			m.must(m.publishVolume(s, capability, false))
			if test.edit != nil {
				test.edit(host, m)
			}
			health, err := s.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: volumeID})
			m.must(err)
			var reasons []string
			for _, entry := range health.GetVolumeHealth().GetHealthStatuses() {
				reasons = append(reasons, entry.GetReason())
				if entry.GetStatus() != test.kind {
					t.Errorf("status %s, want %s", entry.GetStatus(), test.kind)
				}
			}
			if strings.Join(reasons, " ") != strings.Join(test.want, " ") {
				t.Errorf("reasons %v, want %v", reasons, test.want)
			}
			stats, err := s.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{
				VolumeId:   volumeID,
				VolumePath: m.target(),
			})
			m.must(err)
			abnormal, text, found := volumecondition.Of(stats)
			if !found || abnormal != (len(test.want) > 0) || abnormal && !strings.Contains(text, test.want[0]) {
				t.Errorf("condition %t, %q, %t", abnormal, text, found)
			}
		})
	}
}

func TestTheHealthOfAVolumeThatIsNotStaged(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
	s := m.start()
	health := func() (*csi.NodeGetVolumeHealthResponse, error) {
		return s.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: volumeID})
	}
	_, err := health()
	wantCode(t, err, codes.NotFound)
	m.publish(func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
		a.Status.State, a.Status.Error = apiv1.AttachmentFailed, &apiv1.Error{Message: "no free slot"}
	})
	response, err := health()
	m.must(err)
	if got := response.GetVolumeHealth().GetHealthStatuses(); len(got) != 1 || got[0].GetReason() != "AttachmentFailed" ||
		got[0].GetMessage() != "no free slot" {
		t.Errorf("health %v", got)
	}
	storage, err := s.NodeGetStorageHealth(t.Context(), &csi.NodeGetStorageHealthRequest{})
	if err != nil || len(storage.GetBackendHealth()) != 0 {
		t.Errorf("storage %v, %v", storage, err)
	}
}

func TestStorageIsOutOfReachWhenNoDiskAnswers(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.publish(nil)
	s := m.start()
	m.must(m.stage(s, mountCapability("ext4")))
	record, _, err := m.records.Get(volume)
	m.must(err)
	backends := func() int {
		response, err := s.NodeGetStorageHealth(t.Context(), &csi.NodeGetStorageHealthRequest{})
		m.must(err)
		return len(response.GetBackendHealth())
	}
	host.Broken = provisioner.Unavailable
	if n := backends(); n != 0 {
		t.Errorf("%d complaints about storage where the only disk fails: that is the volume's matter", n)
	}
	record.VolumeName, record.BootID = "pvc-2", "boot-0"
	m.must(m.records.Put(record))
	if n := backends(); n != 0 {
		t.Errorf("%d complaints about storage where the second disk was used before a reboot", n)
	}
	record.BootID = m.bootID
	m.must(m.records.Put(record))
	if n := backends(); n != 1 {
		t.Errorf("%d complaints about storage where two disks fail", n)
	}
	host.Broken = nil
	if n := backends(); n != 0 {
		t.Errorf("%d complaints about storage that works", n)
	}
}
