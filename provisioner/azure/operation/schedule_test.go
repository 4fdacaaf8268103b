package operation

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// pollsUntil returns how many polls an operation that ends at that age costs, and how long after its end it is noticed.
func pollsUntil(usual Span, end time.Duration) (polls int, late time.Duration) {
	for age := time.Duration(0); age < end; polls++ {
		age += usual.NextPoll(age, false)
		late = age - end
	}
	return polls, late
}

func TestTheEndOfAnAttachIsNoticedSoonWithFewPolls(t *testing.T) {
	usual := (&Times{}).Of(Attach)
	for _, end := range []time.Duration{20 * time.Millisecond, time.Second, 9800 * time.Millisecond, 11 * time.Second, 13 * time.Second, 16 * time.Second} {
		polls, late := pollsUntil(usual, end)
		if limit := max(end, 200*time.Millisecond); polls > 30 || late > limit || end > usual.From && late > 800*time.Millisecond {
			t.Errorf("an end after %v costs %d polls and is noticed %v late", end, polls, late)
		}
	}
	if polls, late := pollsUntil(usual, 13*time.Second); polls > 22 || late > 350*time.Millisecond {
		t.Errorf("a usual attach costs %d polls and is noticed %v late", polls, late)
	}
	if polls, late := pollsUntil(usual, time.Minute); polls > 55 || late > 5*time.Second {
		t.Errorf("an attach of a minute costs %d polls and is noticed %v late", polls, late)
	}
	if polls, late := pollsUntil((&Times{}).Of(ForceDetach), 13*time.Second); polls > 22 || late > 350*time.Millisecond {
		t.Errorf("a usual forced detach costs %d polls and is noticed %v late", polls, late)
	}
}

func TestWherePollsAreScarceTheFirstComesWhenTheEndIsLikely(t *testing.T) {
	if got := (Span{From: 10 * time.Second, To: 13 * time.Second}).NextPoll(100*time.Millisecond, true); got != 9900*time.Millisecond {
		t.Errorf("the first poll comes after %v more, want 9.9s", got)
	}
}

func TestPollsNeverStallAndNeverSpin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var h Times
		for range rapid.IntRange(0, 20).Draw(rt, "operations") {
			h.Learn(Attach, time.Duration(rapid.Int64Range(1, int64(5*time.Minute)).Draw(rt, "took")))
		}
		age := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(rt, "age"))
		wait := h.Of(Attach).NextPoll(age, false)
		if wait < 5*time.Millisecond || wait > max(5*time.Second, age) {
			rt.Fatalf("at the age %v, with a span of %v, the next poll comes after %v", age, h.Of(Attach), wait)
		}
	})
}

func TestUsualTimesFollowTheLatestOperations(t *testing.T) {
	var h Times
	for range 40 {
		h.Learn(Attach, 5*time.Second)
	}
	if got := h.Of(Attach); got.From < 4800*time.Millisecond || got.From > 5*time.Second || got.To < 5*time.Second || got.To > 5200*time.Millisecond {
		t.Errorf("after many attaches of 5 s the span is %v, want about 5 s", got)
	}
	if got := h.Of(Detach); got != (&Times{}).Of(Detach) {
		t.Errorf("the span of detaches is %v, want it unchanged by attaches", got)
	}
}

func TestOneOperationOfAMinuteDoesNotDelayThePollsOfTheNext(t *testing.T) {
	var h Times
	for range 3 {
		h.Learn(Detach, 11*time.Second)
		h.Learn(Detach, time.Minute)
		if _, late := pollsUntil(h.Of(Detach), 11*time.Second); late > 400*time.Millisecond {
			t.Errorf("with %v the next is noticed %v late", h.Of(Detach), late)
		}
		for range 4 {
			h.Learn(Detach, 12*time.Second)
		}
	}
}
