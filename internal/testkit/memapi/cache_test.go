package memapi_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
)

// What a reader changes in an object that it shares with the cache does not reach the store, and the
// cache notices it.
func TestAChangeOfACachedObjectIsNoticed(t *testing.T) {
	t.Parallel()
	store := memapi.New(apiserver.Scheme(t), clock.RealClock{})
	d := &apiv1.AzDriverNode{}
	d.Namespace, d.Name, d.Labels = "n", "node", map[string]string{"pool": "a"}
	expect.Must(t, store.Create(d.DeepCopy()))
	seen := memapi.NewCache(store, cache.Options{})
	key := client.ObjectKeyFromObject(d)
	var shared, stored apiv1.AzDriverNode
	expect.Must(t, seen.Get(t.Context(), key, &shared, client.UnsafeDisableDeepCopy))
	shared.Labels["pool"] = "b"
	expect.Must(t, store.Get(key, &stored))
	if got := stored.Labels["pool"]; got != "a" {
		t.Errorf("got pool %s in the store, want a", got)
	}
	stored.Spec.VMSize = "Standard_D4s_v5"
	expect.Must(t, store.Update(&stored, false))
	defer func() {
		if recover() == nil {
			t.Error("the cache did not notice that its object was changed")
		}
	}()
	seen.Deliver("AzDriverNode")
}

// A cache copies stored objects without the store's lock. The race detector sees a write to one.
func TestAWriteLeavesTheStoredObjectAlone(t *testing.T) {
	t.Parallel()
	store := memapi.New(apiserver.Scheme(t), clock.RealClock{})
	a := &apiv1.AzVolumeAttachment{}
	a.Namespace, a.Name, a.Finalizers = "n", "a", []string{apiv1.FinalizerAttachment}
	a.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	store.Restore(a)
	key := client.ObjectKeyFromObject(a)
	stored := store.Look(a, key)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for range 1000 {
			stored.DeepCopyObject()
		}
	}()
	for _, status := range []bool{false, true} {
		expect.Must(t, store.Get(key, a))
		a.Labels, a.Status.State = map[string]string{"changed": "yes"}, apiv1.AttachmentAttached
		expect.Must(t, store.Update(a, status))
	}
	<-read
}
