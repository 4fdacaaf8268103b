package metrics_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/azuredisk-csi/azuredisk/internal/metrics"
)

func counter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "calls_total"}, []string{"method"})
}

func TestAGaugeOfTheStateIsServedByTheLeaderOnly(t *testing.T) {
	t.Parallel()
	leading := make(chan struct{})
	registry := prometheus.NewRegistry()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "things", Help: "Things."})
	if err := metrics.Register(registry, "test", metrics.WhileLeading(leading, gauge)); err != nil {
		t.Fatal(err)
	}
	if got, err := testutil.GatherAndCount(registry); err != nil || got != 0 {
		t.Errorf("got %d series in a standby, %v, want 0", got, err)
	}
	close(leading)
	if got, err := testutil.GatherAndCount(registry); err != nil || got != 1 {
		t.Errorf("got %d series in the leader, %v, want 1", got, err)
	}
	if got := testutil.CollectAndCount(metrics.WhileLeading(nil, gauge)); got != 1 {
		t.Errorf("got %d series without an election, want 1", got)
	}
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
