package faults

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
)

func TestRuleStrikesAsOftenAndAsLongAsItSays(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	s := New(clock)
	call := Call{Method: "GET", Kind: "disks", Name: "A"}
	if _, err := s.Add(Rule{Kind: "Disks", Name: "a", Times: 2, Status: 500}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Add(Rule{
		Kind:       "disks",
		For:        latency.Duration(time.Minute),
		Status:     429,
		RetryAfter: latency.Duration(time.Second),
	}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{500, 500, 429, 429} {
		if e := s.Strike(Before, call); e.Err == nil || e.Err.Status != want {
			t.Errorf("strike %d: %+v, want %d", i, e.Err, want)
		}
	}
	if e := s.Strike(After, call); e != (Effect{}) {
		t.Errorf("another stage: %+v, want %+v", e, (Effect{}))
	}
	if e := s.Strike(Before, Call{Method: "GET", Kind: "snapshots"}); e != (Effect{}) {
		t.Errorf("another kind: %+v, want %+v", e, (Effect{}))
	}
	clock.Step(time.Minute)
	if e := s.Strike(Before, call); e != (Effect{}) || len(s.List()) != 0 {
		t.Errorf("after its time: %+v", e)
	}
}

func TestRulesAreRemoved(t *testing.T) {
	s := New(clocktesting.NewFakeClock(time.Unix(1e9, 0)))
	r, err := s.Add(Rule{Delay: latency.Duration(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	if s.Remove("nonsense") || !s.Remove(r.ID) || s.Remove(r.ID) {
		t.Error("Remove does not tell what was there")
	}
}

func TestErrorsHaveSensibleDefaults(t *testing.T) {
	s := New(clocktesting.NewFakeClock(time.Unix(1e9, 0)))
	for _, r := range []Rule{{Status: 503, Times: 1}, {Code: "OperationPreempted", Times: 1}} {
		if _, err := s.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if e := s.Strike(Before, Call{}).Err; e.Status != 503 || e.Code != "ServiceUnavailable" || e.Message == "" {
		t.Errorf("status only: %v", e)
	}
	if e := s.Strike(Before, Call{}).Err; e.Status != 409 || e.Code != "OperationPreempted" {
		t.Errorf("code only: %v, want e.Status = %v, e.Code = %v", e, 409, "OperationPreempted")
	}
}
