package volume

import (
	"sync"
	"time"
)

// closedNodes remembers since when nodes of replicas are closed to the pods of each volume. If it is
// lost, replicas are replaced later. It is safe for concurrent use.
type closedNodes struct {
	mu sync.Mutex
	// since is by volume and node.
	since map[string]map[string]time.Time
}

// see records which nodes are closed to the pods of a volume now, and returns since when each has
// been seen so. The result must not be changed.
func (c *closedNodes) see(volume string, nodes []string, now time.Time) map[string]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.since[volume]
	delete(c.since, volume)
	if len(nodes) == 0 {
		return nil
	}
	since := make(map[string]time.Time, len(nodes))
	for _, node := range nodes {
		since[node] = now
		if seen, ok := before[node]; ok {
			since[node] = seen
		}
	}
	if c.since == nil {
		c.since = map[string]map[string]time.Time{}
	}
	c.since[volume] = since
	return since
}
