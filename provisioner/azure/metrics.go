package azure

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the requests to Azure look like. Calls of the Provisioner Library are
// counted by package metered.
type metrics struct {
	requests *prometheus.HistogramVec
	waits    *prometheus.HistogramVec
	left     *prometheus.GaugeVec
	polls    *prometheus.CounterVec
	joined   prometheus.Histogram
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "azuredisk_azure_request_duration_seconds", Help: "Duration of HTTP requests to Azure by method, throttling policy and status.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"method", "policy", "status"}),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "azuredisk_azure_paced_seconds", Help: "How long requests were held back to stay within the quota.",
			Buckets: []float64{.5, 1, 2.5, 5, 10, 15, 30, 60, 120},
		}, []string{"policy"}),
		left: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "azuredisk_azure_quota_remaining", Help: "What the last answer said is left of a quota.",
		}, []string{"policy"}),
		polls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_azure_operation_polls_total", Help: "Polls of long-running operations.",
		}, []string{"operation"}),
		joined: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "azuredisk_azure_disks_per_vm_update", Help: "Disks that travelled together in one update of a VM.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64},
		}),
	}
	if registerer == nil {
		return m, nil
	}
	var faults []error
	for _, c := range []prometheus.Collector{m.requests, m.waits, m.left, m.polls, m.joined} {
		if err := registerer.Register(c); err != nil {
			faults = append(faults, fmt.Errorf("register metrics: %w", err))
		}
	}
	return m, errors.Join(faults...)
}

func (m *metrics) request(method string, p policyName, resp *http.Response, took time.Duration) {
	status := "none"
	if resp != nil {
		status = strconv.Itoa(resp.StatusCode)
	}
	m.requests.WithLabelValues(method, string(p), status).Observe(took.Seconds())
}

func (m *metrics) paced(p policyName, wait time.Duration) {
	m.waits.WithLabelValues(string(p)).Observe(wait.Seconds())
}

func (m *metrics) remaining(left []remaining, h http.Header) {
	for _, r := range left {
		m.left.WithLabelValues(r.policy).Set(r.left)
	}
	for _, name := range []string{"reads", "writes", "deletes"} {
		if n, err := strconv.ParseFloat(h.Get("x-ms-ratelimit-remaining-subscription-"+name), 64); err == nil {
			m.left.WithLabelValues("subscription-" + name).Set(n)
		}
	}
}
