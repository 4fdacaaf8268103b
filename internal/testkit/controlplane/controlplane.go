// Package controlplane runs the controller plug-in over a platform in memory, and an API server that is
// in memory as well or a real one, with a model of the node plug-in that keeps its half of the
// hand-over protocol. Tests drive it as Kubernetes does, through CSI calls, and look at the objects
// and at the platform.
package controlplane

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/attachdetach"
	"github.com/azuredisk-csi/azuredisk/internal/controller/attachment"
	csicontroller "github.com/azuredisk-csi/azuredisk/internal/controller/csi"
	"github.com/azuredisk-csi/azuredisk/internal/controller/drivernode"
	"github.com/azuredisk-csi/azuredisk/internal/controller/inuse"
	"github.com/azuredisk-csi/azuredisk/internal/controller/leadership"
	"github.com/azuredisk-csi/azuredisk/internal/controller/liveness"
	"github.com/azuredisk-csi/azuredisk/internal/controller/volume"
	"github.com/azuredisk-csi/azuredisk/internal/controller/work"
	"github.com/azuredisk-csi/azuredisk/internal/kubeevents"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// What disks and VMs of the platform have in common.
const (
	DriverName   = "disk.csi.azure.com"
	Subscription = "00000000-0000-0000-0000-000000000001"
	Group        = "rg"
	Location     = "eastus"
	patience     = 30 * time.Second
)

// Options of New; the zero value has a platform without latency and the driver's defaults.
type Options struct {
	Latency fake.Latency
	// Platform is used instead of the platform in memory, which has the nodes' VMs nevertheless.
	Platform      provisioner.Cloud
	CleanUpDelay  time.Duration
	StaleAfter    time.Duration
	ReservedSlots int32
	// With adds more to each process than the reconcilers that every test needs; cloud is the
	// process's client of the platform.
	With func(ctx context.Context, mgr ctrl.Manager, cloud provisioner.Cloud, namespace string) error
	// Prober, if it is set, probes the nodes, and the leader writes the conditions of the nodes.
	Prober liveness.Prober
	// PublishedByPods is for a driver whose CSIDriver says attachRequired: false: Kubernetes does
	// not call for a publish.
	PublishedByPods bool
	// Quiet leaves the log out, for long simulations.
	Quiet bool
	// LeaderElection has the reconcilers wait for the leader's lease, so that HandOver can be
	// called.
	LeaderElection bool
	// BeforeWatch is called before a reconciler adds a handler for a kind of objects to the cache,
	// which has all objects of the kind by then. cached reads the cache. Handlers are added by
	// several goroutines at once.
	BeforeWatch func(kind client.Object, cached client.Reader)
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
	// memory is the API server, unless it is a real one.
	memory *memory
	// CSI is the Controller server of the process that was started last.
	CSI *csicontroller.Server

	running *process
	nodes   []string
}

// process is a controller plug-in that runs. leads is closed when its reconcilers may run.
type process struct {
	cancel  context.CancelFunc
	stopped chan error
	leads   <-chan struct{}
}

// New starts a controller plug-in over the real API server, in a namespace of its own, and stops it
// when the test ends.
func New(t testing.TB, options Options) *ControlPlane {
	t.Helper()
	return begin(t, options, &ControlPlane{Namespace: apiserver.Namespace(t), Client: apiserver.Client(t)})
}

// begin fills p in and starts it.
func begin(t testing.TB, options Options, p *ControlPlane) *ControlPlane {
	t.Helper()
	if options.CleanUpDelay == 0 {
		options.CleanUpDelay = 5 * time.Minute
	}
	if options.StaleAfter == 0 {
		options.StaleAfter = time.Hour
	}
	p.t, p.options, p.Group = t, options, Group
	p.Cloud = fake.New(fake.Options{Latency: options.Latency})
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
	if p.running != nil {
		p.end(p.running)
	}
	p.running = nil
}

