package nodehealth_test

import (
	"math"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// Law 7: a node must not promise an interval that is so long that its loss is never noticed, or
// that the sum overflows and a fresh heartbeat is late.
func TestAPromiseIsBelievedUpToALimit(t *testing.T) {
	t.Parallel()
	for promised, want := range map[int32]time.Duration{
		-1:            0,
		0:             0,
		30:            30 * time.Second,
		301:           nodehealth.LongestPromise,
		math.MaxInt32: nodehealth.LongestPromise,
	} {
		if got := nodehealth.Promise(promised); got != want {
			t.Errorf("got %s for %d s, want %s", got, promised, want)
		}
	}
	if got, want := nodehealth.SuspectAge(6*time.Second, math.MaxInt32), 5*nodehealth.LongestPromise/2; got != want {
		t.Errorf("got patience %s, want %s", got, want)
	}
}

func TestSuspectAgeFollowsThePromise(t *testing.T) {
	for name, c := range map[string]struct {
		promised       int32
		patience, late time.Duration
	}{
		"a fast promise":                {2, 6 * time.Second, 3 * time.Second},
		"a faster one, with the least":  {1, 6 * time.Second, 1500 * time.Millisecond},
		"a slow promise":                {30, 75 * time.Second, 45 * time.Second},
		"no promise, with half of that": {0, 6 * time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if p, l := nodehealth.SuspectAge(6*time.Second, c.promised), nodehealth.Lateness(6*time.Second,
				c.promised); p != c.patience || l != c.late {
				t.Errorf("got patience %s, lateness %s; want %s, %s", p, l, c.patience, c.late)
			}
		})
	}
}
