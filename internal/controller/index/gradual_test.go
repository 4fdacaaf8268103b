package index_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/index"
)

func TestObjectsThatAreThereAtTheStartAreQueuedGradually(t *testing.T) {
	t.Parallel()
	const objects, most = 5000, 600
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	seen := map[string]int{}
	g := index.NewGradual(reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
		seen[request.Name]++
		return reconcile.Result{}, errors.New("a failure does not end it")
	}))
	object := func(i int) *apiv1.AzVolume {
		return &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: fmt.Sprint(i)}}
	}
	g.Create(t.Context(), event.CreateEvent{Object: object(objects)}, queue)
	if queue.Len() != 0 {
		t.Errorf("an object that was created later: got %d in the queue, want it left to the other watch", queue.Len())
	}
	for i := range objects {
		g.Create(t.Context(), event.CreateEvent{Object: object(i), IsInInitialList: true}, queue)
	}
	for queue.Len() > 0 {
		if queue.Len() > most {
			t.Fatalf("got %d in the queue, want at most %d", queue.Len(), most)
		}
		request, _ := queue.Get()
		// The object changes before it is reconciled.
		queue.Add(request)
		queue.Done(request)
		request, _ = queue.Get()
		_, _ = g.Reconcile(t.Context(), request)
		queue.Done(request)
	}
	for i := range objects {
		if seen[fmt.Sprint(i)] == 0 {
			t.Fatalf("object %d was not reconciled; %d were", i, len(seen))
		}
	}
}
