package azure

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// pollsUntil returns how many polls an operation that ends at that age costs, and how long after its end it is noticed.
func pollsUntil(usual span, end time.Duration) (polls int, late time.Duration) {
	for age := time.Duration(0); age < end; polls++ {
		age += nextPoll(usual, age, false)
		late = age - end
	}
	return polls, late
}

func TestAnAttachIsNoticedSoonAndPolledSeldom(t *testing.T) {
	usual := (&habits{}).of(kindAttach)
	for _, end := range []time.Duration{20 * time.Millisecond, time.Second, 9800 * time.Millisecond, 11 * time.Second, 13 * time.Second, 16 * time.Second} {
		polls, late := pollsUntil(usual, end)
		if limit := max(end, 200*time.Millisecond); polls > 30 || late > limit || end > usual.from && late > 800*time.Millisecond {
			t.Errorf("an end after %v costs %d polls and is noticed %v late", end, polls, late)
		}
	}
	if polls, late := pollsUntil(usual, 13*time.Second); polls > 22 || late > 350*time.Millisecond {
		t.Errorf("a usual attach costs %d polls and is noticed %v late", polls, late)
	}
	if polls, late := pollsUntil(usual, time.Minute); polls > 55 || late > 5*time.Second {
		t.Errorf("an attach of a minute costs %d polls and is noticed %v late", polls, late)
	}
	if polls, late := pollsUntil((&habits{}).of(kindForceDetach), 13*time.Second); polls > 22 || late > 350*time.Millisecond {
		t.Errorf("a usual forced detach costs %d polls and is noticed %v late", polls, late)
	}
}

func TestWhereNoPollsAreLeftTheFirstComesWhenTheEndIsLikely(t *testing.T) {
	if got := nextPoll(span{from: 10 * time.Second, to: 13 * time.Second}, 100*time.Millisecond, true); got != 9900*time.Millisecond {
		t.Errorf("it waits %v", got)
	}
}

func TestPollsNeverStallAndNeverSpin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var h habits
		for range rapid.IntRange(0, 20).Draw(rt, "operations") {
			h.learn(kindAttach, time.Duration(rapid.Int64Range(1, int64(5*time.Minute)).Draw(rt, "took")))
		}
		age := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(rt, "age"))
		wait := nextPoll(h.of(kindAttach), age, false)
		if wait < 5*time.Millisecond || wait > max(5*time.Second, age) {
			rt.Fatalf("at %v of usually %v it waits %v", age, h.of(kindAttach), wait)
		}
	})
}

func TestHabitsFollowWhatIsSeen(t *testing.T) {
	var h habits
	for range 40 {
		h.learn(kindAttach, 5*time.Second)
	}
	if got := h.of(kindAttach); got.from < 4800*time.Millisecond || got.from > 5*time.Second || got.to < 5*time.Second || got.to > 5200*time.Millisecond {
		t.Errorf("after many attaches of 5 s it expects %v", got)
	}
	if got := h.of(kindDetach); got != (&habits{}).of(kindDetach) {
		t.Errorf("detaches learned from attaches: %v", got)
	}
}

func TestOneOperationOfAMinuteDoesNotDelayThePollsOfTheNext(t *testing.T) {
	var h habits
	for range 3 {
		h.learn(kindDetach, 11*time.Second)
		h.learn(kindDetach, time.Minute)
		if _, late := pollsUntil(h.of(kindDetach), 11*time.Second); late > 400*time.Millisecond {
			t.Errorf("with %v the next is noticed %v late", h.of(kindDetach), late)
		}
		for range 4 {
			h.learn(kindDetach, 12*time.Second)
		}
	}
}
