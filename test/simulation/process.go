package simulation

import (
	"context"
	"fmt"
	"reflect"
	"runtime/debug"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/attachdetach"
	"github.com/azuredisk-csi/azuredisk/internal/controller/attachment"
	csicontroller "github.com/azuredisk-csi/azuredisk/internal/controller/csi"
	"github.com/azuredisk-csi/azuredisk/internal/controller/drivernode"
	"github.com/azuredisk-csi/azuredisk/internal/controller/failover"
	"github.com/azuredisk-csi/azuredisk/internal/controller/inuse"
	"github.com/azuredisk-csi/azuredisk/internal/controller/liveness"
	"github.com/azuredisk-csi/azuredisk/internal/controller/maintenance"
	"github.com/azuredisk-csi/azuredisk/internal/controller/volume"
	"github.com/azuredisk-csi/azuredisk/internal/controller/work"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
)

const (
	namespace     = "azure-disk-csi"
	driverName    = "disk.csi.azure.com"
	cleanUpDelay  = 20 * time.Second
	staleAfter    = 6 * time.Second
	reservedSlots = 1
	massLoss      = 45
	workers       = 2
)

// process is a controller plug-in: a CSI server, and the reconcilers if it leads.
type process struct {
	*owner
	id     string
	w      *world
	ctx    context.Context
	cancel context.CancelFunc
	cache  *memapi.Cache
	client client.Client
	csi    *csicontroller.Server
	leads  bool
	// deposed is when a process that led learns that another one leads; zero if none does.
	deposed time.Time
	monitor *liveness.Monitor
	serial  int
	setUps  []interface {
		SetUp(ctrl.Manager, string) error
	}
	running []*controller
}

