package nodehealth_test

import (
	"fmt"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// check records which law of the detector is broken.
func (s *searched) check() {
	if s.outage && s.now.Sub(s.calm) > 3*time.Second {
		s.contact = time.Time{}
	}
	for i, name := range searchedNames {
		j, _ := s.detector.Health(name, s.now)
		if why := s.unjust(s.nodes[i], j); why != "" {
			s.fault = fmt.Sprintf("node %s: got %+v, and %s", name, j, why)
		}
		if why := s.overdue(i, j); why != "" {
			s.fault = fmt.Sprintf("node %s: got %+v, and %s", name, j, why)
		}
	}
	s.checkMass()
}

// checkMass checks that no more nodes may be fenced than the guard against mass loss allows: it counts
// the other nodes that died no later than the first of them, or whose connection must have ended. A
// node that probes do not reach keeps up an alarm, and then only the latter.
func (s *searched) checkMass() {
	fences, gone, all, first, hidden := 0, 0, len(s.nodes), s.now, false
	fenced := func(i int) bool {
		j, _ := s.detector.Health(searchedNames[i], s.now)
		return j.Fence() && j.State == nodehealth.Lost
	}
	for i, n := range s.nodes {
		hidden = hidden || n.everHidden
		if fenced(i) && n.since.Before(first) {
			first = n.since
		}
	}
	for i, n := range s.nodes {
		switch {
		case n.wasDown || n.announced && n.truth != well:
			all--
		case fenced(i):
			fences++
		case n.truth == dead && !n.everHidden &&
			(!hidden && !n.since.After(first) || s.now.Sub(n.since) > nodehealth.ConnectionTimeout):
			gone++
		}
	}
	if held, why := nodehealth.MassGuard(fences+gone, all, 45); held && fences > 0 {
		s.fault = fmt.Sprintf("%d nodes may be fenced, although %s", fences, why)
	}
}

// unjust returns why a node must not be fenced that may be.
func (s *searched) unjust(n searchedNode, j nodehealth.Judgement) string {
	since := func(t time.Time) time.Duration {
		if s.contact.After(t) {
			t = s.contact
		}
		return s.now.Sub(t)
	}
	stale := time.Duration(2.5 * float64(n.driver.Status.HeartbeatPeriodSeconds) * float64(time.Second))
	switch {
	case !j.Fence():
		return ""
	case j.State == nodehealth.Down && !n.down:
		return "Azure has not said since its last heartbeat that its VM is down"
	case j.State == nodehealth.Down:
		return ""
	case s.contact.IsZero():
		return "the API server does not answer"
	case since(n.beat) <= max(searchStale, stale) && (n.asked.IsZero() || since(n.asked) <= searchPatience):
		return "its heartbeat is not stale, and no request for one has gone without an answer for long"
	case n.failed < nodehealth.FailedProbes:
		return fmt.Sprintf("only %d probes have failed", n.failed)
	case !n.confirmed:
		return "the API server has not confirmed its silence"
	case n.announced && s.now.Sub(n.beat) < searchPause:
		return "its pause was announced"
	}
	return ""
}

// overdue returns why a node should have another judgement by now.
func (s *searched) overdue(i int, j nodehealth.Judgement) string {
	n := s.nodes[i]
	age := min(s.now.Sub(n.since), s.now.Sub(s.calm))
	if s.outage || age < bound || n.everHidden {
		return ""
	}
	if n.truth == well && j.State != nodehealth.Healthy {
		return "it sends heartbeats"
	}
	others := true
	for k, o := range s.nodes {
		others = others && (k == i || !o.everIll)
	}
	excused := n.announced && s.now.Sub(n.silent) < searchPause+bound
	if (n.truth == dead || n.truth == off) && others && !excused && !j.Fence() {
		return fmt.Sprintf("it has been dead for %s", s.now.Sub(n.since))
	}
	return ""
}

// count counts what the state shows.
func (s *searched) count(reached map[string]int) {
	for _, name := range searchedNames {
		j, _ := s.detector.Health(name, s.now)
		reached[string(j.State)]++
		for what, is := range map[string]bool{
			"fenced":             j.Fence() && j.State == nodehealth.Lost,
			"held back":          j.Guarded(),
			"paused":             j.Paused,
			"after a standstill": s.stoodStill && j.Fence(),
		} {
			if is {
				reached[what]++
			}
		}
	}
}
