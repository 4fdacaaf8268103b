package liveness

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

type subscription struct {
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Subscribe returns a source of requests: each names a node, in the namespace of the custom
// resources, whose health changed, or which has been lost for as long as replicas are kept. A
// reconciler that starts late gets every node that is not Healthy.
func (m *Monitor) Subscribe() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		s := &subscription{queue: queue}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.subscribers = append(m.subscribers, s)
		for _, name := range m.detector.Doubted() {
			queue.Add(m.request(name))
		}
		return nil
	})
}

func (m *Monitor) request(node string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: m.Namespace, Name: node}}
}

// tell queues the nodes that changed for the subscribers, wakes the ConditionWriter, and counts. A
// queue that was shut down ignores what is added. The caller holds the lock.
func (m *Monitor) tell(judgements nodehealth.Judgements) {
	m.metrics.count(judgements)
	for _, name := range judgements.Changed {
		signal(m.changed)
		for _, s := range m.subscribers {
			s.queue.Add(m.request(name))
		}
	}
}

// signal leaves a signal in a channel that holds one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
