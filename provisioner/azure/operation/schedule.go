package operation

import (
	"slices"
	"sync"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner/azure/pacing"
)

// Span is the ages at which operations of a kind usually end.
type Span struct {
	From, To time.Duration
	// Patient says that a few polls matter more than to notice the end at once.
	Patient bool
}

// firstGuess is how long operations of a kind take as long as none has been seen: the least, the
// usual and the most.
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
	// firstPoll is the earliest age at which an operation is polled, unless its kind is known to be
	// quicker.
	firstPoll = 100 * time.Millisecond
	// longestPause is the longest pause between two polls.
	longestPause = pacing.LongestBackoff
	// perDiskGuess is what each further disk may add to an update of a VM, as long as no update of
	// several has been seen.
	perDiskGuess = 200 * time.Millisecond
	// several is the number of disks from which on an update shows how long each further disk
	// takes. Fewer disks show how long an update of one takes.
	several = 4
)

// NextPoll is how long to wait before an operation of that age is polled again. Polls are rare at
// ages at which few operations end, dense at ages at which most do, and rare again in the tail:
//
//	0   .1 .2  .4    .8         1.6 …      from |||||||||||||||||| to |  |   |    |
//
// The pauses double at the start, which finds operations that are unusually quick; this is left out
// where polls are scarce. In the tail the pause is an eighth of the time by which the operation is
// late. An attach of 12 s costs about 15 polls, one of a minute about 45, of a quota of 45 and 15 a
// minute for each operation. A patient poller takes about four polls for the span and two before
// it.
func (usual Span) NextPoll(age time.Duration, scarce bool) time.Duration {
	dense, early := min(max((usual.From+usual.To)*3/200, firstPoll/2), time.Second), age
	if usual.Patient {
		dense, early = max(dense, min((usual.To-usual.From)/4, 3*time.Second)), 19*age
	}
	switch {
	case age < usual.From:
		wait := max(early, min(firstPoll, max(usual.From/4, 5*time.Millisecond)))
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

// Times remembers how long the latest operations of each kind took. The zero value is ready for
// use.
type Times struct {
	mu   sync.Mutex
	took map[Kind][]time.Duration // updates of a VM as if they were of one disk; the latest last
	// perDisk is what each further disk added to updates of several disks, whatever their kind; the
	// latest last.
	perDisk []time.Duration
}

// remembered is how many operations of a kind count.
const remembered = 9

// Of returns the span of a kind for a number of disks. An operation that takes minutes says nothing
// about the next one, so the longest is left out, and durations far from the median are cut. A pod
// waits for an attach; few wait for a detach.
func (t *Times) Of(k Kind, disks int) Span {
	t.mu.Lock()
	took := slices.Sorted(slices.Values(t.known(k)))
	least, most := t.further(disks)
	t.mu.Unlock()
	middle := median(took)
	if len(took) >= 5 {
		took = took[:len(took)-1]
	}
	return Span{
		From:    least + max(took[0]*97/100, middle*6/10),
		To:      most + min(took[len(took)-1]*103/100, middle*3/2),
		Patient: k == Detach,
	}
}

// median of durations in their order.
func median(sorted []time.Duration) time.Duration { return sorted[(len(sorted)-1)/2] }

// further is what the disks after the first add to an update, at the least and at the most. The
// caller holds mu.
func (t *Times) further(disks int) (least, most time.Duration) {
	n := time.Duration(max(disks-1, 0))
	if len(t.perDisk) == 0 {
		return 0, n * perDiskGuess
	}
	each := median(slices.Sorted(slices.Values(t.perDisk)))
	return n * each, n * each
}

// Learn remembers how long an operation on a number of disks took. The duration must not contain
// the delay until its end was noticed, or each delay would cause a longer one.
func (t *Times) Learn(k Kind, disks int, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if disks >= several {
		each := (took - median(slices.Sorted(slices.Values(t.known(k))))) / time.Duration(disks-1)
		t.perDisk = latest(append(t.perDisk, max(each, 0)))
		return
	}
	if t.took == nil {
		t.took = map[Kind][]time.Duration{}
	}
	_, further := t.further(disks)
	t.took[k] = latest(append(slices.Clone(t.known(k)), max(took-further, took/2)))
}

func latest(list []time.Duration) []time.Duration { return list[max(0, len(list)-remembered):] }

func (t *Times) known(k Kind) []time.Duration {
	if list, ok := t.took[k]; ok {
		return list
	}
	return firstGuess(k)
}
