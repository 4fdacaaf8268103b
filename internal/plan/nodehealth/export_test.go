package nodehealth

import (
	"maps"
	"slices"
	"time"
)

// Clone returns a copy that shares nothing that changes.
func (d *Detector) Clone() *Detector {
	c := *d
	c.nodes = make(map[string]*node, len(d.nodes))
	nodes := make([]node, 0, len(d.nodes))
	for name, n := range d.nodes {
		nodes = append(nodes, *n)
		copied := &nodes[len(nodes)-1]
		copied.pauses.excused = slices.Clone(n.pauses.excused)
		c.nodes[name] = copied
	}
	return &c
}

// Key appends what distinguishes the state from others for the next Steps of a search that is shorter
// than alarmFor: ages up to the longest that a rule of such a search compares, and the order of times
// that rules compare. No look may be under way.
func (d *Detector) Key(b []byte, now time.Time) []byte {
	// age is in quarters of a second, from 20 s in the future up to limit.
	age := func(limit time.Duration, times ...time.Time) {
		for _, t := range times {
			if t.IsZero() {
				b = append(b, 255)
			} else {
				b = append(b, byte((min(now.Sub(t), limit)+20*time.Second)/(250*time.Millisecond)))
			}
		}
	}
	is := func(facts ...bool) {
		for _, f := range facts {
			b = append(b, 0)
			if f {
				b[len(b)-1] = 1
			}
		}
	}
	age(retryEvery, d.contact.asked)
	age(contactLoss+time.Second, d.contact.last, d.contact.since)
	age(ConnectionTimeout, d.mass.alarm)
	age(0, d.mass.until, d.mass.closed)
	for _, name := range slices.Sorted(maps.Keys(d.nodes)) {
		n := d.nodes[name]
		age(SuspectAge(d.config.StaleAfter, 0)+time.Second, n.changed, n.request.seen)
		age(retryEvery, n.request.at, n.probe.at, n.confirm.at, n.stake.at)
		age(askLost, n.azure.at)
		if len(n.pauses.events) > 0 {
			age(10*time.Second, n.answered, n.pauses.excuse.SilentFrom, n.pauses.since)
			age(0, n.pauses.excuse.Until)
		}
		is(n.changed.Before(d.mass.alarm), n.probe.at.Before(d.mass.alarm), n.azure.at.Before(d.mass.closed),
			n.doubted, n.inherited, n.confirmed, n.connected, n.request.possible, n.request.wanted, n.probe.works,
			n.probe.contradicted, n.stake.none, n.azure.gone, n.azure.off, n.azure.recalled, n.pauses.followed, n.pauses.paused,
			n.pauses.excuse.Refused)
		b = append(b, byte(min(n.probe.failures, FailedProbes)), byte(n.probe.contradictions), byte(len(n.pauses.events)),
			byte(len(n.pauses.excused)))
		b = append(append(b, n.azure.power...), n.health.State...)
	}
	return b
}
