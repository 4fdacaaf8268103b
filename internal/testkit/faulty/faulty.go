// Package faulty makes one access of a node plug-in fail: to its host, to the API server, or to its
// records.
package faulty

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Faults counts accesses, and makes one of them fail. The zero value makes none fail.
type Faults struct {
	mu     sync.Mutex
	left   int
	counts map[string]int
	at     string
	broken string
}

// Break makes all accesses with a name fail; "" for none.
func (f *Faults) Break(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = name
}

// Arm makes the n-th access from now on fail; 0 for none.
func (f *Faults) Arm(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left, f.counts, f.at = n, map[string]int{}, ""
}

// Failed returns the access that has failed, "" for none: its name, and its number among those of this name.
func (f *Faults) Failed() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at
}

// Access returns the error of an access.
func (f *Faults) Access(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name == f.broken {
		return provisioner.Errorf(provisioner.Unavailable, "%s failed", name)
	}
	if f.left == 0 {
		return nil
	}
	f.counts[name]++
	if f.left--; f.left > 0 {
		return nil
	}
	f.at = fmt.Sprintf("%s %d", name, f.counts[name])
	return provisioner.Errorf(provisioner.Unavailable, "%s failed", f.at)
}

// Gate is a memapi.Gate.
func (f *Faults) Gate(_ context.Context, call memapi.Call, do func() error) error {
	return f.do(call.Verb+" "+call.Kind, do)
}

func (f *Faults) do(name string, access func() error) error {
	if err := f.Access(name); err != nil {
		return err
	}
	return access()
}

// Most is how many accesses a call makes at most: one that does not end would make a test that does not end.
const Most = 300

// EachAccess makes a call again and again, each time as prepare returns it, and each time another of
// its accesses fails. The call must return this failure. If one of the survived fails, the call succeeds, or
// fails for the reason for which it does without a failure.
func EachAccess(t *testing.T, prepare func(t *testing.T) (*Faults, func() error), survived ...string) {
	t.Helper()
	_, call := prepare(t)
	fails := call() != nil
	for n := 1; ; n++ {
		if n > Most {
			t.Fatalf("the call makes more than %d accesses", Most)
		}
		f, call := prepare(t)
		f.Arm(n)
		err, at := call(), f.Failed()
		f.Arm(0)
		switch {
		case at == "":
			return
		case slices.Contains(survived, at):
			if err != nil && !fails || err != nil && strings.Contains(err.Error(), at+" failed") {
				t.Errorf("%s failed: got %v, want success or another reason (%t)", at, err, fails)
			}
		case err == nil || !strings.Contains(err.Error(), at+" failed"):
			t.Errorf("%s failed: got %v, want this failure", at, err)
		}
	}
}