// start starts a process of a name, instead of one that was killed.
func (p *process) start() error {
	w := p.w
	p.serial++
	p.owner = &owner{name: fmt.Sprintf("controller-%s%d", p.id, p.serial)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.cache = memapi.NewCache(w.store, cluster.CacheOptions(namespace))
	p.client = w.tamper(memapi.NewClient(w.store, w.gate(p.owner), p.cache), "")
	p.leads, p.running, p.deposed = false, nil, time.Time{}
	reader := w.tamper(memapi.NewClient(w.store, w.gate(p.owner), nil), "")
	err := cluster.AddIndexes(p.ctx, p.cache, driverName)
	if err != nil {
		return err
	}
	cloud := azureClient{w, p.owner, w.cloud}
	p.monitor, err = liveness.New(liveness.Options{
		Reader:            p.client,
		APIReader:         reader,
		Writer:            p.client,
		Instances:         cloud.Instances(),
		Namespace:         namespace,
		Clock:             w.clockOf(p.owner),
		Prober:            prober{w, p.owner},
		StaleAfter:        staleAfter,
		PauseLimits:       w.pauseLimits(),
		MassLossThreshold: massLoss,
		Enabled:           true,
	})
	if err != nil {
		return err
	}
	nodes := cluster.NewNodes(p.client, namespace, bubbleClock, p.monitor)
	informer, err := p.cache.GetInformer(p.ctx, &apiv1.AzDriverNode{})
	if err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(w.observer(p.monitor.Handler())); err != nil {
		return err
	}
	watch := cluster.NewWatch()
	if err := watch.Register(p.ctx, p.cache); err != nil {
		return err
	}
	p.csi, err = csicontroller.New(csicontroller.Options{
		Client:          p.client,
		Reader:          reader,
		Watch:           watch,
		Disks:           cloud.Disks(),
		Snapshots:       cloud.Snapshots(),
		SKUs:            cloud.SKUs(),
		Clock:           bubbleClock,
		Namespace:       namespace,
		DriverName:      driverName,
		SubscriptionID:  subscription,
		ResourceGroup:   group,
		Location:        location,
		WaitTimeout:     15 * time.Second,
		PublishedByPods: w.byPods,
	})
	if err != nil {
		return err
	}
	volumes, err := volume.New(volume.Options{
		Client:        p.client,
		Reader:        reader,
		Cloud:         cloud,
		Jobs:          work.New(withActor(p.ctx, "job"), bubbleClock, 1000),
		Nodes:         nodes,
		Clock:         bubbleClock,
		Events:        silence{},
		DriverName:    driverName,
		CleanUpDelay:  cleanUpDelay,
		ReservedSlots: reservedSlots,
		Workers:       workers,
	})
	if err != nil {
		return err
	}
	attachments, err := attachment.New(attachment.Options{
		Client:        p.client,
		Reader:        reader,
		Cloud:         cloud,
		Jobs:          work.New(withActor(p.ctx, "job"), bubbleClock, 1000),
		Nodes:         nodes,
		Clock:         bubbleClock,
		Events:        silence{},
		ReservedSlots: reservedSlots,
		Workers:       workers,
		Overlap:       10 * time.Second,
	})
	if err != nil {
		return err
	}
	failovers, err := failover.New(failover.Options{
		Client:            p.client,
		Reader:            reader,
		Monitor:           p.monitor,
		Clock:             bubbleClock,
		Events:            silence{},
		DriverName:        driverName,
		OutOfServiceTaint: true,
		Workers:           workers,
	})
	if err != nil {
		return err
	}
	maintenances, err := maintenance.New(maintenance.Options{
		Client:     p.client,
		Events:     silence{},
		Clock:      bubbleClock,
		Nodes:      nodes,
		DriverName: driverName,
		Workers:    workers,
	})
	if err != nil {
		return err
	}
	p.setUps = []interface {
		SetUp(ctrl.Manager, string) error
	}{
		volumes, attachments, failovers, maintenances,
		drivernode.New(drivernode.Options{
			Client:          p.client,
			Reader:          reader,
			Cloud:           cloud,
			FirstConditions: p.monitor.FirstConditions,
			Clock:           bubbleClock,
			Workers:         workers,
		}),
	}
	if w.byPods {
		p.setUps = append(p.setUps, attachdetach.New(attachdetach.Options{
			Client:     p.client,
			Reader:     reader,
			Publisher:  publisher{p.csi},
			Events:     silence{},
			Clock:      bubbleClock,
			DriverName: driverName,
		}))
	} else {
		p.setUps = append(p.setUps, inuse.New(inuse.Options{
			Client:     p.client,
			Reader:     reader,
			DriverName: driverName,
			Workers:    workers,
		}))
	}
	w.note("%s starts", p.name)
	p.beside("monitor", p.monitor.Start)
	return nil
}

// beside runs something in the background until the process ends.
func (p *process) beside(name string, run func(context.Context) error) {
	ctx, owner := p.ctx, p.owner
	go func() {
		defer p.w.recovered(owner.name + " " + name)
		_ = run(logr.NewContext(withActor(ctx, name), logr.Discard()))
	}()
	synctest.Wait()
}

// prober probes machines as the network would.
type prober struct {
	w  *world
	by *owner
}

// Probe implements liveness.Prober.
func (p prober) Probe(ctx context.Context, node *corev1.Node) liveness.ProbeResult {
	if p.w.yield(ctx, &access{
		by:   p.by,
		what: "probe " + node.Name,
		over: local,
	}) == expired {
		return liveness.ProbeResult{Unknown: true}
	}
	c := &connection{m: p.w.machine(node.Name)}
	c.boots = c.m.boots
	if ended, _ := c.Ended(); ended {
		return liveness.ProbeResult{}
	}
	return liveness.ProbeResult{Answered: true, Connection: c}
}

// connection is one to a machine, which answers as long as it runs and can be reached.
type connection struct {
	m     *machine
	boots int
}

// Ended implements liveness.Connection.
func (c *connection) Ended() (ended, unanswered bool) {
	gone := !c.m.on || c.m.cutOff || c.m.frozen != nil
	return gone || c.boots != c.m.boots, gone
}

// Close implements liveness.Connection.
func (c *connection) Close() {}

// lead starts the reconcilers.
func (p *process) lead() error {
	p.w.note("%s leads", p.name)
	p.leads = true
	for _, s := range p.setUps {
		if err := s.SetUp(fakeManager{p: p}, namespace); err != nil {
			return err
		}
	}
	for _, c := range p.running {
		p.beside(c.name, c.start)
	}
	writer := &liveness.ConditionWriter{
		Client:    p.client,
		Monitor:   p.monitor,
		Namespace: namespace,
		Events:    silence{},
	}
	p.beside("conditions", func(ctx context.Context) error { return writeConditions(ctx, writer) })
	return nil
}

// writeConditions does what ConditionWriter.Start does, at moments at which nothing else happens.
// Start is woken by the monitor as well. Whether it begins before or after a second judgement of the
// same moment depends on Go's scheduler, and with it the history of a seed.
func writeConditions(ctx context.Context, writer *liveness.ConditionWriter) error {
	ticker := bubbleClock.NewTicker(250*time.Millisecond + 137*time.Nanosecond)
	defer ticker.Stop()
	for {
		if err := writer.Tick(ctx); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "conditions not written") // the next tick tries again
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// stop kills the process.
func (p *process) stop() {
	p.w.note("%s is killed", p.name)
	p.w.kill(p.owner, p.cancel)
}

// choices are what the process could do now, besides its accesses: learn of a change, or reconcile
// something.
func (p *process) choices() []func() {
	if p.dead || p.paused {
		return nil
	}
	var choices []func()
	if !p.w.apiDown && !p.cutOff {
		for _, kind := range p.cache.Pending() {
			choices = append(choices, func() {
				p.cache.Deliver(kind)
				synctest.Wait()
			})
		}
	}
	for _, c := range p.running {
		for _, r := range c.queue.due(p.w.now()) {
			choices = append(choices, func() { c.reconcile(r) })
		}
	}
	return choices
}

// controller is one of the process' controllers. controller-runtime fills its queue; the simulation
// empties it.
type controller struct {
	p     *process
	name  string
	do    reconcile.Reconciler
	start func(context.Context) error
	queue *queue
}

func (c *controller) reconcile(r reconcile.Request) {
	c.queue.take(r)
	p := c.p
	go func() {
		_ = roomy(0)
		defer c.queue.release(r)
		defer func() {
			if fault := recover(); fault != nil {
				p.w.broken("%s %s panics: %v\n%s", c.name, r.Name, fault, debug.Stack())
			}
		}()
		result, err := c.do.Reconcile(logr.NewContext(withActor(p.ctx, c.name+"/"+r.Name), logr.Discard()), r)
		switch {
		case p.dead:
		case err != nil:
			c.queue.AddRateLimited(r)
		case result.RequeueAfter > 0:
			c.queue.Forget(r)
			c.queue.AddAfter(r, result.RequeueAfter)
		default:
			c.queue.Forget(r)
		}
	}()
	synctest.Wait()
}

// roomy grows the stack of a goroutine that has just begun to what nearly each of them needs. Doing
// so in one step, and while there is nothing on it, costs a tenth of a simulation less than
// doubling it several times on the way.
//
//go:noinline
func roomy(n int) byte {
	var room [10 << 10]byte
	return room[n]
}

// fakeManager is what SetUp needs of a manager.
type fakeManager struct {
	ctrl.Manager // for the methods that are not called
	p            *process
}

func (m fakeManager) GetCache() cache.Cache                          { return m.p.cache }
func (m fakeManager) GetClient() client.Client                       { return m.p.client }
func (m fakeManager) GetScheme() *runtime.Scheme                     { return m.p.client.Scheme() }
func (m fakeManager) GetLogger() logr.Logger                         { return logr.Discard() }
func (m fakeManager) GetFieldIndexer() client.FieldIndexer           { return m.p.cache }
func (m fakeManager) GetEventRecorder(string) recorder.EventRecorder { return silence{} }
func (m fakeManager) GetControllerOptions() (options ctrlconfig.Controller) {
	skip := true
	options.SkipNameValidation = &skip
	return options
}

// Add adds a controller: it keeps its sources, and the simulation provides its queue and its
// workers.
func (m fakeManager) Add(r manager.Runnable) error {
	v := reflect.ValueOf(r).Elem()
	do, ok := v.FieldByName("Do").Interface().(reconcile.Reconciler)
	if !ok {
		return fmt.Errorf("%T is no controller", r)
	}
	c := &controller{
		p:     m.p,
		name:  v.FieldByName("Name").String(),
		do:    do,
		start: r.Start,
		queue: newQueue(),
	}
	v.FieldByName("NewQueue").Set(reflect.ValueOf(
		func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			return c.queue
		}))
	v.FieldByName("MaxConcurrentReconciles").SetInt(0)
	m.p.running = append(m.p.running, c)
	return nil
}

// silence records no events.
type silence struct{}

// Eventf implements events.EventRecorder.
func (silence) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// AnnotatedEventf implements events.AnnotatedEventRecorder.
func (silence) AnnotatedEventf(runtime.Object, runtime.Object, map[string]string, string, string, string, string, ...any) {
}
