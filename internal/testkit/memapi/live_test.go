package memapi_test

import (
	"context"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
)

// The controller's cache has no pods that have ended.
func TestALiveCacheForgetsAPodThatEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memapi.New(fakeapi.Scheme(), clock.RealClock{})
		live := memapi.NewLive(store, cluster.CacheOptions("driver"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = live.Start(ctx) }()
		pods := func() int {
			synctest.Wait()
			var list corev1.PodList
			expect.Must(t, live.List(ctx, &list))
			return len(list.Items)
		}
		var p corev1.Pod
		p.Namespace, p.Name = "shop", "web-0"
		if before := pods(); before != 0 {
			t.Fatalf("got %d pods, want none", before)
		}
		expect.Must(t, store.Create(&p))
		if got := pods(); got != 1 {
			t.Errorf("got %d pods after one was created, want 1", got)
		}
		p.Status.Phase = corev1.PodFailed
		expect.Must(t, store.Update(&p, true))
		if got := pods(); got != 0 {
			t.Errorf("got %d pods after it failed, want none", got)
		}
		expect.Must(t, store.Delete(&p, client.DeleteOptions{GracePeriodSeconds: new(int64)}))
		if got := pods(); got != 0 {
			t.Errorf("got %d pods after it was deleted, want none", got)
		}
	})
}
