// Package controlplane runs the controller plug-in over a real API server and a
// platform in memory, with a model of the node plug-in that keeps its half of the hand-over protocol.
// Tests drive it as Kubernetes does, through CSI calls, and look at the objects and at the platform.
package controlplane

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/attachdetach"
	"github.com/azuredisk-csi/azuredisk/internal/controller/attachment"
	"github.com/azuredisk-csi/azuredisk/internal/controller/drivernode"
	"github.com/azuredisk-csi/azuredisk/internal/controller/index"
	"github.com/azuredisk-csi/azuredisk/internal/controller/inuse"
	"github.com/azuredisk-csi/azuredisk/internal/controller/liveness"
	"github.com/azuredisk-csi/azuredisk/internal/controller/nodefacts"
	"github.com/azuredisk-csi/azuredisk/internal/controller/volume"
	"github.com/azuredisk-csi/azuredisk/internal/controller/work"
	csicontroller "github.com/azuredisk-csi/azuredisk/internal/csi/controller"
	"github.com/azuredisk-csi/azuredisk/internal/csi/controller/records"
	"github.com/azuredisk-csi/azuredisk/internal/kubeevents"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// What disks and VMs of the platform have in common.
const (
	DriverName   = "disk.csi.azure.com"
	Subscription = "sub"
	Group        = "rg"
	Location     = "eastus"
	patience     = 30 * time.Second
)

// Options of New; the zero value has a platform without latency and the driver's defaults.
type Options struct {
	Latency       fake.Latency
	CleanUpDelay  time.Duration
	StaleAfter    time.Duration
	ReservedSlots int32
	// With adds more to each process than the reconcilers that every test needs; cloud is the process's client of the platform.
	With func(ctx context.Context, mgr ctrl.Manager, cloud provisioner.Cloud, namespace string) error
	// PublishedByPods is for a driver whose CSIDriver says attachRequired: false: Kubernetes does not call for a publish.
	PublishedByPods bool
	// Quiet leaves the log out, for long simulations.
	Quiet bool
	// OwnGroup puts the disks into a resource group of their own. PersistentVolumes belong to the whole API server, and one that names a disk says that the
	// disk was made: tests that run at once and make PersistentVolumes need disks that differ.
	OwnGroup bool
}

// ControlPlane is a controller plug-in that can be killed and started again.
type ControlPlane struct {
	t         testing.TB
	options   Options
	Namespace string
	// Group is the resource group of the disks.
	Group string
	Cloud *fake.Cloud
	// Client reads from the API server.
	Client client.WithWatch
	// CSI is the Controller server of the process that runs now.
	CSI *csicontroller.Server

	cancel  context.CancelFunc
	stopped chan error
	nodes   []string
}

// New starts a controller plug-in in a namespace of its own, and stops it when the test ends.
func New(t testing.TB, options Options) *ControlPlane {
	t.Helper()
	if options.CleanUpDelay == 0 {
		options.CleanUpDelay = 5 * time.Minute
	}
	if options.StaleAfter == 0 {
		options.StaleAfter = time.Hour
	}
	p := &ControlPlane{
		t: t, options: options, Namespace: apiserver.Namespace(t), Client: apiserver.Client(t),
		Cloud: fake.New(fake.Options{Latency: options.Latency}), Group: Group,
	}
	if options.OwnGroup {
		p.Group = p.Namespace
	}
	p.Start()
	t.Cleanup(func() {
		p.Stop()
		for _, n := range p.nodes {
			_ = p.Client.Delete(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}})
		}
	})
	return p
}

// Stop kills the process: nothing that it knew survives.
func (p *ControlPlane) Stop() {
	p.t.Helper()
	if p.cancel == nil {
		return
	}
	p.cancel()
	if err := <-p.stopped; err != nil {
		stacks := make([]byte, 4<<20)
		p.t.Errorf("controller plug-in: %v\n%s", err, stacks[:runtime.Stack(stacks, true)])
	}
	p.cancel = nil
}

