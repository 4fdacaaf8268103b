package volume

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// pendingLab is a claim whose pod cart runs, and whose growth has waited for a restart for a minute.
type pendingLab struct {
	*claimLab
	evicted []string
	// answer is that of the Eviction API.
	answer error
	pod    *corev1.Pod
}

func newPendingLab(t *testing.T, value string) *pendingLab {
	t.Helper()
	l := &pendingLab{claimLab: newClaimLab(t, func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{apiv1.AnnotationApplyPending: value}
	})}
	l.Client = interceptor.NewClient(l.api.(client.WithWatch), interceptor.Funcs{
		SubResourceCreate: func(_ context.Context, _ client.Client, _ string, pod, _ client.Object,
			_ ...client.SubResourceCreateOption) error {
			if l.answer == nil {
				l.evicted = append(l.evicted, pod.GetName())
			}
			return l.answer
		},
	})
	l.pod = &corev1.Pod{}
	expect.Must(t, l.api.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "cart"}, l.pod))
	l.change(func(p *corev1.Pod) {
		p.CreationTimestamp, p.Spec.NodeName = *objects.Ago(time.Hour), "a"
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "cart", UID: "s", Controller: ptr.To(true)}}
	})
	l.o.volume.Spec.CapacityBytes = 2 << 30
	l.pends(apiv1.ReasonDiskUpdatePending, objects.Ago(time.Minute).Time)
	return l
}

func (l *pendingLab) change(change func(*corev1.Pod)) {
	l.Helper()
	expect.Must(l.T, l.api.Delete(l.Context(), l.pod))
	change(l.pod)
	l.pod.ResourceVersion = ""
	expect.Must(l.T, l.api.Create(l.Context(), l.pod))
}

func (l *pendingLab) pends(reason string, since time.Time) {
	l.o.volume.Status.Conditions = []metav1.Condition{{
		Type: apiv1.VolumeConditionUpdated, Status: metav1.ConditionFalse, Reason: reason, Message: "it grows",
		ObservedGeneration: l.o.volume.Generation, LastTransitionTime: metav1.NewTime(since),
	}}
}

func TestAClaimHasItsPodsEvictedForAChangeThatWaits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		value   string
		change  func(*pendingLab)
		evicted bool
		// told is the event on the claim.
		told string
	}{
		"it asks for that":      {apiv1.ApplyPendingEvict, func(*pendingLab) {}, true, ""},
		"it waits":              {apiv1.ApplyPendingWait, func(*pendingLab) {}, false, ""},
		"a value of the future": {"drain", func(*pendingLab) {}, false, ""},
		"nothing waits": {apiv1.ApplyPendingEvict, func(l *pendingLab) {
			l.pends(apiv1.ReasonDiskUpdating, objects.Now)
		}, false, ""},
		"the volume is paused": {apiv1.ApplyPendingEvict, func(l *pendingLab) {
			l.o.volume.Annotations = map[string]string{apiv1.AnnotationPaused: apiv1.PausedTrue}
		}, false, ""},
		"a volume of several nodes": {apiv1.ApplyPendingEvict, func(l *pendingLab) {
			l.o.volume.Spec.Access = apiv1.AccessMultiNode
		}, false, ""},
		"the pod was created since": {apiv1.ApplyPendingEvict, func(l *pendingLab) {
			l.change(func(p *corev1.Pod) { p.CreationTimestamp = *objects.Ago(time.Second) })
		}, false, ""},
		"the pod has ended": {apiv1.ApplyPendingEvict, func(l *pendingLab) {
			l.change(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
		}, false, ""},
		"the pod has no node": {apiv1.ApplyPendingEvict, func(l *pendingLab) {
			l.change(func(p *corev1.Pod) { p.Spec.NodeName = "" })
		}, false, ""},
		"a pod without a controller": {apiv1.ApplyPendingEvict, func(l *pendingLab) {
			l.change(func(p *corev1.Pod) { p.OwnerReferences = nil })
		}, false, "pod cart stays: no controller would create it again"},
		"a budget does not allow it": {apiv1.ApplyPendingEvict, func(l *pendingLab) {
			l.answer = apierrors.NewTooManyRequests("the budget needs 1 pod", 0)
		}, false, "pod cart stays: the budget needs 1 pod"},
		"the pod is gone": {apiv1.ApplyPendingEvict, func(l *pendingLab) {
			l.answer = apierrors.NewNotFound(corev1.Resource("pods"), "cart")
		}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newPendingLab(t, test.value)
			test.change(l)
			again := l.tell(0)
			if evicted := slices.Equal(l.evicted, []string{"cart"}); evicted != test.evicted {
				t.Errorf("got %q evicted, want the pod: %t", l.evicted, test.evicted)
			}
			if apierrors.IsTooManyRequests(l.answer) && again != evictAgain {
				t.Errorf("got another look after %s, want one after %s", again, evictAgain)
			}
			l.tell(time.Second)
			told := l.told()
			if said := slices.ContainsFunc(told, func(e string) bool {
				return strings.Contains(e, apiv1.ReasonEvictedForDiskUpdate)
			}); said != test.evicted {
				t.Errorf("got events %q, want one of an eviction: %t", told, test.evicted)
			}
			told = slices.DeleteFunc(told, func(e string) bool { return !strings.Contains(e, apiv1.ReasonEvictionRefused) })
			if test.told == "" && len(told) > 0 || test.told != "" && (len(told) != 1 || !strings.Contains(told[0], test.told)) {
				t.Errorf("got events %q, want one: %q", told, test.told)
			}
		})
	}
}

// A pod leaves once for each change, also if the next leader looks.
func TestAPodIsEvictedForTheNextChangeToo(t *testing.T) {
	t.Parallel()
	l := newPendingLab(t, apiv1.ApplyPendingEvict)
	l.tell(0)
	l.change(func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(l.o.now.Add(time.Second)) })
	l.tell(10 * time.Second)
	if len(l.evicted) != 1 {
		t.Errorf("got %q evicted, want the pod once", l.evicted)
	}
	l.o.volume.Spec.CapacityBytes = 3 << 30
	l.tell(time.Minute)
	if len(l.evicted) != 2 {
		t.Errorf("got %q evicted, want the pod once more: another size was asked for", l.evicted)
	}
	next, err := New(l.Options)
	expect.Must(t, err)
	l.Reconciler = next
	l.change(func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(l.o.now) })
	l.tell(time.Minute)
	if len(l.evicted) != 2 {
		t.Errorf("got %q evicted, want no pod that came after the change", l.evicted)
	}
}
