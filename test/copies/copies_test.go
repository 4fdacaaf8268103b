// Package copies_test plays snapshots, restores and clones through the whole driver: real processes, a real API server, a simulated Azure, and
// real devices with real filesystems on them.
package copies_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/azuredisk-csi/azuredisk/test/stack"
)

const (
	gib      = int64(1) << 30
	patience = 2 * time.Minute
	lookIn   = 100 * time.Millisecond
)

// lab is a driver with one node, on which source and copies meet.
type lab struct {
	*testing.T
	*stack.Stack
	controller csi.ControllerClient
}

func start(t *testing.T) *lab {
	t.Helper()
	s := stack.Start(t, stack.Options{Nodes: 1, Controllers: 1})
	conn, err := stack.Connect(s.ControllerSocket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &lab{T: t, Stack: s, controller: csi.NewControllerClient(conn)}
}

// bounded is a context for one step.
func (l *lab) bounded() context.Context {
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	l.Cleanup(cancel)
	return ctx
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lab) volume(name string, size int64, fsType string, from *csi.VolumeContentSource) *csi.Volume {
	l.Helper()
	topology := &csi.Topology{Segments: map[string]string{stack.TopologyKey: l.Zone}}
	response, err := l.controller.CreateVolume(l.bounded(), &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapabilities: []*csi.VolumeCapability{stack.MountCapability("")},
		Parameters: map[string]string{"fsType": fsType, "skuName": "Premium_LRS"}, VolumeContentSource: from,
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{topology}},
	})
	l.must(err)
	return response.GetVolume()
}

// snapshot asks until the snapshot is ready, as the snapshotter does.
func (l *lab) snapshot(name, source string, parameters map[string]string) *csi.VolumeContentSource {
	l.Helper()
	ctx := l.bounded()
	for {
		response, err := l.controller.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: source, Parameters: parameters})
		l.must(err)
		if s := response.GetSnapshot(); s.GetReadyToUse() {
			return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: s.GetSnapshotId()}}}
		}
		select {
		case <-ctx.Done():
			l.Fatalf("snapshot %s is not ready", name)
		case <-time.After(lookIn):
		}
	}
}

func clone(source string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: source}}}
}

// use mounts a volume on the node.
func (l *lab) use(v *csi.Volume) string {
	l.Helper()
	path, err := l.Use(l.bounded(), v, l.Nodes[0])
	l.must(err)
	return path
}

func (l *lab) write(dir, name, text string) {
	l.Helper()
	l.must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	out, err := exec.Command("sync", "-f", dir).CombinedOutput()
	if err != nil {
		l.Fatalf("sync: %v: %s", err, out)
	}
}

// holds fails unless the directory holds just these files, whose content is their name.
func (l *lab) holds(dir string, names ...string) {
	l.Helper()
	entries, err := os.ReadDir(dir)
	l.must(err)
	var found []string
	for _, e := range entries {
		if e.Name() == "lost+found" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		l.must(err)
		if string(text) != e.Name() {
			l.Errorf("%s in %s holds %q", e.Name(), dir, text)
		}
		found = append(found, e.Name())
	}
	if got, want := strings.Join(found, " "), strings.Join(names, " "); got != want {
		l.Errorf("%s holds %q, want %q", dir, got, want)
	}
}

// offers fails unless the filesystem has most of the size.
func (l *lab) offers(dir string, size int64) {
	l.Helper()
	var st unix.Statfs_t
	l.must(unix.Statfs(dir, &st))
	if total := int64(st.Blocks) * st.Bsize; total < size*9/10 || total > size {
		l.Errorf("%s offers %d bytes, want about %d", dir, total, size)
	}
}

func uuidOf(t *testing.T, dir string) string {
	t.Helper()
	device, err := exec.Command("findmnt", "-n", "-o", "SOURCE", "--target", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	uuid, err := exec.Command("blkid", "-p", "-o", "value", "-s", "UUID", strings.TrimSpace(string(device))).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(uuid))
}

func TestSourceRestoreAndCloneAreMountedOnOneNode(t *testing.T) {
	whole := start(t)
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) { sourceRestoreAndClone(whole.in(t), fsType) })
	}
}

func TestCopiesThatCannotBeUsedHereAreRefusedWithAReason(t *testing.T) {
	whole := start(t)
	t.Run("a copy of a volume that was never mounted", func(t *testing.T) { neverMounted(whole.in(t)) })
	t.Run("a snapshot that was copied to another region", func(t *testing.T) { otherRegion(whole.in(t)) })
}

// in is the same driver for a subtest.
func (l *lab) in(t *testing.T) *lab { return &lab{T: t, Stack: l.Stack, controller: l.controller} }

