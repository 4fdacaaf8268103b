package latency

import (
	"math/rand"
	"strings"
	"testing"
	"time"
)

func TestBuiltInProfilesAreValidAndComplete(t *testing.T) {
	for name, p := range map[string]*Profile{"realistic": Realistic(), "fast": Fast()} {
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, step := range Steps {
			if _, ok := p.Steps[step]; !ok {
				t.Errorf("%s: step %s is missing", name, step)
			}
		}
	}
}

func TestDrawsStayInTheirRangeAndRepeatWithTheSeed(t *testing.T) {
	draw := func() []time.Duration {
		s := NewSampler(Realistic(), rand.New(rand.NewSource(7)))
		list := make([]time.Duration, 2000)
		for i := range list {
			list[i] = s.Draw(Attach)
		}
		return list
	}
	first, second := draw(), draw()
	tail := 0
	for i, d := range first {
		if d != second[i] {
			t.Fatal("two runs with one seed differ")
		}
		if d < 5900*time.Millisecond || d > 45500*time.Millisecond {
			t.Errorf("drew %s", d)
		}
		if d > 11900*time.Millisecond {
			tail++
		}
	}
	if tail < 40 || tail > 160 {
		t.Errorf("%d of 2000 draws are in the tail of 4 %%", tail)
	}
}

func TestParseNamesEveryFault(t *testing.T) {
	_, err := Parse(strings.NewReader(`{"retryAfter":"-1s","pauses":{"vm.disks":{"accepted":"-1s"}},"steps":{"attach":{"min":"2s","max":"1s"},"dance":{"min":"0s","max":"1s"},"detach":{"min":"0s","max":"1s","tailChance":2}}}`))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{"retryAfter", "pauses of vm.disks", `"attach"`, `"dance"`, `"detach"`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("got %[2]v, want an error that names %[1]s", part, err)
		}
	}
	if _, err := Parse(strings.NewReader(`{"steps":{"attach":{"min":1}}}`)); err == nil {
		t.Error("a number was taken for a duration")
	}
	p, err := Parse(strings.NewReader(`{"retryAfter":"2s","steps":{"attach":{"min":"1s","max":"1s"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	s := NewSampler(p, rand.New(rand.NewSource(1)))
	if accepted, first, later := s.Pause("vm.disks"); s.Draw(Attach) != time.Second || s.Draw(Detach) != 0 ||
		accepted != 2*time.Second || first != accepted || later != accepted {
		t.Error("the profile is not followed")
	}
}

func TestASamplerDrawsFromTheProfileThatItIsGivenLater(t *testing.T) {
	s := NewSampler(Realistic(), rand.New(rand.NewSource(1)))
	if d := s.Draw(Attach); d < 5*time.Second {
		t.Errorf("realistic: an attach took %s", d)
	}
	s.Use(Fast())
	if d := s.Draw(Attach); d > 10*time.Millisecond {
		t.Errorf("fast: an attach took %s", d)
	}
	if accepted, _, _ := s.Pause("vm.disks"); accepted != time.Duration(Fast().RetryAfter) {
		t.Errorf("fast: clients wait %s, want %s", accepted, time.Duration(Fast().RetryAfter))
	}
}
