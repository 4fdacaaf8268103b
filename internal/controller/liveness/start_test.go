package liveness_test

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/controller/liveness"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// powerSwitch is a machine that can be switched off, and keeps the prober waiting when it is.
type powerSwitch struct {
	mu  sync.Mutex
	off bool
}

func (s *powerSwitch) set(off bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off = off
}

func (s *powerSwitch) Probe(ctx context.Context, _ *corev1.Node) liveness.ProbeResult {
	s.mu.Lock()
	off := s.off
	s.mu.Unlock()
	if off {
		ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		<-ctx.Done()
	}
	return liveness.ProbeResult{Answered: !off}
}

func TestStartDetectsALossWithARealClockAndEnds(t *testing.T) {
	machine := &powerSwitch{}
	w := newWorld(t, func(o *liveness.Options) {
		o.Clock, o.Prober, o.StaleAfter = clock.RealClock{}, machine, time.Second
	})
	n := w.add(1, 0)[0]
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
				t.Fatalf("request %v, %v", request, shutdown)
			}
			queue.Done(request)
		}
	}
	await(nodehealth.Suspect)
	machine.set(true)
	await(nodehealth.Lost)
	machine.set(false)
	await(nodehealth.Suspect)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	queue.ShutDown()
}
