package scheduler

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the extender.
type metrics struct {
	requests *prometheus.HistogramVec
	filtered *prometheus.CounterVec
	leader   prometheus.Gauge
	steered  *prometheus.HistogramVec
}

// newMetrics registers the metrics. ready is called at each scrape.
func newMetrics(registry prometheus.Registerer, ready func() bool) *metrics {
	m := &metrics{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "azuredisk_scheduler_extender_request_duration_seconds",
			Help:    "Time to answer a request of the scheduler, by verb and HTTP status code.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 15),
		}, []string{"verb", "code"}),
		filtered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_scheduler_extender_nodes_filtered_total",
			Help: "Nodes that were filtered out for a pod with volumes of the driver, by fault.",
		}, []string{"fault"}),
		leader: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "azuredisk_scheduler_leader",
			Help: "1 in the replica that holds the lease. Every replica answers requests.",
		}),
		steered: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "azuredisk_scheduler_webhook_duration_seconds",
			Help:    "Time to answer an admission request for a new pod, by result.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 15),
		}, []string{"result"}),
	}
	registry.MustRegister(m.requests, m.filtered, m.leader, m.steered,
		truthGauge("azuredisk_scheduler_ready",
			"1 while the extender serves: its caches are filled, and it is not about to stop.", ready),
	)
	return m
}

var expiryDesc = prometheus.NewDesc("azuredisk_scheduler_webhook_certificate_expiry_timestamp_seconds",
	"When the certificate of the webhook expires.", nil, nil)

// expiry is the metric of a certificate, which it asks for at each scrape. While there is none, it has
// no series.
type expiry struct{ certificate Certificate }

// Describe implements prometheus.Collector.
func (expiry) Describe(to chan<- *prometheus.Desc) { to <- expiryDesc }

// Collect implements prometheus.Collector.
func (e expiry) Collect(to chan<- prometheus.Metric) {
	current, err := e.certificate.GetCertificate(nil)
	if err != nil || current == nil || current.Leaf == nil {
		return
	}
	to <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, float64(current.Leaf.NotAfter.Unix()))
}

func truthGauge(name, help string, truth func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		if truth() {
			return 1
		}
		return 0
	})
}
