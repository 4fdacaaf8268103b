// Package nodebench is a node in memory for tests of the node plug-in and of its parts: its host, its
// records, and an API server with a volume that is published to it. Each access can fail.
package nodebench

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/device"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/grant"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/usage"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/faulty"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memhost"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// What the node and the volume are called.
const (
	NodeName   = "node-b"
	Namespace  = "azure-disk-csi"
	DriverName = "disk.csi.azure.com"
	BootID     = "boot-1"
	LUN        = int32(3)
	VolumeID   = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/pvc-1"
	VolumeUID  = "uid-of-pvc-1"
)

// Volume is the name of the AzVolume of VolumeID.
var Volume = Handle(VolumeID).VolumeName()

// Handle parses a volume ID.
func Handle(id string) volumehandle.Handle {
	handle, err := volumehandle.Parse(id)
	if err != nil {
		panic(err)
	}
	return handle
}

// Disk returns the disk parameters that make up a volume ID.
func Disk(id string) apiv1.DiskParameters {
	handle := Handle(id)
	return apiv1.DiskParameters{
		SubscriptionID: handle.SubscriptionID,
		ResourceGroup:  handle.ResourceGroup,
		Name:           handle.DiskName,
	}
}

// Edit changes a volume and the node's attachment.
type Edit = func(*apiv1.AzVolume, *apiv1.AzVolumeAttachment)

// scheme is made once, because that takes long.
var scheme = sync.OnceValue(fakeapi.Scheme)

// API returns two clients of a new API server: one whose accesses go through a gate, and one that
// creates objects with their status.
func API(gate memapi.Gate) (gated, direct client.WithWatch) {
	store := memapi.New(scheme(), clock.RealClock{})
	return memapi.NewClient(store, gate, nil), interceptor.NewClient(memapi.NewClient(store, memapi.Open, nil), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			if o.GetUID() == "" {
				o.SetUID(uuid.NewUUID())
			}
			store.Restore(o)
			return c.Get(ctx, client.ObjectKeyFromObject(o), o)
		},
	})
}

// RecordsDir returns a new directory for records, in memory if the machine has a filesystem for that: a durable write
// takes as long as most tests.
func RecordsDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "records") //nolint:usetesting // TempDir is on a disk
	if err != nil {
		return filepath.Join(t.TempDir(), "records")
	}
	t.Cleanup(func() { expect.Must(t, os.RemoveAll(dir)) })
	return filepath.Join(dir, "records")
}

// Publish makes the volume's objects as they are after ControllerPublishVolume. An edit that is nil changes nothing.
func Publish(t testing.TB, c client.Client, edits ...Edit) {
	t.Helper()
	v := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Volume, UID: VolumeUID},
		Spec:       apiv1.AzVolumeSpec{Origin: apiv1.OriginProvisioned, Access: apiv1.AccessSingleNode, Disk: Disk(VolumeID)},
		Status:     apiv1.AzVolumeStatus{Primary: &apiv1.Ownership{NodeName: NodeName, Epoch: 1, State: apiv1.OwnershipHeld}},
	}
	a := &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: apiv1.AttachmentName(Volume, NodeName)},
		Spec: apiv1.AzVolumeAttachmentSpec{
			VolumeName: Volume,
			NodeName:   NodeName,
			Role:       apiv1.RolePrimary,
			Epoch:      1,
		},
		Status: apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttached, LUN: ptr.To(LUN)},
	}
	for _, edit := range edits {
		if edit != nil {
			edit(v, a)
		}
	}
	for _, object := range []client.Object{v, a} {
		expect.Must(t, c.Create(t.Context(), object))
	}
}

// Change changes the volume's objects.
func Change(t testing.TB, c client.Client, edit Edit) {
	t.Helper()
	ctx := t.Context()
	v, a := &apiv1.AzVolume{}, &apiv1.AzVolumeAttachment{}
	for object, name := range map[client.Object]string{v: Volume, a: apiv1.AttachmentName(Volume, NodeName)} {
		expect.Must(t, c.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, object))
	}
	edit(v, a)
	for _, object := range []client.Object{v, a} {
		status := object.DeepCopyObject().(client.Object)
		expect.Must(t, c.Update(ctx, object))
		status.SetResourceVersion(object.GetResourceVersion())
		expect.Must(t, c.Status().Update(ctx, status))
	}
}

// Bench is a node with the parts of the plug-in that find and check a volume's device.
type Bench struct {
	*device.Finder
	*faulty.Faults
	Memory *memhost.Host
	// Direct is a client of the test and of the controller.
	Direct client.WithWatch
	// Path is where the volume is staged.
	Path string
	// OnReport is called when the report is written.
	OnReport func()
}

