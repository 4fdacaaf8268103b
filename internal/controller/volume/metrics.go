package volume

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	drivermetrics "github.com/azuredisk-csi/azuredisk/internal/metrics"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
)

// metrics sums over volumes, so that their number does not become a number of series.
type metrics struct {
	wantedGauge, attachedGauge prometheus.Gauge
	removals                   *prometheus.CounterVec

	notSteeredGauge prometheus.Gauge

	mu      sync.Mutex
	volumes map[string][2]int // wanted, attached
	// notSteered are the pods of each volume that the webhook has not seen, and unseen says for how
	// many volumes a pod is there: a pod with two volumes is one pod.
	notSteered map[string][]types.UID
	unseen     map[types.UID]int
}

func newMetrics(registerer prometheus.Registerer, leading <-chan struct{}) (*metrics, error) {
	m := &metrics{
		wantedGauge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "azuredisk_replicas_wanted",
			Help: "Attachment replicas that there should be.",
		}),
		attachedGauge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "azuredisk_replicas_attached",
			Help: "Attachment replicas that are attached.",
		}),
		removals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_replica_removals_total", Help: "Attachment replicas that the controller removed, by reason.",
		}, []string{"reason"}),
		notSteeredGauge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "azuredisk_pods_not_steered",
			Help: "Pods with replicated volumes that the webhook has not seen.",
		}),
		volumes:    map[string][2]int{},
		notSteered: map[string][]types.UID{},
		unseen:     map[types.UID]int{},
	}
	return m, drivermetrics.Register(registerer, "volumes", drivermetrics.WhileLeading(leading, m.wantedGauge),
		drivermetrics.WhileLeading(leading, m.attachedGauge), drivermetrics.WhileLeading(leading, m.notSteeredGauge), m.removals)
}

// steering counts the pods of a replicated volume that the webhook has not seen, without those that opt out
// of steering.
func (m *metrics) steering(volume string, pods []placement.PodView) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, pod := range m.notSteered[volume] {
		if m.unseen[pod]--; m.unseen[pod] == 0 {
			delete(m.unseen, pod)
		}
	}
	delete(m.notSteered, volume)
	for _, view := range pods {
		if view.Pod.Annotations[apiv1.AnnotationSteered] == "" && annotation.Steering.Switched(view.Pod.Annotations) == "" {
			m.notSteered[volume] = append(m.notSteered[volume], view.Pod.UID)
			m.unseen[view.Pod.UID]++
		}
	}
	m.notSteeredGauge.Set(float64(len(m.unseen)))
}

func (m *metrics) replicas(volume string, wanted, attached int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.volumes[volume]
	m.volumes[volume] = [2]int{wanted, attached}
	m.wantedGauge.Add(float64(wanted - before[0]))
	m.attachedGauge.Add(float64(attached - before[1]))
}

func (m *metrics) forget(volume string) {
	m.replicas(volume, 0, 0)
	m.steering(volume, nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.volumes, volume)
}
