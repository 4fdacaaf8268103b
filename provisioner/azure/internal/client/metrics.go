package client

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/pacing"
)

// metrics count the requests to Azure.
type metrics struct {
	requests *prometheus.HistogramVec
	waits    *prometheus.HistogramVec
	left     *prometheus.GaugeVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	register := promauto.With(registerer)
	return &metrics{
		requests: register.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "azuredisk_azure_request_duration_seconds",
			Help:    "Duration of HTTP requests to Azure by method, throttling policy and status.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"method", "policy", "status"}),
		waits: register.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "azuredisk_azure_pacing_duration_seconds",
			Help:    "How long requests were held back to stay within the quota.",
			Buckets: []float64{.5, 1, 2.5, 5, 10, 15, 30, 60, 120},
		}, []string{"policy"}),
		left: register.NewGaugeVec(prometheus.GaugeOpts{
			Name: "azuredisk_azure_quota_remaining", Help: "What the last answer said is left of a quota.",
		}, []string{"policy"}),
	}
}

func (m *metrics) request(method string, p pacing.Policy, resp *http.Response, took time.Duration) {
	status := "None"
	if resp != nil {
		status = strconv.Itoa(resp.StatusCode)
	}
	m.requests.WithLabelValues(method, string(p), status).Observe(took.Seconds())
}

func (m *metrics) paced(p pacing.Policy, wait time.Duration) {
	m.waits.WithLabelValues(string(p)).Observe(wait.Seconds())
}

func (m *metrics) remaining(left []pacing.Remaining) {
	for _, r := range left {
		m.left.WithLabelValues(r.Policy).Set(r.Left)
	}
}
