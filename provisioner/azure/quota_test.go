package azure

import (
	"net/http"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTheEstimateOfAQuotaNeverAllowsMoreThanThePlatform(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(0, 0)
		p := rapid.SampledFrom([]policyName{policyUpdateVM, policyGetVM, policyOperation}).Draw(rt, "policy")
		b, _ := budgetOf(p)
		pace, s := newPacer(), scope{policy: p, resource: "vm"}
		platform := newBucket(b, now) // what Azure counts
		sent := now
		for range rapid.IntRange(1, 150).Draw(rt, "requests") {
			now = now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(rt, "pause ms")) * time.Millisecond)
			at := now.Add(pace.take(now, s))
			if at.Before(sent) {
				rt.Fatalf("a request is sent at %v, before the one ahead of it at %v", at, sent)
			}
			sent = at
			platform.refill(sent)
			if platform.tokens < 1-1e-6 {
				rt.Fatalf("sent with %.3f tokens left", platform.tokens)
			}
			platform.tokens--
		}
	})
}

func TestAnswersCorrectTheEstimate(t *testing.T) {
	now, s := time.Unix(0, 0), scope{policy: policyUpdateVM, resource: "vm"}
	p := newPacer()
	if w := p.take(now, s); w != 0 {
		t.Fatalf("the first waits %v", w)
	}
	p.learn(now, s, []remaining{{policy: "Microsoft.Compute/UpdateVMResource", left: 0}, {policy: "Microsoft.Compute/UpdateVMSubscriptionMaximum", left: 1400}})
	if w := p.wait(now, s); w != 15*time.Second {
		t.Fatalf("with nothing left it waits %v, want the 15 s that a token takes", w)
	}
	if w := p.take(now.Add(15*time.Second), s); w != 0 {
		t.Fatalf("after 15 s it waits %v", w)
	}
	if w := p.take(now, scope{policy: policyUpdateVM, resource: "other"}); w != 0 {
		t.Fatalf("another VM waits %v", w)
	}
}

func TestSilenceLastsAsLongAsWasAsked(t *testing.T) {
	now, own, all := time.Unix(0, 0), scope{policy: policyGetVM, resource: "vm"}, scope{policy: "reads", resource: "sub"}
	p := newPacer()
	p.block(now.Add(30*time.Second), all)
	p.block(now.Add(10*time.Second), own)
	for _, step := range []struct{ after, want time.Duration }{{0, 30 * time.Second}, {12 * time.Second, 18 * time.Second}, {31 * time.Second, 0}} {
		if got := p.silence(now.Add(step.after), own, all); got != step.want {
			t.Errorf("after %v: %v, want %v", step.after, got, step.want)
		}
	}
}

func TestHeadersOfQuotas(t *testing.T) {
	h := http.Header{}
	h.Add("x-ms-ratelimit-remaining-resource", "Microsoft.Compute/PutVM3Min;223,Microsoft.Compute/PutVM30Min; 1186")
	h.Add("x-ms-ratelimit-remaining-resource", "Microsoft.Compute/UpdateVM;7, nonsense, a;b")
	got := remainingOf(h)
	want := []remaining{{"Microsoft.Compute/PutVM3Min", 223}, {"Microsoft.Compute/PutVM30Min", 1186}, {"Microsoft.Compute/UpdateVM", 7}}
	if len(got) != len(want) {
		t.Fatalf("%v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%v, want %v", got[i], want[i])
		}
	}
}

func TestRetryAfterHeaders(t *testing.T) {
	now := time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		header, value string
		want          time.Duration
	}{
		"seconds":              {"Retry-After", "17", 17 * time.Second},
		"milliseconds":         {"retry-after-ms", "250", 250 * time.Millisecond},
		"Azure's milliseconds": {"x-ms-retry-after-ms", "90", 90 * time.Millisecond},
		"a date":               {"Retry-After", "Sat, 21 Nov 2026 04:00:09 GMT", 9 * time.Second},
		"a date that is past":  {"Retry-After", "Sat, 21 Nov 2026 03:00:09 GMT", 0},
		"nonsense":             {"Retry-After", "soon", 0},
		"nothing":              {"X-Other", "1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			h.Set(test.header, test.value)
			if got := retryAfter(h, now); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}