func (p *ControlPlane) end(running *process) {
	p.t.Helper()
	running.cancel()
	if err := <-running.stopped; err != nil {
		stacks := make([]byte, 4<<20)
		p.t.Errorf("controller plug-in: %v\n%s", err, stacks[:runtime.Stack(stacks, true)])
	}
}

// Start starts the process, with a client of the platform of its own.
func (p *ControlPlane) Start() {
	p.t.Helper()
	p.running = p.start()
}

// HandOver starts another process, which fills its cache and waits for the leader's lease, and ends
// the leader. It returns when the other process leads.
func (p *ControlPlane) HandOver() {
	p.t.Helper()
	leader := p.running
	p.Start()
	p.end(leader)
	<-p.running.leads
}

func (p *ControlPlane) start() *process {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	log := logr.Discard()
	ctrl.SetLogger(log) // what is below controller-runtime logs there
	if !p.options.Quiet {
		log = testr.NewWithInterface(p.t, testr.Options{LogTimestamp: true})
	}
	controllers := leadership.ControllerOptions()
	controllers.SkipNameValidation = ptr(true) // every test has controllers of the same names
	mgr, err := p.manager(ctrl.Options{
		Scheme:                        scheme(),
		Cache:                         cluster.CacheOptions(p.Namespace),
		NewCache:                      p.newCache,
		Controller:                    controllers,
		Logger:                        log,
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:        "0",
		LeaderElection:                p.options.LeaderElection,
		LeaderElectionID:              "leader",
		LeaderElectionNamespace:       p.Namespace,
		LeaderElectionReleaseOnCancel: true,
		RetryPeriod:                   ptr(100 * time.Millisecond),
	})
	p.must(err)
	mgr, err = kubeevents.With(ctx, mgr)
	p.must(err)
	p.must(p.wire(ctx, mgr))
	running := &process{
		cancel:  cancel,
		stopped: make(chan error, 1),
		leads:   mgr.Elected(),
	}
	go func() { running.stopped <- mgr.Start(ctx) }()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		p.t.Fatal("the cache was not filled")
	}
	return running
}

// manager makes a manager for the API server.
func (p *ControlPlane) manager(options ctrl.Options) (ctrl.Manager, error) {
	if p.memory != nil {
		return p.memory.manager(options)
	}
	return ctrl.NewManager(apiserver.Config(p.t), options)
}

func (p *ControlPlane) newCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	objects, err := cache.New(config, options)
	if p.options.BeforeWatch == nil {
		return objects, err
	}
	return watchedCache{objects, p.options.BeforeWatch}, err
}

// watchedCache calls before each time that a handler is added to a filled informer.
type watchedCache struct {
	cache.Cache
	before func(client.Object, client.Reader)
}

// GetInformer implements cache.Informers.
func (c watchedCache) GetInformer(ctx context.Context, kind client.Object, options ...cache.InformerGetOption) (cache.Informer,
	error) {
	informer, err := c.Cache.GetInformer(ctx, kind, options...)
	return watchedInformer{informer, func() {
		if informer.HasSynced() {
			c.before(kind, c.Cache)
		}
	}}, err
}

type watchedInformer struct {
	cache.Informer
	before func()
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i watchedInformer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler,
	options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	i.before()
	return i.Informer.AddEventHandlerWithOptions(handler, options)
}

