package attachdetach

import (
	"sync"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
)

// refusedPause is the time from a publish that found no capacity to the next one for that volume
// and node. Each costs Azure a detach, and what it leaves behind and removes are events, which
// would start the next one at once.
const refusedPause = 15 * time.Second

// refused is when a publish last found no capacity, by volume and node. A new process asks once
// more; nothing else depends on it. The zero value is empty. It is safe for concurrent use.
type refused struct {
	mu      sync.Mutex
	volumes map[string]map[string]time.Time
}

func (r *refused) note(volume, node string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.volumes == nil {
		r.volumes = map[string]map[string]time.Time{}
	}
	if r.volumes[volume] == nil {
		r.volumes[volume] = map[string]time.Time{}
	}
	r.volumes[volume][node] = now
}

// due returns the nodes to which the volume is to be published now, and how long it is until the
// next of the others is due; 0 for none. It forgets the nodes without a pod that wants the volume.
func (r *refused) due(volume string, wanted []string, hasPod func(node string) bool, now time.Time) (due []string,
	next time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for node, at := range r.volumes[volume] {
		left := operation.Remaining(refusedPause, at, now)
		if !hasPod(node) || left == 0 {
			delete(r.volumes[volume], node)
		} else {
			next = operation.Sooner(next, left)
		}
	}
	for _, node := range wanted {
		if _, pauses := r.volumes[volume][node]; !pauses {
			due = append(due, node)
		}
	}
	if len(r.volumes[volume]) == 0 {
		delete(r.volumes, volume)
	}
	return due, next
}
