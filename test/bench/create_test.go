package bench

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkCreate100Volumes creates volumes at once, by CSI calls as csi-provisioner makes them.
// Resource Manager allows 200 writes and 250 reads at once.
func BenchmarkCreate100Volumes(b *testing.B) {
	const n, most = 100, 400
	l := openLab(b, "realistic", true)
	for range b.N {
		l.sim.forget(b)
		began := time.Now()
		l.makeVolumes(b, n)
		took, calls := time.Since(began), l.sim.calls(b)
		fmt.Printf("create %d volumes: %d polls, %d calls in all (%v), %d answered 429, %.1f s\n", n, calls.polls, calls.all,
			calls.byAPI, calls.throttled, took.Seconds())
		if calls.all > most || calls.throttled > 0 {
			b.Errorf("create %d volumes: got %d calls, %d answered 429; want at most %d calls, and none answered 429", n,
				calls.all, calls.throttled, most)
		}
	}
}
