package hypervisor

import "sync"

// keyLock is a mutex for each key. The zero value is ready to use. A key costs memory only while it
// is held or waited for.
type keyLock struct {
	mu   sync.Mutex
	held map[string]*keyEntry
}

type keyEntry struct {
	sync.Mutex
	users int
}

// lock blocks until the key is free and returns what frees it again.
func (k *keyLock) lock(key string) (unlock func()) {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[string]*keyEntry{}
	}
	entry, ok := k.held[key]
	if !ok {
		entry = &keyEntry{}
		k.held[key] = entry
	}
	entry.users++
	k.mu.Unlock()

	entry.Lock()
	return func() {
		entry.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if entry.users--; entry.users == 0 {
			delete(k.held, key)
		}
	}
}
