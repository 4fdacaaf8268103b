package nodehealth

import "time"

// LeaderSigns are what a standby knows about the leader.
type LeaderSigns struct {
	// Health of the leader's node, as the standby judges it.
	Health Judgement
	// Unrenewed is how long the standby has seen no change of the lease.
	Unrenewed time.Duration
	// RenewEvery is how often a leader renews its lease.
	RenewEvery time.Duration
}

// AcquiresLease reports whether a standby acquires the leader's lease before it expires. The
// leader's node is lost or down, and the leader has missed a renewal: a leader that renews its
// lease runs whatever its node's health is said to be, so that a wrong judgement moves nothing. If
// the fence of the node is held back, the standby acquires nothing either: the standby is more
// likely to be cut off than the node, or failover is switched off.
func AcquiresLease(s LeaderSigns) bool {
	return s.Health.Fence() && s.Unrenewed >= s.RenewEvery*3/2
}
