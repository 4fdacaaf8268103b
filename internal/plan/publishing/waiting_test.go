package publishing_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/publishing"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func TestWaiting(t *testing.T) {
	const primary = apiv1.RolePrimary
	attached := func(change ...func(*apiv1.AzVolumeAttachment)) *apiv1.AzVolumeAttachment {
		a := objects.NewAttachment("a", primary, 4, apiv1.AttachmentAttached)
		for _, c := range change {
			c(a)
		}
		return a
	}
	lost := func(v *apiv1.AzVolume) {
		v.Status.Primary.Cause, v.Status.Primary.LastTransitionTime = apiv1.CauseNodeLost, &metav1.Time{Time: objects.Now}
	}
	refused := func(a *apiv1.AzVolumeAttachment) {
		a.Status.State, a.Status.Error = apiv1.AttachmentDetaching, &apiv1.Error{
			Reason:  "Unavailable",
			Message: "503 Service Unavailable",
		}
	}
	accepted := func(a *apiv1.AzVolumeAttachment) {
		a.Status.Operation = &apiv1.Operation{Type: "Fence", StartTime: metav1.NewTime(objects.Now)}
	}
	proven := func(a *apiv1.AzVolumeAttachment) {
		a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofDetached, Epoch: 4}
	}
	heldBack := objects.Report("a", "vol")
	heldBack.Status.Conditions = []metav1.Condition{{
		Type:    apiv1.NodeConditionReachable,
		Status:  metav1.ConditionUnknown,
		Reason:  apiv1.ReasonFencingHeldBack,
		Message: "2 of 4 nodes seem lost",
	}}
	paused := func(v *apiv1.AzVolume) { v.Annotations = map[string]string{apiv1.AnnotationPaused: apiv1.PausedTrue} }
	multi := func(v *apiv1.AzVolume) { v.Spec.Access = apiv1.AccessMultiNode }
	held, releasing := objects.Owned("a", 4, apiv1.OwnershipHeld), objects.Owned("a", 4, apiv1.OwnershipReleasing)
	released := objects.Owned("", 4, apiv1.OwnershipReleased)
	single := func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 1 }
	shared := func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 2 }
	unstaged := func(a *apiv1.AzVolumeAttachment) {
		a.DeletionTimestamp = objects.Ago(0)
		a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofUnstaged, Epoch: 4}
	}
	for name, test := range map[string]struct {
		volume     *apiv1.AzVolume
		attachment *apiv1.AzVolumeAttachment
		others     []*corev1.Pod
		reports    []*apiv1.AzDriverNode
		notReady   []string
		node       string
		// want are parts of the message; none for no wait.
		want    []string
		failing bool
		cause   string
	}{
		"a volume without an AzVolume": {},
		"a released volume":            {volume: objects.NewVolume(objects.Owned("", 4, apiv1.OwnershipReleased))},
		"a paused volume at a node that does not have the disk": {volume: objects.NewVolume(released, paused), node: "b",
			want: []string{"VolumePaused: node b", "requests nothing at Azure"}, failing: true, cause: apiv1.ReasonVolumePaused},
		"a paused volume at a node that has the disk": {volume: objects.NewVolume(released, paused), attachment: attached(),
			node: "a"},
		"a volume that the node itself holds": {volume: objects.NewVolume(held), attachment: attached(), node: "a"},
		"a volume of several nodes":           {volume: objects.NewVolume(multi), attachment: attached()},
		"a volume of several nodes, whatever ownership it has": {volume: objects.NewVolume(multi, held),
			attachment: attached(), others: []*corev1.Pod{user("a", 0)}},
		"a volume that was never owned": {volume: objects.NewVolume()},
		"a volume that is being deleted with its disk": {
			volume: objects.NewVolume(released,
				func(v *apiv1.AzVolume) {
					v.DeletionTimestamp, v.Spec.DeletionPolicy = objects.Ago(0), apiv1.DeletionDelete
				}),
			want: []string{"is being deleted with its disk"}, failing: true, cause: apiv1.ReasonDiskDeleting},
		"a volume of several nodes whose record is being removed": {
			volume: objects.NewVolume(multi,
				func(v *apiv1.AzVolume) { v.DeletionTimestamp, v.Status.State = objects.Ago(0), apiv1.VolumeDeleting }),
			want: []string{"its disk stays", "attached again"}, cause: apiv1.ReasonDiskDeleting},
		"a volume that another node has to unstage": {volume: objects.NewVolume(held), attachment: attached(),
			reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")}, want: []string{"held by node a (epoch 4)", "unstage"},
			cause: apiv1.ReasonStillMounted},
		"a volume that another node is to release": {volume: objects.NewVolume(releasing), attachment: attached(),
			want: []string{"held by node a (epoch 4)", "not reported yet"}, cause: apiv1.ReasonStillMounted},
		"a volume that is to be released by a node without an attachment": {volume: objects.NewVolume(releasing),
			want: []string{"not reported yet"}, cause: apiv1.ReasonStillMounted},
		"a volume whose detach began before its release": {volume: objects.NewVolume(held), attachment: attached(refused),
			reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")}, want: []string{"must unstage it first"},
			cause: apiv1.ReasonStillMounted},
		"an unshared disk that stays at the last node": {volume: objects.NewVolume(released, single),
			attachment: attached(proven)},
		"an unshared disk that is being detached": {volume: objects.NewVolume(released, single), attachment: attached(unstaged),
			want: []string{"released by node a", "being detached"}, cause: apiv1.ReasonDiskDetaching},
		"an unshared disk that Azure does not detach": {volume: objects.NewVolume(released, single),
			attachment: attached(unstaged, refused), want: []string{"503"}, failing: true, cause: apiv1.ReasonAzureUnavailable},
		"an unshared disk that is being detached from the node itself": {volume: objects.NewVolume(released, single),
			attachment: attached(unstaged), node: "a"},
		"a shared disk that is being detached": {volume: objects.NewVolume(released, shared), attachment: attached(unstaged)},
		"a volume that the other node has just unstaged": {volume: objects.NewVolume(held), attachment: attached(),
			reports: []*apiv1.AzDriverNode{objects.Report("a")}},
		"a fence that has not begun": {volume: objects.NewVolume(releasing, lost),
			want:  []string{"which was lost at " + objects.Now.UTC().Format(time.TimeOnly), "by force"},
			cause: apiv1.ReasonVolumeFencing},
		"a fence that Azure has not answered": {volume: objects.NewVolume(releasing, lost), attachment: attached(),
			want: []string{"which was lost", "has not answered"}, cause: apiv1.ReasonVolumeFencing},
		"a fence that Azure has accepted": {volume: objects.NewVolume(releasing, lost), attachment: attached(accepted),
			want: []string{"accepted the request at"}, cause: apiv1.ReasonVolumeFencing},
		"a fence that Azure has refused": {volume: objects.NewVolume(releasing, lost), attachment: attached(refused),
			want: []string{"503 Service Unavailable", "repeated"}, failing: true, cause: apiv1.ReasonAzureUnavailable},
		"a fence that is proven": {volume: objects.NewVolume(releasing, lost), attachment: attached(proven),
			want: []string{"no longer write", "Detached"}, cause: apiv1.ReasonFailoverProven},
		"a fence of the node that wants it back": {volume: objects.NewVolume(releasing, lost), attachment: attached(refused),
			node: "a", want: []string{"503"}, failing: true, cause: apiv1.ReasonAzureUnavailable},
		"a release that became a forced detach": {volume: objects.NewVolume(releasing), attachment: attached(refused),
			want: []string{"503"}, failing: true, cause: apiv1.ReasonAzureUnavailable},
		"a volume that pods of another node keep": {volume: objects.NewVolume(held), attachment: attached(),
			others: []*corev1.Pod{user("a", 0)}, want: []string{"pods there use it"}, failing: true,
			cause: apiv1.ReasonHeldByPods},
		"a volume that an ending pod still uses": {volume: objects.NewVolume(held), attachment: attached(),
			reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")}, others: []*corev1.Pod{user("a", 0, ending)},
			want: []string{"unstage"}, cause: apiv1.ReasonStillMounted},
		"a holder that is not Ready": {volume: objects.NewVolume(held), attachment: attached(), notReady: []string{"a"},
			others: []*corev1.Pod{user("a", 0, ending)}, reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")},
			want: []string{"that node is not Ready"}, failing: true, cause: apiv1.ReasonKubeletDown},
		"a holder that is not Ready and has no report": {volume: objects.NewVolume(held), attachment: attached(),
			notReady: []string{"a"}, others: []*corev1.Pod{user("a", 0, ending)},
			want: []string{"that node is not Ready"}, failing: true, cause: apiv1.ReasonKubeletDown},
		"a holder whose fencing the guard holds back": {volume: objects.NewVolume(held), attachment: attached(),
			notReady: []string{"a"}, others: []*corev1.Pod{user("a", 0, ending)}, reports: []*apiv1.AzDriverNode{heldBack},
			want: []string{"FencingHeldBack: 2 of 4 nodes seem lost"}, failing: true, cause: apiv1.ReasonFencingHeldBack},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var attachments []*apiv1.AzVolumeAttachment
			if test.attachment != nil {
				attachments = append(attachments, test.attachment)
			}
			node := test.node
			if node == "" {
				node = "b"
			}
			got := publishing.WaitOf(input(test.volume, attachments, append(test.others, user(node, 0)), test.reports,
				test.notReady), node)
			if (got.Key != "") != (len(test.want) > 0) || got.Failing != test.failing {
				t.Errorf("got %+v, want a wait: %t, failing: %t", got, len(test.want) > 0, test.failing)
			}
			if got.Cause != test.cause {
				t.Errorf("got cause %q, want %q", got.Cause, test.cause)
			}
			for _, want := range test.want {
				if !strings.Contains(got.Message, want) {
					t.Errorf("got message %q, want one with %q", got.Message, want)
				}
			}
		})
	}
}

