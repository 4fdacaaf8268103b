package operation

import (
	"slices"
	"sync"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner/azure/pacing"
)

// Span is the ages at which operations of a kind usually end.
type Span struct{ From, To time.Duration }

// firstGuess is how long operations of a kind take as long as none has been seen: the least, the usual and the most.
func firstGuess(k Kind) []time.Duration {
	switch k {
	case Attach, Detach:
		return []time.Duration{10 * time.Second, 11500 * time.Millisecond, 13 * time.Second}
	case ForceDetach:
		return []time.Duration{10 * time.Second, 13 * time.Second, 14 * time.Second}
	default:
		return []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}
	}
}

const (
	// firstPoll is the earliest age at which an operation is polled, unless its kind is known to be quicker.
	firstPoll = 100 * time.Millisecond
	// longestPause is the longest pause between two polls.
	longestPause = pacing.LongestBackoff
)

// NextPoll is how long to wait before an operation of that age is polled again. Polls are rare at ages at which few operations end, dense at ages at
// which most do, and rare again in the tail:
//
//	0   .1 .2  .4    .8         1.6 …      from |||||||||||||||||| to |  |   |    |
//
// The pauses double at the start, which finds operations that are unusually quick; this is left out where polls are scarce. In the tail the pause is an
// eighth of the time by which the operation is late. An attach of 12 s costs about 15 polls, one of a minute about 45, of a quota
// of 45 and 15 a minute for each operation.
func (usual Span) NextPoll(age time.Duration, scarce bool) time.Duration {
	dense := min(max((usual.From+usual.To)*3/200, firstPoll/2), time.Second)
	switch {
	case age < usual.From:
		wait := max(age, min(firstPoll, max(usual.From/4, 5*time.Millisecond)))
		if scarce || age+wait > usual.From {
			wait = max(usual.From-age, dense)
		}
		return wait
	case age < usual.To:
		return dense
	default:
		return min(dense+(age-usual.To)/8, longestPause)
	}
}

// Times remembers how long the latest operations of each kind took. The zero value is ready for use.
type Times struct {
	mu   sync.Mutex
	took map[Kind][]time.Duration // the latest last
}

// remembered is how many operations of a kind count.
const remembered = 9

// Of returns the span of a kind. An operation that takes minutes says nothing about the next one, so the longest is left out, and durations far from
// the median are cut.
func (t *Times) Of(k Kind) Span {
	t.mu.Lock()
	took := slices.Sorted(slices.Values(t.known(k)))
	t.mu.Unlock()
	median := took[(len(took)-1)/2]
	if len(took) >= 5 {
		took = took[:len(took)-1]
	}
	return Span{
		From: max(took[0]*97/100, median*6/10),
		To:   min(took[len(took)-1]*103/100, median*3/2),
	}
}

// Learn remembers how long an operation took. The duration must not contain the delay until its end was noticed, or each delay would cause a longer one.
func (t *Times) Learn(k Kind, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.took == nil {
		t.took = map[Kind][]time.Duration{}
	}
	list := append(slices.Clone(t.known(k)), took)
	t.took[k] = list[max(0, len(list)-remembered):]
}

func (t *Times) known(k Kind) []time.Duration {
	if list, ok := t.took[k]; ok {
		return list
	}
	return firstGuess(k)
}
