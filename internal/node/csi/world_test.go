package csi_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memhost"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	thisNode   = "node-b"
	namespace  = "azure-disk-csi"
	driverName = "disk.csi.azure.com"
	volumeID   = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/pvc-1"
	lun        = int32(3)
	volumeUID  = "uid-of-pvc-1"
)

// memoryHost is a node's kernel in memory. Its steps can be interrupted by a panic, which stands for
// a kill.
type memoryHost = memhost.Host

type content = memhost.Content

const memoryDevice = memhost.DevicePath

func newMemoryHost() *memoryHost { return memhost.New(thisNode, lun) }

// volume is the name of the AzVolume of volumeID.
var volume = volumehandle.Of(diskOf(volumeID)).VolumeName()

// diskOf returns the disk parameters that make up a volume ID.
func diskOf(id string) apiv1.DiskParameters {
	handle, err := volumehandle.Parse(id)
	if err != nil {
		panic(err)
	}
	return apiv1.DiskParameters{
		SubscriptionID: handle.SubscriptionID,
		ResourceGroup:  handle.ResourceGroup,
		Name:           handle.DiskName,
	}
}

// machine is a node with its API server. The node plug-in on it can be started again and again; the
// rest stays.
type machine struct {
	t       *testing.T
	api     client.WithWatch // of the plug-in
	direct  client.WithWatch // of the test and of the controller
	host    provisioner.Host
	bootID  string
	records nodereport.Records
	dir     string
	// edit changes the options of the servers that are started.
	edit func(*csinode.Options)
	// clock of the report; nil for the real one.
	clock clock.WithTicker
	// report of the plug-in that was started last.
	report *nodereport.Reporter
	// metrics of the plug-in that answers requests to fence.
	metrics *prometheus.Registry
}

// scheme is made once, because that takes long.
var scheme = sync.OnceValue(fakeapi.Scheme)

func newMachine(t *testing.T, host provisioner.Host, dir string, hook func(write string)) *machine {
	t.Helper()
	store := memapi.New(scheme(), clock.RealClock{})
	base := memapi.NewClient(store, memapi.Open, nil)
	m := &machine{
		t:       t,
		direct:  interceptor.NewClient(base, interceptor.Funcs{Create: withStatus(store)}),
		host:    host,
		bootID:  "boot-1",
		dir:     dir,
		records: nodereport.Records{Dir: filepath.Join(t.TempDir(), "staged")},
	}
	m.api = interceptor.NewClient(base, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			obj.SetUID(uuid.NewUUID())
			hook("before create")
			defer hook("after create")
			return c.Create(ctx, obj, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, obj client.Object,
			patch client.Patch, opts ...client.SubResourcePatchOption) error {
			hook("before report")
			defer hook("after report")
			return c.Status().Patch(ctx, obj, patch, opts...)
		},
	})
	return m
}

// withStatus creates an object with its status in one step.
func withStatus(store *memapi.Store) func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
	return func(ctx context.Context, c client.WithWatch, o client.Object, _ ...client.CreateOption) error {
		if o.GetUID() == "" {
			o.SetUID(uuid.NewUUID())
		}
		store.Restore(o)
		return c.Get(ctx, client.ObjectKeyFromObject(o), o)
	}
}

// start starts a node plug-in, as after a kill.
func (m *machine) start() *csinode.Server {
	m.t.Helper()
	report := nodereport.New(nodereport.Options{
		Client:       m.api,
		Namespace:    namespace,
		NodeName:     thisNode,
		Spec:         apiv1.AzDriverNodeSpec{VMID: "vm"},
		SlowInterval: time.Minute,
		FastInterval: time.Second,
		Clock:        m.clock,
		Scanner: nodereport.Scanner{
			KubeletDir: m.dir,
			DriverName: driverName,
			BootID:     m.bootID,
			Records:    m.records,
			Mounts:     m.host.Mounts(),
			Devices:    m.host.Devices(),
		},
	})
	m.report = report
	options := csinode.Options{
		NodeName:     thisNode,
		DriverName:   driverName,
		Namespace:    namespace,
		BootID:       m.bootID,
		KubeletDir:   m.dir,
		Cluster:      thisCluster,
		Client:       m.api,
		Host:         m.host,
		Report:       report,
		Records:      m.records,
		Limit:        csinode.Limit{Volumes: 16},
		Expansion:    true,
		Reservations: true,
		Instance:     apiv1.AzDriverNodeSpec{VMID: "vm", Location: "eastus", Zone: "2"},
	}
	if m.edit != nil {
		m.edit(&options)
	}
	return csinode.New(options)
}

