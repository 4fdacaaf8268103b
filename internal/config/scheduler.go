package config

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// Scheduler are the settings of `azuredisk scheduler-extender`.
type Scheduler struct {
	Common
	// Address serves the scheduler's requests.
	Address string
	// TLSCertFile and TLSKeyFile turn on HTTPS.
	TLSCertFile string
	TLSKeyFile  string
	// MaxRequestBytes bounds the body of a request.
	MaxRequestBytes int64
	// StaleFactor is how many promised intervals a heartbeat may be missing.
	StaleFactor float64
	// StaleAfter is the least age at which a heartbeat is stale.
	StaleAfter time.Duration
	// HeartbeatInterval stands in where a node promises none.
	HeartbeatInterval time.Duration
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
	flags.StringVar(&s.Address, "address", ":29606", "`address` that serves /filter, /prioritize, /healthz and /readyz to the scheduler")
	flags.StringVar(&s.TLSCertFile, "tls-cert-file", "", "`path` of a certificate (PEM) for HTTPS; read again when it changes")
	flags.StringVar(&s.TLSKeyFile, "tls-key-file", "", "`path` of the certificate's key (PEM)")
	flags.Int64Var(&s.MaxRequestBytes, "max-request-bytes", 64<<20, "largest request body; a list of whole nodes takes about 10 KB for each")
	flags.Float64Var(&s.StaleFactor, "stale-factor", nodehealth.MissedIntervalsAlone, "a node is taken for lost when its heartbeat is missing for this many times the interval that it promised")
	flags.DurationVar(&s.StaleAfter, "heartbeat-stale-after", 10*time.Second, "least age at which a heartbeat is stale, however short the interval that the node promised")
	flags.DurationVar(&s.HeartbeatInterval, "default-heartbeat-interval", time.Minute, "interval for nodes that promise none")
	flags.DurationVar(&s.ShutdownDelay, "shutdown-delay", 5*time.Second, "how long to go on answering after saying not ready, before stopping")
	flags.StringVar(&s.LeaderElectionNamespace, "leader-election-namespace", "", "namespace of the lease that tells which replica is called active; empty for none (every replica answers in any case)")
	flags.StringVar(&s.LeaderElectionID, "leader-election-id", "", "name of this process in the election; empty for the host's name")
}

// Validate returns all faults.
func (s *Scheduler) Validate() error {
	return errors.Join(
		s.Common.Validate(),
		faultIf(s.Address == "", "address: must not be empty"),
		faultIf((s.TLSCertFile == "") != (s.TLSKeyFile == ""), "tls-cert-file, tls-key-file: give both or neither"),
		faultIf(s.MaxRequestBytes < 1<<10, "max-request-bytes: %d must be at least 1024", s.MaxRequestBytes),
		faultIf(s.StaleFactor < 1.5, "stale-factor: %v must be at least 1.5, or a heartbeat that is a little late makes its node look lost", s.StaleFactor),
		faultIf(s.HeartbeatInterval <= 0, "default-heartbeat-interval: %s must be above 0", s.HeartbeatInterval),
		faultIf(s.StaleAfter < 0, "heartbeat-stale-after: %s must not be negative", s.StaleAfter),
		faultIf(s.ShutdownDelay < 0, "shutdown-delay: %s must not be negative", s.ShutdownDelay),
	)
}
