package pacing

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTheEstimateOfAQuotaNeverAllowsMoreThanThePlatform(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(0, 0)
		p := rapid.SampledFrom([]Policy{UpdateVM, GetVM, GetOperation, ListVMs, Reads, Polls, Writes, Deletes}).Draw(rt, "policy")
		b, _ := budgetOf(p)
		pace, s := NewPacer(), Scope{Policy: p, Resource: "vm"}
		platform := newBucket(b, now) // what Azure counts
		sent := now
		for range rapid.IntRange(1, 150).Draw(rt, "requests") {
			now = now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(rt, "pause ms")) * time.Millisecond)
			at := now.Add(pace.Take(now, s))
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
	now, s := time.Unix(0, 0), Scope{Policy: UpdateVM, Resource: "vm"}
	p := NewPacer()
	if w := p.Take(now, s); w != 0 {
		t.Fatalf("the first request waits %v, want 0", w)
	}
	const own = "Microsoft.Compute/UpdateVMResource"
	p.Learn(now, s, own, []Remaining{
		{
			Policy: "Microsoft.Compute/VMScaleSetBatchedVMRequests5Min",
			Left:   1199,
		}, {Policy: "Microsoft.Compute/VmssQueuedVMOperations", Left: 0},
	})
	if w := p.Delay(now, s); w != 0 {
		t.Fatalf("with nothing left of another quota a request waits %v, want 0", w)
	}
	p.Learn(now, s, own, []Remaining{
		{Policy: "microsoft.compute/updatevmresource", Left: 0}, {Policy: own, Left: 7},
		{Policy: "Microsoft.Compute/UpdateVMSubscriptionMaximum", Left: 1400},
	})
	if w := p.Delay(now, s); w != 15*time.Second {
		t.Fatalf("with nothing left a request waits %v, want the 15 s that a token takes", w)
	}
	if w := p.Take(now.Add(15*time.Second), s); w != 0 {
		t.Fatalf("after 15 s a request waits %v, want 0", w)
	}
	if w := p.Take(now, Scope{Policy: UpdateVM, Resource: "other"}); w != 0 {
		t.Fatalf("a request for another VM waits %v, want 0", w)
	}
}

func TestReadsThatCanWaitLeaveTheReserve(t *testing.T) {
	now, s := time.Unix(0, 0), Scope{Policy: Reads, Resource: "subscription"}
	p, sent := NewPacer(), 0
	for p.TakeAbove(now, s, Reserve) == 0 {
		sent++
	}
	if want := 250 - margin - Reserve; sent != want {
		t.Fatalf("got %d reads that can wait at once, want %d", sent, want)
	}
	for n := range Reserve {
		if w := p.Take(now, s); w != 0 {
			t.Fatalf("read %d of the reserve waits %v, want 0", n+1, w)
		}
	}
	// The reserve is filled first: 150 tokens and one more, at 25 a second.
	if w, want := p.TakeAbove(now, s, Reserve), 6040*time.Millisecond; w != want {
		t.Errorf("with nothing left a read that can wait waits %v, want %v", w, want)
	}
	if w := p.Take(now.Add(40*time.Millisecond), s); w != 0 {
		t.Errorf("the read that cannot wait waits %v, want 0: the other one has taken no token", w)
	}
}

func TestSilenceLastsAsLongAsAzureAsked(t *testing.T) {
	now, own, all := time.Unix(0, 0), Scope{Policy: GetVM, Resource: "vm"}, Scope{Policy: Reads, Resource: "sub"}
	p := NewPacer()
	p.Block(now.Add(30*time.Second), all)
	p.Block(now.Add(10*time.Second), own)
	for _, step := range []struct{ after, want time.Duration }{{0, 30 * time.Second}, {12 * time.Second, 18 * time.Second},
		{31 * time.Second, 0}} {
		if got := p.Silence(now.Add(step.after), own, all); got != step.want {
			t.Errorf("after %v: %v, want %v", step.after, got, step.want)
		}
	}
}
