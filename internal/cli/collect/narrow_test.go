package collect_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/cli/collect"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// namespaced is a client with the rights of a developer in the namespace shop.
type namespaced struct{ client.Client }

func allowed(o any, namespace string) bool {
	switch o.(type) {
	case *corev1.Pod, *corev1.PersistentVolumeClaim, *corev1.PodList, *corev1.EventList:
		return namespace == shop
	}
	return false
}

func forbidden(name string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, name, nil)
}

func (n namespaced) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if !allowed(into, key.Namespace) {
		return forbidden(key.Name)
	}
	return n.Client.Get(ctx, key, into, options...)
}

func (n namespaced) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(options)
	if !allowed(into, o.Namespace) {
		return forbidden("")
	}
	return n.Client.List(ctx, into, options...)
}

// TestEventsExplainWithoutOtherRights reads with the rights of a namespace.
func TestEventsExplainWithoutOtherRights(t *testing.T) {
	t.Parallel()
	said := func(kind explain.Kind, name, reason, message string) func(*stage) {
		return func(s *stage) { s.event(kind, name, reason, message) }
	}
	pod := explain.KindPod
	for name, test := range map[string]struct {
		stage func() *stage
		want  string
		says  string
	}{
		"a pod that the driver has told what it waits for": {
			changed(cold(), said(pod, "cart-0", "WaitingForVolume", "volume vol is held by node a")), "WaitingForVolume",
			"held by node a"},
		"a pod that the driver has told that it waits in vain": {
			changed(cold(), said(pod, "cart-0", "FailedAttachVolume", "no slot is free")), "FailedAttachVolume",
			"no slot is free"},
		"a pod that stays on a lost node": {
			changed(cold(), said(pod, "cart-0", "FailoverHeldBack", "it has opted out"),
				said(pod, "cart-0", "WaitingForVolume", "volume vol is held by node a")), "FailoverHeldBack", "it has opted out"},
		"a pod whose disk has another filesystem": {
			changed(cold(), said(pod, "cart-0", "FailedMount", "rpc error: desc = FilesystemMismatch: it holds xfs")),
			"FilesystemMismatch", "it holds xfs"},
		"a pod whose mount fails": {changed(cold(), said(pod, "cart-0", "FailedMount", "exit status 32")), "FailedMount",
			"exit status 32"},
		"a claim that stays on a lost node": {changed(cold(), claimAsked, said(explain.KindClaim, "data", "FailoverHeldBack",
			"remains")),
			"FailoverHeldBack", "remains"},
		"a claim that was refused": {changed(unprovisioned(nil), said(explain.KindClaim, "data", "ProvisioningFailed",
			"skuName: Gold")),
			"ProvisioningFailed", "skuName: Gold"},
		"a claim that waits for its first pod": {changed(unprovisioned(nil),
			said(explain.KindClaim, "data", "WaitForFirstConsumer", "waiting for first consumer")), "WaitForFirstConsumer",
			"when a pod"},
		"a pod that runs on a frozen filesystem": {changed(newStage(), func(s *stage) { runs(s.pod) },
			said(pod, "cart-0", "FilesystemFrozen", "volume vol: node a: it is frozen")), "FilesystemFrozen",
			"it is frozen"},
		"a claim whose volume cannot leave a node": {changed(cold(), claimAsked,
			said(explain.KindClaim, "data", "DeviceHeld", "volume vol: node a: by swap")), "DeviceHeld", "by swap"},
		"a pod that runs after a problem has ended": {changed(newStage(), func(s *stage) { runs(s.pod) },
			said(pod, "cart-0", "NoProblem", "volume vol: it has ended"), func(s *stage) {
				s.event(pod, "cart-0", "DeviceHeld", "volume vol: node a: by swap")
				if e, ok := s.more[len(s.more)-1].(*corev1.Event); ok {
					e.LastTimestamp = *objects.Ago(time.Hour)
				}
			}), "Healthy", "in use"},
		"a claim without events":               {func() *stage { return unprovisioned(nil) }, "NotReadable", "no event says why"},
		"a pod without events":                 {cold, "NotReadable", "Claim data is bound"},
		"a pod that runs":                      {changed(newStage(), func(s *stage) { runs(s.pod) }), "Healthy", "in use"},
		"a pod with a claim that is not there": {changed(newStage(), func(s *stage) { s.claim, s.pv = nil, nil }), "ClaimNotFound", "no claim"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := test.stage()
			facts, err := collect.Collect(t.Context(), namespaced{indexed(s.objects()...)}, collect.Options{
				Subject: s.subject, DriverName: driverName, DriverNamespace: driverNS,
				Now: func() time.Time { return objects.Now },
			})
			if err != nil {
				t.Fatalf("collect: got %v, want no error", err)
			}
			got := explain.Explain(facts)
			if got.ID != test.want || !strings.Contains(got.Sentence+" "+got.Quote, test.says) ||
				got.Rights != explain.ScopeNamespace {
				t.Errorf("got %s with the rights of the %s, want %s with those of the namespace, and %q:\n%s", got.ID, got.Rights,
					test.want, test.says, got.Text())
			}
		})
	}
}

// withoutDrivers is a client that may not read CSIDrivers.
type withoutDrivers struct{ client.Client }

func (c withoutDrivers) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if _, is := into.(*storagev1.CSIDriver); is {
		return forbidden(key.Name)
	}
	return c.Client.Get(ctx, key, into, options...)
}

// Whether Kubernetes attaches a volume whose PersistentVolume is deleted is in the CSIDriver alone.
func TestWithoutTheCSIDriverABoundVolumeThatIsDeletedIsNotHealthy(t *testing.T) {
	t.Parallel()
	s := changed(newStage(), claimAsked, terminating, func(s *stage) { runs(s.pod) })()
	facts, err := collect.Collect(t.Context(), withoutDrivers{indexed(s.objects()...)}, collect.Options{
		Subject: s.subject, DriverName: driverName, DriverNamespace: driverNS, Now: func() time.Time { return objects.Now },
	})
	if err != nil {
		t.Fatalf("collect: got %v, want no error", err)
	}
	got := explain.Explain(facts)
	if got.Outcome != cause.CannotTell || !strings.Contains(got.Sentence, "not readable with these rights") {
		t.Errorf("got %s, %q, want %s and that the CSIDriver is not readable", got.Outcome, got.Sentence, cause.CannotTell)
	}
}
