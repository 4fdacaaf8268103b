package server

import (
	"context"
	"fmt"
	"path"
	"runtime/debug"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/metrics"
)

// newCallMetrics returns the histogram of call durations. Two servers of one
// process share it.
func newCallMetrics(registerer prometheus.Registerer) (*prometheus.HistogramVec, error) {
	calls := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "azuredisk_csi_call_duration_seconds",
		Help:    "Duration of the CSI calls that the plug-in served, by method and gRPC code.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320},
	}, []string{"method", "code"})
	return metrics.Share(registerer, "CSI calls", calls)
}

func measure(calls *prometheus.HistogramVec, c clock.PassiveClock) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		start := c.Now()
		response, err := handle(ctx, request)
		calls.WithLabelValues(path.Base(info.FullMethod), status.Code(err).String()).Observe(c.Since(start).Seconds())
		return response, err
	}
}

// logCalls logs each call once when it has ended: changes at level 0, reads at level 1, failures
// always at level 0. Requests and responses are logged at level 1, without secrets.
func logCalls(log logr.Logger, c clock.PassiveClock) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		method := path.Base(info.FullMethod)
		callLog := log.WithValues("method", method)
		if volume, ok := request.(interface{ GetVolumeId() string }); ok && volume.GetVolumeId() != "" {
			callLog = callLog.WithValues("volumeID", volume.GetVolumeId())
		}
		start := c.Now()
		response, err := handle(logr.NewContext(ctx, callLog), request)
		values := []any{"code", status.Code(err).String(), "duration", c.Since(start).String()}
		if verbose := callLog.V(1); verbose.Enabled() {
			values = append(values, "request", sanitize(request), "response", sanitize(response))
		}
		switch {
		case err != nil:
			callLog.Info("call failed", append(values, "error", status.Convert(err).Message())...)
		case isRead(method):
			callLog.V(1).Info("call served", values...)
		default:
			callLog.Info("call served", values...)
		}
		return response, err
	}
}

func isRead(method string) bool {
	return method == "Probe" || strings.Contains(method, "Get") || strings.HasPrefix(method, "List") ||
		strings.HasPrefix(method, "Validate")
}

// recoverPanics turns a panic of a handler into Unavailable. One bad request must not end the calls
// of all other volumes, and a final code would say that the call has left nothing on the node or in
// Azure, which is not known.
func recoverPanics() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (response any,
		err error) {
		defer func() {
			if cause := recover(); cause != nil {
				logr.FromContextOrDiscard(ctx).Error(fmt.Errorf("panic: %v", cause), "call panicked", "stack",
					string(debug.Stack()))
				response, err = nil, status.Errorf(codes.Unavailable, "%s panicked: %v", path.Base(info.FullMethod), cause)
			}
		}()
		return handle(ctx, request)
	}
}
