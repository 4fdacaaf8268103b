package nodehealth

import (
	"fmt"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// FailedProbes is how many probes in a row must fail before they count.
const FailedProbes = 3

// Signs are the signs of life of one node.
type Signs struct {
	// SilentFrom is when the last sign of life was seen, or the clock was started again.
	SilentFrom time.Time
	// Silence is for how long after that the API server answered without a new heartbeat.
	Silence time.Duration
	// StaleAge is the age at which the heartbeat is stale; see SuspectAge.
	StaleAge time.Duration
	// Patience is how long the node may take to answer a request for a heartbeat.
	Patience time.Duration
	// Unanswered is for how long the API server has shown the node a request for a heartbeat, and
	// answered this process without a new heartbeat; 0 if there is no such request.
	Unanswered time.Duration
	// WasSuspect says that the node was not Healthy before, as this process judged it or an earlier
	// one has published, and that no heartbeat came since.
	WasSuspect bool
	// Contact says that the API server answers this process at present.
	Contact bool
	// Confirmed says that the API server itself, and not a cache, still showed the old heartbeat
	// when it was stale.
	Confirmed bool
	// ProbeWorks says that probes have reached this node before. ProbeFailures counts the probes in
	// a row that failed since the last heartbeat.
	ProbeWorks    bool
	ProbeFailures int
	// LeaseDuration of the kubelet's lease, and for how long it was not renewed; 0 if that is not
	// known.
	LeaseDuration, LeaseAge time.Duration
	// Power and VMGone are Azure's answer to a question since the last heartbeat; Power is "" if
	// there is none.
	Power  provisioner.PowerState
	VMGone bool
	// Pause says why an announced pause excuses the silence at present; "" if none does.
	Pause string
}

// Stopped reports whether Azure knows the VM, and says that it is stopped and not deallocated.
func (s Signs) Stopped() bool { return !s.VMGone && s.Power == provisioner.PowerStopped }

// Judge decides the state of a node. It is Lost only by two independent signals: a heartbeat that
// is stale or does not come on request, and failed probes or, if probes never reached the node, the
// kubelet's lease. If Azure says that the VM is down, no second signal is needed. While an announced
// pause excuses the silence, the node is Suspect.
func Judge(s Signs) (state State, evidence string) {
	down := s.VMGone || s.Power == provisioner.PowerStopped || s.Power == provisioner.PowerDeallocated
	ignored := s.Unanswered > s.Patience
	stale := s.Silence > s.StaleAge || ignored
	if !down && !s.WasSuspect && !stale {
		return Healthy, "the heartbeat is fresh"
	}
	since := "no heartbeat since " + s.SilentFrom.UTC().Format(time.RFC3339)
	if ignored {
		since += fmt.Sprintf(", also not within %s of a request for one", s.Patience)
	}
	switch {
	case s.VMGone:
		return Down, since + "; Azure knows no such VM"
	case down:
		return Down, since + "; Azure says that the VM is " + string(s.Power)
	case !s.Contact:
		return Suspect, since + "; the API server does not answer this controller"
	case s.Pause != "":
		return Suspect, since + "; " + s.Pause
	case !stale:
		return Suspect, since + "; this controller has only just begun to observe it again"
	}
	second, why := secondSignal(s)
	switch {
	case !second:
		return Suspect, since + "; " + why
	case !s.Confirmed:
		return Suspect, since + "; " + why + "; not yet confirmed by the API server"
	}
	return Lost, since + "; " + why
}

// secondSignal reports whether a stale heartbeat is confirmed by another sign, and why.
func secondSignal(s Signs) (second bool, why string) {
	switch {
	case s.ProbeWorks && s.ProbeFailures >= FailedProbes:
		return true, fmt.Sprintf("%d probes in a row failed", FailedProbes)
	case s.ProbeWorks && s.ProbeFailures > 0:
		return false, "a probe failed"
	case s.ProbeWorks:
		return false, "the node answers probes"
	case s.LeaseDuration > 0 && s.LeaseAge > s.LeaseDuration:
		return true, fmt.Sprintf("the kubelet has not renewed its lease for %s", s.LeaseDuration)
	case s.LeaseDuration > 0:
		return false, "probes never reached the node, and the kubelet's lease has not run out"
	default:
		return false, "probes never reached the node, and nothing is known of the kubelet's lease"
	}
}
