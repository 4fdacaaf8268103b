// Package keylock locks the objects that calls work on, each by a key.
package keylock

import "sync"

// Locks are the locks of one process. The zero value has none.
type Locks struct {
	held sync.Map
}

// TryLock locks a key until unlock is called. It does not wait: locked is false while another call
// holds the lock.
func (l *Locks) TryLock(key string) (unlock func(), locked bool) {
	if _, held := l.held.LoadOrStore(key, nil); held {
		return nil, false
	}
	return func() { l.held.Delete(key) }, true
}
