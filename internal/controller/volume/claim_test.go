package volume

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// claimLab is a volume in use with its claim.
type claimLab struct {
	*testing.T
	*Reconciler
	o   observed
	api client.Client
}

func newClaimLab(t *testing.T, change ...func(*corev1.PersistentVolumeClaim)) *claimLab {
	t.Helper()
	l := &claimLab{T: t}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "1"}}
	claim.Spec.VolumeName = "pv"
	for _, c := range change {
		c(claim)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	l.api = fakeapi.With(claim, pod).WithIndex(&corev1.Pod{}, cluster.PodClaim, cluster.PodClaimKeys).Build()
	r, err := New(Options{Client: l.api, Events: events.NewFakeRecorder(20)})
	expect.Must(t, err)
	l.Reconciler = r
	l.o = observed{
		volume: objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld), func(v *apiv1.AzVolume) {
			v.Status.Replicas = &apiv1.ReplicaCount{Ready: 1, Wanted: 1}
		}),
		pv:  &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}},
		now: objects.Now,
	}
	l.o.pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "1"}
	return l
}

// tell lets some time pass, and tells the claim.
func (l *claimLab) tell(after time.Duration) time.Duration {
	l.Helper()
	l.o.now = l.o.now.Add(after)
	again, err := l.tellClaim(l.Context(), l.o)
	expect.Must(l.T, err)
	return again
}

// told returns the events since the last call.
func (l *claimLab) told() []string {
	var all []string
	for {
		select {
		case e := <-l.Events.(*events.FakeRecorder).Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

func (l *claimLab) replicas(status metav1.ConditionStatus, reason string, ready int32) {
	l.o.volume.Status.Replicas.Ready = ready
	l.o.volume.Status.Conditions = []metav1.Condition{{
		Type: apiv1.VolumeConditionReplicasAttached, Status: status, Reason: reason, Message: "b: no free slot",
		LastTransitionTime: metav1.NewTime(l.o.now),
	}}
}

func TestAClaimIsToldOfMissingReplicasOnce(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t)
	l.tell(0)
	l.tell(time.Second)
	l.replicas(metav1.ConditionFalse, apiv1.ReasonReplicasMissing, 0)
	if again := l.tell(10 * time.Second); len(l.told()) > 0 || again > 50*time.Second {
		t.Errorf("got an event at once, or another look after %s; want none, and a look within 50s", again)
	}
	l.tell(time.Minute)
	l.tell(time.Minute)
	if got := l.told(); len(got) != 1 || got[0] != "Warning ReplicasMissing 0 of 1 replicas are attached: b: no free slot" {
		t.Errorf("got events %q, want one about the missing replica", got)
	}
	l.replicas(metav1.ConditionTrue, apiv1.ReasonReplicasAttached, 1)
	l.tell(time.Second)
	l.tell(time.Second)
	if got := l.told(); len(got) != 1 || got[0] != "Normal ReplicasAttached 1 of 1 replicas are attached again" {
		t.Errorf("got events %q, want one about the restored replica", got)
	}
}

// Thousands of claims would get an event when the controller starts.
func TestTheNextLeaderRepeatsNoEventsOnClaims(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t)
	l.replicas(metav1.ConditionFalse, apiv1.ReasonReplicasMissing, 0)
	l.tell(time.Hour)
	if got := l.told(); len(got) > 0 {
		t.Errorf("got events %q, want none: they were due before this process began", got)
	}
}

func TestAClaimThatCannotBeDeletedIsTold(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, func(c *corev1.PersistentVolumeClaim) {
		c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: objects.Now}, []string{"kubernetes.io/pvc-protection"}
	})
	l.tell(0)
	l.tell(time.Minute)
	if got := l.told(); len(got) != 1 || !strings.HasSuffix(got[0], "ClaimInUse the claim is deleted as soon as no pod uses it: cart") {
		t.Errorf("got events %q, want one that names the pod", got)
	}
}
