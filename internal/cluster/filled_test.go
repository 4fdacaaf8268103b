package cluster_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// cached returns a client that reads from the controller's cache, which runs until the test ends.
func cached(t *testing.T, namespace string) client.Client {
	t.Helper()
	config, options := apiserver.Config(t), cluster.CacheOptions(namespace)
	options.Scheme = apiserver.Scheme(t)
	objects, err := cache.New(config, options)
	expect.Must(t, err)
	expect.Must(t, cluster.AddIndexes(t.Context(), objects, "driver"))
	c, err := client.New(config, client.Options{Scheme: options.Scheme, Cache: &client.CacheOptions{Reader: objects}})
	expect.Must(t, err)
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- objects.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		expect.Must(t, <-ended)
	})
	if !objects.WaitForCacheSync(ctx) {
		t.Fatal("the cache is not filled")
	}
	return c
}

func TestTheCacheFindsTrimmedObjects(t *testing.T) {
	t.Parallel()
	namespace, api := apiserver.Namespace(t), apiserver.Client(t)
	made := objects.NewAttachment("node", apiv1.RoleReplica, 0, "")
	made.Namespace = namespace
	expect.Must(t, api.Create(t.Context(), made))
	c := cached(t, namespace)
	for where, want := range map[string]int{namespace: 1, "": 1} {
		if of, err := cluster.AttachmentsOfNode(t.Context(), c, where, "node"); err != nil || len(of) != want {
			t.Errorf("namespace %q: got %v, %v, want %d attachments", where, of, err, want)
		}
	}
	find := func(name string) *apiv1.AzVolumeAttachment {
		key := client.ObjectKey{Namespace: namespace, Name: name}
		found, err := kube.Find[apiv1.AzVolumeAttachment](t.Context(), c, key, client.UnsafeDisableDeepCopy)
		expect.Must(t, err)
		return found
	}
	if none := find("none"); none != nil {
		t.Errorf("got %v for a name that no object has", none)
	}
	before := find(made.Name)
	made.Labels = map[string]string{"changed": "yes"}
	expect.Must(t, api.Update(t.Context(), made))
	var after *apiv1.AzVolumeAttachment
	expect.Eventually(t, "the cache has the object as it was changed", func() bool {
		after = find(made.Name)
		return after.ResourceVersion == made.ResourceVersion
	})
	if before.ManagedFields != nil || after.ManagedFields != nil {
		t.Errorf("got %+v from the list and %+v from the watch, want both without managed fields", before, after)
	}
}

func TestTheCacheHasNoPodsThatHaveEnded(t *testing.T) {
	t.Parallel()
	namespace, api := apiserver.Namespace(t), apiserver.Client(t)
	for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded} {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("p-%d", len(phase))},
			Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		expect.Must(t, api.Create(t.Context(), p))
		p.Status.Phase = phase
		expect.Must(t, api.Status().Update(t.Context(), p))
	}
	c := cached(t, namespace)
	var all corev1.PodList
	expect.Must(t, c.List(t.Context(), &all, client.InNamespace(namespace)))
	on, err := cluster.PodsOn(t.Context(), c, "node")
	expect.Must(t, err)
	if len(all.Items) != 1 || len(on) == 0 || all.Items[0].Status.Phase != corev1.PodRunning ||
		all.Items[0].Spec.Containers != nil {
		t.Errorf("got %+v, and %d on the node, want the pod that runs, trimmed", all.Items, len(on))
	}
}
