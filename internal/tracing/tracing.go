// Package tracing sends OpenTelemetry traces of the driver's CSI calls to a collector, over OTLP
// and gRPC.
//
// Where they go, and how many of them, is configured by OpenTelemetry's own environment variables,
// as in OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_INSECURE and OTEL_TRACES_SAMPLER. A call
// that comes with a W3C trace context becomes part of that trace. Source:
// https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
package tracing

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
	"k8s.io/utils/clock"
)

// Tracing sends traces. The zero value sends none.
type Tracing struct {
	provider *trace.TracerProvider
	handler  stats.Handler
}

// Start makes a Tracing that sends in the background, under a service name unless OTEL_SERVICE_NAME
// names another. A collector that cannot be reached costs traces and holds nothing up. Errors:
// settings in the environment that cannot be read.
func Start(ctx context.Context, service, version string) (*Tracing, error) {
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("make exporter of traces: %w", err)
	}
	// What the environment says comes last, and wins.
	about, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName(service), semconv.ServiceVersion(version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, errors.Join(fmt.Errorf("describe this process to traces: %w", err), exporter.Shutdown(ctx))
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(about))
	return &Tracing{provider: provider, handler: otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(provider), otelgrpc.WithMeterProvider(otel.GetMeterProvider()),
		otelgrpc.WithPropagators(propagation.TraceContext{}),
	)}, nil
}

// ServerOptions make a gRPC server trace its calls.
func (t *Tracing) ServerOptions() []grpc.ServerOption {
	if t == nil || t.provider == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(t.handler)}
}

// Interceptor traces calls within the process, which have no transport for the handler of
// ServerOptions.
func (t *Tracing) Interceptor(c clock.PassiveClock) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if t == nil || t.provider == nil {
			return handle(ctx, request)
		}
		start := c.Now()
		ctx = t.handler.TagRPC(ctx, &stats.RPCTagInfo{FullMethodName: info.FullMethod})
		t.handler.HandleRPC(ctx, &stats.Begin{BeginTime: start})
		response, err := handle(ctx, request)
		t.handler.HandleRPC(ctx, &stats.End{
			BeginTime: start,
			EndTime:   c.Now(),
			Error:     err,
		})
		return response, err
	}
}

// Stop sends what is left, until ctx ends. No call may be served any more.
func (t *Tracing) Stop(ctx context.Context) error {
	if t == nil || t.provider == nil {
		return nil
	}
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last traces: %w", err)
	}
	return nil
}
