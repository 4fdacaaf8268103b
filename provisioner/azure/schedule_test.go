package azure

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// pollsUntil returns how many polls an operation that ends at that age costs, and how long after its end it is noticed.
func pollsUntil(usual, end time.Duration) (polls int, late time.Duration) {
	for age := time.Duration(0); age < end; polls++ {
		age += nextPoll(usual, age)
		late = age - end
	}
	return polls, late
}

func TestAnAttachIsNoticedSoonAndPolledSeldom(t *testing.T) {
	const usual = 11 * time.Second
	for _, end := range []time.Duration{20 * time.Millisecond, time.Second, 9500 * time.Millisecond, 11 * time.Second, 13 * time.Second, 16 * time.Second} {
		polls, late := pollsUntil(usual, end)
		if limit := max(end, 200*time.Millisecond); polls > 30 || late > limit || end > usual*85/100 && late > 350*time.Millisecond {
			t.Errorf("an end after %v costs %d polls and is noticed %v late", end, polls, late)
		}
	}
	if polls, _ := pollsUntil(usual, 13*time.Second); polls > 22 {
		t.Errorf("a usual attach costs %d polls", polls)
	}
	if polls, late := pollsUntil(usual, time.Minute); polls > 45 || late > 5*time.Second {
		t.Errorf("an attach of a minute costs %d polls and is noticed %v late", polls, late)
	}
}

func TestPollsNeverStallAndNeverSpin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		usual := time.Duration(rapid.Int64Range(0, int64(5*time.Minute)).Draw(rt, "usual"))
		age := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(rt, "age"))
		wait := nextPoll(usual, age)
		if wait < 5*time.Millisecond || wait > max(5*time.Second, age) {
			rt.Fatalf("at %v of usually %v it waits %v", age, usual, wait)
		}
	})
}

func TestHabitsFollowWhatIsSeen(t *testing.T) {
	var h habits
	for range 40 {
		h.learn(kindAttach, 5*time.Second)
	}
	if got := h.of(kindAttach); got < 5*time.Second || got > 5100*time.Millisecond {
		t.Errorf("after many attaches of 5 s it expects %v", got)
	}
	if got := h.of(kindDetach); got != firstGuess(kindDetach) {
		t.Errorf("detaches learned from attaches: %v", got)
	}
}
