package v1metrics_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/azuredisk-csi/azuredisk/internal/rpc/v1metrics"
)

func TestCallsAreCountedUnderTheNamesOfTheV1Driver(t *testing.T) {
	registry, clock := prometheus.NewRegistry(), clocktesting.NewFakeClock(time.Unix(0, 0))
	if _, err := v1metrics.New(registry); err != nil {
		t.Fatal(err)
	}
	// The second server of a process counts into the same metrics.
	m, err := v1metrics.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	intercept := m.Interceptor(clock)
	call := func(method string, serve func(context.Context) error) {
		_, _ = intercept(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Some/" + method},
			func(ctx context.Context, _ any) (any, error) {
				clock.Step(2 * time.Second)
				return nil, serve(ctx)
			})
	}
	call("CreateVolume", func(ctx context.Context) error {
		v1metrics.VariantOf(ctx, v1metrics.FromSnapshot)
		v1metrics.SKUOf(ctx, "Premium_LRS")
		return nil
	})
	call("CreateVolume", func(context.Context) error { return errors.New("no") })
	call("NodeStageVolume", func(context.Context) error { return nil })
	call("Probe", func(context.Context) error { return nil })
	want := `
# HELP azuredisk_csi_driver_operations_total CSI calls by operation and success, as the V1 driver counted them.
# TYPE azuredisk_csi_driver_operations_total counter
azuredisk_csi_driver_operations_total{operation="controller_create_volume",success="false"} 1
azuredisk_csi_driver_operations_total{operation="controller_create_volume_from_snapshot",success="true"} 1
azuredisk_csi_driver_operations_total{operation="node_stage_volume",success="true"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "azuredisk_csi_driver_operations_total"); err != nil {
		t.Error(err)
	}
	for name, series := range map[string]int{
		"azuredisk_csi_driver_operation_duration_seconds":         3,
		"azuredisk_csi_driver_operation_duration_seconds_labeled": 1,
	} {
		if n, err := testutil.GatherAndCount(registry, name); err != nil || n != series {
			t.Errorf("%s: %d series, %v", name, n, err)
		}
	}
}
