package keylock_test

import (
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/rpc/keylock"
)

func TestAKeyIsLockedOnceAtATime(t *testing.T) {
	t.Parallel()
	var locks keylock.Locks
	unlock, locked := locks.TryLock("a")
	if !locked {
		t.Fatal("got no lock of a free key, want one")
	}
	if _, locked := locks.TryLock("a"); locked {
		t.Error("got a second lock of a key, want none")
	}
	if _, locked := locks.TryLock("b"); !locked {
		t.Error("got no lock of another key, want one")
	}
	unlock()
	if _, locked := locks.TryLock("a"); !locked {
		t.Error("got no lock after unlock, want one")
	}
}