func (p *ControlPlane) wire(ctx context.Context, mgr ctrl.Manager) error {
	now := clock.RealClock{}
	cloud := p.options.Platform
	if cloud == nil {
		cloud = p.Cloud.Reopen()
	}
	if err := cluster.AddIndexes(ctx, mgr.GetFieldIndexer(), DriverName); err != nil {
		return err
	}
	monitor, err := liveness.New(liveness.Options{
		Reader:            mgr.GetClient(),
		APIReader:         mgr.GetAPIReader(),
		Namespace:         p.Namespace,
		Clock:             now,
		Prober:            p.options.Prober,
		StaleAfter:        p.options.StaleAfter,
		MassLossThreshold: 100,
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(monitor); err != nil {
		return err
	}
	nodes := cluster.NewNodes(mgr.GetClient(), p.Namespace, now, monitor)
	informer, err := mgr.GetCache().GetInformer(ctx, &apiv1.AzDriverNode{})
	if err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(monitor.Handler()); err != nil {
		return err
	}
	volumes, err := volume.New(volume.Options{
		Client:        mgr.GetClient(),
		Reader:        mgr.GetAPIReader(),
		Cloud:         cloud,
		Jobs:          work.New(ctx, now, 1000),
		Nodes:         nodes,
		Clock:         now,
		Events:        mgr.GetEventRecorder("volume"),
		DriverName:    DriverName,
		CleanUpDelay:  p.options.CleanUpDelay,
		ReservedSlots: p.options.ReservedSlots,
		Workers:       5,
	})
	if err != nil {
		return err
	}
	attachments, err := attachment.New(attachment.Options{
		Client:        mgr.GetClient(),
		Reader:        mgr.GetAPIReader(),
		Cloud:         cloud,
		Jobs:          work.New(ctx, now, 1000),
		Nodes:         nodes,
		Clock:         now,
		Events:        mgr.GetEventRecorder("attachment"),
		ReservedSlots: p.options.ReservedSlots,
		Workers:       5,
	})
	if err != nil {
		return err
	}
	watch := cluster.NewWatch()
	if err := watch.Register(ctx, mgr.GetCache()); err != nil {
		return err
	}
	if p.CSI, err = csicontroller.New(csicontroller.Options{
		Client:          mgr.GetClient(),
		Reader:          mgr.GetAPIReader(),
		Watch:           watch,
		Disks:           cloud.Disks(),
		Snapshots:       cloud.Snapshots(),
		SKUs:            cloud.SKUs(),
		Clock:           now,
		Namespace:       p.Namespace,
		DriverName:      DriverName,
		SubscriptionID:  Subscription,
		ResourceGroup:   p.Group,
		Location:        Location,
		WaitTimeout:     patience,
		PublishedByPods: p.options.PublishedByPods,
	}); err != nil {
		return err
	}
	driverNodes := drivernode.Options{
		Client:  mgr.GetClient(),
		Reader:  mgr.GetAPIReader(),
		Cloud:   cloud,
		Events:  mgr.GetEventRecorder("drivernode"),
		Workers: 2,
	}
	if p.options.Prober != nil {
		driverNodes.FirstConditions = monitor.FirstConditions
		if err := mgr.Add(&liveness.ConditionWriter{
			Client: mgr.GetClient(), Monitor: monitor, Namespace: p.Namespace, Clock: now,
			Events: mgr.GetEventRecorder("liveness"),
		}); err != nil {
			return err
		}
	}
	reconcilers := []interface {
		SetUp(ctrl.Manager, string) error
	}{volumes, attachments, drivernode.New(driverNodes)}
	pods := attachdetach.Options{
		Client:     mgr.GetClient(),
		Reader:     mgr.GetAPIReader(),
		Events:     mgr.GetEventRecorder("attachdetach"),
		Clock:      now,
		DriverName: DriverName,
	}
	if p.options.PublishedByPods {
		pods.Publisher = p.CSI
	} else {
		reconcilers = append(reconcilers, inuse.New(inuse.Options{
			Client:     mgr.GetClient(),
			Reader:     mgr.GetAPIReader(),
			DriverName: DriverName,
			Workers:    2,
		}))
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

// step is the virtual time between two checks.
const step = 10 * time.Millisecond

// Eventually waits until check returns "", by watching the driver's objects, and fails with what it
// returned last. With an API server in memory it checks again after a step of time, because a check
// may change objects.
func (p *ControlPlane) Eventually(what string, check func() string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if p.memory != nil {
		for complaint := check(); complaint != ""; complaint = check() {
			if time.Sleep(step); ctx.Err() != nil {
				p.t.Fatalf("%s: %s", what, complaint)
			}
		}
		return
	}
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

// changes signals changes of volumes, attachments and nodes, and, because the platform is no
// object, at least each 100 ms.
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
