package handover

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestTheFirstMoveIsAnIncrease: Prometheus sees no increase in a series that begins with 1.
func TestTheFirstMoveIsAnIncrease(t *testing.T) {
	registry := prometheus.NewRegistry()
	if _, err := New(nil, nil, nil, registry); err != nil {
		t.Fatal(err)
	}
	if got, err := testutil.GatherAndCount(registry, "azuredisk_promotions_total"); err != nil || got != 2 {
		t.Errorf("got %d series before the first move, %v, want those of warm and of cold moves", got, err)
	}
}
