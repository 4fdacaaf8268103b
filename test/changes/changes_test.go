// Package changes expands and modifies volumes of a whole driver, on real devices, and counts what
// reaches Azure.
package changes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
	"github.com/azuredisk-csi/azuredisk/test/stack"
)

const (
	gib      = int64(1) << 30
	patience = time.Minute
	lookIn   = 50 * time.Millisecond
)

type lab struct {
	*testing.T
	*stack.Stack
	controller csi.ControllerClient
	nodes      []csi.NodeClient
}

func start(t *testing.T, nodes int) *lab {
	t.Helper()
	l := &lab{T: t, Stack: stack.Start(t, stack.Options{Nodes: nodes, Controllers: 1})}
	connect := func(socket string) *grpc.ClientConn {
		conn, err := stack.Connect(socket)
		l.must(err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	l.controller = csi.NewControllerClient(connect(l.ControllerSocket))
	for _, n := range l.Nodes {
		l.untaint(n.Name)
		l.nodes = append(l.nodes, csi.NewNodeClient(connect(n.Socket)))
	}
	return l
}

// untaint removes the taint that admission sets on every new Node. No other component of the test removes it, and a
// tainted node gets no replica.
func (l *lab) untaint(name string) {
	l.Helper()
	node := &corev1.Node{}
	l.must(l.Kube.Get(l.bounded(), client.ObjectKey{Name: name}, node))
	before := node.DeepCopy()
	node.Spec.Taints = nil
	l.must(l.Kube.Patch(l.bounded(), node, client.MergeFrom(before)))
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// bounded is a context for one step.
func (l *lab) bounded() context.Context {
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	l.Cleanup(cancel)
	return ctx
}

// eventually waits until holds returns "".
func (l *lab) eventually(what string, holds func() string) {
	l.Helper()
	ctx := l.bounded()
	for {
		complaint := holds()
		if complaint == "" {
			return
		}
		select {
		case <-ctx.Done():
			l.Fatalf("%s: %s", what, complaint)
		case <-time.After(lookIn):
		}
	}
}

func (l *lab) volume(name string, capability *csi.VolumeCapability, parameters map[string]string) *csi.Volume {
	l.Helper()
	topology := &csi.Topology{Segments: map[string]string{stack.TopologyKey: l.Zone}}
	response, err := l.controller.CreateVolume(l.bounded(), &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * gib}, VolumeCapabilities: []*csi.VolumeCapability{capability}, Parameters: parameters,
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{topology}},
	})
	l.must(err)
	l.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience/4)
		defer cancel()
		if err := l.DeleteVolume(ctx, response.GetVolume().GetVolumeId()); err != nil {
			l.Error(err)
		}
	})
	return response.GetVolume()
}

func (l *lab) expand(v *csi.Volume, size int64) (*csi.ControllerExpandVolumeResponse, error) {
	return l.controller.ControllerExpandVolume(l.bounded(), &csi.ControllerExpandVolumeRequest{VolumeId: v.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: size}})
}

func (l *lab) modify(v *csi.Volume, parameters map[string]string) error {
	_, err := l.controller.ControllerModifyVolume(l.bounded(), &csi.ControllerModifyVolumeRequest{VolumeId: v.GetVolumeId(), MutableParameters: parameters})
	return err
}

func (l *lab) expandOnNode(v *csi.Volume, path string, size int64) error {
	_, err := l.nodes[0].NodeExpandVolume(l.bounded(), &csi.NodeExpandVolumeRequest{VolumeId: v.GetVolumeId(), VolumePath: path, CapacityRange: &csi.CapacityRange{RequiredBytes: size}})
	return err
}

// patches counts the calls that asked Azure to change a disk.
func (l *lab) patches(v *csi.Volume) int {
	l.Helper()
	request, err := http.NewRequestWithContext(l.bounded(), http.MethodGet, l.Admin+"/admin/requests?writes=true&name="+filepath.Base(v.GetVolumeId()), nil)
	l.must(err)
	response, err := http.DefaultClient.Do(request)
	l.must(err)
	defer response.Body.Close()
	var seen struct{ Records []struct{ Method string } }
	l.must(json.NewDecoder(response.Body).Decode(&seen))
	n := 0
	for _, c := range seen.Records {
		if c.Method == http.MethodPatch {
			n++
		}
	}
	return n
}

func (l *lab) azVolume(v *csi.Volume) *apiv1.AzVolume {
	l.Helper()
	disk, err := volumehandle.Parse(v.GetVolumeId())
	l.must(err)
	found := &apiv1.AzVolume{}
	l.must(l.Kube.Get(l.bounded(), client.ObjectKey{Namespace: l.Namespace, Name: disk.VolumeName()}, found))
	return found
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Blocks) * s.Bsize
}

