package azure

import (
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

// firstGuess is how long an operation takes until it is known better.
func firstGuess(k kind) time.Duration {
	switch k {
	case kindAttach, kindDetach:
		return 11 * time.Second
	case kindForceDetach:
		return 8 * time.Second
	default:
		return 2 * time.Second
	}
}

// nextPoll is how long to wait before an operation of that age is polled again. Polls are
// rare while it is unlikely to have ended, dense around its usual duration, and rare again in the tail:
//
//	0   .1 .2  .4    .8         1.6 …       0.85·usual |||||||||| 1.5·usual |  |   |    |
//
// The doubling at the start finds the unusually quick ones. An attach of 11 s costs about 15 polls of
// a quota of 45 and 15 a minute.
func nextPoll(usual, age time.Duration) time.Duration {
	const first = 100 * time.Millisecond
	dense := min(max(usual*3/100, first/2), time.Second)
	window := usual * 85 / 100
	switch {
	case age < window:
		wait := max(age, min(first, max(usual/4, 5*time.Millisecond)))
		if age+wait > window {
			wait = max(window-age, dense)
		}
		return wait
	case age < usual*3/2:
		return dense
	default:
		return min(dense+(age-usual*3/2)/2, 5*time.Second)
	}
}

// habits remembers how long operations usually take.
type habits struct {
	mu    sync.Mutex
	usual map[kind]time.Duration
}

func (h *habits) of(k kind) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d, ok := h.usual[k]; ok {
		return d
	}
	return firstGuess(k)
}

// learn moves the usual duration a quarter of the way towards the one that was seen.
func (h *habits) learn(k kind, seen time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.usual == nil {
		h.usual = map[kind]time.Duration{}
	}
	before, ok := h.usual[k]
	if !ok {
		before = firstGuess(k)
	}
	h.usual[k] = before + (seen-before)/4
}