// Start starts the process, with a client of the platform of its own.
func (p *ControlPlane) Start() {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	log := logr.Discard()
	ctrl.SetLogger(log) // what is below controller-runtime logs there
	if !p.options.Quiet {
		log = testr.NewWithInterface(p.t, testr.Options{LogTimestamp: true})
	}
	controllers := index.ControllerOptions()
	controllers.SkipNameValidation = ptr(true) // every test has controllers of the same names
	mgr, err := ctrl.NewManager(apiserver.Config(p.t), ctrl.Options{
		Scheme: apiserver.Scheme(p.t), Cache: index.CacheOptions(p.Namespace), NewCache: index.NewCache(p.Namespace, DriverName), Controller: controllers, Logger: log,
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	p.must(err)
	mgr, err = kubeevents.With(ctx, mgr)
	p.must(err)
	p.must(p.wire(ctx, mgr))
	p.cancel, p.stopped = cancel, make(chan error, 1)
	go func() { p.stopped <- mgr.Start(ctx) }()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		p.t.Fatal("the cache was not filled")
	}
}

func (p *ControlPlane) wire(ctx context.Context, mgr ctrl.Manager) error {
	now := clock.RealClock{}
	cloud := p.Cloud.Reopen()
	if err := index.AddIndexes(ctx, mgr.GetFieldIndexer(), DriverName); err != nil {
		return err
	}
	monitor, err := liveness.New(liveness.Options{
		Reader: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Namespace: p.Namespace, Clock: now, StaleAfter: p.options.StaleAfter,
		MassLossThreshold: 100,
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(monitor); err != nil {
		return err
	}
	nodes := nodefacts.NewNodes(mgr.GetClient(), p.Namespace, now, monitor)
	informer, err := mgr.GetCache().GetInformer(ctx, &apiv1.AzDriverNode{})
	if err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(monitor.Handler()); err != nil {
		return err
	}
	volumes, err := volume.New(volume.Options{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Cloud: cloud, Jobs: work.New(ctx, now, 1000), Nodes: nodes, Clock: now,
		Events: mgr.GetEventRecorder("volume"), DriverName: DriverName, CleanUpDelay: p.options.CleanUpDelay,
		ReservedSlots: p.options.ReservedSlots, Workers: 5,
	})
	if err != nil {
		return err
	}
	attachments, err := attachment.New(attachment.Options{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Cloud: cloud, Jobs: work.New(ctx, now, 1000), Nodes: nodes, Clock: now,
		Events: mgr.GetEventRecorder("attachment"), ReservedSlots: p.options.ReservedSlots, Workers: 5,
	})
	if err != nil {
		return err
	}
	watch := records.NewWatch()
	if err := watch.Register(ctx, mgr.GetCache()); err != nil {
		return err
	}
	if p.CSI, err = csicontroller.New(csicontroller.Options{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Watch: watch, Disks: cloud.Disks(), Attachments: cloud.Attachments(), Snapshots: cloud.Snapshots(), SKUs: cloud.SKUs(), Clock: now, Namespace: p.Namespace,
		DriverName: DriverName, SubscriptionID: Subscription, ResourceGroup: p.Group, Location: Location, WaitTimeout: patience, PublishedByPods: p.options.PublishedByPods,
	}); err != nil {
		return err
	}
	reconcilers := []interface {
		SetUp(ctrl.Manager, string) error
	}{
		volumes, attachments,
		drivernode.New(drivernode.Options{
			Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Cloud: cloud, Events: mgr.GetEventRecorder("drivernode"), Workers: 2,
		}),
	}
	pods := attachdetach.Options{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("attachdetach"), Clock: now, DriverName: DriverName}
	if p.options.PublishedByPods {
		pods.Publisher = p.CSI
	} else {
		reconcilers = append(reconcilers, inuse.New(inuse.Options{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), DriverName: DriverName, Workers: 2}))
	}
	reconcilers = append(reconcilers, attachdetach.New(pods))
	for _, r := range reconcilers {
		if err := r.SetUp(mgr, p.Namespace); err != nil {
			return err
		}
	}
	if p.options.With != nil {
		return p.options.With(ctx, mgr, cloud, p.Namespace)
	}
	return nil
}

func (p *ControlPlane) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func ptr[T any](v T) *T { return &v }

// VMID returns the resource ID of a node's VM.
func VMID(node string) string {
	return "/subscriptions/" + Subscription + "/resourceGroups/" + Group + "/providers/Microsoft.Compute/virtualMachines/" + node
}

// DiskID returns the resource ID of a disk in the resource group Group.
func DiskID(name string) string { return diskID(Group, name) }

func diskID(group, name string) string {
	return "/subscriptions/" + Subscription + "/resourceGroups/" + group + "/providers/Microsoft.Compute/disks/" + name
}

// DiskID returns the resource ID of a disk.
func (p *ControlPlane) DiskID(name string) string { return diskID(p.Group, name) }

// VolumeName returns the name of the AzVolume of a disk.
func (p *ControlPlane) VolumeName(disk string) string {
	return apiv1.VolumeName(Subscription, p.Group, disk)
}

// Create creates a volume with parameters and returns its handle.
func (p *ControlPlane) Create(name string, parameters map[string]string) string {
	p.t.Helper()
	response, err := p.CSI.CreateVolume(p.t.Context(), CreateRequest(name, parameters))
	p.must(err)
	return response.GetVolume().GetVolumeId()
}

// CreateRequest is a request for a mounted volume of 10 GiB in zone 1.
func CreateRequest(name string, parameters map[string]string) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name: name, Parameters: parameters, CapacityRange: &csi.CapacityRange{RequiredBytes: 10 << 30},
		VolumeCapabilities: []*csi.VolumeCapability{Mounted()},
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{
			{Segments: map[string]string{"topology." + DriverName + "/zone": Location + "-1"}},
		}},
	}
}

