package tracing_test

import (
	"context"
	"net"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/tracing"
)

// sink is a collector that keeps what it is sent.
type sink struct {
	collector.UnimplementedTraceServiceServer
	received chan *collector.ExportTraceServiceRequest
}

func (s *sink) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.received <- r
	return &collector.ExportTraceServiceResponse{}, nil
}

type identity struct {
	csi.UnimplementedIdentityServer
}

func (identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: "disk.csi.azure.com"}, nil
}

func serve(t *testing.T, options []grpc.ServerOption, register func(*grpc.Server)) (address string, server *grpc.Server) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server = grpc.NewServer(options...)
	register(server)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String(), server
}

func TestACallBecomesASpanOfTheCallersTraceAtTheCollector(t *testing.T) {
	s := &sink{received: make(chan *collector.ExportTraceServiceRequest, 10)}
	endpoint, _ := serve(t, nil, func(g *grpc.Server) { collector.RegisterTraceServiceServer(g, s) })
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+endpoint)
	tracer, err := tracing.Start(t.Context(), "azuredisk-controller", "v2")
	if err != nil {
		t.Fatal(err)
	}
	address, server := serve(t, tracer.ServerOptions(), func(g *grpc.Server) { csi.RegisterIdentityServer(g, identity{}) })
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	if _, err := csi.NewIdentityClient(conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}); err != nil {
		t.Fatal(err)
	}
	server.GracefulStop() // The client has its answer before the server has ended the span.
	info := &grpc.UnaryServerInfo{FullMethod: csi.Controller_ControllerPublishVolume_FullMethodName}
	handle := func(context.Context, any) (any, error) { return nil, status.Error(codes.Internal, "no") }
	_, _ = tracer.Interceptor(clock.RealClock{})(t.Context(), nil, info, handle)
	if err := tracer.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	sent := (<-s.received).GetResourceSpans()[0]
	spans := sent.GetScopeSpans()[0].GetSpans()
	if len(spans) != 2 || spans[1].GetName() != "csi.v1.Controller/ControllerPublishVolume" ||
		spans[1].GetStatus().GetMessage() != "no" {
		t.Fatalf("got spans %v, want the second to be of the failed call within the process", spans)
	}
	span := spans[0]
	if span.GetName() != "csi.v1.Identity/GetPluginInfo" || len(span.GetTraceId()) != 16 || span.GetTraceId()[0] != 0x01 ||
		span.GetTraceId()[15] != 0xef {
		t.Errorf("span %s of trace %x", span.GetName(), span.GetTraceId())
	}
	names := map[string]string{}
	for _, a := range sent.GetResource().GetAttributes() {
		names[a.GetKey()] = a.GetValue().GetStringValue()
	}
	if names["service.name"] != "azuredisk-controller" || names["service.version"] != "v2" {
		t.Errorf("the process calls itself %v", names)
	}
}

func TestWithoutTracingNothingIsTraced(t *testing.T) {
	var none *tracing.Tracing
	if len(none.ServerOptions()) != 0 {
		t.Error("server options without tracing")
	}
	if err := none.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
