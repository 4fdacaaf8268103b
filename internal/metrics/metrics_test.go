package metrics_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/azuredisk-csi/azuredisk/internal/metrics"
)

func counter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "calls_total"}, []string{"method"})
}

func TestAMetricIsRegisteredOnceOrShared(t *testing.T) {
	t.Parallel()
	registry, first := prometheus.NewRegistry(), counter()
	if got, err := metrics.Share(registry, "test", first); err != nil || got != first {
		t.Errorf("got %p, %v, want the counter itself", got, err)
	}
	if got, err := metrics.Share(registry, "test", counter()); err != nil || got != first {
		t.Errorf("got %p, %v for the second instance, want the first one's counter", got, err)
	}
	if err := metrics.Register(registry, "test", counter()); err == nil {
		t.Error("got no error for a metric that is registered already")
	}
	if err := metrics.Register(nil, "test", counter()); err != nil {
		t.Errorf("got %v without a registerer, want nil", err)
	}
}
