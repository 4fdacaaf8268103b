package credential

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics tell which credentials are in use.
type metrics struct {
	reloads *prometheus.CounterVec
	pending prometheus.Gauge
	since   prometheus.Gauge
	expiry  prometheus.Gauge
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_azure_credential_reloads_total", Help: "Changed credentials by result: taken or refused.",
		}, []string{"result"}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "azuredisk_azure_credential_refused", Help: "1 while the configured credentials cannot be used and the previous ones stay in use.",
		}),
		since: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "azuredisk_azure_credential_loaded_timestamp_seconds", Help: "Time at which the credentials in use were taken.",
		}),
		expiry: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "azuredisk_azure_certificate_expiry_timestamp_seconds", Help: "Time at which the certificate in use expires; 0 if no certificate is used.",
		}),
	}
	if registerer == nil {
		return m, nil
	}
	var faults []error
	for _, c := range []prometheus.Collector{m.reloads, m.pending, m.since, m.expiry} {
		if err := registerer.Register(c); err != nil {
			faults = append(faults, fmt.Errorf("register metrics: %w", err))
		}
	}
	return m, errors.Join(faults...)
}

func (m *metrics) taken(now time.Time, certificate *x509.Certificate) {
	m.reloads.WithLabelValues("taken").Inc()
	m.since.Set(float64(now.Unix()))
	m.expiry.Set(0)
	if certificate != nil {
		m.expiry.Set(float64(certificate.NotAfter.Unix()))
	}
}
