// Package server is the gRPC plumbing under the CSI servers of both plug-ins:
// a listener on a unix socket that replaces a socket which a killed process left behind, and
// one chain of interceptors that logs, counts and catches panics.
//
// It is independent of volumes. The caller registers the services, and
// runs the Server as a Runnable of a controller-runtime manager or by itself.
package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/rpc/v1metrics"
	"github.com/azuredisk-csi/azuredisk/internal/tracing"
	"github.com/azuredisk-csi/azuredisk/internal/unixsocket"
)

const (
	defaultStopTimeout = 10 * time.Second
	// traceTimeout bounds the sending of the last traces.
	traceTimeout = 2 * time.Second
)

// Options of a Server.
type Options struct {
	// Endpoint is where to listen: unix:///path, unix:path or /path.
	Endpoint string
	// Register adds the services. It is called once, by New.
	Register func(grpc.ServiceRegistrar)
	// Log is put into the context of every call.
	Log logr.Logger
	// Metrics is where the durations of the calls are registered; nil for nowhere.
	Metrics prometheus.Registerer
	// Tracing traces the calls, and is stopped with the server; nil for none.
	Tracing *tracing.Tracing
	// Clock measures durations and the time to stop; nil for the real one.
	Clock clock.WithTicker
	// StopTimeout is how long calls in flight may go on after the stop: 10 s if
	// 0. Their contexts end after that.
	StopTimeout time.Duration
}

// Server is a gRPC server on a unix socket.
type Server struct {
	options   Options
	path      string
	grpc      *grpc.Server
	inProcess []grpc.UnaryServerInterceptor
	listening chan struct{}
}

// New makes a Server; it does not listen yet.
func New(options Options) (*Server, error) {
	path, err := unixsocket.Path(options.Endpoint)
	if err != nil {
		return nil, err
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.StopTimeout == 0 {
		options.StopTimeout = defaultStopTimeout
	}
	calls, err := newCallMetrics(options.Metrics)
	if err != nil {
		return nil, err
	}
	legacy, err := v1metrics.New(options.Metrics)
	if err != nil {
		return nil, err
	}
	// Outermost first: the error that replaces a panic is logged and counted like any other.
	interceptors := []grpc.UnaryServerInterceptor{
		measure(calls, options.Clock),
		legacy.Interceptor(options.Clock),
		logCalls(options.Log, options.Clock),
		recoverPanics(),
	}
	server := grpc.NewServer(append(options.Tracing.ServerOptions(), grpc.ChainUnaryInterceptor(interceptors...))...)
	options.Register(server)
	return &Server{
		options:   options,
		path:      path,
		grpc:      server,
		listening: make(chan struct{}),
		inProcess: append([]grpc.UnaryServerInterceptor{options.Tracing.Interceptor(options.Clock)}, interceptors...),
	}, nil
}

// InProcess returns a method of a service for callers in the same process: each call passes the
// interceptors of the server, and neither the socket nor an encoding. method is its full gRPC name.
func InProcess[Request, Response any](s *Server, method string,
	handle func(context.Context, Request) (Response, error)) func(context.Context, Request) (Response, error) {
	info := &grpc.UnaryServerInfo{FullMethod: method}
	return func(ctx context.Context, request Request) (Response, error) {
		next := func(ctx context.Context, _ any) (any, error) { return handle(ctx, request) }
		for _, intercept := range slices.Backward(s.inProcess) {
			inner := next
			next = func(ctx context.Context, request any) (any, error) { return intercept(ctx, request, info, inner) }
		}
		answer, err := next(ctx, request)
		response, _ := answer.(Response) // a panic leaves none
		return response, err
	}
}

// Start listens and serves until ctx ends; then it waits for the calls in flight
// and removes the socket. A Server can be started once.
func (s *Server) Start(ctx context.Context) error {
	listener, err := unixsocket.Listen(ctx, s.path)
	if err != nil {
		return err
	}
	close(s.listening)
	s.options.Log.Info("serving", "socket", s.path)
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", s.path, err)
	case <-ctx.Done():
	}
	s.stop()
	if err := s.endTraces(ctx); err != nil {
		s.options.Log.Error(err, "the last traces could not be sent")
	}
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve %s: %w", s.path, err)
	}
	return nil
}

// Listening is closed once calls can be made.
func (s *Server) Listening() <-chan struct{} { return s.listening }

// NeedLeaderElection tells the manager that the server runs in every replica.
func (s *Server) NeedLeaderElection() bool { return false }

func (s *Server) stop() {
	stopped := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(stopped)
	}()
	timer := s.options.Clock.NewTimer(s.options.StopTimeout)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-timer.C():
		s.grpc.Stop()
		<-stopped
	}
}

// endTraces sends the last traces, though ctx has ended.
func (s *Server) endTraces(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceTimeout)
	defer cancel()
	return s.options.Tracing.Stop(ctx)
}
