package nodehealth

import (
	"strings"
	"time"
)

// LeaderIdentity is the identity under which a controller holds the leader's lease: its pod, the node that the pod runs on, and what makes it unique.
func LeaderIdentity(pod, node, unique string) string {
	if node == "" {
		return pod + "_" + unique
	}
	return pod + "_" + node + "_" + unique
}

// LeaderNode returns the node that an identity names; "" if it names none. Neither a pod's nor a node's name contains an underscore.
func LeaderNode(identity string) string {
	parts := strings.Split(identity, "_")
	if len(parts) != 3 {
		return ""
	}
	return parts[1]
}

// LeaderSigns are what a standby knows of the leader.
type LeaderSigns struct {
	// Judgement of the standby on the leader's node.
	Health Judgement
	// Unrenewed is for how long the standby has seen the lease without a change.
	Unrenewed time.Duration
	// RenewEvery is how often a leader renews its lease.
	RenewEvery time.Duration
}

// TakesLease says whether a standby takes the leader's lease before it expires. The leader's node is lost or down, and the leader has missed a renewal: a leader
// that renews its lease is alive whatever the verdict on its node, so a wrong verdict moves nothing. A verdict that is held back moves nothing either: more
// likely than its node the standby is cut off, or failover is switched off and there is no hurry.
func AcquiresLease(s LeaderSigns) bool {
	return s.Health.Fence() && s.Unrenewed >= s.RenewEvery*3/2
}
