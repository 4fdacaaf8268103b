package annotations_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/annotations"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
)

// recorder keeps events in their order.
type recorder struct{ events []string }

func (r *recorder) Eventf(about, _ runtime.Object, kind, reason, _, note string, args ...any) {
	name := ""
	switch about := about.(type) {
	case client.Object:
		name = about.GetName()
	case *corev1.ObjectReference:
		name = about.Kind + " " + about.Name
	}
	r.events = append(r.events, fmt.Sprintf("%s %s %s: %s", kind, reason, name, fmt.Sprintf(note, args...)))
}

func TestAnUnknownValueCausesOneEvent(t *testing.T) {
	t.Parallel()
	store := memapi.New(apiserver.Scheme(t), clock.RealClock{})
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "shop", "cart-0"
	pod.Annotations = map[string]string{apiv1.AnnotationFailover: "off"}
	claim := &corev1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name = "shop", "data"
	claim.Annotations = map[string]string{apiv1.AnnotationFailover: apiv1.FailoverDisabled, apiv1.AnnotationMaintenance: "no"}
	node := &corev1.Node{}
	node.Name, node.Annotations = "a", map[string]string{apiv1.AnnotationFailover: "no"}
	expect.Must(t, errors.Join(store.Create(pod), store.Create(claim), store.Create(node)))
	seen := memapi.NewCache(store, cluster.CacheOptions("n"))
	told := &recorder{}
	expect.Must(t, (&annotations.Reporter{Informers: seen, Events: told}).Start(t.Context()))
	const begins = "Warning AnnotationInvalid cart-0: it has the annotation disk.csi.azure.com/"
	const off = begins + `failover: "off", which is neither enabled nor disabled and counts as disabled`
	const ofNode = `Warning AnnotationInvalid Node a: it has the annotation disk.csi.azure.com/failover: "no", which is neither ` +
		"enabled nor disabled and counts as disabled"
	want := func(all ...string) {
		t.Helper()
		all = slices.Sorted(slices.Values(append(all, ofNode)))
		if !slices.Equal(slices.Sorted(slices.Values(told.events)), all) {
			t.Errorf("got the events %q, want %q", told.events, all)
		}
	}
	want(off)

	change := func(change func()) {
		t.Helper()
		expect.Must(t, store.Get(client.ObjectKeyFromObject(pod), pod))
		change()
		expect.Must(t, store.Update(pod, false))
		for seen.Deliver("Pod") {
		}
	}
	change(func() { pod.Spec.NodeName = "a" })
	want(off)
	change(func() { pod.Annotations[apiv1.AnnotationMaintenance] = "no" })
	const no = begins + `maintenance: "no", which is neither evict nor stay and counts as stay`
	want(off, no)
	change(func() { pod.Annotations[apiv1.AnnotationFailover] = apiv1.FailoverEnabled })
	want(off, no)
}
