package liveness_test

import (
	"testing"
	"time"
)

// An announcement excuses a silence. A node that answers is not silent: if it were left out of the
// population, two lost nodes of five would be two of two, and the guard against mass loss would
// hold their fences back.
func TestAnAnnouncedPauseTakesNoNodeThatAnswersOutOfThePopulation(t *testing.T) {
	w := newWorld(t)
	nodes := w.addProbed(5)
	for _, name := range nodes[:3] {
		w.announce(name, freezes("e", w.clock.Now()))
	}
	w.cut(nodes[3], nodes[4])
	both := func() bool { return w.monitor.Health(nodes[3]).Fence() && w.monitor.Health(nodes[4]).Fence() }
	if took, ended := w.pass(10*time.Second, both); !ended {
		t.Errorf("got %+v and %+v after %s, want that both fences may begin", w.monitor.Health(nodes[3]),
			w.monitor.Health(nodes[4]), took)
	}
}
