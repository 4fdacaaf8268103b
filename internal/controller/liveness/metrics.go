package liveness

import (
	"github.com/prometheus/client_golang/prometheus"

	drivermetrics "github.com/azuredisk-csi/azuredisk/internal/metrics"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

type metrics struct {
	lost, guarded     prometheus.Gauge
	requests          prometheus.Counter
	probes, questions *prometheus.CounterVec
	events, pauses    *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		lost: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "azuredisk_failover_nodes_lost",
			Help: "Nodes that this process holds to be lost or down.",
		}),
		guarded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "azuredisk_failover_guard_active",
			Help: "1 while so many nodes seem lost at once that nothing new is fenced.",
		}),
		requests: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "azuredisk_liveness_heartbeat_requests_total", Help: "Heartbeats requested from nodes whose probe failed.",
		}),
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_liveness_probes_total", Help: "Probes of nodes, by result: answered, failed or unknown.",
		}, []string{"result"}),
		questions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_liveness_vm_reads_total",
			Help: "Questions to Azure about the power state of silent nodes' VMs, by error kind; ok for none.",
		}, []string{"result"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_liveness_maintenance_events_total",
			Help: "Events that nodes said Azure had announced for their VMs, by kind.",
		}, []string{"kind"}),
		pauses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_liveness_announced_pauses_total",
			Help: "Silences of nodes during announced pauses, by result: survived, exceeded (the node was still silent at the " +
				"end) or refused (the limit was used up).",
		}, []string{"result"}),
	}
	return m, drivermetrics.Register(registerer, "liveness", m.lost, m.guarded, m.requests, m.probes, m.questions, m.events,
		m.pauses)
}

func (m *metrics) show(lost int, guarded bool) {
	m.lost.Set(float64(lost))
	active := 0.0
	if guarded {
		active = 1
	}
	m.guarded.Set(active)
}

func (m *metrics) probe(r ProbeResult) {
	result := "failed"
	switch {
	case r.Unknown:
		result = "unknown"
	case r.Answered:
		result = "answered"
	}
	m.probes.WithLabelValues(result).Inc()
}

func (m *metrics) question(err error) {
	result := "ok"
	if err != nil {
		if result = string(provisioner.KindOf(err)); result == "" {
			result = "other"
		}
	}
	m.questions.WithLabelValues(result).Inc()
}

// count counts what was announced, and the silences that have ended.
func (m *metrics) count(j nodehealth.Judgements) {
	for _, e := range j.Announced {
		m.events.WithLabelValues(string(e.Type)).Inc()
	}
	for _, result := range j.Pauses {
		m.pauses.WithLabelValues(string(result)).Inc()
	}
}
