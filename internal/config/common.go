package config

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Common are the settings that every subcommand of the driver has.
type Common struct {
	// File is the path of the configuration file.
	File string
	// Namespace of the custom resources.
	Namespace string
	// DriverName is the CSI driver's name.
	DriverName string
	// Kubeconfig is the path of a kubeconfig; "" inside a cluster.
	Kubeconfig string
	// KubeAPIQPS and KubeAPIBurst bound the calls to the API server.
	KubeAPIQPS   float32
	KubeAPIBurst int
	// LogLevel is debug, info, warn or error.
	LogLevel string
	// LogFormat is text or json.
	LogFormat string
	// MetricsAddress serves /metrics; "0" turns it off.
	MetricsAddress string
	// MetricsSecure serves them over HTTPS, to clients that the API server authorizes.
	MetricsSecure bool
	// MetricsCertDir holds tls.crt and tls.key for that; "" for a self-signed certificate.
	MetricsCertDir string
	// OTelTracing sends traces of the CSI calls.
	OTelTracing bool
	// HealthAddress serves /healthz and /readyz; "0" turns it off.
	HealthAddress string
}

// AddFlags registers the settings with their defaults.
func (c *Common) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.File, "config", "", "`path` of a YAML file with settings; its keys are the names of these flags")
	flags.StringVar(&c.Namespace, "driver-namespace", apiv1.DefaultNamespace, "namespace of the custom resources")
	flags.StringVar(&c.DriverName, "driver-name", DriverName, "name of the CSI driver")
	flags.StringVar(&c.Kubeconfig, "kubeconfig", "", "`path` of a kubeconfig; empty inside a cluster")
	flags.Float32Var(&c.KubeAPIQPS, "kube-api-qps", 100, "calls per second to the API server, sustained")
	flags.IntVar(&c.KubeAPIBurst, "kube-api-burst", 200, "calls to the API server in a burst")
	flags.StringVar(&c.LogLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&c.LogFormat, "log-format", "text", "text or json")
	flags.StringVar(&c.MetricsAddress, "metrics-address", "0", "`address` that serves /metrics; 0 turns it off")
	flags.BoolVar(&c.MetricsSecure, "metrics-secure", false,
		"serve /metrics over HTTPS, and only to clients that the API server authenticates and that may `get` the URL /metrics")
	flags.StringVar(&c.MetricsCertDir, "metrics-cert-dir", "",
		"`directory` with tls.crt and tls.key for --metrics-secure; read again when they change. Empty for a self-signed certificate")
	flags.BoolVar(&c.OTelTracing, "enable-otel-tracing", false,
		"send OpenTelemetry traces of the CSI calls to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names, by OTLP over gRPC")
	flags.StringVar(&c.HealthAddress, "health-address", "0", "`address` that serves /healthz and /readyz; 0 turns it off")
}

// Validate returns all faults.
func (c *Common) Validate() error {
	_, err := c.SlogLevel()
	return errors.Join(
		faultIf(c.Namespace == "", "driver-namespace: must not be empty"),
		faultIf(c.DriverName == "" || len(c.DriverName) > 63, "driver-name: %q must be 1 to 63 characters long", c.DriverName),
		faultIf(c.MetricsCertDir != "" && !c.MetricsSecure,
			"metrics-cert-dir: needs metrics-secure, because /metrics has no TLS without it"),
		faultIf(c.KubeAPIQPS <= 0, "kube-api-qps: %v must be above 0", c.KubeAPIQPS),
		faultIf(c.KubeAPIBurst < 1, "kube-api-burst: %d must be at least 1", c.KubeAPIBurst),
		err,
		faultIf(c.LogFormat != "text" && c.LogFormat != "json", "log-format: %q must be text or json", c.LogFormat),
	)
}

// faultIf returns a fault if a setting has it.
func faultIf(has bool, format string, args ...any) error {
	if !has {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// SlogLevel returns the log level.
func (c *Common) SlogLevel() (slog.Level, error) {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(level.String(), c.LogLevel) {
			return level, nil
		}
	}
	return 0, fmt.Errorf("log-level: %q must be debug, info, warn or error", c.LogLevel)
}
