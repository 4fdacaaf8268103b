package kube

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Pace limits all clients that are made from cfg together to qps calls per second, and to bursts of
// burst calls. A call that cannot be made before its context's deadline fails immediately with a
// context.DeadlineExceeded: client-go's own limiter returns an untyped error, which looks like a
// fault of the program.
func Pace(cfg *rest.Config, qps float32, burst int) {
	cfg.QPS, cfg.Burst = qps, burst
	cfg.RateLimiter = limiter{flowcontrol.NewTokenBucketRateLimiter(qps, burst)}
}

// apartQPS and apartBurst are sufficient for renewing a lease, and for the readers of metrics, whose
// reviews are kept for a while.
const apartQPS, apartBurst = 5, 10

// ForLeader returns a copy of cfg for leader election, with a limit of its own: other calls must
// not delay the renewal of a lease.
func ForLeader(cfg *rest.Config) *rest.Config { return apart(cfg) }

// ForReviews returns a copy of cfg for asking who the clients of a server are, with a limit of its
// own: each token that a client invents costs a call, which must not delay the calls of the program.
func ForReviews(cfg *rest.Config) *rest.Config { return apart(cfg) }

func apart(cfg *rest.Config) *rest.Config {
	own := rest.CopyConfig(cfg)
	Pace(own, apartQPS, apartBurst)
	return own
}

type limiter struct{ flowcontrol.RateLimiter }

// Wait returns nil when a call may be made. It fails only if the context has ended, or would end
// before the call may be made.
func (l limiter) Wait(ctx context.Context) error {
	err := l.RateLimiter.Wait(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
}
