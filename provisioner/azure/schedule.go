package azure

import (
	"slices"
	"sync"
	"time"
)

// kind is a sort of long-running operation.
type kind string

const (
	kindCreateDisk     kind = "create-disk"
	kindUpdateDisk     kind = "update-disk"
	kindDeleteDisk     kind = "delete-disk"
	kindCreateSnapshot kind = "create-snapshot"
	kindDeleteSnapshot kind = "delete-snapshot"
	kindAttach         kind = "attach"
	kindDetach         kind = "detach"
	kindForceDetach    kind = "force-detach"
)

// span is the ages at which operations of a kind usually end.
type span struct{ from, to time.Duration }

// firstGuess is what operations are expected to take until it is known better: the least, the usual and the most.
func firstGuess(k kind) []time.Duration {
	switch k {
	case kindAttach, kindDetach:
		return []time.Duration{10 * time.Second, 11500 * time.Millisecond, 13 * time.Second}
	case kindForceDetach:
		return []time.Duration{10 * time.Second, 13 * time.Second, 14 * time.Second}
	default:
		return []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}
	}
}

const (
	// firstPoll is how soon an operation is polled at the earliest, if it is not known to be quicker.
	firstPoll = 100 * time.Millisecond
	// lastPoll is the longest pause between two polls.
	lastPoll = 5 * time.Second
)

// nextPoll is how long to wait before an operation of that age is polled again. Polls are
// rare while it is unlikely to have ended, dense while most do, and rare again in the tail:
//
//	0   .1 .2  .4    .8         1.6 …      from |||||||||||||||||| to |  |   |    |
//
// The doubling at the start finds the unusually quick ones; it is left out where polls are scarce. In the tail the pause is an
// eighth of what the operation is late by. An attach of 12 s costs about 15 polls, one of a minute about 45, of a quota
// of 45 and 15 a minute for each operation.
func nextPoll(usual span, age time.Duration, scarce bool) time.Duration {
	dense := min(max((usual.from+usual.to)*3/200, firstPoll/2), time.Second)
	switch {
	case age < usual.from:
		wait := max(age, min(firstPoll, max(usual.from/4, 5*time.Millisecond)))
		if scarce || age+wait > usual.from {
			wait = max(usual.from-age, dense)
		}
		return wait
	case age < usual.to:
		return dense
	default:
		return min(dense+(age-usual.to)/8, lastPoll)
	}
}

// habits remembers how long the latest operations took.
type habits struct {
	mu   sync.Mutex
	took map[kind][]time.Duration // the latest last
}

// remembered is how many operations of a kind count.
const remembered = 9

// of returns the span of a kind. Some operations take minutes now and then, and say nothing about the next one: the
// longest does not count, and what is far from the median doesn't either.
func (h *habits) of(k kind) span {
	h.mu.Lock()
	took := slices.Sorted(slices.Values(h.known(k)))
	h.mu.Unlock()
	median := took[(len(took)-1)/2]
	if len(took) >= 5 {
		took = took[:len(took)-1]
	}
	return span{
		from: max(took[0]*97/100, median*6/10),
		to:   min(took[len(took)-1]*103/100, median*3/2),
	}
}

// learn remembers how long an operation took. That must not contain how late its end was noticed, or lateness would breed lateness.
func (h *habits) learn(k kind, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.took == nil {
		h.took = map[kind][]time.Duration{}
	}
	list := append(slices.Clone(h.known(k)), took)
	h.took[k] = list[max(0, len(list)-remembered):]
}

func (h *habits) known(k kind) []time.Duration {
	if list, ok := h.took[k]; ok {
		return list
	}
	return firstGuess(k)
}
