package azure

import (
	"context"
	"net/http"

	"k8s.io/utils/clock"
)

type realClock = clock.RealClock

// stubPoller is an operation that has ended.
type stubPoller struct{ err error }

func (s stubPoller) Done() bool                                   { return true }
func (s stubPoller) Poll(context.Context) (*http.Response, error) { return nil, nil }
func (s stubPoller) ResumeToken() (string, error)                 { return "", nil }
func (s stubPoller) result(context.Context) error                 { return s.err }
