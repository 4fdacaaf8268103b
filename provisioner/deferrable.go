package provisioner

import "context"

type deferrable struct{}

// Deferrable marks reads of the context that can wait: a platform with a quota lets them wait while
// little of it is left, so that fences, attaches and detaches find enough.
func Deferrable(ctx context.Context) context.Context {
	return context.WithValue(ctx, deferrable{}, true)
}

// IsDeferrable reports whether the reads of the context can wait.
func IsDeferrable(ctx context.Context) bool { return ctx.Value(deferrable{}) != nil }
