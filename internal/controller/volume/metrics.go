package volume

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	drivermetrics "github.com/azuredisk-csi/azuredisk/internal/metrics"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
)

// metrics sums over volumes, so that their number does not become a number of series.
type metrics struct {
	wantedGauge, attachedGauge prometheus.Gauge
	removals, cleanUps         *prometheus.CounterVec

	mu      sync.Mutex
	volumes map[string][2]int // wanted, attached
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
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
		cleanUps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_replica_clean_ups_total",
			Help: "Attachment replicas that were cleaned up because their volume has no use for them, by reason.",
		}, []string{"reason"}),
		volumes: map[string][2]int{},
	}
	return m, drivermetrics.Register(registerer, "volumes", m.wantedGauge, m.attachedGauge, m.removals, m.cleanUps)
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
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.volumes, volume)
}

func (m *metrics) removed(reason string) {
	if reason == placement.ReasonReplicasExpired || reason == placement.ReasonVolumeReleased {
		m.cleanUps.WithLabelValues(reason).Inc()
		return
	}
	m.removals.WithLabelValues(reason).Inc()
}