// Mounted is the capability of a filesystem on one node.
func Mounted() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

// Shared is the capability of raw block on several nodes.
func Shared() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
	}
}

// Publish publishes a mounted volume to a node.
func (p *ControlPlane) Publish(ctx context.Context, handle, node string) error {
	return p.PublishWith(ctx, handle, node, Mounted(), nil)
}

// PublishWith publishes a volume to a node as Kubernetes does with a PersistentVolume of the attributes.
func (p *ControlPlane) PublishWith(ctx context.Context, handle, node string, capability *csi.VolumeCapability, attributes map[string]string) error {
	_, err := p.CSI.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: handle, NodeId: node, VolumeCapability: capability, VolumeContext: attributes,
	})
	return err
}

// Unpublish unpublishes a volume from a node.
func (p *ControlPlane) Unpublish(ctx context.Context, handle, node string) error {
	_, err := p.CSI.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: handle, NodeId: node})
	return err
}

// Volume reads the AzVolume of a disk, or returns nil.
func (p *ControlPlane) Volume(disk string) *apiv1.AzVolume {
	p.t.Helper()
	v := &apiv1.AzVolume{}
	return found(p.t, v, p.Client.Get(context.Background(), client.ObjectKey{Namespace: p.Namespace, Name: p.VolumeName(disk)}, v))
}

// Attachment reads the AzVolumeAttachment of a disk to a node, or returns nil.
func (p *ControlPlane) Attachment(disk, node string) *apiv1.AzVolumeAttachment {
	p.t.Helper()
	a := &apiv1.AzVolumeAttachment{}
	return found(p.t, a, p.Client.Get(context.Background(), client.ObjectKey{Namespace: p.Namespace, Name: apiv1.AttachmentName(p.VolumeName(disk), node)}, a))
}

func found[T any](t testing.TB, object *T, err error) *T {
	t.Helper()
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return object
}

// Attachments reads all attachments of a disk.
func (p *ControlPlane) Attachments(disk string) []apiv1.AzVolumeAttachment {
	p.t.Helper()
	var list apiv1.AzVolumeAttachmentList
	p.must(p.Client.List(context.Background(), &list, client.InNamespace(p.Namespace), client.MatchingFields{"spec.volumeName": p.VolumeName(disk)}))
	return list.Items
}

// AttachedTo returns the names of the VMs that have a disk attached, says the platform.
func (p *ControlPlane) AttachedTo(disk string) []string {
	var names []string
	for _, d := range p.Cloud.State().Disks {
		if d.ID == p.DiskID(disk) {
			for _, vm := range d.AttachedTo {
				names = append(names, vm[len(VMID("")):])
			}
		}
	}
	return names
}

// Eventually waits until check returns "", by watching the driver's objects, and fails with what it returned last.
func (p *ControlPlane) Eventually(what string, check func() string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	changes, stop := p.changes(ctx)
	defer stop()
	for {
		complaint := check()
		if complaint == "" {
			return
		}
		select {
		case <-changes:
		case <-ctx.Done():
			p.t.Fatalf("%s: %s", what, complaint)
		}
	}
}

