package operation

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// pollsUntil returns how many polls an operation that ends at that age costs, and how long after
// its end it is noticed.
func pollsUntil(usual Span, end time.Duration) (polls int, late time.Duration) {
	for age := time.Duration(0); age < end; polls++ {
		age += usual.NextPoll(age, false)
		late = age - end
	}
	return polls, late
}

func TestTheEndOfAnAttachIsNoticedSoonWithFewPolls(t *testing.T) {
	usual := Usual(Attach, 1)
	for _, end := range []time.Duration{20 * time.Millisecond, time.Second, 9800 * time.Millisecond, 11 * time.Second,
		13 * time.Second, 16 * time.Second} {
		polls, late := pollsUntil(usual, end)
		if limit := max(end, 200*time.Millisecond); polls > 30 || late > limit || end > usual.From &&
			late > 800*time.Millisecond {
			t.Errorf("an end after %v costs %d polls and is noticed %v late", end, polls, late)
		}
	}
	if polls, late := pollsUntil(usual, 9*time.Second); polls > 17 || late > 400*time.Millisecond {
		t.Errorf("a usual attach costs %d polls and is noticed %v late", polls, late)
	}
	if polls, late := pollsUntil(usual, time.Minute); polls > 55 || late > 5*time.Second {
		t.Errorf("an attach of a minute costs %d polls and is noticed %v late", polls, late)
	}
	if polls, late := pollsUntil(Usual(ForceDetach, 1), 13*time.Second); polls > 22 || late > 350*time.Millisecond {
		t.Errorf("a usual forced detach costs %d polls and is noticed %v late", polls, late)
	}
}

func TestWherePollsAreScarceTheFirstComesWhenTheEndIsLikely(t *testing.T) {
	if got := (Span{
		From: 10 * time.Second,
		To:   13 * time.Second,
	}).NextPoll(100*time.Millisecond, true); got != 9900*time.Millisecond {
		t.Errorf("the first poll comes after %v more, want 9.9s", got)
	}
}

func TestPollsNeverStallAndNeverSpin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		usual := Usual(rapid.SampledFrom([]Kind{Attach, Detach, ForceDetach, CreateDisk}).Draw(rt, "kind"),
			rapid.IntRange(1, 64).Draw(rt, "disks"))
		age := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(rt, "age"))
		wait := usual.NextPoll(age, false)
		if wait < 50*time.Millisecond || wait > max(5*time.Second, 20*age) {
			rt.Fatalf("at the age %v, with a span of %v, the next poll comes after %v", age, usual, wait)
		}
	})
}

func TestTheEndOfADetachIsNoticedWithVeryFewPolls(t *testing.T) {
	for _, disks := range []int{1, 20, 40} {
		end := 16500*time.Millisecond + time.Duration(disks-1)*perDisk
		if polls, late := pollsUntil(Usual(Detach, disks), end); polls > 6 || late > 800*time.Millisecond {
			t.Errorf("a detach of %d disks costs %d polls and is noticed %v late, want at most 6 polls and 800 ms", disks, polls,
				late)
		}
	}
	if _, late := pollsUntil(Usual(Detach, 40), time.Second); late > 1100*time.Millisecond {
		t.Errorf("a detach of a second is noticed %v late", late)
	}
}
