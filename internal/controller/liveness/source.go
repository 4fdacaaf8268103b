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
		for name, n := range m.nodes {
			if n.health.State != nodehealth.Healthy {
				queue.Add(m.request(name))
			}
		}
		return nil
	})
}

func (m *Monitor) request(node string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: m.Namespace, Name: node}}
}

// notify queues a node for the subscribers, and wakes the ConditionWriter. A queue that was shut
// down ignores it.
func (m *Monitor) notify(name string) {
	signal(m.changed)
	for _, s := range m.subscribers {
		s.queue.Add(m.request(name))
	}
}

// signal leaves a signal in a channel that holds one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
