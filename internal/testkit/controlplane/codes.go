package controlplane

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Call is a call of the Controller server.
type Call = func(context.Context) error

// Ask returns the call of a method with a request.
func Ask[Q, A any](method func(context.Context, Q) (A, error), request Q) Call {
	return func(ctx context.Context) error {
		_, err := method(ctx, request)
		return err
	}
}

// Coded says with which code calls end.
type Coded struct {
	Want codes.Code
	// Waits says that the code is that of a call whose time is up.
	Waits bool
	// Calls prepares the calls. name is unique, and can be the name of a disk.
	Calls func(name string) []Call
}

// Each runs a test for each case in a bubble of its own. prepare makes a control plane in memory, and
// the cases for it.
func Each[T any](t *testing.T, prepare func(t *testing.T) (*ControlPlane, map[string]T),
	test func(t *testing.T, p *ControlPlane, name string, c T)) {
	var names []string
	synctest.Test(t, func(t *testing.T) {
		_, cases := prepare(t)
		names = slices.Sorted(maps.Keys(cases))
	})
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, cases := prepare(t)
				test(t, p, name, cases[name])
			})
		})
	}
}

// TestCodes makes the calls of each case.
func TestCodes(t *testing.T, prepare func(t *testing.T) (*ControlPlane, map[string]Coded)) {
	Each(t, prepare, func(t *testing.T, _ *ControlPlane, name string, c Coded) {
		for _, call := range c.Calls(strings.ReplaceAll(name, " ", "-")) {
			ctx, cancel := t.Context(), func() {}
			if c.Waits {
				ctx, cancel = context.WithTimeout(ctx, time.Second)
			}
			if wrong := c.wrong(call(ctx)); wrong != "" {
				t.Error(wrong)
			}
			cancel()
		}
	})
}

func (c Coded) wrong(err error) string {
	if got := status.Code(err); got != c.Want || err != nil && status.Convert(err).Message() == "" {
		return fmt.Sprintf("got code %s, want %s with a message: %v", got, c.Want, err)
	}
	return ""
}
