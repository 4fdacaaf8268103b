package liveness

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumeattachments,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch

// ProbeResult is the result of a probe.
type ProbeResult struct {
	// Answered says that the machine runs: it answered, or refused the connection.
	Answered bool
	// Unknown says that no probe could be made, so that the result says nothing about the node.
	Unknown bool
	// Connection is open and shows when the node ceases to answer; nil if the probe leaves none.
	// The caller closes it.
	Connection Connection
}

// Connection is a connection to a node that is probed without further calls. It is safe for
// concurrent use.
type Connection interface {
	// Ended reports whether the connection has ended, and whether that was because the node did not
	// answer. It does not block.
	Ended() (ended, unanswered bool)
	// Close ends the connection. It may be called more than once.
	Close()
}

// Prober finds out whether a node answers. Probe returns within about a second, and may be called
// for many nodes at once.
type Prober interface {
	Probe(ctx context.Context, node *corev1.Node) ProbeResult
}

// Options of a Monitor.
type Options struct {
	// Reader reads from the cache, with the cluster.AttachmentNode of the cache; APIReader from the
	// API server.
	Reader    client.Reader
	APIReader client.Reader
	// Writer writes requests for heartbeats.
	Writer client.Writer
	// Instances is asked for the power state of VMs; nil for never.
	Instances provisioner.Instances
	// Namespace of the custom resources.
	Namespace string
	Clock     clock.WithTicker
	// Prober probes nodes; nil for never.
	Prober Prober
	// StaleAfter is the least age at which a heartbeat is stale.
	StaleAfter time.Duration
	// Patience, PauseLimits, MassLossThreshold and Enabled are explained at nodehealth.Config.
	Patience          time.Duration
	PauseLimits       nodehealth.PauseLimits
	MassLossThreshold int
	Enabled           bool
	// Metrics registers the metrics; nil for none.
	Metrics prometheus.Registerer
	// Leading is closed when this process leads; nil if it always does. Standbys do not serve the gauges.
	Leading <-chan struct{}
}

// roundEvery is the time between two rounds.
const roundEvery = 250 * time.Millisecond

// Monitor makes observations and has the nodes judged. It is safe for concurrent use.
type Monitor struct {
	Options
	metrics *metrics
	// wake says that a look has ended, changed that a judgement has changed, for the ConditionWriter.
	wake, changed chan struct{}

	mu       sync.Mutex
	detector *nodehealth.Detector
	// connections are those that probes left open, by node.
	connections map[string]Connection
	subscribers []*subscription
}

// New makes a Monitor that has seen nothing yet.
func New(options Options) (*Monitor, error) {
	m := &Monitor{
		Options:     options,
		wake:        make(chan struct{}, 1),
		changed:     make(chan struct{}, 1),
		connections: map[string]Connection{},
		detector: nodehealth.NewDetector(nodehealth.Config{
			StaleAfter:        options.StaleAfter,
			Patience:          options.Patience,
			PauseLimits:       options.PauseLimits,
			MassLossThreshold: options.MassLossThreshold,
			Probes:            options.Prober != nil,
			Questions:         options.Instances != nil,
			Enabled:           options.Enabled,
		}),
	}
	var err error
	m.metrics, err = newMetrics(options.Metrics, options.Leading)
	return m, err
}

// NeedLeaderElection tells the manager that every replica watches.
func (m *Monitor) NeedLeaderElection() bool { return false }

// Handler observes heartbeats. The caller adds it to the informer of AzDriverNodes.
func (m *Monitor) Handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    m.note,
		UpdateFunc: func(_, after any) { m.note(after) },
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			if d, ok := object.(*apiv1.AzDriverNode); ok {
				m.forget(d.Name)
			}
		},
	}
}

func (m *Monitor) note(object any) {
	if d, ok := object.(*apiv1.AzDriverNode); ok {
		m.see(nodehealth.Report{AzDriverNode: d})
	}
}

func (m *Monitor) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keep(name, nil)
	m.tell(m.detector.See(m.Clock.Now(), nodehealth.Removed(name)))
}

// see passes an observation to the Detector.
func (m *Monitor) see(seen nodehealth.Observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tell(m.detector.See(m.Clock.Now(), seen))
}

// Health returns the health of a node. A node that this process has not observed yet is Healthy,
// which is its grace period.
func (m *Monitor) Health(name string) nodehealth.Judgement {
	m.mu.Lock()
	defer m.mu.Unlock()
	judgement, _ := m.detector.Health(name, m.Clock.Now())
	return judgement
}

// RequestHeartbeat has a heartbeat requested from a node, if the node answers requests. It returns
// at once.
func (m *Monitor) RequestHeartbeat(name string) { m.see(nodehealth.HeartbeatWanted(name)) }

// Tick does rounds at the clock's present time until no look is due: it makes the looks one after
// the other. Silence counts only while the API server answers, so that Tick must be called at least
// every two seconds of the clock.
func (m *Monitor) Tick(ctx context.Context) {
	for looks := m.round(); len(looks) > 0; looks = m.round() {
		for _, look := range looks {
			m.look(ctx, look)
		}
	}
}

// Start does rounds until ctx ends. The looks are made in goroutines beside them.
func (m *Monitor) Start(ctx context.Context) error {
	ticker := m.Clock.NewTicker(roundEvery)
	defer ticker.Stop()
	var looking sync.WaitGroup
	defer func() {
		looking.Wait()
		m.mu.Lock()
		defer m.mu.Unlock()
		for name := range m.connections {
			m.keep(name, nil)
		}
	}()
	for {
		for _, look := range m.round() {
			looking.Go(func() {
				m.look(ctx, look)
				signal(m.wake)
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		case <-m.wake:
		}
	}
}

// round has the nodes judged, and returns the looks that are due.
func (m *Monitor) round() []nodehealth.Look {
	m.mu.Lock()
	defer m.mu.Unlock()
	judgements, looks := m.detector.Step(m.Clock.Now(), m.ended()...)
	m.tell(judgements)
	m.metrics.show(judgements.Lost, judgements.Guarded)
	return looks
}

// ended returns the connections that have ended, and keeps them no longer. The caller holds the lock.
func (m *Monitor) ended() []nodehealth.Observation {
	var seen []nodehealth.Observation
	for name, c := range m.connections {
		if ended, unanswered := c.Ended(); ended {
			m.keep(name, nil)
			seen = append(seen, nodehealth.ConnectionEnded{Node: name, Unanswered: unanswered})
		}
	}
	return seen
}

// keep replaces the connection to a node that is kept; nil keeps none. The caller holds the lock.
func (m *Monitor) keep(node string, c Connection) {
	if before := m.connections[node]; before != nil {
		before.Close()
	}
	delete(m.connections, node)
	if c != nil {
		m.connections[node] = c
	}
}
