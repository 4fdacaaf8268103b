package csi_test

import (
	"context"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/rpc/v1metrics"
)

// In V1 the metrics counted every staging of a raw block volume as a failure.
func TestV1BugTheStagingOfARawBlockVolumeIsCountedAsFailed(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
	m.publish(nil)
	s := m.start()
	registry := prometheus.NewRegistry()
	metrics, err := v1metrics.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	_, err = metrics.Interceptor(clock.RealClock{})(t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId:          volumeID,
		StagingTargetPath: m.stagingPath(),
		VolumeCapability:  blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER),
	}, &grpc.UnaryServerInfo{FullMethod: csi.Node_NodeStageVolume_FullMethodName},
		func(ctx context.Context, request any) (any, error) {
			return s.NodeStageVolume(ctx, request.(*csi.NodeStageVolumeRequest))
		})
	if err != nil {
		t.Fatal(err)
	}
	const name = "azuredisk_csi_driver_operations_total"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP `+name+` CSI calls by operation and success, as the V1 driver counted them.
# TYPE `+name+` counter
`+name+`{operation="node_stage_volume",success="true"} 1
`), name); err != nil {
		t.Error(err)
	}
	if err := m.unstage(s); err != nil {
		t.Fatal(err)
	}
}