func TestAVolumeWithoutAPrimaryHasNoHolder(t *testing.T) {
	t.Parallel()
	multi := func(v *apiv1.AzVolume) { v.Spec.Access = apiv1.AccessMultiNode }
	for name, v := range map[string]*apiv1.AzVolume{
		"never owned":       objects.NewVolume(),
		"released":          objects.NewVolume(objects.Owned("", 4, apiv1.OwnershipReleased)),
		"for several nodes": objects.NewVolume(multi, objects.Owned("a", 4, apiv1.OwnershipHeld)),
	} {
		if got := publishing.Holder(v, nil); got != (publishing.Wait{}) {
			t.Errorf("%s: got %+v, want no wait", name, got)
		}
	}
}

func TestTheKeyOfAWaitDoesNotFollowTimesAndTexts(t *testing.T) {
	wait := func(message string, kind string, at time.Time) publishing.Wait {
		a := objects.NewAttachment("a", apiv1.RolePrimary, 4, apiv1.AttachmentDetaching)
		a.Status.Error = &apiv1.Error{
			Reason:      kind,
			Message:     message,
			FailureTime: metav1.NewTime(at),
		}
		return publishing.Holder(objects.NewVolume(objects.Owned("a", 4, apiv1.OwnershipReleasing),
			func(v *apiv1.AzVolume) { v.Status.Primary.Cause = apiv1.CauseNodeLost }), a)
	}
	first, again, other := wait("503 (request 1)", "Unavailable", objects.Now), wait("503 (request 2)", "Unavailable",
		objects.Now.Add(time.Minute)), wait("429", "RateLimited", objects.Now)
	if first.Key != again.Key {
		t.Errorf("got keys %q and %q for two answers of one kind, want one", first.Key, again.Key)
	}
	if first.Key == other.Key {
		t.Errorf("got key %q for answers of two kinds, want two", first.Key)
	}
}

