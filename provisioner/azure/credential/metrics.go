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
	expiry  prometheus.Gauge
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	register := promauto.With(registerer)
	return &metrics{
		reloads: register.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_azure_credential_reloads_total", Help: "Changed credentials by result: taken or refused.",
		}, []string{"result"}),
		pending: register.NewGauge(prometheus.GaugeOpts{
			Name: "azuredisk_azure_credential_refused",
			Help: "1 while the configured credentials cannot be used and the previous ones stay in use.",
		}),
		since: register.NewGauge(prometheus.GaugeOpts{
			Name: "azuredisk_azure_credential_loaded_timestamp_seconds", Help: "Time at which the credentials in use were taken.",
		}),
		expiry: register.NewGauge(prometheus.GaugeOpts{
			Name: "azuredisk_azure_certificate_expiry_timestamp_seconds",
			Help: "Time at which the certificate in use expires; 0 if no certificate is used.",
		}),
	}
}

func (m *metrics) taken(now time.Time, certificate *x509.Certificate) {
	m.reloads.WithLabelValues("taken").Inc()
	m.since.Set(float64(now.Unix()))
	m.expiry.Set(0)
	if certificate != nil {
		m.expiry.Set(float64(certificate.NotAfter.Unix()))
	}
}
