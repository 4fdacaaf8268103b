// Package sharing_test uses volumes from several nodes and pods at once, through the whole driver: real processes, a real API server, a
// simulated Azure, and a real device on each of two nodes over one disk.
package sharing_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/azuredisk-csi/azuredisk/internal/csi/condition"
	"github.com/azuredisk-csi/azuredisk/test/stack"
)

const (
	gib      = int64(1) << 30
	patience = time.Minute
	block    = 4096
)

// lab is a driver with two nodes.
type lab struct {
	*testing.T
	*stack.Stack
}

func start(t *testing.T) *lab {
	t.Helper()
	return &lab{T: t, Stack: stack.Start(t, stack.Options{Nodes: 2, Controllers: 1})}
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lab) refused(err error, code codes.Code, words ...string) {
	l.Helper()
	if status.Code(err) != code {
		l.Errorf("%v, want %s", err, code)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			l.Errorf("%q does not say %q", err, w)
		}
	}
}

// bounded is a context for one step.
func (l *lab) bounded() context.Context {
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	l.Cleanup(cancel)
	return ctx
}

func raw(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
	}
}

func mounted(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	c := stack.MountCapability("ext4")
	c.AccessMode.Mode = mode
	return c
}

// create asks for a volume in the nodes' zone.
func (l *lab) create(name string, parameters map[string]string, capability *csi.VolumeCapability) (*csi.Volume, error) {
	topology := &csi.Topology{Segments: map[string]string{stack.TopologyKey: l.Zone}}
	response, err := l.Controller().CreateVolume(l.bounded(), &csi.CreateVolumeRequest{
		Name: name, Parameters: parameters, VolumeCapabilities: []*csi.VolumeCapability{capability},
		CapacityRange:             &csi.CapacityRange{RequiredBytes: gib},
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{topology}},
	})
	return response.GetVolume(), err
}

func (l *lab) attach(volume *csi.Volume, node *stack.Node, capability *csi.VolumeCapability, readOnly bool) error {
	_, err := l.Controller().ControllerPublishVolume(l.bounded(), &csi.ControllerPublishVolumeRequest{
		VolumeId: volume.VolumeId, NodeId: node.Name, VolumeCapability: capability, VolumeContext: volume.VolumeContext, Readonly: readOnly,
	})
	return err
}

func (l *lab) detach(volume *csi.Volume, node *stack.Node) {
	l.Helper()
	_, err := l.Controller().ControllerUnpublishVolume(l.bounded(), &csi.ControllerUnpublishVolumeRequest{VolumeId: volume.VolumeId, NodeId: node.Name})
	l.must(err)
}

func staging(volume *csi.Volume, node *stack.Node) string {
	return filepath.Join(node.Dir(), "staging", filepath.Base(volume.VolumeId), "globalmount")
}

func target(volume *csi.Volume, node *stack.Node, pod string) string {
	return filepath.Join(node.Dir(), "pods", pod, filepath.Base(volume.VolumeId))
}

func (l *lab) stage(volume *csi.Volume, node *stack.Node, capability *csi.VolumeCapability) {
	l.Helper()
	l.must(os.MkdirAll(filepath.Dir(staging(volume, node)), 0o750))
	_, err := node.CSI().NodeStageVolume(l.bounded(), &csi.NodeStageVolumeRequest{
		VolumeId: volume.VolumeId, StagingTargetPath: staging(volume, node), VolumeCapability: capability, VolumeContext: volume.VolumeContext,
	})
	l.must(err)
}

func (l *lab) unstage(volume *csi.Volume, node *stack.Node) {
	l.Helper()
	_, err := node.CSI().NodeUnstageVolume(l.bounded(), &csi.NodeUnstageVolumeRequest{VolumeId: volume.VolumeId, StagingTargetPath: staging(volume, node)})
	l.must(err)
}

func (l *lab) publish(volume *csi.Volume, node *stack.Node, pod string, capability *csi.VolumeCapability) (string, error) {
	path := target(volume, node, pod)
	_, err := node.CSI().NodePublishVolume(l.bounded(), &csi.NodePublishVolumeRequest{
		VolumeId: volume.VolumeId, StagingTargetPath: staging(volume, node), TargetPath: path, VolumeCapability: capability, VolumeContext: volume.VolumeContext,
	})
	return path, err
}

func (l *lab) unpublish(volume *csi.Volume, node *stack.Node, pod string) {
	l.Helper()
	_, err := node.CSI().NodeUnpublishVolume(l.bounded(), &csi.NodeUnpublishVolumeRequest{VolumeId: volume.VolumeId, TargetPath: target(volume, node, pod)})
	l.must(err)
}

// use does all that Kubernetes does for a pod on a node, and returns the path at which the pod has the volume.
func (l *lab) use(volume *csi.Volume, node *stack.Node, capability *csi.VolumeCapability) string {
	l.Helper()
	l.must(l.attach(volume, node, capability, false))
	l.stage(volume, node, capability)
	path, err := l.publish(volume, node, "pod", capability)
	l.must(err)
	return path
}

