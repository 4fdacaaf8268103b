package scheduler

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of the extender.
type Metrics struct {
	requests *prometheus.HistogramVec
	filtered *prometheus.CounterVec
	leader   prometheus.Gauge
}

// NewMetrics registers the metrics. State that is asked for at each scrape comes from ready and blind.
func NewMetrics(registry prometheus.Registerer, ready, blind func() bool) *Metrics {
	const subsystem = "scheduler_extender"
	m := &Metrics{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "azuredisk", Subsystem: subsystem, Name: "request_duration_seconds",
			Help:    "Time to answer a request of the scheduler, by verb and HTTP status code.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 15),
		}, []string{"verb", "code"}),
		filtered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "azuredisk", Subsystem: subsystem, Name: "nodes_filtered_total",
			Help: "Nodes that were filtered out for a pod with volumes of the driver, by fault.",
		}, []string{"fault"}),
		leader: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "azuredisk", Subsystem: subsystem, Name: "leader",
			Help: "1 in the replica that holds the lease. Every replica answers requests.",
		}),
	}
	registry.MustRegister(m.requests, m.filtered, m.leader,
		truthGauge(subsystem, "ready", "1 once the caches are filled; until then every node passes.", ready),
		truthGauge(subsystem, "blind", "1 while no heartbeat of any node comes through; then none is called stale.", blind),
	)
	return m
}

func truthGauge(subsystem, name, help string, truth func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "azuredisk", Subsystem: subsystem, Name: name, Help: help}, func() float64 {
		if truth() {
			return 1
		}
		return 0
	})
}
