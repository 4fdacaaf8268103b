package operation

import (
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/pacing"
)

// Span is the ages at which operations of a kind usually end.
type Span struct {
	From, To time.Duration
	// Patient says that a few polls matter more than to notice the end at once.
	Patient bool
	// Early says that many operations end long before From.
	Early bool
}

const (
	// firstPoll is the earliest age at which an operation is polled.
	firstPoll = 100 * time.Millisecond
	// longestPause is the longest pause between two polls.
	longestPause = pacing.LongestBackoff
	// perDisk is what each further disk may add to an update of a VM.
	perDisk = 200 * time.Millisecond
)

// Usual is how long operations of a kind on a number of disks take. A pod waits for an attach, so
// that it is polled from the age at which one of a single disk ends; few wait for a detach.
//
// Recorded attaches took 6 to 12 s, with a tail, and detaches 15.6 to 17.2 s. A forced detach from a
// VM that runs took half a second; how long one from a host that does not answer takes is not
// recorded.
func Usual(k Kind, disks int) Span {
	further := time.Duration(max(disks-1, 0)) * perDisk
	switch k {
	case Attach:
		return Span{From: 6 * time.Second, To: 12*time.Second + further}
	case Detach:
		return Span{
			From:    15*time.Second + further,
			To:      17500*time.Millisecond + further,
			Patient: true,
		}
	case ForceDetach:
		return Span{
			From:  10 * time.Second,
			To:    14*time.Second + further,
			Early: true,
		}
	default:
		return Span{
			From:  time.Second,
			To:    3 * time.Second,
			Early: true,
		}
	}
}

// Slower is the span of operations that end when both of two parts have ended. It is patient only if
// both are.
func (usual Span) Slower(other Span) Span {
	return Span{
		From:    max(usual.From, other.From),
		To:      max(usual.To, other.To),
		Patient: usual.Patient && other.Patient,
		Early:   usual.Early && other.Early,
	}
}

// NextPoll is how long to wait before an operation of that age is polled again. Polls are rare at
// ages at which few operations end, dense at ages at which most do, and rare again in the tail:
//
//	0   .1 .2  .4    .8         1.6 …      from |||||||||||||||||| to |  |   |    |
//
// The pauses double at the start, which finds operations that are unusually quick; this is left out
// where polls are scarce. In the tail the pause is an eighth of the time by which the operation is
// late. An attach of 9 s costs about 15 polls, one of a minute about 45, of a quota of 45 and 15 a
// minute for each operation. A patient poller takes about four polls for the span and two before
// it.
func (usual Span) NextPoll(age time.Duration, scarce bool) time.Duration {
	dense, early := min(max((usual.From+usual.To)*3/200, (usual.To-usual.From)/15, firstPoll/2), time.Second), age
	if usual.Patient {
		dense, early = max(dense, min((usual.To-usual.From)/4, 3*time.Second)), 19*age
	}
	switch {
	case age < usual.From:
		wait := max(early, firstPoll)
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
