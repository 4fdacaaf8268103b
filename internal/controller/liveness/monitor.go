package liveness

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes;azvolumeattachments,verbs=get;list;watch
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
	Writer client.StatusClient
	// Instances is asked for the power state of VMs; nil for never.
	Instances provisioner.Instances
	// Namespace of the custom resources.
	Namespace string
	Clock     clock.WithTicker
	// Prober probes nodes; nil for never.
	Prober Prober
	// StaleAfter is the least age at which a heartbeat is stale.
	StaleAfter time.Duration
	// Patience is how long a node that probes reach may take to answer a request for a heartbeat
	// before it is lost; 0 for nodehealth.DefaultPatience.
	Patience time.Duration
	// PauseLimits bound the silence that announcements of pauses excuse; zero for
	// nodehealth.DefaultPauseLimits.
	PauseLimits nodehealth.PauseLimits
	// MassLossThreshold is the percentage of nodes above which the guard holds fencing back.
	MassLossThreshold int
	// Enabled allows nodes to be fenced. Without it they are judged, and Azure is not asked.
	Enabled bool
	// Metrics registers the metrics; nil for none.
	Metrics prometheus.Registerer
}

// Monitor judges nodes. It is safe for concurrent use.
type Monitor struct {
	Options
	metrics *metrics
	work    pools
	// wake says that work of a round has ended, changed that a judgement has changed, for the
	// ConditionWriter.
	wake, changed chan struct{}

	mu      sync.Mutex
	nodes   map[string]*node
	contact contact
	// lastRound is when the last round began; zero before the first.
	lastRound   time.Time
	guard       guard
	subscribers []*subscription
}

// New makes a Monitor that has seen nothing yet.
func New(options Options) (*Monitor, error) {
	if options.Patience == 0 {
		options.Patience = nodehealth.DefaultPatience
	}
	if options.PauseLimits == (nodehealth.PauseLimits{}) {
		options.PauseLimits = nodehealth.DefaultPauseLimits
	}
	m := &Monitor{
		Options: options,
		work:    newPools(),
		wake:    make(chan struct{}, 1),
		changed: make(chan struct{}, 1),
		nodes:   map[string]*node{},
	}
	var err error
	m.metrics, err = newMetrics(options.Metrics)
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
	d, ok := object.(*apiv1.AzDriverNode)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observe(d)
}

// observe records the state of an AzDriverNode. A heartbeat that differs from the last one is a
// sign of life, even if it is earlier by the node's clock: after a reboot that clock may show any
// time.
func (m *Monitor) observe(d *apiv1.AzDriverNode) {
	now := m.Clock.Now()
	n, known := m.nodes[d.Name]
	if !known {
		n = &node{
			name:    d.Name,
			changed: now,
			health: nodehealth.Judgement{
				State:      nodehealth.Healthy,
				Since:      now,
				SilentFrom: now,
				Evidence:   "this process has just begun to look",
			},
		}
		n.recall(nodehealth.PublishedJudgement(d))
		m.nodes[d.Name] = n
	}
	if !n.probe.contradicted {
		n.probe.works = n.probe.works || meta.IsStatusConditionTrue(d.Status.Conditions, apiv1.NodeConditionProbeable)
	}
	n.vmID, n.promise, n.request.possible = d.Spec.VMID, d.Status.HeartbeatSeconds, d.Status.HeartbeatOnRequest
	if n.pauses.followed = d.Status.Maintenance != nil; n.pauses.followed {
		m.metrics.announced(n.pauses.announce(d.Status.Maintenance.Events, now))
	}
	value, beats := timeOf(d.Status.HeartbeatTime), n.beats
	if known && !value.Equal(n.heartbeat) {
		n.beat(now)
		if n.health.State != nodehealth.Healthy {
			m.judge(now)
		}
	}
	n.heartbeat = value
	// The request of another process counts as well. One from before this process saw the node may
	// have been answered.
	if asked := timeOf(d.Status.HeartbeatRequestedTime); !asked.Equal(n.request.value) {
		n.request.value = asked
		if known && beats == n.beats {
			n.requested(now, beats)
		}
	}
}

func timeOf(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

func (m *Monitor) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.nodes[name]; n != nil {
		n.keep(nil)
	}
	delete(m.nodes, name)
	m.notify(name)
}

// Health returns the health of a node. A node that this process has not observed yet is Healthy,
// which is its grace period.
func (m *Monitor) Health(name string) nodehealth.Judgement {
	v, heard := m.heard(name)
	if !heard {
		return nodehealth.Judgement{State: nodehealth.Healthy, Evidence: "this process has not heard of the node yet"}
	}
	return v
}

// RequestHeartbeat has a heartbeat requested from a node, if the node answers requests. It returns
// at once.
func (m *Monitor) RequestHeartbeat(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.nodes[name]; n != nil {
		n.request.wanted = true
	}
}

// inherited reports whether this process has no judgement of a node of its own yet.
func (m *Monitor) inherited(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, heard := m.nodes[name]
	return heard && n.inherited
}

// probed reports whether probes are known to reach a node, and whether it is known that they do
// not.
func (m *Monitor) probed(name string) (works, contradicted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, heard := m.nodes[name]
	return heard && n.probe.works, heard && n.probe.contradicted
}

func (m *Monitor) heard(name string) (v nodehealth.Judgement, heard bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, heard := m.nodes[name]
	if heard {
		v = n.health
	}
	if v.Fence() && v.State == nodehealth.Lost && m.stoodStill(m.Clock.Now()) {
		v.HeldBack = heldStoodStill
	}
	return v, heard
}
