package attachdetach

import (
	"slices"
	"sync"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/publishing"
)

// idleAfter is how long a node that has a volume must be without a pod until its kubelet is not
// waited for. Normally it unstages the volume within seconds; the node plug-in waits for it again
// after the release has begun (ownership.UnstageAfter).
const idleAfter = time.Minute

// idle is since when this process has seen no pod on a node that has a volume, by volume and node. A
// new process waits once more; nothing else depends on it. The zero value is empty. It is safe for
// concurrent use.
type idle struct {
	mu      sync.Mutex
	volumes map[string]map[string]time.Time
}

// look takes note of the nodes that have a volume without a pod. It returns whether a node has been
// one of them for idleAfter, and how long it is until the next one will have been; 0
// for none.
func (i *idle) look(volume string, in publishing.Input, now time.Time) (is func(node string) bool, next time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	before, since := i.volumes[volume], map[string]time.Time{}
	var long []string
	for _, node := range in.Held() {
		if in.Used(node) {
			continue
		}
		since[node] = now
		if at, known := before[node]; known {
			since[node] = at
		}
		if left := operation.Remaining(idleAfter, since[node], now); left > 0 {
			next = operation.Sooner(next, left)
		} else {
			long = append(long, node)
		}
	}
	delete(i.volumes, volume)
	if len(since) > 0 {
		if i.volumes == nil {
			i.volumes = map[string]map[string]time.Time{}
		}
		i.volumes[volume] = since
	}
	return func(node string) bool { return slices.Contains(long, node) }, next
}
