package failover

import (
	"github.com/prometheus/client_golang/prometheus"

	drivermetrics "github.com/azuredisk-csi/azuredisk/internal/metrics"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
)

// The phases of a failover.
const (
	// phaseDetect is from the last sign of life to the decision.
	phaseDetect = "Detect"
	// phaseFence is from the decision to the proof.
	phaseFence = "Fence"
	// phaseUnblock is from the proof until Kubernetes is informed.
	phaseUnblock = "Unblock"
)

// The ends of the failover of a volume.
const (
	// resultUnblocked: the pods are deleted, and Kubernetes no longer considers the volume in use.
	resultUnblocked = "Unblocked"
	// resultReleased: Kubernetes unpublished it before that.
	resultReleased = "Released"
)

type metrics struct {
	failovers, fences, heldBack       *prometheus.CounterVec
	podsDeleted, refused, falseAlarms prometheus.Counter
	durations                         prometheus.Histogram
	phases                            *prometheus.HistogramVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	buckets := []float64{0.1, 0.25, 0.5, 1, 2, 4, 6, 8, 10, 15, 20, 30, 45, 60, 120, 300}
	m := &metrics{
		failovers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_failovers_total", Help: "Volumes that were taken from lost nodes, by how it ended.",
		}, []string{"result"}),
		fences: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_failover_fences_total", Help: "Volumes that lost nodes can no longer write to, by what proves it.",
		}, []string{"proof"}),
		heldBack: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_failover_held_back_total",
			Help: "Pods on lost nodes that were left alone, and their volumes with them, by reason.",
		}, []string{"reason"}),
		podsDeleted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "azuredisk_failover_pods_deleted_total",
			Help: "Pods that were deleted because their volumes were taken from their node.",
		}),
		falseAlarms: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "azuredisk_failover_false_alarms_total",
			Help: "Nodes that gave a sign of life within a minute after a volume was taken from them.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "azuredisk_failover_writes_refused_total",
			Help: "Writes of a failover that the cluster refused, by its access rules or an admission policy.",
		}),
		durations: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "azuredisk_failover_duration_seconds",
			Help:    "Duration of the failover of a volume, from the last sign of life of its node until it is free.",
			Buckets: buckets,
		}),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "azuredisk_failover_phase_duration_seconds",
			Help:    "Duration of the phases of the failover of a volume.",
			Buckets: buckets,
		}, []string{"phase"}),
	}
	// Prometheus sees no increase in a series that begins with 1.
	for _, reason := range lostnode.LeaveReasons() {
		m.heldBack.WithLabelValues(reason)
	}
	for _, result := range []string{resultUnblocked, resultReleased} {
		m.failovers.WithLabelValues(result)
	}
	for _, phase := range []string{phaseDetect, phaseFence, phaseUnblock} {
		m.phases.WithLabelValues(phase)
	}
	return m, drivermetrics.Register(registerer, "failover", m.failovers, m.fences, m.heldBack, m.podsDeleted, m.refused,
		m.falseAlarms, m.durations, m.phases)
}
