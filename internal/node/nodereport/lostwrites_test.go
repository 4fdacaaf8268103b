package nodereport

import (
	"strings"
	"testing"
	"time"
)

// What the entry of a volume is removed with, says that its last writes are lost. The next process keeps
// that, and an hour later it is removed.
func TestLostWritesAreReportedWithTheNextWrite(t *testing.T) {
	api := newAPI(t)
	r, clock := newReporter(t, api, newScanner(t, &mountList{}))
	expect := func(when string, want ...string) {
		t.Helper()
		var got []string
		for _, l := range get(t, api).Status.LostWrites {
			got = append(got, l.VolumeName+" "+l.Message)
		}
		if strings.Join(got, ", ") != strings.Join(want, ", ") {
			t.Errorf("%s: got lost writes %q, want %q", when, got, want)
		}
	}
	if err := r.Announce(t.Context(), "v", 1, "/p"); err != nil {
		t.Fatal(err)
	}
	r.LostWrites("v", "first")
	clock.Step(time.Minute)
	r.LostWrites("v", "EIO"+strings.Repeat("x", 2*LongestMessage))
	expect("before the next write")
	if err := r.Forget(t.Context(), "v"); err != nil {
		t.Fatal(err)
	}
	long := "v EIO" + strings.Repeat("x", 201) + " … " + strings.Repeat("x", 303)
	expect("with the removal of the entry", long)
	if entries := get(t, api).Status.StagedVolumes; len(entries) > 0 {
		t.Errorf("got entries %+v, want none", entries)
	}
	clock.Step(30 * time.Minute)
	next, later := newReporter(t, api, newScanner(t, &mountList{}))
	later.SetTime(clock.Now())
	next.LostWrites("w", "gone")
	if err := next.Announce(t.Context(), "u", 1, "/p"); err != nil {
		t.Fatal(err)
	}
	expect("after a restart", long, "w gone")
	later.Step(30 * time.Minute)
	if err := next.Forget(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	expect("after an hour", "w gone")
	later.Step(31 * time.Minute)
	if err := next.Announce(t.Context(), "u", 2, "/p"); err != nil {
		t.Fatal(err)
	}
	expect("after another one")
}