func mustBe(t *testing.T, err error, code codes.Code) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("%v, want %s", err, code)
	}
}

func TestAFilesystemGrowsInUse(t *testing.T) {
	l := start(t, 1)
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			l := &lab{T: t, Stack: l.Stack, controller: l.controller, nodes: l.nodes}
			v := l.volume("grows-"+fsType, stack.MountCapability(""), map[string]string{"skuName": "Premium_LRS", "fsType": fsType})
			dir, err := l.Use(l.bounded(), v, l.Nodes[0])
			l.must(err)
			l.must(os.WriteFile(filepath.Join(dir, "file"), []byte("kept"), 0o600))
			grown, err := l.expand(v, 3*gib-1)
			l.must(err)
			if grown.GetCapacityBytes() != 3*gib || !grown.GetNodeExpansionRequired() || l.patches(v) != 1 {
				t.Fatalf("%v, %d calls to Azure", grown, l.patches(v))
			}
			if err := l.expandOnNode(v, dir, 3*gib); fsType == "ext4" && !hosttest.MayGrowMounted(t) {
				// The kubelet leaves it to the next mount.
				mustBe(t, err, codes.FailedPrecondition)
				l.must(l.Release(l.bounded(), v, l.Nodes[0]))
				dir, err = l.Use(l.bounded(), v, l.Nodes[0])
				l.must(err)
			} else {
				l.must(err)
			}
			l.must(l.expandOnNode(v, dir, 3*gib))
			if size := sizeOf(t, dir); size < 5*gib/2 {
				t.Errorf("the filesystem has %d bytes", size)
			}
			if data, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(data) != "kept" {
				t.Errorf("the file holds %q, %v", data, err)
			}
			l.must(l.Release(l.bounded(), v, l.Nodes[0]))
		})
	}
}

func TestARawBlockVolumeGrowsInUse(t *testing.T) {
	l := start(t, 1)
	capability := &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
	v := l.volume("block", capability, map[string]string{"skuName": "Premium_LRS"})
	grown, err := l.expand(v, 3*gib)
	l.must(err)
	if grown.GetNodeExpansionRequired() {
		t.Error("a node is asked to look at a device that it does not have")
	}
	node, staging, target := l.Nodes[0].Name, filepath.Join(l.Dir, "staging"), filepath.Join(l.Dir, "pod", "device")
	l.must(os.MkdirAll(staging, 0o750))
	l.must(os.MkdirAll(filepath.Dir(target), 0o750))
	_, err = l.controller.ControllerPublishVolume(l.bounded(), &csi.ControllerPublishVolumeRequest{VolumeId: v.GetVolumeId(), NodeId: node, VolumeCapability: capability, VolumeContext: v.GetVolumeContext()})
	l.must(err)
	_, err = l.nodes[0].NodeStageVolume(l.bounded(), &csi.NodeStageVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: staging, VolumeCapability: capability, VolumeContext: v.GetVolumeContext()})
	l.must(err)
	_, err = l.nodes[0].NodePublishVolume(l.bounded(), &csi.NodePublishVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: staging, TargetPath: target, VolumeCapability: capability, VolumeContext: v.GetVolumeContext()})
	l.must(err)
	grown, err = l.expand(v, 5*gib)
	l.must(err)
	if !grown.GetNodeExpansionRequired() {
		t.Error("the node is not asked to look at its device")
	}
	l.must(l.expandOnNode(v, target, 5*gib))
	device, err := os.Open(target)
	l.must(err)
	size, err := device.Seek(0, 2)
	l.must(err)
	l.must(device.Close())
	if size != 5*gib {
		t.Errorf("the device has %d bytes", size)
	}
	_, err = l.nodes[0].NodeUnpublishVolume(l.bounded(), &csi.NodeUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), TargetPath: target})
	l.must(err)
	_, err = l.nodes[0].NodeUnstageVolume(l.bounded(), &csi.NodeUnstageVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: staging})
	l.must(err)
	_, err = l.controller.ControllerUnpublishVolume(l.bounded(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), NodeId: node})
	l.must(err)
}

