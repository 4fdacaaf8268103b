package nodehealth

import "time"

// AskAfter is for how long a node has been lost when Azure is asked about it although the failover
// takes no volume from it.
const AskAfter = time.Minute

// askIdle is how often Azure is asked about a node from which the failover takes no volume, once it
// has answered.
const askIdle = 5 * time.Minute

// Question decides whether Azure is asked about the VM of a silent node.
type Question struct {
	// State of the node, and for how long this process has seen no sign of life of it.
	State  State
	NoSign time.Duration
	// Primary says that a volume may have to be released from the node.
	Primary bool
	// Recalled says that an earlier process has published the node as lost or down, and that Azure
	// has not answered this process yet.
	Recalled bool
	// Doubted says that the guard holds fences back and counts the node.
	Doubted bool
	// Answered is how long ago Azure answered the last question since the last heartbeat; negative
	// if it has not.
	Answered time.Duration
}

// Due reports whether to ask. A node without a primary is asked about because of the others: a node
// that is switched off must not keep the guard closed.
func (q Question) Due() bool {
	switch {
	case q.Primary, q.Recalled, q.Doubted:
		return true
	case !q.State.LostOrDown() || q.NoSign < AskAfter:
		return false
	default:
		return q.Answered < 0 || q.Answered >= askIdle
	}
}
