package scheduler

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Options of Run.
type Options struct {
	// Config reaches the API server.
	Config *rest.Config
	// Namespace of the custom resources.
	Namespace string
	// DriverName is the CSI driver's name.
	DriverName string
	// Listener accepts the scheduler's calls; nil for none. Run closes it.
	Listener net.Listener
	// HealthListener serves /healthz and /readyz; nil for none. Run closes it.
	HealthListener net.Listener
	// MetricsServer serves the metrics of Registry; nil for none.
	MetricsServer metricsserver.Server
	// CertFile and KeyFile turn on HTTPS. They are read again when they change.
	CertFile, KeyFile string
	// WebhookListener accepts the API server's admission requests; nil for none. Run closes it.
	WebhookListener net.Listener
	// WebhookCertificate is the webhook's certificate; nil for the certificate in CertFile.
	WebhookCertificate Certificate
	// MaxRequestBytes limits a request's body.
	MaxRequestBytes int64
	// ShutdownDelay is how long a stopping extender says that it is not ready and continues to
	// answer, so that callers use another replica before it ends.
	ShutdownDelay time.Duration
	// LeaseNamespace and Identity for the election; "" turns it off.
	LeaseNamespace, Identity string
	// Registry takes the metrics.
	Registry prometheus.Registerer
	Clock    clock.Clock
}

// Certificate is a certificate that may be renewed; *certwatcher.CertWatcher and
// *webhookcert.Keeper are.
type Certificate interface {
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Start keeps the certificate current until ctx is done.
	Start(ctx context.Context) error
}

const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 15 * time.Second
	idleTimeout    = 90 * time.Second
	headerBytes    = 16 << 10

	// requestPatience is how long a request waits until the caches are filled, which is less than
	// the scheduler's own timeout. It waits only during the first startPatience of the process,
	// because an extender without an API server must not delay the scheduler.
	requestPatience = time.Second
	startPatience   = 10 * time.Second
)

// Run serves until ctx is done, and then ends cleanly with nil.
func Run(ctx context.Context, o Options) error {
	log := logr.FromContextOrDiscard(ctx)
	seen, err := observe(ctx, o.Config, &View{Namespace: o.Namespace, DriverName: o.DriverName})
	if err != nil {
		return err
	}
	var stopping atomic.Bool
	ready := func() bool { return seen.isFull() && !stopping.Load() }
	metrics := newMetrics(o.Registry, ready)
	extender := &extender{
		Observer:        seen,
		Ready:           seen.await(o.Clock, startPatience, requestPatience),
		Accepting:       ready,
		MaxRequestBytes: o.MaxRequestBytes,
		Metrics:         metrics,
		Clock:           o.Clock,
	}
	certificate, err := o.certificate()
	if err != nil {
		return err
	}

	// The servers stop ShutdownDelay later than the rest.
	group, running := errgroup.WithContext(context.WithoutCancel(ctx))
	serving, stopServing := context.WithCancel(running)
	defer stopServing()
	group.Go(func() error {
		defer stopServing()
		o.awaitStop(ctx, running, &stopping)
		return nil
	})
	group.Go(func() error { return seen.start(serving) })
	if certificate != nil {
		group.Go(func() error { return certificate.Start(serving) })
	}
	if o.Listener != nil {
		group.Go(func() error { return serve(serving, o.Listener, extender.handler(), tlsConfig(certificate)) })
	}
	if o.WebhookListener != nil {
		o.goWebhook(serving, group, certificate, &webhook{
			DriverName: o.DriverName,
			Observer:   seen,
			Ready:      seen.isFull,
			Metrics:    metrics,
			Clock:      o.Clock,
		})
	}
	if o.HealthListener != nil {
		group.Go(func() error { return serve(serving, o.HealthListener, extender.healthHandler(), nil) })
	}
	if o.MetricsServer != nil {
		group.Go(func() error { return o.MetricsServer.Start(serving) })
	}
	if o.LeaseNamespace != "" {
		group.Go(func() error { return elect(serving, o.Config, o.LeaseNamespace, o.Identity, metrics) })
	}
	log.Info("serving", "extender", o.Listener != nil, "tls", certificate != nil, "webhook", o.WebhookListener != nil)
	return group.Wait()
}

// awaitStop returns ShutdownDelay after ctx is done, and stopping is set during that time. It returns
// at once when running is done.
func (o Options) awaitStop(ctx, running context.Context, stopping *atomic.Bool) {
	select {
	case <-ctx.Done():
		stopping.Store(true)
		logr.FromContextOrDiscard(ctx).Info("stopping", "delay", o.ShutdownDelay)
	case <-running.Done():
		return
	}
	select {
	case <-o.Clock.After(o.ShutdownDelay):
	case <-running.Done():
	}
}

// goWebhook serves the webhook in the group, with WebhookCertificate or else with shared.
func (o Options) goWebhook(ctx context.Context, group *errgroup.Group, shared Certificate, w *webhook) {
	own := o.WebhookCertificate
	if own == nil {
		own = shared
	} else {
		group.Go(func() error { return own.Start(ctx) })
	}
	o.Registry.MustRegister(expiry{own})
	group.Go(func() error { return serve(ctx, o.WebhookListener, w.handler(), tlsConfig(own)) })
}

// certificate returns the certificate of CertFile, nil for none.
func (o Options) certificate() (Certificate, error) {
	if o.CertFile == "" {
		if o.WebhookListener != nil && o.WebhookCertificate == nil {
			return nil, errors.New("the webhook needs a certificate")
		}
		return nil, nil
	}
	watcher, err := certwatcher.New(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load the certificate: %w", err)
	}
	return watcher, nil
}

// tlsConfig returns nil for no certificate.
func tlsConfig(certificate Certificate) *tls.Config {
	if certificate == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.GetCertificate}
}

func serve(ctx context.Context, listener net.Listener, handler http.Handler, secured *tls.Config) error {
	log := logr.FromContextOrDiscard(ctx)
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytes,
		BaseContext:       func(net.Listener) context.Context { return logr.NewContext(context.WithoutCancel(ctx), log) },
	}
	if secured != nil {
		listener = tls.NewListener(listener, secured)
	}
	stopped := context.AfterFunc(ctx, func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		if err := server.Shutdown(bounded); err != nil {
			log.Error(err, "did not stop in time")
		}
	})
	defer stopped()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	}
	return nil
}