func TestAVolumeWithReplicasGrowsAtRest(t *testing.T) {
	l := start(t, 2)
	v := l.volume("replicated", stack.MountCapability(""), map[string]string{"skuName": "Premium_LRS", "maxShares": "2"})
	attached := func(n int) func() string {
		return func() string {
			var list apiv1.AzVolumeAttachmentList
			l.must(l.Kube.List(l.bounded(), &list, client.InNamespace(l.Namespace)))
			found := 0
			for i := range list.Items {
				if list.Items[i].Status.State == apiv1.AttachmentAttached {
					found++
				}
			}
			if found < n {
				return fmt.Sprintf("%d attachments", found)
			}
			return ""
		}
	}
	dir, err := l.Use(l.bounded(), v, l.Nodes[0])
	l.must(err)
	l.must(os.WriteFile(filepath.Join(dir, "file"), []byte("kept"), 0o600))
	l.eventually("a replica", attached(2))
	_, err = l.expand(v, 3*gib)
	mustBe(t, err, codes.FailedPrecondition)
	mustBe(t, l.modify(v, map[string]string{"tier": "P10"}), codes.FailedPrecondition)
	l.must(l.modify(v, map[string]string{"tags": "in=use"}))
	l.must(l.Release(l.bounded(), v, l.Nodes[0]))
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := l.expand(v, 3*gib); err != nil {
			t.Error(err)
		}
	})
	both.Go(func() {
		if err := l.modify(v, map[string]string{"tier": "P10"}); err != nil {
			t.Error(err)
		}
	})
	both.Wait()
	if n := l.patches(v); n != 2 { // the tags, and both
		t.Errorf("%d calls to Azure", n)
	}
	l.eventually("the replicas are back", attached(1))
	dir, err = l.Use(l.bounded(), v, l.Nodes[1])
	l.must(err)
	if data, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(data) != "kept" || sizeOf(t, dir) < 5*gib/2 {
		t.Errorf("the file holds %q, %v; the filesystem has %d bytes", data, err, sizeOf(t, dir))
	}
	l.must(l.Release(l.bounded(), v, l.Nodes[1]))
}

func TestResizeAndModificationInFlightTogetherAreOneCall(t *testing.T) {
	l := start(t, 1)
	v := l.volume("both", stack.MountCapability(""), map[string]string{"skuName": "PremiumV2_LRS", "fsType": "xfs"})
	dir, err := l.Use(l.bounded(), v, l.Nodes[0])
	l.must(err)
	for round := range int64(3) {
		size, class := (20+10*round)*gib, map[string]string{"diskIOPSReadWrite": fmt.Sprint(8000 + 1000*round), "tags": fmt.Sprintf("round=%d", round)}
		var both sync.WaitGroup
		for _, call := range []func() error{func() error { _, err := l.expand(v, size); return err }, func() error { return l.modify(v, class) }} {
			both.Go(func() {
				if err := call(); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if n := l.patches(v); n != int(round)+1 {
			t.Fatalf("%d calls to Azure after round %d", n, round)
		}
		l.must(l.expandOnNode(v, dir, size))
		if got := sizeOf(t, dir); got < size-gib {
			t.Fatalf("the filesystem has %d bytes", got)
		}
	}
	// What was asked for already costs nothing.
	_, err = l.expand(v, 40*gib)
	l.must(err)
	l.must(l.modify(v, map[string]string{"diskIOPSReadWrite": "10000"}))
	if is := l.azVolume(v).Status; l.patches(v) != 3 || *is.Applied.DiskIOPSReadWrite != 10000 || is.SizeBytes != 40*gib {
		t.Fatalf("%d calls to Azure, %+v", l.patches(v), is)
	}
	l.must(l.Release(l.bounded(), v, l.Nodes[0]))
}

func TestAModificationThatAzureRefusesIsReverted(t *testing.T) {
	l := start(t, 1)
	v := l.volume("refused", stack.MountCapability(""), map[string]string{"skuName": "Premium_LRS", "cachingMode": "None"})
	_, err := l.Use(l.bounded(), v, l.Nodes[0])
	l.must(err)
	mustBe(t, l.modify(v, map[string]string{"skuName": "StandardSSD_LRS"}), codes.FailedPrecondition)
	mustBe(t, l.modify(v, map[string]string{"skuName": "UltraSSD_LRS"}), codes.InvalidArgument)
	l.eventually("the modification is reverted", func() string {
		if sku := l.azVolume(v).Spec.Disk.SKUName; sku != "Premium_LRS" {
			return sku
		}
		return ""
	})
	_, err = l.expand(v, 4*gib)
	l.must(err)
	// To Premium v2 Azure converts in use.
	l.must(l.modify(v, map[string]string{"skuName": "PremiumV2_LRS"}))
	if is := l.azVolume(v).Status; is.Applied.SKUName != "PremiumV2_LRS" || is.RefusedSettings != nil {
		t.Fatalf("%+v", is)
	}
	l.must(l.Release(l.bounded(), v, l.Nodes[0]))
}
