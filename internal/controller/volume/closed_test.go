package volume

import (
	"maps"
	"testing"
	"time"
)

func TestTheGraceBeginsWhenANodeIsSeenClosedAndEndsWhenItIsOpen(t *testing.T) {
	t.Parallel()
	var c closedNodes
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	for _, step := range []struct {
		volume string
		nodes  []string
		now    int64
		want   map[string]time.Time
	}{
		{"v", []string{"a"}, 1, map[string]time.Time{"a": at(1)}},
		{"w", []string{"a"}, 2, map[string]time.Time{"a": at(2)}},
		{"v", []string{"a", "b"}, 3, map[string]time.Time{"a": at(1), "b": at(3)}},
		{"v", []string{"b"}, 4, map[string]time.Time{"b": at(3)}},
		{"v", []string{"a", "b"}, 5, map[string]time.Time{"a": at(5), "b": at(3)}},
		{"v", nil, 6, nil},
		{"v", []string{"b"}, 7, map[string]time.Time{"b": at(7)}},
	} {
		if got := c.see(step.volume, step.nodes, at(step.now)); !maps.Equal(got, step.want) {
			t.Errorf("%s at %d: got %v, want %v", step.volume, step.now, got, step.want)
		}
	}
	c.see("v", nil, at(8))
	c.see("w", nil, at(8))
	if len(c.since) != 0 {
		t.Errorf("got %v after all nodes are open, want none", c.since)
	}
}
