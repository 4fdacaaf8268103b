package scenario

import (
	"context"
	"time"
)

// kubeletPeriod is how often a kubelet says which volumes it uses: its
// nodeStatusUpdateFrequency of 10 s by default, to which it adds up to 4 % at random.
const kubeletPeriod = 10200 * time.Millisecond

// spread says when moves are to begin so that those away from one node meet its
// kubelet at different points of its period, evenly spread over it. How long a move
// waits for that kubelet is otherwise luck, and so would be the median of a few moves.
type spread struct {
	// perNode is how many moves away from each node are expected.
	perNode int
	first   map[string]time.Time
	count   map[string]int
}

func newSpread(moves int) *spread {
	// The pod goes to and fro between two nodes.
	return &spread{perNode: (moves + 1) / 2, first: map[string]time.Time{}, count: map[string]int{}}
}

// next returns the first moment from now on at which a move away from the node is
// to begin.
func (s *spread) next(node string, now time.Time) time.Time {
	first, known := s.first[node]
	if !known {
		s.first[node] = now
		s.count[node] = 1
		return now
	}
	offset := kubeletPeriod * time.Duration(s.count[node]%s.perNode) / time.Duration(s.perNode)
	s.count[node]++
	at := first.Add(offset)
	if behind := now.Sub(at); behind > 0 {
		at = at.Add((behind + kubeletPeriod - 1) / kubeletPeriod * kubeletPeriod)
	}
	return at
}

// awaitTime blocks until that time.
func (e *Environment) awaitTime(ctx context.Context, at time.Time) error {
	select {
	case <-e.Clock.After(at.Sub(e.Clock.Now())):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
