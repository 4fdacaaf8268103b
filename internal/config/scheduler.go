package config

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Scheduler are the settings of `azuredisk scheduler`.
type Scheduler struct {
	Common
	// Address serves the scheduler's requests; "0" turns the extender off.
	Address string
	// TLSCertFile and TLSKeyFile turn on HTTPS.
	TLSCertFile string
	TLSKeyFile  string
	// WebhookAddress serves admission requests for pods; "0" turns the webhook off.
	WebhookAddress string
	// WebhookService is the Service of the webhook, as NAMESPACE/NAME. Its DNS name is in the
	// certificate.
	WebhookService string
	// WebhookSecret holds the webhook's certificate, in the namespace of the Service; "" with
	// TLSCertFile.
	WebhookSecret string
	// WebhookConfiguration is the MutatingWebhookConfiguration that trusts the certificate in
	// WebhookSecret.
	WebhookConfiguration string
	// ShutdownDelay is the time between saying not ready and stopping.
	ShutdownDelay time.Duration
	// LeaderElectionNamespace holds the lease; "" turns the election off.
	LeaderElectionNamespace string
	// LeaderElectionID is this process's name in the election; "" for the host's name.
	LeaderElectionID string
}

// AddFlags registers the settings with their defaults.
func (s *Scheduler) AddFlags(flags *pflag.FlagSet) {
	s.Common.AddFlags(flags)
	flags.StringVar(&s.Address, "address", ":29706",
		"`address` that serves /filter, /prioritize, /healthz and /readyz to the scheduler; 0 turns it off")
	flags.StringVar(&s.TLSCertFile, "tls-cert-file", "", "`path` of a certificate (PEM) for HTTPS; read again when it changes")
	flags.StringVar(&s.TLSKeyFile, "tls-key-file", "", "`path` of the certificate's key (PEM)")
	flags.StringVar(&s.WebhookAddress, "webhook-address", "0",
		"`address` that serves admission requests for pods, over HTTPS; 0 turns the webhook off")
	flags.StringVar(&s.WebhookService, "webhook-service", "",
		"`namespace/name` of the webhook's Service, whose DNS name is in its certificate")
	flags.StringVar(&s.WebhookSecret, "webhook-secret", "",
		"`name` of an existing Secret in the Service's namespace, in which the webhook's certificate is made and renewed; empty with --tls-cert-file")
	flags.StringVar(&s.WebhookConfiguration, "webhook-configuration", "",
		"`name` of the MutatingWebhookConfiguration that gets the authorities of the certificate in --webhook-secret")
	flags.DurationVar(&s.ShutdownDelay, "shutdown-delay", 5*time.Second,
		"how long to go on answering after saying not ready, before stopping")
	flags.StringVar(&s.LeaderElectionNamespace, "leader-election-namespace", "",
		"namespace of the lease that tells which replica is called active; empty for none (every replica answers in any case)")
	flags.StringVar(&s.LeaderElectionID, "leader-election-id", "",
		"name of this process in the election; empty for the host's name")
}

// Validate returns all faults.
func (s *Scheduler) Validate() error {
	return errors.Join(
		s.Common.Validate(),
		faultIf(s.Address == "", "address: must not be empty; 0 turns the extender off"),
		faultIf(s.Address == "0" && s.WebhookAddress == "0",
			"address, webhook-address: give at least one of them, because there is nothing to serve without both"),
		faultIf((s.TLSCertFile == "") != (s.TLSKeyFile == ""), "tls-cert-file, tls-key-file: give both or neither"),
		s.webhookFaults(),
		faultIf(s.ShutdownDelay < 0, "shutdown-delay: %s must not be negative", s.ShutdownDelay),
	)
}

func (s *Scheduler) webhookFaults() error {
	if s.WebhookAddress == "0" {
		return nil
	}
	namespace, name, _ := strings.Cut(s.WebhookService, "/")
	own := s.WebhookSecret != ""
	return errors.Join(
		faultIf(s.WebhookAddress == "", "webhook-address: must not be empty; 0 turns the webhook off"),
		faultIf(own && (namespace == "" || name == ""), "webhook-service: %q must be NAMESPACE/NAME", s.WebhookService),
		faultIf(own && s.WebhookConfiguration == "", "webhook-configuration: must not be empty with webhook-secret"),
		faultIf(own == (s.TLSCertFile != ""),
			"webhook-secret, tls-cert-file: the webhook needs a certificate from exactly one of them"),
	)
}
