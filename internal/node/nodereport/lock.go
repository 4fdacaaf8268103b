package nodereport

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

const (
	lockFile     = "lock"
	lockInterval = 200 * time.Millisecond
)

// Lock waits until no other process holds the records, and holds them until release is called or
// the process ends. A Reporter replaces the API server's entries by its own, so that two processes
// at the same time would remove each other's entries. Two can run because a pod that was deleted by
// force may still run when its successor starts.
func (r Records) Lock(ctx context.Context, c clock.WithTicker) (release func(), err error) {
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of records: %w", err)
	}
	path := filepath.Join(r.Dir, lockFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the records: %w", err)
	}
	ticker := c.NewTicker(lockInterval)
	defer ticker.Stop()
	for first := true; ; first = false {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return func() { _ = file.Close() }, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		case first:
			logr.FromContextOrDiscard(ctx).Info("waiting for another node plug-in on this node to end", "lock", path)
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for another node plug-in on this node to end (it holds %s): %w", path,
				ctx.Err()), file.Close())
		case <-ticker.C():
		}
	}
}
