package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/azuredisk-csi/azuredisk/internal/config"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	drivermetrics "github.com/azuredisk-csi/azuredisk/internal/metrics"
	"github.com/azuredisk-csi/azuredisk/internal/version"
)

// registerBuild registers the metric that says which build a program is.
func registerBuild(registerer prometheus.Registerer) error {
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "azuredisk_build_info", Help: "1, with the version of the driver and of Go.",
	}, []string{"version", "goversion"})
	build.WithLabelValues(version.Version, runtime.Version()).Set(1)
	_, err := drivermetrics.Share(registerer, "the build", build)
	return err
}

// metricsOptions are those of the server of /metrics. If it is secure, it serves HTTPS, and only to
// clients that the API server authenticates and that may get the URL /metrics.
func metricsOptions(common *config.Common) metricsserver.Options {
	options := metricsserver.Options{BindAddress: common.MetricsAddress}
	if common.MetricsSecure {
		options.SecureServing = true
		options.FilterProvider = func(cfg *rest.Config, client *http.Client) (metricsserver.Filter, error) {
			return filters.WithAuthenticationAndAuthorization(kube.ForReviews(cfg), client)
		}
		options.CertDir = common.MetricsCertDir
		options.TLSOpts = []func(*tls.Config){restrictTLS}
	}
	return options
}

// handshakesPerSecond and handshakeBurst limit the TLS handshakes of /metrics. Prometheus keeps its
// connections.
const handshakesPerSecond, handshakeBurst = 10, 50

var errManyHandshakes = errors.New("too many TLS handshakes")

// restrictTLS limits what clients can make the server do before they are authenticated. A client of HTTP/2 can have it
// work for requests that it resets at once. A signature for each new connection of some hundred clients takes all the
// processors of the program.
func restrictTLS(c *tls.Config) {
	c.NextProtos = []string{"http/1.1"}
	handshakes := flowcontrol.NewTokenBucketRateLimiter(handshakesPerSecond, handshakeBurst)
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if !handshakes.TryAccept() {
			return nil, errManyHandshakes
		}
		return nil, nil //nolint:nilnil // no other configuration
	}
}

// newMetricsServer returns the server of /metrics for a program without a manager; nil if it is
// off.
func newMetricsServer(common *config.Common, cfg *rest.Config) (metricsserver.Server, error) {
	client := http.DefaultClient
	if common.MetricsSecure {
		var err error
		if client, err = rest.HTTPClientFor(cfg); err != nil {
			return nil, fmt.Errorf("make a client that asks the API server who may read metrics: %w", err)
		}
	}
	return metricsserver.NewServer(metricsOptions(common), cfg, client)
}
