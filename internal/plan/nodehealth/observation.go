package nodehealth

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Observation is one thing that a process has observed of a node, or of the API server: an event, or
// the answer to a Look. Every Look gets exactly one answer.
type Observation interface {
	apply(d *Detector, now time.Time)
}

// Report is the state of an AzDriverNode. A heartbeat that differs from the last one is a sign of
// life, even if it is earlier by the node's clock: after a reboot that clock may show any time.
type Report struct{ *apiv1.AzDriverNode }

func (r Report) apply(d *Detector, now time.Time) {
	n, known := d.nodes[r.Name]
	if !known {
		n = d.add(r, now)
	}
	if d.config.Probes && !n.probe.contradicted {
		n.probe.works = n.probe.works || meta.IsStatusConditionTrue(r.Status.Conditions, apiv1.NodeConditionProbeable)
	}
	n.vmID, n.promise, n.request.possible = r.Spec.VMID, r.Status.HeartbeatPeriodSeconds, r.Status.HeartbeatOnRequest
	if n.pauses.followed = r.Status.Maintenance != nil; n.pauses.followed {
		d.announced(n, r.Status.Maintenance.Events, now)
	}
	value, beat := timeOf(r.Status.HeartbeatTime), false
	if known && !value.Equal(n.heartbeat) {
		beat = true
		d.beat(n, now)
	}
	n.heartbeat = value
	// The request of another process counts as well. One from before this process saw the node may
	// have been answered.
	if asked := timeOf(r.HeartbeatRequestedTime()); !asked.Equal(n.request.value) {
		n.request.value = asked
		if known && !beat {
			n.requested(now)
		}
	}
}

// add adds a node that was not known.
func (d *Detector) add(r Report, now time.Time) *node {
	d.born++
	n := &node{
		name:    r.Name,
		born:    d.born,
		changed: now,
		health: Judgement{
			State:      Healthy,
			Since:      now,
			SilentFrom: now,
			Evidence:   "this process has just begun to look",
		},
	}
	n.recall(PublishedJudgement(r.AzDriverNode))
	d.nodes[r.Name] = n
	return n
}

// beat records a heartbeat, after which the node is Healthy.
func (d *Detector) beat(n *node, now time.Time) {
	n.beat(now)
	if n.health.State != Healthy {
		d.set(n, d.judgement(n, now), now)
	}
}

func (d *Detector) announced(n *node, events []apiv1.MaintenanceEvent, now time.Time) {
	d.found.Announced = append(d.found.Announced, n.pauses.announce(events, now)...)
}

func timeOf(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// Removed says that the AzDriverNode of that name is gone.
type Removed string

func (name Removed) apply(d *Detector, _ time.Time) {
	delete(d.nodes, string(name))
	d.found.Changed = append(d.found.Changed, string(name))
}

// HeartbeatWanted has a heartbeat requested from the node of that name, if it answers requests.
type HeartbeatWanted string

func (name HeartbeatWanted) apply(d *Detector, _ time.Time) {
	if n := d.nodes[string(name)]; n != nil {
		n.request.wanted = true
	}
}

// ConnectionEnded says that the connection to a node that the last probe left open has ended. A probe
// is due then. If the node did not answer on it, that is a failed probe.
type ConnectionEnded struct {
	Node       string
	Unanswered bool
}

func (c ConnectionEnded) apply(d *Detector, now time.Time) {
	n := d.nodes[c.Node]
	if n == nil || !n.connected {
		return
	}
	n.connected, n.answered, n.probe.at = false, now, time.Time{}
	if c.Unanswered {
		n.probe.failures++
	}
}

// Pinged answers a LookPing.
type Pinged struct {
	Look
	// Answered says that the API server answered.
	Answered bool
}

func (p Pinged) apply(d *Detector, now time.Time) {
	d.looking[LookPing]--
	if p.Answered {
		d.contact = d.contact.answered(now)
	}
}

// Probed answers a LookProbe.
type Probed struct {
	Look
	// Answered says that the machine runs: it answered, or refused the connection.
	Answered bool
	// Unknown says that no probe could be made, so that this says nothing about the node.
	Unknown bool
	// Connected says that the probe has left a connection open, whose end is observed.
	Connected bool
}

func (p Probed) apply(d *Detector, now time.Time) {
	n, late := d.answered(p.Look)
	if n == nil {
		return
	}
	n.connected = p.Connected
	switch {
	case p.Unknown:
	case p.Answered:
		n.answered = now
		n.probe.works, n.probe.contradicted, n.probe.failures, n.probe.contradictions = true, false, 0, 0
	case !late:
		n.probe.failures++
	}
}

// HeartbeatRequested answers a LookRequest.
type HeartbeatRequested struct {
	Look
	// Written says that the API server has stored the request.
	Written bool
}

func (r HeartbeatRequested) apply(d *Detector, now time.Time) {
	if n, late := d.answered(r.Look); n != nil && !late && r.Written {
		n.requested(now)
	}
}

// PowerRead answers a LookQuestion or a LookReview.
type PowerRead struct {
	Look
	// Power is what Azure says about the VM; "" if it was not asked, or gave no answer. Gone says
	// that Azure knows no such VM.
	Power provisioner.PowerState
	Gone  bool
}

func (p PowerRead) apply(d *Detector, now time.Time) {
	n, late := d.answered(p.Look)
	if n != nil && !late && (p.Gone || p.Power != "" && p.Power != provisioner.PowerUnknown) {
		n.azure.answer(p.Power, p.Gone, now)
	}
}

// LeaseRead answers a LookLease. Whether the lease is renewed is judged by this process's clock.
type LeaseRead struct {
	Look
	// Missing says that there is no lease.
	Missing bool
	// Renewed and Duration are what the lease says; zero if it was not read.
	Renewed  time.Time
	Duration time.Duration
}

func (l LeaseRead) apply(d *Detector, now time.Time) {
	n, late := d.answered(l.Look)
	switch {
	case n == nil || late:
	case l.Missing:
		n.lease.duration = 0
	case !l.Renewed.IsZero():
		if n.lease.duration == 0 || !l.Renewed.Equal(n.lease.renewed) {
			n.lease.renewed, n.lease.changed = l.Renewed, now
		}
		n.lease.duration = l.Duration
	}
}

// StakeRead answers a LookStake.
type StakeRead struct {
	Look
	// Read says that the Node and the node's attachments could be read.
	Read bool
	// FailedOver is the result of FailedOver.
	FailedOver bool
}

func (s StakeRead) apply(d *Detector, _ time.Time) {
	if n, late := d.answered(s.Look); n != nil && !late && s.Read {
		n.stake.none = s.FailedOver
	}
}

// SilenceRead answers a LookSilence.
type SilenceRead struct {
	Look
	// Report is the AzDriverNode as the API server itself has it; nil if it could not be read.
	Report *apiv1.AzDriverNode
	// Announced are the events that the Node's condition names. They count if the node plug-in does
	// not follow the announcements.
	Announced []apiv1.MaintenanceEvent
}

func (s SilenceRead) apply(d *Detector, now time.Time) {
	n, _ := d.answered(s.Look)
	if n == nil || s.Report == nil {
		return
	}
	Report{s.Report}.apply(d, now)
	if !n.pauses.followed {
		d.announced(n, s.Announced, now)
	}
	if n.beats == s.beats {
		n.confirmed = true
	}
}
