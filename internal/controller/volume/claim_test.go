package volume

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// claimLab is a volume in use with its claim.
type claimLab struct {
	*testing.T
	*Reconciler
	o      observed
	api    client.Client
	writes int
	fail   error // of the next writes
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
	l.api = fakeapi.With(claim, pod).WithIndex(&corev1.Pod{}, cluster.PodClaim, cluster.PodClaimKeys).
		WithInterceptorFuncs(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object,
			p client.Patch, options ...client.PatchOption) error {
			if l.fail != nil {
				return l.fail
			}
			l.writes++
			return c.Patch(ctx, o, p, options...)
		}}).Build()
	r, err := New(Options{Client: l.api, Events: events.NewFakeRecorder(20), ClaimStatus: true})
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

func (l *claimLab) claim() *corev1.PersistentVolumeClaim {
	l.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	expect.Must(l.T, l.api.Get(l.Context(), client.ObjectKey{Namespace: "shop", Name: "data"}, claim))
	return claim
}

func (l *claimLab) expect(when, status string, writes int) {
	l.Helper()
	if got := l.claim().Annotations[apiv1.AnnotationStatus]; got != status || l.writes != writes {
		l.Errorf("%s: got %q by %d writes, want %q by %d", when, got, l.writes, status, writes)
	}
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
		Type: placement.ConditionReplicasAttached, Status: status, Reason: reason, Message: "b: no free slot",
		LastTransitionTime: metav1.NewTime(l.o.now),
	}}
}

const (
	healthyStatus = `{"primary":"a","replicas":"1/1"}`
	movedStatus   = `{"primary":"b","replicas":"1/1"}`
)

func TestTheStatusOfAClaimIsWrittenWhenItChanges(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t)
	l.tell(0)
	l.expect("at first", healthyStatus, 1)
	l.tell(time.Hour)
	l.expect("without a change", healthyStatus, 1)
	l.o.volume.Status.Primary.NodeName = "b"
	l.tell(0)
	l.expect("after a move", movedStatus, 2)
	l.o.volume.Status.Primary.NodeName = "c"
	if again := l.tell(3 * time.Second); again != claimEvery-3*time.Second {
		t.Errorf("another move, 3 s later: got another look after %s, want after the rest of %s", again, claimEvery)
	}
	l.expect("another move, too soon", movedStatus, 2)
	l.o.volume.Status.Primary.NodeName = "b"
	l.tell(time.Minute)
	l.expect("back again before it was written", movedStatus, 2)
}

func TestAnEditOfTheStatusIsUndone(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t)
	l.tell(0)
	claim := l.claim()
	claim.Annotations = map[string]string{apiv1.AnnotationStatus: "mine", "other": "kept"}
	expect.Must(t, l.api.Update(t.Context(), claim))
	l.tell(claimEvery)
	l.expect("after an edit", healthyStatus, 2)
	if got := l.claim().Annotations["other"]; got != "kept" {
		t.Errorf("got the user's annotation %q, want kept", got)
	}
}

func TestNoOtherClaimOfTheNameGetsTheStatus(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"a claim that was created again":  func(c *corev1.PersistentVolumeClaim) { c.UID = "2" },
		"a claim that is bound elsewhere": func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv-2" },
	} {
		l := newClaimLab(t, change)
		l.tell(0)
		l.expect(name, "", 0)
	}
	// The cache still has the claim that was deleted.
	l := newClaimLab(t)
	cached := l.claim()
	expect.Must(t, l.api.Delete(t.Context(), cached))
	again := cached.DeepCopy()
	again.UID, again.ResourceVersion = "2", ""
	expect.Must(t, l.api.Create(t.Context(), again))
	record, _ := l.claims.of("vol", "1", l.o.now)
	if _, err := l.annotate(t.Context(), cached, healthyStatus, record, l.o.now); err != nil {
		t.Errorf("got %v, want the conflict to be retried", err)
	}
	if got := l.claim().Annotations; len(got) > 0 {
		t.Errorf("got %v on the new claim, want nothing", got)
	}
}

func TestARefusedStatusDisturbsNothing(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t)
	l.fail = apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "data", errors.New("no"))
	if again := l.tell(0); again != claimRefusedRetry {
		t.Errorf("got another try after %s, want after %s", again, claimRefusedRetry)
	}
	l.fail = nil
	l.tell(time.Minute)
	l.expect("a minute later", "", 0)
	l.tell(claimRefusedRetry)
	l.expect("when the right was given", healthyStatus, 1)
}

func TestAVolumeThatWasNeverUsedIsNotWritten(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t)
	primary := l.o.volume.Status.Primary
	l.o.volume.Status.Primary, l.o.volume.Status.Replicas = nil, nil
	l.tell(0)
	l.expect("before the first use", "", 0)
	l.o.volume.Status.Primary = primary
	l.tell(0)
	l.expect("in use", `{"primary":"a"}`, 1)
	l.o.volume.Status.Primary = nil
	l.tell(claimEvery)
	l.expect("after the use", `{}`, 2)
}

func TestWithoutTheSwitchClaimsAreNotWritten(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t)
	l.ClaimStatus = false
	l.tell(0)
	l.expect("without the switch", "", 0)
}

func TestAClaimIsToldOfMissingReplicasOnce(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t)
	l.tell(0)
	l.tell(time.Second)
	l.replicas(metav1.ConditionFalse, placement.ReasonReplicasMissing, 0)
	if again := l.tell(10 * time.Second); len(l.told()) > 0 || again > 50*time.Second {
		t.Errorf("got an event at once, or another look after %s; want none, and a look within 50s", again)
	}
	l.tell(time.Minute)
	l.tell(time.Minute)
	if got := l.told(); len(got) != 1 || got[0] != "Warning ReplicasMissing 0 of 1 replicas are attached: b: no free slot" {
		t.Errorf("got events %q, want one about the missing replica", got)
	}
	l.replicas(metav1.ConditionTrue, placement.ReasonReplicasAttached, 1)
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
	l.replicas(metav1.ConditionFalse, placement.ReasonReplicasMissing, 0)
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
