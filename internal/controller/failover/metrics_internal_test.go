package failover

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestTheFirstFailoverIsAnIncrease: Prometheus sees no increase in a series that begins with 1, and a
// leader rarely has more than one failover.
func TestTheFirstFailoverIsAnIncrease(t *testing.T) {
	registry := prometheus.NewRegistry()
	if _, err := newMetrics(registry); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"azuredisk_failovers_total": 2, "azuredisk_failover_duration_seconds": 1,
		"azuredisk_failover_phase_duration_seconds": 3} {
		if got, err := testutil.GatherAndCount(registry, name); err != nil || got != want {
			t.Errorf("%s: got %d series before the first failover, %v, want %d", name, got, err, want)
		}
	}
}
