package cache

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
)

func TestALockHasOneHolderAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Lock(t.Context(), path, func() { t.Error("a free lock is waited for") })
	if err != nil {
		t.Fatal(err)
	}
	released := false
	second, err := Lock(t.Context(), path, func() {
		if released {
			t.Error("the waiting caller is told more than once")
		}
		released = true
		first()
	})
	if err != nil {
		t.Fatal(err)
	}
	if !released {
		t.Error("a lock was taken that another had")
	}
	second()
}

func TestWaitingForALockEndsWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := Lock(ctx, path, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("got the error %v, want that of the context", err)
	}
}
