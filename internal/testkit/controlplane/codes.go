package controlplane

import (
	"context"
	"fmt"
	"strings"
	"testing"
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

// TestCodes makes the calls of each case.
func (p *ControlPlane) TestCodes(t *testing.T, cases map[string]Coded) {
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			for _, call := range test.Calls(strings.ReplaceAll(name, " ", "-")) {
				if !test.Waits {
					if wrong := test.wrong(call(t.Context())); wrong != "" {
						t.Error(wrong)
					}
					continue
				}
				// On a busy machine the time can be up before the call waits.
				p.Eventually("the code", func() string {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					return test.wrong(call(ctx))
				})
			}
		})
	}
}

func (c Coded) wrong(err error) string {
	if got := status.Code(err); got != c.Want || err != nil && status.Convert(err).Message() == "" {
		return fmt.Sprintf("got code %s, want %s with a message: %v", got, c.Want, err)
	}
	return ""
}
