package azure

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// credentialMetrics tell of the credentials.
type credentialMetrics struct {
	reloads *prometheus.CounterVec
	pending prometheus.Gauge
	since   prometheus.Gauge
	expiry  prometheus.Gauge
}

func newCredentialMetrics(registerer prometheus.Registerer) (*credentialMetrics, error) {
	m := &credentialMetrics{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_azure_credential_reloads_total", Help: "Readings of changed credentials by what became of them: taken or refused.",
		}, []string{"result"}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "azuredisk_azure_credential_refused", Help: "1 while the credentials that are configured cannot be used and those of before go on.",
		}),
		since: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "azuredisk_azure_credential_loaded_timestamp_seconds", Help: "When the credentials in use were taken up.",
		}),
		expiry: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "azuredisk_azure_certificate_expiry_timestamp_seconds", Help: "When the certificate in use expires; 0 where no certificate is used.",
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

func (m *credentialMetrics) taken(now time.Time, certificate *x509.Certificate) {
	m.reloads.WithLabelValues("taken").Inc()
	m.since.Set(float64(now.Unix()))
	m.expiry.Set(0)
	if certificate != nil {
		m.expiry.Set(float64(certificate.NotAfter.Unix()))
	}
}