// New returns a node to which the volume is published.
func New(t testing.TB, edits ...Edit) *Bench {
	t.Helper()
	f, memory, dir := &faulty.Faults{}, memhost.New(NodeName, LUN), t.TempDir()
	gated, direct := API(f.Gate)
	Publish(t, direct, edits...)
	host := faulty.Host{Host: memory, Faults: f}
	records := nodereport.Records{Dir: RecordsDir(t), Fails: f.Access}
	b := &Bench{Faults: f, Memory: memory, Direct: direct, Path: filepath.Join(dir, "globalmount"), OnReport: func() {}}
	report := nodereport.New(nodereport.Options{
		Client: interceptor.NewClient(gated, interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, _ string, o client.Object, patch client.Patch,
				options ...client.SubResourcePatchOption) error {
				b.OnReport()
				return c.Status().Patch(ctx, o, patch, options...)
			},
		}),
		Namespace:    Namespace,
		NodeName:     NodeName,
		Spec:         apiv1.AzDriverNodeSpec{VMID: "vm"},
		SlowInterval: time.Minute,
		FastInterval: time.Second,
		Scanner: nodereport.Scanner{
			KubeletDir: dir,
			DriverName: DriverName,
			BootID:     BootID,
			Records:    records,
			Mounts:     memory.Mounts(),
			Devices:    memory.Devices(),
		},
	})
	reader := &grant.Reader{
		NodeName:  NodeName,
		VMID:      "vm",
		Client:    gated,
		Namespace: Namespace,
		Report:    report,
		Clock:     clock.RealClock{},
	}
	b.Finder = &device.Finder{Reader: reader, Host: host, Records: records, BootID: BootID}
	return b
}

// WhileReporting makes a call while the report is being written, so that nothing else can read or write it.
func (b *Bench) WhileReporting(t testing.TB, call func()) {
	t.Helper()
	began, end, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	b.OnReport = func() {
		close(began)
		<-end
	}
	go func() { ended <- b.Report.Announce(t.Context(), "another", 1, "/another") }()
	<-began
	call()
	close(end)
	expect.Must(t, <-ended)
}

// Change changes the volume's objects.
func (b *Bench) Change(t testing.TB, edit Edit) {
	t.Helper()
	Change(t, b.Direct, edit)
}

// Objects returns the volume's objects.
func (b *Bench) Objects(t testing.TB) (*apiv1.AzVolume, *apiv1.AzVolumeAttachment) {
	t.Helper()
	var v *apiv1.AzVolume
	var a *apiv1.AzVolumeAttachment
	b.Change(t, func(volume *apiv1.AzVolume, attachment *apiv1.AzVolumeAttachment) {
		v, a = volume.DeepCopy(), attachment.DeepCopy()
	})
	return v, a
}

// Record is the record of the volume, staged with the memory host's device under epoch 1.
func (b *Bench) Record(edits ...func(*nodereport.Record)) nodereport.Record {
	r := nodereport.Record{
		VolumeName:  Volume,
		VolumeID:    VolumeID,
		Epoch:       1,
		BootID:      BootID,
		StagingPath: b.Path,
		Device:      memhost.DevicePath,
		LUN:         LUN,
		SizeBytes:   b.Memory.Size,
	}
	for _, edit := range edits {
		edit(&r)
	}
	return r
}

// Staged writes the record and the report of a volume that is staged.
func (b *Bench) Staged(t testing.TB, edits ...func(*nodereport.Record)) nodereport.Record {
	t.Helper()
	r := b.Record(edits...)
	expect.Must(t, b.Report.Announce(t.Context(), r.VolumeName, r.Epoch, r.StagingPath))
	expect.Must(t, b.Report.Confirm(t.Context(), apiv1.StagedVolume{
		VolumeName:  r.VolumeName,
		Epoch:       r.Epoch,
		Device:      r.Device,
		SizeBytes:   r.SizeBytes,
		StagingPath: r.StagingPath,
	}))
	expect.Must(t, b.Records.Put(r)) // after the first write of the report, which removes records that are obsolete
	return r
}

// Phase is what the report says of a volume, "" for nothing.
func (b *Bench) Phase(t testing.TB, volume string) apiv1.StagePhase {
	t.Helper()
	entries, err := b.Report.Entries(t.Context())
	expect.Must(t, err)
	for _, e := range entries {
		if e.VolumeName == volume {
			return e.Phase
		}
	}
	return ""
}

// Use is a use of the volume.
func Use(t testing.TB, capability *csi.VolumeCapability, volumeContext map[string]string) usage.Usage {
	t.Helper()
	use, err := usage.Read(VolumeID, capability, volumeContext)
	expect.Must(t, err)
	return use
}

// Mount is the capability of a filesystem.
func Mount(fsType string, flags ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

// Block is the capability of a raw block volume.
func Block(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
	}
}

// Kinds are the two kinds of volumes.
func Kinds() map[string]*csi.VolumeCapability {
	return map[string]*csi.VolumeCapability{
		"filesystem": Mount("ext4"), "raw block": Block(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER),
	}
}
