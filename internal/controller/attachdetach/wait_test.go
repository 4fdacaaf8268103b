package attachdetach

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

// published reads the volume and its condition Published; nil if there is none.
func published(t *testing.T, r *Reconciler) (*apiv1.AzVolume, *metav1.Condition) {
	t.Helper()
	v := &apiv1.AzVolume{}
	expect.Must(t, r.Client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: named("vol")}, v))
	return v, meta.FindStatusCondition(v.Status.Conditions, apiv1.VolumeConditionPublished)
}

func TestTheVolumeSaysWhatALongWaitIsFor(t *testing.T) {
	t.Parallel()
	objects := fencedVolume("")
	waiting := objects[len(objects)-1].(*corev1.Pod)
	waiting.CreationTimestamp = metav1.NewTime(time.Unix(1000, 0))
	r, _ := setUp(t, driver, objects...)
	r.Publisher = nil
	clock := clocktesting.NewFakePassiveClock(time.Unix(1002, 0))
	r.Clock = clock
	reconcileOf(t, r, "vol")
	if _, c := published(t, r); c != nil {
		t.Errorf("got %+v after 2 s, want no condition for a wait of a planned move", c)
	}
	clock.SetTime(time.Unix(1004, 0))
	reconcileOf(t, r, "vol")
	first, c := published(t, r)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != apiv1.ReasonVolumeFencing || !strings.Contains(c.Message,
		"node a (epoch 1)") {
		t.Fatalf("got %+v, want False, %s, with node a and its epoch", c, apiv1.ReasonVolumeFencing)
	}
	reconcileOf(t, r, "vol")
	if again, _ := published(t, r); again.ResourceVersion != first.ResourceVersion {
		t.Error("got a second write for the same wait, want none")
	}
	a := objects[1].(*apiv1.AzVolumeAttachment)
	a.Status.Error = &apiv1.Error{Reason: "Unauthorized", Code: "AuthorizationFailed", Message: "may not detach"}
	expect.Must(t, r.Client.Status().Update(t.Context(), a))
	reconcileOf(t, r, "vol")
	if _, c := published(t, r); c == nil || c.Reason != apiv1.ReasonPermissionMissing || !strings.Contains(c.Message,
		"may not detach") {
		t.Errorf("got %+v after Azure's refusal, want %s with Azure's answer", c, apiv1.ReasonPermissionMissing)
	}
	expect.Must(t, r.Client.Delete(t.Context(), waiting))
	reconcileOf(t, r, "vol")
	if _, c := published(t, r); c == nil || c.Status != metav1.ConditionTrue || c.Reason != apiv1.ReasonPublished ||
		c.Message != "" {
		t.Errorf("got %+v without a pod that waits, want True, %s", c, apiv1.ReasonPublished)
	}
}

// The condition of another process is not written again for the same cause.
func TestARecordedWaitIsWrittenOnce(t *testing.T) {
	t.Parallel()
	r, _ := setUp(t, driver, fencedVolume("")...)
	r.Publisher = nil
	reconcileOf(t, r, "vol")
	first, _ := published(t, r)
	r.told = told{}
	reconcileOf(t, r, "vol")
	if again, _ := published(t, r); again.ResourceVersion != first.ResourceVersion {
		t.Error("got a write by the new process, want none")
	}
}

