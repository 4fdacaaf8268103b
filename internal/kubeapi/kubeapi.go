// Package kubeapi bounds how often a program calls the API server.
package kubeapi

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Pace holds the clients that are made from cfg, all together, to qps calls per second, sustained, and to bursts of burst calls. A call that could not be made before its
// context's deadline fails at once, with an error that is a context.DeadlineExceeded: client-go's own limiter returns a text there that nobody could
// tell from a fault of the program.
func Pace(cfg *rest.Config, qps float32, burst int) {
	cfg.QPS, cfg.Burst = qps, burst
	cfg.RateLimiter = limiter{flowcontrol.NewTokenBucketRateLimiter(qps, burst)}
}

// leaderQPS and leaderBurst are plenty for renewing a lease.
const leaderQPS, leaderBurst = 5, 10

// ForLeader returns a copy of cfg for the election of a leader, with a pace of its own: a lease must be renewed however much else there is to do.
func ForLeader(cfg *rest.Config) *rest.Config {
	own := rest.CopyConfig(cfg)
	Pace(own, leaderQPS, leaderBurst)
	return own
}

type limiter struct{ flowcontrol.RateLimiter }

// Wait returns nil once a call may be made. It fails for the sake of the context only: that has ended, or would before the call's turn comes.
func (l limiter) Wait(ctx context.Context) error {
	err := l.RateLimiter.Wait(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
}
