package main

import (
	"crypto/tls"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/config"
)

// metricsOptions are those of the server of /metrics. If it is secure, it serves HTTPS, and only to
// clients that the API server authenticates and that may get the URL /metrics.
func metricsOptions(common *config.Common) metricsserver.Options {
	options := metricsserver.Options{BindAddress: common.MetricsAddress}
	if common.MetricsSecure {
		options.SecureServing = true
		options.FilterProvider = func(kube *rest.Config, client *http.Client) (metricsserver.Filter, error) {
			return filters.WithAuthenticationAndAuthorization(cluster.ForReviews(kube), client)
		}
		options.CertDir = common.MetricsCertDir
		// A client of HTTP/2 can make the server work for requests that it resets at once, before
		// it is authenticated.
		options.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }}
	}
	return options
}

// newMetricsServer returns the server of /metrics for a program without a manager; nil if it is
// off.
func newMetricsServer(common *config.Common, kube *rest.Config) (metricsserver.Server, error) {
	client := http.DefaultClient
	if common.MetricsSecure {
		var err error
		if client, err = rest.HTTPClientFor(kube); err != nil {
			return nil, fmt.Errorf("make a client that asks the API server who may read metrics: %w", err)
		}
	}
	return metricsserver.NewServer(metricsOptions(common), kube, client)
}
