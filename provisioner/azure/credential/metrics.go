package credential

import (
	"crypto/x509"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics show which credentials are in use.
type metrics struct {
	reloads *prometheus.CounterVec
	pending prometheus.Gauge
	since   prometheus.Gauge
	// expiry has a series only if a certificate is used.
	expiry *prometheus.GaugeVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	register := promauto.With(registerer)
	return &metrics{
		reloads: register.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_azure_credential_reloads_total", Help: "Changed credentials by result: Taken or Refused.",
		}, []string{"result"}),
		pending: register.NewGauge(prometheus.GaugeOpts{
			Name: "azuredisk_azure_credential_refused",
			Help: "1 while the configured credentials cannot be used and the previous ones stay in use.",
		}),
		since: register.NewGauge(prometheus.GaugeOpts{
			Name: "azuredisk_azure_credential_loaded_timestamp_seconds", Help: "Time at which the credentials in use were taken.",
		}),
		expiry: register.NewGaugeVec(prometheus.GaugeOpts{
			Name: "azuredisk_azure_certificate_expiry_timestamp_seconds",
			Help: "Time at which the certificate in use expires.",
		}, nil),
	}
}

func (m *metrics) taken(now time.Time, certificate *x509.Certificate) {
	m.reloads.WithLabelValues("Taken").Inc()
	m.since.Set(float64(now.Unix()))
	m.expiry.Reset()
	if certificate != nil {
		m.expiry.WithLabelValues().Set(float64(certificate.NotAfter.Unix()))
	}
}
