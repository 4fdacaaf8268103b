package main

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// growing makes the claim of the lab ask for more than it has, which the driver makes when its pods restart.
func (l *lab) growing(t *testing.T) {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	must(t, l.kube.Get(t.Context(), client.ObjectKey{Namespace: l.namespace, Name: "data"}, claim))
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("512Mi")}
	must(t, l.kube.Status().Update(t.Context(), claim))
	l.put(t, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: "data.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: l.namespace, Name: "data",
			UID: claim.UID},
		Reason: apiv1.ReasonDiskUpdatePending, Message: "the disk: it grows to 1Gi between two pods",
		Type: corev1.EventTypeNormal, FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
	})
	volumes := &apiv1.AzVolumeList{}
	must(t, l.kube.List(t.Context(), volumes, client.InNamespace(l.namespace)))
	v := &volumes.Items[0]
	v.Status.Conditions = append(v.Status.Conditions, metav1.Condition{
		Type: apiv1.VolumeConditionUpdated, Status: metav1.ConditionFalse, Reason: apiv1.ReasonDiskUpdatePending,
		Message: "it grows to 1Gi between two pods", ObservedGeneration: v.Generation, LastTransitionTime: metav1.Now(),
	})
	must(t, l.kube.Status().Update(t.Context(), v))
}

// controlled gives a pod a controller that would create it again.
func (l *lab) controlled(t *testing.T, name string) {
	t.Helper()
	p := &corev1.Pod{}
	must(t, l.kube.Get(t.Context(), client.ObjectKey{Namespace: l.namespace, Name: name}, p))
	p.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "cart", UID: "s", Controller: ptr.To(true)},
	}
	p.Labels = map[string]string{"app": "cart"}
	must(t, l.kube.Update(t.Context(), p))
}

func TestAPendingChangeIsAppliedOverARealAPIServer(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*testing.T, *lab)
		args    []string
		code    int
		want    string
		evicted bool
	}{
		"nothing is asked for": {func(t *testing.T, l *lab) {
			claim := &corev1.PersistentVolumeClaim{}
			must(t, l.kube.Get(t.Context(), client.ObjectKey{Namespace: l.namespace, Name: "data"}, claim))
			claim.Status.Capacity = claim.Spec.Resources.Requests
			must(t, l.kube.Status().Update(t.Context(), claim))
		}, []string{"claim", "data"}, 0, "has the size and the class that it asks for", false},
		"no claim": {func(*testing.T, *lab) {}, []string{"pvc/none"}, 4, "there is no claim", false},
		"a pod": {func(*testing.T, *lab) {}, []string{"pod", "cart-0"}, 64,
			`kind "pod" is not known; expected one of claim`, false},
		"a pod without a controller": {func(t *testing.T, l *lab) { l.growing(t) }, []string{"claim", "data"}, 3,
			"pod cart-0 is not evicted: no controller would create it again", false},
		"a budget": {func(t *testing.T, l *lab) {
			l.growing(t)
			l.controlled(t, "cart-0")
			l.controlled(t, "cart-old")
			l.put(t, &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: "cart"},
				Spec: policyv1.PodDisruptionBudgetSpec{
					MaxUnavailable: ptr.To(intstr.FromInt32(0)),
					Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "cart"}},
				},
				Status: policyv1.PodDisruptionBudgetStatus{
					ObservedGeneration: 1, ExpectedPods: 2, CurrentHealthy: 1, DesiredHealthy: 2,
				},
			})
		}, []string{"claim", "data"}, 3, "and the change goes on waiting", false},
		"no rights to evict": {func(t *testing.T, l *lab) {
			l.growing(t)
			l.controlled(t, "cart-0")
			l.controlled(t, "cart-old")
			l.allow(t, "reader", rbacv1.PolicyRule{APIGroups: []string{"", apiv1.GroupName}, Resources: []string{"*"},
				Verbs: []string{"get", "list"}})
		}, []string{"claim", "data", "--as", "reader"}, 3, "cannot create resource \"pods/eviction\"", false},
		"a change that waits": {func(t *testing.T, l *lab) {
			l.growing(t)
			l.controlled(t, "cart-0")
			l.controlled(t, "cart-old")
		}, []string{"claim", "data", "--timeout", "2s"}, 3, "not done within 2s", true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			test.prepare(t, l)
			text, code := l.run(t, append([]string{"apply-pending"}, test.args...)...)
			if code != test.code || !strings.Contains(plain(text), test.want) {
				t.Errorf("got exit code %d, want %d, and %q in:\n%s", code, test.code, test.want, text)
			}
			p := &corev1.Pod{}
			err := l.kube.Get(t.Context(), client.ObjectKey{Namespace: l.namespace, Name: "cart-old"}, p)
			if evicted := apierrors.IsNotFound(err) || err == nil && p.DeletionTimestamp != nil; evicted != test.evicted {
				t.Errorf("got the pod evicted: %t (%v), want %t", evicted, err, test.evicted)
			}
		})
	}
}

// awaitEviction returns when pod cart-old is evicted.
func (l *lab) awaitEviction(ctx context.Context) error {
	for p := (&corev1.Pod{}); ; time.Sleep(20 * time.Millisecond) {
		err := l.kube.Get(ctx, client.ObjectKey{Namespace: l.namespace, Name: "cart-old"}, p)
		if apierrors.IsNotFound(err) || err == nil && p.DeletionTimestamp != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// The successor of a pod may start on its node before the volume is released.
func TestAPodThatStartsOnItsNodeAgainIsNamedOverARealAPIServer(t *testing.T) {
	l := newLab(t)
	l.growing(t)
	l.controlled(t, "cart-0")
	l.controlled(t, "cart-old")
	successor := make(chan struct{})
	go func() {
		defer close(successor)
		if err := l.awaitEviction(t.Context()); err != nil {
			t.Error(err)
		}
		l.pod(t, "cart-new", "a", corev1.PodRunning)
	}()
	text, code := l.run(t, "apply-pending", "claim", "data", "--timeout", "1m")
	<-successor
	if code != 3 || !strings.Contains(text, "pod cart-new runs on node a, which still has the volume") {
		t.Errorf("got exit code %d, want 3 and the pod in:\n%s", code, text)
	}
}

// It ends when the claim has what it asks for.
func TestApplyPendingWaitsForTheChangeOverARealAPIServer(t *testing.T) {
	l := newLab(t)
	l.growing(t)
	l.controlled(t, "cart-0")
	l.controlled(t, "cart-old")
	ended := make(chan string, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		text, code := l.run(t, "apply-pending", "claim", "data")
		if code != 0 {
			t.Errorf("got exit code %d, want 0", code)
		}
		ended <- text
	}()
	claim := &corev1.PersistentVolumeClaim{}
	must(t, l.awaitEviction(ctx))
	must(t, l.kube.Get(ctx, client.ObjectKey{Namespace: l.namespace, Name: "data"}, claim))
	claim.Status.Capacity = claim.Spec.Resources.Requests
	must(t, l.kube.Status().Update(ctx, claim))
	if text := <-ended; !strings.Contains(text, "pod cart-old is evicted from node a") ||
		!strings.Contains(text, "has the size and the class that it asks for") {
		t.Errorf("got:\n%s\nwant who is evicted, and that it is done", text)
	}
}
