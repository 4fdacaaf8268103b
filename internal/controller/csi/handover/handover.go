// Package handover answers the calls of the CSI controller server that publish a volume to a node
// and unpublish it.
//
// It acquires and releases ownership by the protocol of docs/adr/0001-hand-over-protocol.md: a call
// reads the objects from which it decides from the API server and not from the cache, and writes
// the ownership with optimistic locking only.
package handover

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/adoption"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/metrics"
)

// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes/status,verbs=patch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumeattachments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumeattachments/status,verbs=patch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get

// Publisher serves the calls.
type Publisher struct {
	*adoption.Adopter
	*call.Calls
	clock                clock.PassiveClock
	promotions, releases *prometheus.CounterVec
	absent               absent
	changing             changing
	// ByVolumeAttachments says that Kubernetes makes the calls, one for each VolumeAttachment.
	ByVolumeAttachments bool
}

// New makes a Publisher. registerer may be nil.
func New(adopter *adoption.Adopter, calls *call.Calls, c clock.PassiveClock, registerer prometheus.Registerer) (*Publisher,
	error) {
	s := &Publisher{
		Adopter: adopter,
		Calls:   calls,
		clock:   c,
		promotions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_promotions_total",
			Help: "Ownerships that a publish acquired, by whether the disk was attached already.",
		}, []string{"warm"}),
		releases: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_releases_total", Help: "Ownerships that an unpublish released, by the kind of proof.",
		}, []string{"proof"}),
	}
	for _, warm := range []bool{true, false} {
		s.promotions.WithLabelValues(strconv.FormatBool(warm)) // Prometheus sees no increase in a series that begins with 1
	}
	return s, metrics.Register(registerer, "the controller server", s.promotions, s.releases)
}