func TestAPodIsToldThatItWaitsAfterSomeSeconds(t *testing.T) {
	pod := user("b", 0)
	for age, want := range map[time.Duration]time.Duration{
		0:               3 * time.Second,
		time.Second:     2 * time.Second,
		3 * time.Second: 0,
		time.Hour:       0,
	} {
		if got := publishing.FirstEventIn(pod, pod.CreationTimestamp.Add(age)); got != want {
			t.Errorf("a pod that is %s old: got %s, want %s", age, got, want)
		}
	}
}

func TestWhatIsRecordedOfAWait(t *testing.T) {
	t.Parallel()
	fence := publishing.Wait{Key: "a 4", Cause: apiv1.ReasonVolumeFencing, Message: "node a was lost"}
	of := func(status metav1.ConditionStatus, reason string) *metav1.Condition {
		return &metav1.Condition{Type: apiv1.VolumeConditionPublished, Status: status, Reason: reason}
	}
	for name, c := range map[string]struct {
		before  *metav1.Condition
		wait    publishing.Wait
		sameKey bool
		want    string // "" for no change
	}{
		"a first wait":              {nil, fence, true, "False VolumeFencing"},
		"the same wait":             {of("False", "VolumeFencing"), fence, true, ""},
		"another for the same":      {of("False", "VolumeFencing"), fence, false, "False VolumeFencing"},
		"another cause":             {of("False", "StillMounted"), fence, true, "False VolumeFencing"},
		"a wait after one that was": {of("True", "Published"), fence, true, "False VolumeFencing"},
		"the end of a wait":         {of("False", "VolumeFencing"), publishing.Wait{}, true, "True Published"},
		"no wait":                   {nil, publishing.Wait{}, true, ""},
		"no wait any more":          {of("True", "Published"), publishing.Wait{}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
			if c.before != nil {
				v.Status.Conditions = []metav1.Condition{*c.before}
			}
			got := ""
			if publishing.Recorded(v, c.wait, c.sameKey) {
				written := v.Status.Conditions[0]
				got = string(written.Status) + " " + written.Reason
				if written.ObservedGeneration != v.Generation {
					t.Errorf("got observedGeneration %d, want %d", written.ObservedGeneration, v.Generation)
				}
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
