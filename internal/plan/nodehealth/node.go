package nodehealth

import (
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// distrust is the number of contradictions, which are heartbeats that come while probes fail, after
// which probes are taken not to reach the node.
const distrust = 3

// node is the state of one node, the sum of the observations of it.
type node struct {
	name, vmID string
	// born distinguishes the node from an earlier one of the same name.
	born uint64
	// promise is the promised interval in seconds.
	promise int32
	// heartbeat is the node's own time in its last heartbeat; changed is when this process saw it
	// change.
	heartbeat, changed time.Time
	// beats counts heartbeats, so that an answer to a look from before the last heartbeat is ignored.
	beats uint64
	// doubted says that the node was not Healthy, and that no heartbeat came since.
	doubted bool
	// inherited says that this process has no judgement of its own yet, and that an earlier one has
	// published that the node is not Healthy. What is published stays until then.
	inherited bool
	// confirmed says that the API server itself still showed the last heartbeat when it was stale.
	confirmed bool
	// answered is when the node last answered a probe, or when the connection that was kept ended.
	answered time.Time
	// connected says that the last probe left a connection open, which has not ended.
	connected bool

	request request
	probe   probe
	azure   azure
	lease   lease
	confirm attempt
	stake   stake
	pauses  pauses

	// health is the judgement. next replaces it when all nodes have been judged.
	health, next Judgement
	// graceTold says that the caller knows that the grace period for its replicas is over.
	graceTold bool
}

// attempt is when a look was last begun; busy says that it has not ended.
type attempt struct {
	at   time.Time
	busy bool
}

type probe struct {
	attempt
	// works says that the node has answered this process or an earlier one, and that heartbeats
	// have not contradicted failures since. It is false in a process that does not probe.
	works bool
	// contradicted says that they did.
	contradicted bool
	// failures in a row since the last heartbeat.
	failures       int
	contradictions int
}

// request is the request for a heartbeat.
type request struct {
	attempt
	// possible says that the node promised to answer requests.
	possible bool
	// wanted says that a heartbeat is wanted although no probe failed.
	wanted bool
	// value is the time that the AzDriverNode shows; seen is when this process saw a request that
	// the node has not answered, zero for none.
	value, seen time.Time
}

// stake is the state of a lost node's volumes in the cache; none says that the node is failed over.
type stake struct {
	attempt
	none bool
}

type azure struct {
	attempt
	power provisioner.PowerState
	gone  bool
	// answered is when Azure last answered a question since the last heartbeat; zero for never. off
	// says that one of the answers was that the VM does not run.
	answered time.Time
	off      bool
	// recalled says that an earlier process has published the node as lost or down, and that there
	// is no answer of Azure yet.
	recalled bool
}

// answer records that Azure knows the VM in a power state, or knows no such VM.
func (a *azure) answer(power provisioner.PowerState, gone bool, now time.Time) {
	a.power, a.gone, a.answered, a.recalled = power, gone, now, false
	a.off = a.off || power != provisioner.PowerRunning
}

type lease struct {
	attempt
	renewed  time.Time // by the kubelet's clock
	changed  time.Time // by this process's clock
	duration time.Duration
}

// recall takes over what an earlier process has published about a node that this process has just
// begun to observe. The node is not taken for alive before its next heartbeat, which is requested.
func (n *node) recall(published Judgement) {
	if published.State == Unknown || published.State == Healthy {
		return
	}
	n.doubted, n.inherited, n.request.wanted = true, true, true
	n.health.State, n.health.Evidence = Suspect, "an earlier process has not seen it alive"
	n.azure.recalled = published.State.LostOrDown()
}

// beat records a heartbeat.
func (n *node) beat(now time.Time) {
	n.changed, n.doubted, n.confirmed, n.stake.none = now, false, false, false
	n.beats++
	n.request.seen, n.request.wanted = time.Time{}, false
	n.azure = azure{attempt: attempt{busy: n.azure.busy}}
	n.lease = lease{attempt: attempt{busy: n.lease.busy}}
	if n.probe.failures > 0 {
		n.probe.contradictions++
		if n.probe.works && n.probe.contradictions >= distrust {
			n.probe.works, n.probe.contradicted = false, true
		}
	}
	n.probe.failures = 0
}

// requested records that the API server shows a request for a heartbeat.
func (n *node) requested(now time.Time) {
	if n.request.seen.IsZero() {
		n.request.seen = now
	}
}

// lastSign is when the node last gave any sign of life.
func (n *node) lastSign(now time.Time) time.Time {
	switch {
	case n.connected:
		return now
	case n.answered.After(n.changed):
		return n.answered
	default:
		return n.changed
	}
}

// failing reports whether probes reach the node in general and the last one failed.
func (n *node) failing() bool { return n.probe.works && n.probe.failures > 0 }

// decided reports whether Azure or a failover has said the last word about a node with this health.
func (n *node) decided(j Judgement) bool {
	return LastWord{Off: n.azure.off, FailedOver: n.stake.none}.Said(j.State)
}

// mayWait reports whether an answer of Azure about the node can wait for the quota: what follows from
// it does not make the node's own fence begin sooner.
func (n *node) mayWait() bool { return n.health.State.LostOrDown() || n.azure.recalled }
