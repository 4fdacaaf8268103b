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
	usual := (&Times{}).Of(Attach, 1)
	for _, end := range []time.Duration{20 * time.Millisecond, time.Second, 9800 * time.Millisecond, 11 * time.Second,
		13 * time.Second, 16 * time.Second} {
		polls, late := pollsUntil(usual, end)
		if limit := max(end, 200*time.Millisecond); polls > 30 || late > limit || end > usual.From &&
			late > 800*time.Millisecond {
			t.Errorf("an end after %v costs %d polls and is noticed %v late", end, polls, late)
		}
	}
	if polls, late := pollsUntil(usual, 13*time.Second); polls > 22 || late > 350*time.Millisecond {
		t.Errorf("a usual attach costs %d polls and is noticed %v late", polls, late)
	}
	if polls, late := pollsUntil(usual, time.Minute); polls > 55 || late > 5*time.Second {
		t.Errorf("an attach of a minute costs %d polls and is noticed %v late", polls, late)
	}
	if polls, late := pollsUntil((&Times{}).Of(ForceDetach, 1), 13*time.Second); polls > 22 || late > 350*time.Millisecond {
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
		var h Times
		for range rapid.IntRange(0, 20).Draw(rt, "operations") {
			h.Learn(Attach, 1, time.Duration(rapid.Int64Range(1, int64(5*time.Minute)).Draw(rt, "took")))
		}
		age := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(rt, "age"))
		wait := h.Of(Attach, 1).NextPoll(age, false)
		if wait < 5*time.Millisecond || wait > max(5*time.Second, age) {
			rt.Fatalf("at the age %v, with a span of %v, the next poll comes after %v", age, h.Of(Attach, 1), wait)
		}
	})
}

func TestUsualTimesFollowTheLatestOperations(t *testing.T) {
	var h Times
	for range 40 {
		h.Learn(Attach, 1, 5*time.Second)
	}
	if got := h.Of(Attach, 1); got.From < 4800*time.Millisecond || got.From > 5*time.Second || got.To < 5*time.Second ||
		got.To > 5200*time.Millisecond {
		t.Errorf("after many attaches of 5 s the span is %v, want about 5 s", got)
	}
	if got := h.Of(Detach, 1); got != (&Times{}).Of(Detach, 1) {
		t.Errorf("the span of detaches is %v, want it unchanged by attaches", got)
	}
}

func TestOneOperationOfAMinuteDoesNotDelayThePollsOfTheNext(t *testing.T) {
	var h Times
	for range 3 {
		h.Learn(Attach, 1, 11*time.Second)
		h.Learn(Attach, 1, time.Minute)
		if _, late := pollsUntil(h.Of(Attach, 1), 11*time.Second); late > 400*time.Millisecond {
			t.Errorf("with %v the next is noticed %v late", h.Of(Attach, 1), late)
		}
		for range 4 {
			h.Learn(Attach, 1, 12*time.Second)
		}
	}
}

func TestUpdatesOfSeveralDisksTakeLonger(t *testing.T) {
	var h Times
	if got, one := h.Of(Attach, 40), h.Of(Attach, 1); got.From != one.From || got.To-one.To != 39*perDiskGuess {
		t.Errorf("before any update the span of 40 disks is %v, and of one %v; want the same start, and 39 times %v between the ends", got, one, perDiskGuess)
	}
	const one, each = 6 * time.Second, 50 * time.Millisecond
	for range remembered {
		h.Learn(Attach, 1, one)
		h.Learn(Detach, 1, one)
	}
	for range remembered {
		h.Learn(Attach, 40, one+39*each)
	}
	for k, want := range map[Kind]time.Duration{Attach: one + 19*each, Detach: one + 19*each} {
		if got := h.Of(k, 20); got.From > want || got.To < want || got.To-got.From > time.Second {
			t.Errorf("the span of a %s of 20 disks is %v, want one about %v", k, got, want)
		}
	}
	if got := h.Of(Attach, 1); got.From > one || got.To < one {
		t.Errorf("the span of one disk is %v after updates of 40, want one about %v", got, one)
	}
}

func TestTheEndOfADetachIsNoticedWithVeryFewPolls(t *testing.T) {
	for _, disks := range []int{1, 20, 40} {
		end := 11500*time.Millisecond + time.Duration(disks-1)*perDiskGuess
		var h Times
		h.Learn(Attach, 40, 11500*time.Millisecond+39*perDiskGuess) // they were attached before
		if polls, late := pollsUntil(h.Of(Detach, disks), end); polls > 5 || late > 800*time.Millisecond {
			t.Errorf("a detach of %d disks costs %d polls and is noticed %v late, want at most 5 polls and 800 ms", disks, polls,
				late)
		}
	}
	if _, late := pollsUntil((&Times{}).Of(Detach, 40), time.Second); late > 1100*time.Millisecond {
		t.Errorf("a detach of a second is noticed %v late", late)
	}
}
