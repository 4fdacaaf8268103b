// Package expect has what tests of every package expect: no error, a code, and conditions that
// become true.
package expect

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Must ends the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Code ends the test unless the error has the code. Its message must contain says.
func Code(t testing.TB, err error, want codes.Code, says ...string) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Fatalf("got code %s, want %s: %v", got, want, err)
	}
	for _, words := range says {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("got error %q, want one with %q", err, words)
		}
	}
}

// Eventually waits until a condition holds, and ends the test if it does not within a minute.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("waited a minute in vain: %s", what)
		case <-tick.C:
		}
	}
}