func sourceRestoreAndClone(l *lab, fsType string) {
	source := l.volume("source-"+fsType, gib, fsType, nil)
	sourceDir := l.use(source)
	l.write(sourceDir, "before", "before")
	snapshot := l.snapshot("snapshot", source.GetVolumeId(), nil)
	l.write(sourceDir, "later", "later")

	restored := l.volume("restored-"+fsType, 2*gib, fsType, snapshot)
	cloned := l.volume("cloned-"+fsType, 3*gib, fsType, clone(source.GetVolumeId()))
	restoredDir, clonedDir := l.use(restored), l.use(cloned)
	l.holds(sourceDir, "before", "later")
	l.holds(restoredDir, "before")
	l.holds(clonedDir, "before", "later")
	l.offers(sourceDir, gib)
	l.offers(restoredDir, 2*gib)
	l.offers(clonedDir, 3*gib)
	if a, b, c := uuidOf(l.T, sourceDir), uuidOf(l.T, restoredDir), uuidOf(l.T, clonedDir); a == b || b == c || a == c {
		l.Errorf("the UUIDs are %s, %s and %s", a, b, c)
	}
	l.write(restoredDir, "mine", "mine")
	l.holds(clonedDir, "before", "later")

	// A copy is independent: it remains after its source was deleted, and its data is found again after it was unstaged.
	l.must(l.Release(l.bounded(), source, l.Nodes[0]))
	l.must(l.DeleteVolume(l.bounded(), source.GetVolumeId()))
	uuid := uuidOf(l.T, restoredDir)
	l.must(l.Release(l.bounded(), restored, l.Nodes[0]))
	l.must(l.Release(l.bounded(), cloned, l.Nodes[0]))
	restoredDir = l.use(restored)
	l.holds(restoredDir, "before", "mine")
	if again := uuidOf(l.T, restoredDir); again != uuid {
		l.Errorf("the UUID was %s and is %s", uuid, again)
	}
	l.must(l.Release(l.bounded(), restored, l.Nodes[0]))
	l.clean(snapshot, restored, cloned)
}

// stage publishes a volume to the node and stages it there, once.
func (l *lab) stage(v *csi.Volume) error {
	l.Helper()
	node := l.Nodes[0]
	_, err := l.controller.ControllerPublishVolume(l.bounded(), &csi.ControllerPublishVolumeRequest{
		VolumeId: v.GetVolumeId(), NodeId: node.Name, VolumeCapability: stack.MountCapability(""), VolumeContext: v.GetVolumeContext(),
	})
	l.must(err)
	conn, err := stack.Connect(node.Socket)
	l.must(err)
	defer conn.Close()
	_, err = csi.NewNodeClient(conn).NodeStageVolume(l.bounded(), &csi.NodeStageVolumeRequest{
		VolumeId: v.GetVolumeId(), StagingTargetPath: filepath.Join(filepath.Dir(node.Socket), "staging", "once", "globalmount"),
		VolumeCapability: stack.MountCapability(""), VolumeContext: v.GetVolumeContext(),
	})
	return err
}

func expectCode(t *testing.T, err error, want codes.Code, says string) {
	t.Helper()
	if status.Code(err) != want || !strings.Contains(status.Convert(err).Message(), says) {
		t.Errorf("got %v, want %s and %q", err, want, says)
	}
}

func (l *lab) clean(snapshot *csi.VolumeContentSource, volumes ...*csi.Volume) {
	l.Helper()
	for _, v := range volumes {
		l.must(l.DeleteVolume(l.bounded(), v.GetVolumeId()))
	}
	id := snapshot.GetSnapshot().GetSnapshotId()
	_, err := l.controller.DeleteSnapshot(l.bounded(), &csi.DeleteSnapshotRequest{SnapshotId: id})
	l.must(err)
	response, err := l.controller.ListSnapshots(l.bounded(), &csi.ListSnapshotsRequest{})
	l.must(err)
	if len(response.GetEntries()) != 0 {
		l.Errorf("snapshots are left over: %s", response)
	}
}

// An empty disk has no filesystem, and its copy is not formatted (law 4): what was made from a source is never taken for blank.
func neverMounted(l *lab) {
	blank := l.volume("blank", gib, "ext4", nil)
	snapshot := l.snapshot("snapshot", blank.GetVolumeId(), nil)
	restored := l.volume("restored-blank", gib, "ext4", snapshot)
	expectCode(l.T, l.stage(restored), codes.FailedPrecondition, "raw block")
	l.must(l.Release(l.bounded(), restored, l.Nodes[0]))
	l.clean(snapshot, restored, blank)
}

func otherRegion(l *lab) {
	source := l.volume("source", gib, "ext4", nil)
	dir := l.use(source)
	l.write(dir, "before", "before")
	copied := l.snapshot("other-region", source.GetVolumeId(), map[string]string{"location": "westus2"})
	id := copied.GetSnapshot().GetSnapshotId()
	response, err := l.controller.ListSnapshots(l.bounded(), &csi.ListSnapshotsRequest{})
	l.must(err)
	if entries := response.GetEntries(); len(entries) != 1 || entries[0].GetSnapshot().GetSnapshotId() != id || entries[0].GetSnapshot().GetSourceVolumeId() != source.GetVolumeId() {
		l.Errorf("the list is %s", response)
	}
	// Nothing can be made from it in this region.
	_, err = l.controller.CreateVolume(l.bounded(), &csi.CreateVolumeRequest{
		Name: "here", VolumeCapabilities: []*csi.VolumeCapability{stack.MountCapability("")}, VolumeContentSource: copied,
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{stack.TopologyKey: l.Zone}}}},
	})
	expectCode(l.T, err, codes.ResourceExhausted, "westus2")
	l.must(l.Release(l.bounded(), source, l.Nodes[0]))
	l.clean(copied, source)
}
