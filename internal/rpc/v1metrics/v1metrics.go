// Package v1metrics counts CSI calls in metrics with the V1 driver's names, so that dashboards and
// alerts for the V1 driver continue to work:
//
//	azuredisk_csi_driver_operations_total{operation,success}
//	azuredisk_csi_driver_operation_duration_seconds{operation,success}
//	azuredisk_csi_driver_operation_duration_seconds_labeled{operation,success,storage_account_type}
//
// The driver's own histogram of calls, azuredisk_csi_call_duration_seconds, also has the gRPC
// codes. A call that succeeded counts as a success for all volumes, while the V1 driver counted
// each staging of a raw block volume as a failure.
//
// The handler of a call may set its variant and SKU with VariantOf and SKUOf; the interceptor does
// the rest.
package v1metrics

import (
	"context"
	"errors"
	"path"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/metrics"
)

// operations are the V1 driver's names of the calls that it counted.
var operations = map[string]string{
	"CreateVolume": "controller_create_volume", "DeleteVolume": "controller_delete_volume",
	"ControllerModifyVolume":  "controller_modify_volume",
	"ControllerPublishVolume": "controller_publish_volume", "ControllerUnpublishVolume": "controller_unpublish_volume",
	"ControllerExpandVolume": "controller_expand_volume", "CreateSnapshot": "controller_create_snapshot",
	"DeleteSnapshot":  "controller_delete_snapshot",
	"NodeStageVolume": "node_stage_volume", "NodeUnstageVolume": "node_unstage_volume",
	"NodePublishVolume":   "node_publish_volume",
	"NodeUnpublishVolume": "node_unpublish_volume", "NodeExpandVolume": "node_expand_volume",
}

// Variants of a call that the V1 driver counted separately.
const (
	FromSnapshot = "_from_snapshot"
	FromVolume   = "_from_volume"
	CrossRegion  = "_cross_region"
)

// Metrics are the counters.
type Metrics struct {
	total             *prometheus.CounterVec
	duration, labeled *prometheus.HistogramVec
}

// New makes Metrics and registers them; registerer may be nil. If a process calls it for two
// servers, they share the counters.
func New(registerer prometheus.Registerer) (*Metrics, error) {
	buckets := []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300}
	m := &Metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_csi_driver_operations_total",
			Help: "CSI calls by operation and success, as the V1 driver counted them.",
		}, []string{"operation", "success"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "azuredisk_csi_driver_operation_duration_seconds",
			Help:    "Duration of CSI calls by operation and success, as the V1 driver measured them.",
			Buckets: buckets,
		}, []string{"operation", "success"}),
		labeled: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "azuredisk_csi_driver_operation_duration_seconds_labeled",
			Help:    "Duration of CSI calls by operation, success and SKU of the disk, as the V1 driver measured them.",
			Buckets: buckets,
		}, []string{"operation", "success", "storage_account_type"}),
	}
	var totalErr, durationErr, labeledErr error
	m.total, totalErr = metrics.Share(registerer, "calls under V1's names", m.total)
	m.duration, durationErr = metrics.Share(registerer, "calls under V1's names", m.duration)
	m.labeled, labeledErr = metrics.Share(registerer, "calls under V1's names", m.labeled)
	return m, errors.Join(totalErr, durationErr, labeledErr)
}

// details are set by the handler of a call.
type details struct {
	mu           sync.Mutex
	variant, sku string
}

type detailsKey struct{}

// VariantOf sets the variant of the call of ctx, which the V1 driver counted separately.
func VariantOf(ctx context.Context, variant string) {
	if d, ok := ctx.Value(detailsKey{}).(*details); ok {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.variant = variant
	}
}

// SKUOf sets the SKU of the disk of the call of ctx, as in "Premium_LRS".
func SKUOf(ctx context.Context, sku string) {
	if d, ok := ctx.Value(detailsKey{}).(*details); ok {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.sku = sku
	}
}

// Interceptor counts calls.
func (m *Metrics) Interceptor(c clock.PassiveClock) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		operation, counted := operations[path.Base(info.FullMethod)]
		if !counted {
			return handle(ctx, request)
		}
		d := &details{}
		start := c.Now()
		response, err := handle(context.WithValue(ctx, detailsKey{}, d), request)
		took, success := c.Since(start).Seconds(), strconv.FormatBool(err == nil)
		d.mu.Lock()
		defer d.mu.Unlock()
		operation += d.variant
		m.total.WithLabelValues(operation, success).Inc()
		m.duration.WithLabelValues(operation, success).Observe(took)
		if d.sku != "" {
			m.labeled.WithLabelValues(operation, success, d.sku).Observe(took)
		}
		return response, err
	}
}
