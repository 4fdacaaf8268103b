package liveness_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/controller/liveness"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// slowNetwork keeps a probe of a node that does not answer waiting.
type slowNetwork struct{ *world }

func (n slowNetwork) Probe(ctx context.Context, node *corev1.Node) liveness.ProbeResult {
	result := n.world.Probe(ctx, node)
	if !result.Answered {
		ctx, cancel := context.WithTimeout(ctx, nodehealth.ProbeTimeout)
		defer cancel()
		<-ctx.Done()
	}
	return result
}

// Start makes the looks in goroutines, by a clock that runs.
func TestStartDetectsALossAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *liveness.Options) {
			o.Clock, o.StaleAfter = clock.RealClock{}, time.Second
		})
		w.options.Prober = slowNetwork{w}
		w.restart()
		n := w.add(1)[0]
		w.machines[n].beats = false
		queue := newQueue()
		w.must(w.monitor.Subscribe().Start(t.Context(), queue))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.monitor.Start(ctx) }()
		await := func(state nodehealth.State) {
			t.Helper()
			for w.state(n) != state {
				request, shutdown := queue.Get() // blocks until a node's health has changed
				if shutdown || request.Name != n {
					t.Fatalf("got the request %v, %t, want one about %s", request, shutdown, n)
				}
				queue.Done(request)
			}
		}
		await(nodehealth.Suspect)
		began := time.Now()
		w.cut(n)
		await(nodehealth.Lost)
		if took := time.Since(began); took < 2*nodehealth.ProbeTimeout || took > 3*time.Second {
			t.Errorf("got it lost after %s, want after three failed probes, and within 3 s", took)
		}
		w.machines[n].answers.Store(true)
		await(nodehealth.Suspect)
		cancel()
		w.must(<-ended)
		if got := w.machines[n].closed; got < 2 {
			t.Errorf("got %d connections closed, want each that was kept", got)
		}
		queue.ShutDown()
	})
}