// A new detail of the same cause is recorded, by the process that recorded the last one. What Azure
// answers to repetitions differs in times alone.
func TestARecordedWaitIsWrittenAgainWithWhatIsNew(t *testing.T) {
	t.Parallel()
	accepted := func(a *apiv1.AzVolumeAttachment) { a.Status.Operation = &apiv1.Operation{ResumeToken: "t"} }
	repeated := func(a *apiv1.AzVolumeAttachment) { a.Status.Error.Message = "busy until 10:01" }
	for name, test := range map[string]struct {
		failure   string
		change    func(*apiv1.AzVolumeAttachment)
		restarted bool
		want      string
	}{
		"in the same process":            {"", accepted, false, "Azure accepted the request"},
		"in a new process":               {"", accepted, true, "Azure has not answered yet"},
		"but the time in Azure's answer": {"busy until 10:00", repeated, false, "busy until 10:00"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := fencedVolume(test.failure)
			r, _ := setUp(t, driver, objects...)
			reconcileOf(t, r, "vol")
			a := objects[1].(*apiv1.AzVolumeAttachment)
			test.change(a)
			expect.Must(t, r.Client.Status().Update(t.Context(), a))
			if test.restarted {
				r = New(r.Options)
			}
			reconcileOf(t, r, "vol")
			if _, c := published(t, r); c == nil || !strings.Contains(c.Message, test.want) {
				t.Errorf("got %+v, want a message with %q", c, test.want)
			}
		})
	}
}

// The cache is behind the API server.
func TestAConflictOfTheRecordedWaitIsNoError(t *testing.T) {
	t.Parallel()
	r, _ := setUp(t, driver, fencedVolume("")...)
	r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{SubResourcePatch: func(context.Context,
		client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "azvolumes"}, named("vol"), errors.New("changed"))
	}})
	request := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: named("vol")}}
	if result, err := r.Reconcile(t.Context(), request); err != nil || result.RequeueAfter != operation.ConflictRetry {
		t.Errorf("got %+v, %v, want the next look in %s", result, err, operation.ConflictRetry)
	}
}

func TestWhichPodsAreToldWhatTheyWaitFor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pod    *corev1.Pod
		events int
	}{
		"a pod on a node":             {pod("apps", "q", "c", claimVolume("data")), 2},
		"a pod that has no node yet":  {pod("apps", "q", "", claimVolume("data")), 1},
		"a pod that is being deleted": {ending(pod("apps", "q", "c", claimVolume("data"))), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := setUp(t, driver, append(fencedVolume(""), test.pod)...)
			reconcileOf(t, r, "vol")
			got := recorded(t, r)
			if len(got) != test.events || !strings.HasPrefix(got[0], "Normal "+apiv1.ReasonWaitingForVolume) {
				t.Errorf("got events %q, want %d of type Normal, one on the pod of the fenced volume", got, test.events)
			}
		})
	}
}

// Each of two pods waits for the disk to leave the node of the other.
func TestTheVolumeSaysWhatTheOldestPodWaitsFor(t *testing.T) {
	t.Parallel()
	objects := volume("vol", apiv1.AccessMultiNode, "a", "b")
	v := objects[0].(*apiv1.AzVolume)
	v.Spec.Access, v.Spec.Disk.MaxShares = apiv1.AccessSingleNode, 1
	v.Status.Primary = &apiv1.Ownership{Epoch: 1, State: apiv1.OwnershipReleased}
	for _, o := range objects[1:] {
		o.SetDeletionTimestamp(ptr.To(metav1.Now()))
		o.SetFinalizers([]string{apiv1.FinalizerAttachment})
	}
	oldest, youngest := pod("apps", "z", "a", inline(disk("rg", "vol"))), pod("apps", "a", "b", inline(disk("rg", "vol")))
	oldest.CreationTimestamp, youngest.CreationTimestamp = metav1.NewTime(time.Unix(1, 0)), metav1.NewTime(time.Unix(2, 0))
	r, _ := setUp(t, driver, append(objects, oldest, youngest)...)
	r.Publisher = nil
	reconcileOf(t, r, "vol")
	if _, c := published(t, r); c == nil || !strings.Contains(c.Message, "released by node b") {
		t.Errorf("got %+v, want the wait of the oldest pod, for node b", c)
	}
}

func TestWithVolumeAttachmentsNothingIsPublished(t *testing.T) {
	t.Parallel()
	r, calls := setUp(t, driver, readyNode("a"), report("a"), pod("apps", "p", "a", inline(disk("rg", "vol"))))
	r.Publisher = nil
	reconcileOf(t, r, "vol")
	calls.expect(t)
}
