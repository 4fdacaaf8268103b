package attachdetach

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
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
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != apiv1.ReasonFencing || !strings.Contains(c.Message,
		"node a (epoch 1)") {
		t.Fatalf("got %+v, want False, %s, with node a and its epoch", c, apiv1.ReasonFencing)
	}
	reconcileOf(t, r, "vol")
	if again, _ := published(t, r); again.ResourceVersion != first.ResourceVersion {
		t.Error("got a second write for the same wait, want none")
	}
	a := objects[1].(*apiv1.AzVolumeAttachment)
	a.Status.Error = &apiv1.Error{Kind: "Unauthorized", Code: "AuthorizationFailed", Message: "may not detach"}
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
