package attachdetach

import (
	"sync"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
)

const (
	// refusedPause is the time from a publish that found no capacity to the next one for that volume
	// and node. Each costs Azure a detach, and what it leaves behind and removes are events, which
	// would start the next one at once.
	refusedPause = 15 * time.Second
	// absentPause is the time from a publish of a disk that does not exist to the next one.
	absentPause = time.Minute
)

// refused is until when no publish is made, after one that was refused, by volume and node. A new
// process asks once more; nothing else depends on it. The zero value is empty. It is safe for
// concurrent use.
type refused struct {
	mu      sync.Mutex
	volumes map[string]map[string]pause
}

type pause struct {
	since time.Time
	lasts time.Duration
}

func (r *refused) note(volume, node string, p pause) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.volumes == nil {
		r.volumes = map[string]map[string]pause{}
	}
	if r.volumes[volume] == nil {
		r.volumes[volume] = map[string]pause{}
	}
	r.volumes[volume][node] = p
}

// due returns the nodes to which the volume is to be published now, and how long it is until the
// next of the others is due; 0 for none. It forgets the nodes without a pod that wants the volume.
func (r *refused) due(volume string, wanted []string, hasPod func(node string) bool, now time.Time) (due []string,
	next time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for node, p := range r.volumes[volume] {
		left := operation.Remaining(p.lasts, p.since, now)
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
