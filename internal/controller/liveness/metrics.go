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

func newMetrics(registerer prometheus.Registerer, leading <-chan struct{}) (*metrics, error) {
	m := &metrics{
		lost: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "azuredisk_liveness_nodes_lost",
			Help: "Nodes that are judged as lost or down.",
		}),
		guarded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "azuredisk_failover_guard_active",
			Help: "1 while so many nodes seem lost at once that nothing new is fenced.",
		}),
		requests: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "azuredisk_liveness_heartbeat_requests_total", Help: "Heartbeats requested from nodes whose probe failed.",
		}),
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_liveness_probes_total", Help: "Probes of nodes, by result: Answered, Failed or Unknown.",
		}, []string{"result"}),
		questions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_liveness_vm_reads_total",
			Help: "Questions to Azure about the power state of silent nodes' VMs, by the kind of the error; OK for none.",
		}, []string{"result"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_maintenance_events_total",
			Help: "Events that nodes said Azure had announced for their VMs, by type.",
		}, []string{"type"}),
		pauses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_maintenance_pauses_total",
			Help: "Silences of nodes during announced pauses, by result: Survived, Exceeded (the node was still silent at the " +
				"end) or Refused (the limit was used up).",
		}, []string{"result"}),
	}
	return m, drivermetrics.Register(registerer, "liveness", drivermetrics.WhileLeading(leading, m.lost),
		drivermetrics.WhileLeading(leading, m.guarded), m.requests, m.probes, m.questions, m.events, m.pauses)
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
	result := "Failed"
	switch {
	case r.Unknown:
		result = "Unknown"
	case r.Answered:
		result = "Answered"
	}
	m.probes.WithLabelValues(result).Inc()
}

func (m *metrics) question(err error) {
	result := "OK"
	if err != nil {
		if result = string(provisioner.KindOf(err)); result == "" {
			result = "Other"
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