func (l *lab) release(volume *csi.Volume, node *stack.Node) {
	l.Helper()
	l.unpublish(volume, node, "pod")
	l.unstage(volume, node)
	l.detach(volume, node)
}

// page is memory as direct reads and writes need it.
func page(t *testing.T) []byte {
	t.Helper()
	memory, err := unix.Mmap(-1, 0, block, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(memory) })
	return memory
}

// write writes a block past the node's cache.
func write(t *testing.T, device string, offset int64, fill byte) error {
	t.Helper()
	file, err := os.OpenFile(device, os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	memory := page(t)
	copy(memory, bytes.Repeat([]byte{fill}, block))
	_, err = file.WriteAt(memory, offset)
	return errors.Join(err, file.Sync())
}

// read reads the first byte of a block past the node's cache.
func read(t *testing.T, device string, offset int64) (byte, error) {
	t.Helper()
	file, err := os.OpenFile(device, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	memory := page(t)
	n, err := file.ReadAt(memory, offset)
	if n < block && err == nil {
		err = io.ErrUnexpectedEOF
	}
	return memory[0], err
}

func TestTwoNodesWriteOneRawBlockVolumeAndReadEachOther(t *testing.T) {
	l := start(t)
	capability := raw(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)
	volume, err := l.create("shared", map[string]string{"skuName": "Premium_LRS", "maxShares": "2"}, capability)
	l.must(err)
	paths := map[*stack.Node]string{}
	for _, node := range l.Nodes {
		paths[node] = l.use(volume, node, capability)
	}
	for i, node := range l.Nodes {
		l.must(write(t, paths[node], int64(i)*gib/4, byte('a'+i)))
	}
	for _, node := range l.Nodes {
		for i := range l.Nodes {
			if got, err := read(t, paths[node], int64(i)*gib/4); err != nil || got != byte('a'+i) {
				t.Errorf("%s reads %q of what %s wrote (%v)", node.Name, got, l.Nodes[i].Name, err)
			}
		}
	}
	l.checkPublished(volume)
	// One node that leaves does not disturb the other.
	l.release(volume, l.Nodes[0])
	if got, err := read(t, paths[l.Nodes[1]], 0); err != nil || got != 'a' {
		t.Errorf("the node that stays reads %q (%v)", got, err)
	}
	l.must(write(t, paths[l.Nodes[1]], 0, 'z'))
	l.release(volume, l.Nodes[1])
	l.must(l.DeleteVolume(t.Context(), volume.VolumeId))
	l.AssertNothingLeft(t)
	for _, node := range l.Nodes {
		// The V1 driver counted the staging of raw block volumes as failed.
		for _, want := range []string{
			`azuredisk_csi_call_duration_seconds_count{code="OK",method="NodeStageVolume"} 1`,
			`azuredisk_csi_driver_operations_total{operation="node_stage_volume",success="true"} 1`,
		} {
			if metrics := node.Metrics(t); !strings.Contains(metrics, want) {
				t.Errorf("the metrics of %s do not say %s", node.Name, want)
			}
		}
	}
}

func (l *lab) checkPublished(volume *csi.Volume) {
	l.Helper()
	list, err := l.Controller().ListVolumes(l.bounded(), &csi.ListVolumesRequest{})
	l.must(err)
	nodes := list.GetEntries()[0].GetStatus().GetPublishedNodeIds()
	slices.Sort(nodes)
	if len(list.GetEntries()) != 1 || !slices.Equal(nodes, []string{l.Nodes[0].Name, l.Nodes[1].Name}) {
		l.Errorf("%d volumes are listed, the first one published to %v", len(list.GetEntries()), nodes)
	}
	health, err := l.Controller().ControllerGetVolumeHealth(l.bounded(), &csi.ControllerGetVolumeHealthRequest{VolumeId: volume.VolumeId})
	if err != nil || len(health.GetVolumeHealth().GetHealthStatuses()) != 0 {
		l.Errorf("health %v, %v", health, err)
	}
}

func TestOneNodeWritesAndAnotherReadsARawBlockVolume(t *testing.T) {
	l := start(t)
	volume, err := l.create("read", map[string]string{"skuName": "Premium_LRS", "maxShares": "2"}, raw(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER))
	l.must(err)
	writer, reader := l.Nodes[0], l.Nodes[1]
	written := l.use(volume, writer, raw(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER))
	readOnly := raw(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY)
	l.must(l.attach(volume, reader, readOnly, true))
	l.must(l.attach(volume, reader, readOnly, true))
	l.refused(l.attach(volume, reader, readOnly, false), codes.AlreadyExists, "readonly")
	l.stage(volume, reader, readOnly)
	path, err := l.publish(volume, reader, "pod", readOnly)
	l.must(err)
	l.must(write(t, written, 0, 'w'))
	if got, err := read(t, path, 0); err != nil || got != 'w' {
		t.Errorf("the reader reads %q (%v)", got, err)
	}
	if err := write(t, path, 0, 'r'); err == nil {
		t.Error("the reader wrote")
	}
	l.release(volume, reader)
	l.release(volume, writer)
	l.must(l.DeleteVolume(t.Context(), volume.VolumeId))
	l.AssertNothingLeft(t)
}

func TestWhatCannotBeSharedIsRefused(t *testing.T) {
	l := start(t)
	for name, mode := range map[string]csi.VolumeCapability_AccessMode_Mode{
		"many writers": csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
		"one writer":   csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		"readers":      csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
	} {
		_, err := l.create("no-"+strings.ReplaceAll(name, " ", "-"), map[string]string{"skuName": "Premium_LRS", "maxShares": "2"}, mounted(mode))
		l.refused(err, codes.InvalidArgument, "access mode", "raw block")
	}
	for _, mode := range []csi.VolumeCapability_AccessMode_Mode{
		csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
	} {
		capability := mounted(mode)
		volume, err := l.create("single-"+strings.ToLower(strings.ReplaceAll(mode.String(), "_", "-")), map[string]string{"skuName": "Premium_LRS", "maxShares": "2"}, capability)
		l.must(err)
		path := l.use(volume, l.Nodes[0], capability)
		l.refused(l.attach(volume, l.Nodes[1], capability, false), codes.FailedPrecondition, l.Nodes[0].Name)
		l.refused(l.attach(volume, l.Nodes[1], raw(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER), false), codes.InvalidArgument, "one node at a time")
		_, err = l.publish(volume, l.Nodes[0], "second", capability)
		if mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
			l.refused(err, codes.FailedPrecondition, path)
		} else {
			l.must(err)
			l.unpublish(volume, l.Nodes[0], "second")
		}
		l.release(volume, l.Nodes[0])
		l.must(l.DeleteVolume(t.Context(), volume.VolumeId))
	}
	l.AssertNothingLeft(t)
}

// A publish may come before the node plug-in of a new node has reported. It must not fail permanently.
func TestAPublishWaitsForAnAddedNode(t *testing.T) {
	l := start(t)
	capability := mounted(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	volume, err := l.create("newcomer", nil, capability)
	l.must(err)
	unknown := &stack.Node{Name: "node-that-is-not"}
	l.refused(l.attach(volume, unknown, capability, false), codes.NotFound, unknown.Name)
	published := make(chan error, 1)
	newcomer := &stack.Node{Name: "node-3"}
	l.MakeNode(t, newcomer.Name)
	go func() { published <- l.attach(volume, newcomer, capability, false) }()
	select {
	case err := <-published:
		t.Fatalf("the publish ended before the node was there: %v", err)
	case <-time.After(time.Second):
	}
	node := l.AddNode(t)
	l.must(<-published)
	l.stage(volume, node, capability)
	path, err := l.publish(volume, node, "pod", capability)
	l.must(err)
	l.must(os.WriteFile(filepath.Join(path, "file"), nil, 0o600))
	l.release(volume, node)
	l.must(l.DeleteVolume(t.Context(), volume.VolumeId))
	l.AssertNothingLeft(t)
}

func TestANodeTellsThatItsDisksAreCutOff(t *testing.T) {
	l := start(t)
	node := l.Nodes[0]
	volumes := map[string]*csi.VolumeCapability{
		"filesystem": mounted(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER), "block": raw(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER),
	}
	used := map[string]*csi.Volume{}
	for name, capability := range volumes {
		volume, err := l.create(name, nil, capability)
		l.must(err)
		l.use(volume, node, capability)
		used[name] = volume
	}
	check := func(name string, unwell bool) {
		t.Helper()
		volume := used[name]
		health, err := node.CSI().NodeGetVolumeHealth(l.bounded(), &csi.NodeGetVolumeHealthRequest{VolumeId: volume.VolumeId})
		l.must(err)
		inaccessible := slices.ContainsFunc(health.GetVolumeHealth().GetHealthStatuses(), func(e *csi.VolumeHealth_VolumeHealthEntry) bool {
			return e.GetStatus() == csi.VolumeHealthErrorType_INACCESSIBLE
		})
		if inaccessible != unwell {
			t.Errorf("%s: health %v, want unwell %t", name, health, unwell)
		}
		stats, err := node.CSI().NodeGetVolumeStats(l.bounded(), &csi.NodeGetVolumeStatsRequest{VolumeId: volume.VolumeId, VolumePath: target(volume, node, "pod")})
		l.must(err)
		if abnormal, text, found := condition.Of(stats); !found || abnormal != unwell {
			t.Errorf("%s: condition %t, %q, %t; want abnormal %t", name, abnormal, text, found, unwell)
		}
	}
	backends := func() int {
		response, err := node.CSI().NodeGetStorageHealth(l.bounded(), &csi.NodeGetStorageHealthRequest{})
		l.must(err)
		return len(response.GetBackendHealth())
	}
	for name := range volumes {
		check(name, false)
	}
	l.CutPower(t, node)
	for name := range volumes {
		check(name, true)
	}
	if backends() != 1 {
		t.Error("the storage as a whole is not said to be out of reach")
	}
	l.RestorePower(t, node)
	for _, volume := range used {
		l.release(volume, node)
		l.must(l.DeleteVolume(t.Context(), volume.VolumeId))
	}
	l.AssertNothingLeft(t)
}
