package csi_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/faulty"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memhost"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/nodebench"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	thisNode   = nodebench.NodeName
	namespace  = nodebench.Namespace
	driverName = nodebench.DriverName
	volumeID   = nodebench.VolumeID
	lun        = nodebench.LUN
	volumeUID  = nodebench.VolumeUID
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
func diskOf(id string) apiv1.DiskParameters { return nodebench.Disk(id) }

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
	// faults makes an access to the API server, or to the records, fail.
	faults *faulty.Faults
}

func newMachine(t *testing.T, host provisioner.Host, dir string, hook func(write string)) *machine {
	t.Helper()
	f := &faulty.Faults{}
	base, direct := nodebench.API(f.Gate)
	m := &machine{
		t:       t,
		direct:  direct,
		host:    host,
		bootID:  nodebench.BootID,
		dir:     dir,
		records: nodereport.Records{Dir: nodebench.RecordsDir(t), Fails: f.Access},
		faults:  f,
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
func (m *machine) publish(edit nodebench.Edit) {
	m.t.Helper()
	if edit == nil {
		nodebench.Publish(m.t, m.direct)
	} else {
		nodebench.Publish(m.t, m.direct, edit)
	}
}

func (m *machine) change(edit nodebench.Edit) {
	m.t.Helper()
	nodebench.Change(m.t, m.direct, edit)
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
	return nodebench.Mount(fsType, flags...)
}

func blockCapability(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return nodebench.Block(mode)
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