// changes signals changes of volumes, attachments and nodes, and, because the platform is no object, at least each 100 ms.
func (p *ControlPlane) changes(ctx context.Context) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	ticker := time.NewTicker(100 * time.Millisecond)
	var stops []func()
	for _, list := range []client.ObjectList{&apiv1.AzVolumeList{}, &apiv1.AzVolumeAttachmentList{}, &apiv1.AzDriverNodeList{}} {
		w, err := p.Client.Watch(ctx, list, client.InNamespace(p.Namespace))
		p.must(err)
		stops = append(stops, w.Stop)
		go func() {
			for range w.ResultChan() {
				signal(ch)
			}
		}()
	}
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-ticker.C:
				signal(ch)
			case <-done:
				return
			}
		}
	}()
	return ch, func() {
		ticker.Stop()
		close(done)
		for _, stop := range stops {
			stop()
		}
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// AddNode adds a VM, its Node and its AzDriverNode, whose plug-in has scanned the mounts.
func (p *ControlPlane) AddNode(name, zone, size string) {
	p.t.Helper()
	p.Cloud.AddVM(provisioner.Instance{ID: VMID(name), Name: name, Size: size, Location: Location, Zone: zone})
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Spec:       corev1.NodeSpec{ProviderID: "azure://" + VMID(name)}, // as on AKS
	}
	p.must(p.Client.Create(p.t.Context(), node))
	p.nodes = append(p.nodes, name)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	p.must(p.Client.Status().Update(p.t.Context(), node))
	// Admission taints every new node as not ready, and no component here removes the taint.
	node.Spec.Taints = nil
	p.must(p.Client.Update(p.t.Context(), node))
	d := &apiv1.AzDriverNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name},
		Spec:       apiv1.AzDriverNodeSpec{VMID: VMID(name), VMSize: size, Location: Location, Zone: zone},
	}
	p.must(p.Client.Create(p.t.Context(), d))
	p.Report(name, func(s *apiv1.AzDriverNodeStatus) {
		now := metav1.NowMicro()
		s.HeartbeatTime, s.HeartbeatSeconds, s.MountsScannedTime = &now, 10, &now
	})
	p.Eventually("capacity of node "+name, func() string {
		current := &apiv1.AzDriverNode{}
		p.must(p.Client.Get(context.Background(), client.ObjectKeyFromObject(d), current))
		if current.Status.Capacity == nil {
			return "not filled in"
		}
		return ""
	})
}

// Report changes what a node plug-in reports.
func (p *ControlPlane) Report(node string, change func(*apiv1.AzDriverNodeStatus)) {
	p.t.Helper()
	d := p.node(node)
	before := d.DeepCopy()
	change(&d.Status)
	p.must(p.Client.Status().Patch(context.Background(), d, client.MergeFrom(before)))
}

// Stage does what NodeStageVolume does with the API (ADR 0001): it announces and reads. If the volume may not be used,
// it removes the announcement, and the error says why.
func (p *ControlPlane) Stage(disk, node string) error {
	p.t.Helper()
	volume := p.VolumeName(disk)
	a := p.Attachment(disk, node)
	if a == nil {
		return fmt.Errorf("there is no attachment")
	}
	d := p.node(node)
	var before *apiv1.StagedVolume // a pod uses it, and goes on doing so whatever comes of this call
	if i := slices.IndexFunc(d.Status.StagedVolumes, func(e apiv1.StagedVolume) bool { return e.VolumeName == volume }); i >= 0 {
		before = &d.Status.StagedVolumes[i]
	}
	entry := apiv1.StagedVolume{VolumeName: volume, Epoch: a.Spec.Epoch, Phase: apiv1.PhaseStaging}
	p.setEntry(node, volume, &entry)
	decision := ownership.MayStage(node, d.Spec.VMID, p.Volume(disk), p.Attachment(disk, node))
	if decision.Outcome != ownership.StageAllowed || decision.Epoch != entry.Epoch {
		p.setEntry(node, volume, before)
		return fmt.Errorf("%s: %s", decision.Outcome, decision.Reason)
	}
	entry.Phase = apiv1.PhaseStaged
	entry.Filesystem = &apiv1.FilesystemRecord{Type: "ext4", UUID: "uuid-" + disk}
	p.setEntry(node, volume, &entry)
	return nil
}

func (p *ControlPlane) node(name string) *apiv1.AzDriverNode {
	d := &apiv1.AzDriverNode{}
	p.must(p.Client.Get(context.Background(), client.ObjectKey{Namespace: p.Namespace, Name: name}, d))
	return d
}

// Unstage does what NodeUnstageVolume does with the API.
func (p *ControlPlane) Unstage(disk, node string) {
	p.t.Helper()
	p.setEntry(node, p.VolumeName(disk), nil)
}

func (p *ControlPlane) setEntry(node, volume string, entry *apiv1.StagedVolume) {
	p.t.Helper()
	p.Report(node, func(s *apiv1.AzDriverNodeStatus) {
		var kept []apiv1.StagedVolume
		for _, e := range s.StagedVolumes {
			if e.VolumeName != volume {
				kept = append(kept, e)
			}
		}
		if entry != nil {
			kept = append(kept, *entry)
		}
		s.StagedVolumes = kept
	})
}
