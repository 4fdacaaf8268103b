package cluster_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
)

func TestANodeIsUnscannedUntilItsPluginHasScannedItsMounts(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakePassiveClock(metav1.Now().Time)
	store := memapi.New(fakeapi.Scheme(), clock)
	objects := memapi.NewCache(store, cache.Options{})
	api := memapi.NewClient(store, memapi.Open, nil)
	watch := cluster.NewWatch()
	if !watch.AnyUnscanned() {
		t.Error("without a cache no node is unscanned")
	}
	if err := watch.Register(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range objects.Pending() {
			for objects.Deliver(kind) {
			}
		}
	}
	expect := func(when string, want bool) {
		t.Helper()
		if got := watch.AnyUnscanned(); got != want {
			t.Errorf("%s: got %t, want %t", when, got, want)
		}
	}
	expect("no node", false)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	do(api.Create(t.Context(), node))
	expect("a node without a report", true)
	report := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	do(api.Create(t.Context(), report))
	expect("a node whose plug-in has not scanned its mounts", true)
	before := report.DeepCopy()
	now := metav1.NowMicro()
	report.Status.MountsScannedTime = &now
	do(api.Status().Patch(t.Context(), report, client.MergeFrom(before)))
	expect("a node whose plug-in has scanned its mounts", false)
	do(api.Delete(t.Context(), report))
	expect("a node whose report is lost", true)
	do(api.Delete(t.Context(), node))
	expect("a node that is gone", false)
}
