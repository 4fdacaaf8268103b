package throttle

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

func update(vm string) Request {
	return Request{
		Method:       http.MethodPost,
		Subscription: "s",
		Policy:       UpdateVM,
		Resource:     "rg/virtualMachines/" + vm,
	}
}

func TestBurstThenSustainedRate(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	l := New(clock)
	for i := range 12 {
		if v := l.Take(update("a")); v.Refusal != nil {
			t.Fatalf("call %d of the burst is refused: %v, want nil", i, v.Refusal)
		}
	}
	v := l.Take(update("a"))
	if v.Refusal == nil || v.Refusal.RetryAfter != 15*time.Second || v.Refusal.Details[0].Target != "UpdateVMResource" {
		t.Fatalf("call 13: %+v", v.Refusal)
	}
	if v := l.Take(update("b")); v.Refusal != nil {
		t.Error("another VM is refused, too")
	}
	clock.Step(14 * time.Second)
	if v := l.Take(update("a")); v.Refusal == nil {
		t.Error("a call before Retry-After goes through")
	}
	clock.Step(time.Second)
	if v := l.Take(update("a")); v.Refusal != nil {
		t.Errorf("a call after Retry-After is refused: %v, want nil", v.Refusal)
	}
}

func TestHeadersTellWhatIsLeft(t *testing.T) {
	l := New(clocktesting.NewFakeClock(time.Unix(1e9, 0)))
	h := l.Take(update("a")).Header
	if got, want := h.Get("x-ms-ratelimit-remaining-resource"), "Microsoft.Compute/UpdateVMResource;11,Microsoft.Compute/UpdateVMSubscriptionMaximum;1499"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := h.Get("x-ms-ratelimit-remaining-subscription-writes"); got != "199" {
		t.Errorf("writes left: %q, want %q", got, "199")
	}
	h = l.Take(Request{Method: http.MethodGet, Subscription: "s"}).Header
	if h.Get("x-ms-ratelimit-remaining-subscription-reads") != "249" ||
		h.Get("x-ms-ratelimit-remaining-subscription-global-reads") != "3749" ||
		h.Get("x-ms-ratelimit-remaining-resource") != "" {
		t.Errorf("a call without policy: %v", h)
	}
}

func TestResourceManagerCountsByPrincipalAndSubscription(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	l := New(clock)
	for _, tc := range []struct {
		method, kind      string
		capacity, aSecond int
	}{{http.MethodGet, "reads", 250, 25}, {http.MethodPut, "writes", 200, 10}, {http.MethodDelete, "deletes", 200, 10}} {
		call := func(principal, subscription string) Outcome {
			return l.Take(Request{Method: tc.method, Subscription: subscription, Principal: principal})
		}
		burst := func(want int) {
			t.Helper()
			for i := range want {
				if v := call("driver", "s"); v.Refusal != nil {
					t.Fatalf("%s %d of %d is refused: %v", tc.kind, i+1, want, v.Refusal)
				}
			}
			if v := call("driver", "s"); v.Refusal == nil || v.Refusal.Code != "SubscriptionRequestsThrottled" ||
				v.Refusal.RetryAfter != time.Second {
				t.Fatalf("%s %d: got %v, want SubscriptionRequestsThrottled with Retry-After 1 s", tc.kind, want+1, v.Refusal)
			}
		}
		burst(tc.capacity)
		if v := call("other", "s"); v.Refusal != nil {
			t.Errorf("%s of another principal are refused: %v", tc.kind, v.Refusal)
		}
		if v := call("driver", "s2"); v.Refusal != nil {
			t.Errorf("%s in another subscription are refused: %v", tc.kind, v.Refusal)
		}
		clock.Step(time.Second)
		burst(tc.aSecond)
	}
	l.Reset()
	if v := l.Take(Request{Method: http.MethodPut, Subscription: "s", Principal: "driver"}); v.Refusal != nil {
		t.Errorf("refused after reset: %v", v.Refusal)
	}
}

func TestAllPrincipalsOfASubscriptionTogetherHaveALimit(t *testing.T) {
	l := New(clocktesting.NewFakeClock(time.Unix(1e9, 0)))
	passed := 0
	for i := 0; ; i++ {
		if l.Take(Request{Method: http.MethodDelete, Subscription: "s", Principal: fmt.Sprint(i % 20)}).Refusal != nil {
			break
		}
		passed++
	}
	if passed != 3000 {
		t.Errorf("%d deletes of 20 principals passed, want 3000", passed)
	}
}

// Whatever the order and pace of calls, at most the burst and what has been refilled since is let
// through, and after Retry-After one call is.
func TestNeverMoreThanTheBucketGives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
		began := clock.Now()
		l := New(clock)
		passed := map[string]int{}
		for range rapid.IntRange(1, 120).Draw(t, "calls") {
			clock.Step(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "pause")) * time.Millisecond)
			vm := fmt.Sprintf("vm%d", rapid.IntRange(0, 2).Draw(t, "vm"))
			v := l.Take(update(vm))
			if v.Refusal != nil {
				clock.Step(v.Refusal.RetryAfter)
				v = l.Take(update(vm))
			}
			if v.Refusal != nil {
				t.Fatalf("refused after Retry-After: %v, want nil", v.Refusal)
			}
			passed[vm]++
			if most := 12 + clock.Since(began).Minutes()*4; float64(passed[vm]) > most+1e-6 {
				t.Fatalf("%d calls passed, the bucket gave %.3f", passed[vm], most)
			}
		}
	})
}