// publish makes the volume's objects as they are after ControllerPublishVolume.
func (m *machine) publish(edit func(*apiv1.AzVolume, *apiv1.AzVolumeAttachment)) {
	m.t.Helper()
	v := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: volume, UID: volumeUID},
		Spec:       apiv1.AzVolumeSpec{Origin: apiv1.OriginProvisioned, Access: apiv1.AccessSingleNode, Disk: diskOf(volumeID)},
		Status:     apiv1.AzVolumeStatus{Primary: &apiv1.Ownership{NodeName: thisNode, Epoch: 1, State: apiv1.OwnershipHeld}},
	}
	a := &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: apiv1.AttachmentName(volume, thisNode)},
		Spec: apiv1.AzVolumeAttachmentSpec{
			VolumeName: volume,
			NodeName:   thisNode,
			Role:       apiv1.RolePrimary,
			Epoch:      1,
		},
		Status: apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttached, LUN: ptr.To(lun)},
	}
	if edit != nil {
		edit(v, a)
	}
	for _, object := range []client.Object{v, a} {
		if err := m.direct.Create(m.t.Context(), object); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *machine) change(edit func(*apiv1.AzVolume, *apiv1.AzVolumeAttachment)) {
	m.t.Helper()
	ctx := m.t.Context()
	v, a := &apiv1.AzVolume{}, &apiv1.AzVolumeAttachment{}
	for object, name := range map[client.Object]string{v: volume, a: apiv1.AttachmentName(volume, thisNode)} {
		if err := m.direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
			m.t.Fatal(err)
		}
	}
	edit(v, a)
	for _, object := range []client.Object{v, a} {
		status := object.DeepCopyObject().(client.Object)
		if err := m.direct.Update(ctx, object); err != nil {
			m.t.Fatal(err)
		}
		status.SetResourceVersion(object.GetResourceVersion())
		if err := m.direct.Status().Update(ctx, status); err != nil {
			m.t.Fatal(err)
		}
	}
}

// status is the node's report at the API server.
func (m *machine) status() apiv1.AzDriverNodeStatus {
	m.t.Helper()
	var report apiv1.AzDriverNode
	err := m.direct.Get(m.t.Context(), client.ObjectKey{Namespace: namespace, Name: thisNode}, &report)
	if client.IgnoreNotFound(err) != nil {
		m.t.Fatal(err)
	}
	return report.Status
}

// entry returns the volume's entry in the report; nil if there is none.
func (m *machine) entry() *apiv1.StagedVolume {
	m.t.Helper()
	for _, entry := range m.status().StagedVolumes {
		if entry.VolumeName == volume {
			return &entry
		}
	}
	return nil
}

func (m *machine) stagingPath() string { return filepath.Join(m.dir, "globalmount") }

func (m *machine) target() string { return filepath.Join(m.dir, "pods", "1", "mount") }

func mountCapability(fsType string, flags ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func blockCapability(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
	}
}

func (m *machine) stage(s *csinode.Server, capability *csi.VolumeCapability) error {
	m.t.Helper()
	_, err := s.NodeStageVolume(m.t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId:          volumeID,
		StagingTargetPath: m.stagingPath(),
		VolumeCapability:  capability,
	})
	return err
}

func (m *machine) unstage(s *csinode.Server) error {
	m.t.Helper()
	_, err := s.NodeUnstageVolume(m.t.Context(), &csi.NodeUnstageVolumeRequest{
		VolumeId:          volumeID,
		StagingTargetPath: m.stagingPath(),
	})
	return err
}

func (m *machine) publishVolume(s *csinode.Server, capability *csi.VolumeCapability, readOnly bool) error {
	m.t.Helper()
	_, err := s.NodePublishVolume(m.t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId:          volumeID,
		StagingTargetPath: m.stagingPath(),
		TargetPath:        m.target(),
		VolumeCapability:  capability,
		Readonly:          readOnly,
	})
	return err
}

func (m *machine) unpublishVolume(s *csinode.Server) error {
	m.t.Helper()
	_, err := s.NodeUnpublishVolume(m.t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: volumeID, TargetPath: m.target()})
	return err
}

// assertClean fails unless nothing is left of the volume on the node.
func (m *machine) assertClean() {
	m.t.Helper()
	if entry := m.entry(); entry != nil {
		m.t.Errorf("an entry is left over in the report: %+v", entry)
	}
	records, err := m.records.List()
	if err != nil || len(records) != 0 {
		m.t.Errorf("records are left over: %v, %v", records, err)
	}
	mounts, err := m.host.Mounts().List(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	for _, mount := range mounts {
		if strings.HasPrefix(mount.Target, m.dir) {
			m.t.Errorf("a mount is left over: %+v", mount)
		}
	}
	if host, inMemory := m.host.(*memoryHost); inMemory && host.Opened {
		m.t.Error("the device is not write-protected any more")
	}
}

// watched returns a channel that is closed when the plug-in, which is started after this, watches
// its attachment: then it waits.
func (m *machine) watched() <-chan struct{} {
	watching := make(chan struct{})
	m.api = interceptor.NewClient(m.api, interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			opts ...client.ListOption) (w watch.Interface, err error) {
			w, err = c.Watch(ctx, list, opts...)
			close(watching)
			return w, err
		},
	})
	return watching
}
