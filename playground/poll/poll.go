// Package poll waits for what no watch shows.
package poll

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"k8s.io/utils/clock"
)

// Until is On with the real clock.
func Until(ctx context.Context, limit, pause time.Duration, what string, try func(context.Context) error) error {
	return On(ctx, clock.RealClock{}, limit, pause, what, try)
}

// On tries again and again, after the pause by the clock, until it succeeds, the limit is over or
// the context ends. The error then has that of the last try.
func On(ctx context.Context, c clock.Clock, limit, pause time.Duration, what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, errors.Join(err, ctx.Err()))
		case <-c.After(pause):
		}
	}
}

// Socket waits until a program listens on a Unix socket.
func Socket(ctx context.Context, path, what string) error {
	return Until(ctx, time.Minute, 50*time.Millisecond, what+" listens", func(ctx context.Context) error {
		connection, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err != nil {
			return err
		}
		return connection.Close()
	})
}
