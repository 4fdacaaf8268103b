package attaching_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func paused(in *attaching.Input) {
	in.Volume.Annotations = map[string]string{apiv1.AnnotationPaused: apiv1.PausedTrue}
}

func unpaused(in *attaching.Input) { in.Volume.Annotations = nil }

// The status is what the step after the pause depends on. Only its condition changes, and that of a failure does
// not, because its reason matters.
func TestOfAPausedVolumeNoWorkBeginsAndItGoesOnAfterwards(t *testing.T) {
	t.Parallel()
	const attached, attachingNow = apiv1.AttachmentAttached, apiv1.AttachmentAttaching
	for name, in := range map[string]attaching.Input{
		"a new primary":                         given(""),
		"an attach that had begun":              given(attachingNow, recorded(operation.WorkAttach, "t")),
		"a primary that needs a replica's slot": given("", roomByReplica),
		"an attach that is not proved":          given(apiv1.AttachmentFailed, isUnproved),
		"a released one that is deleted":        given(attached, proved, deletedNow),
		"a detach that had begun":               given(apiv1.AttachmentDetaching, proved, deletedNow, recorded(operation.WorkDetach, "t")),
		"a lost node":                           given(attached, releases, lostNode, failoverActs),
		"a fence that had begun":                given(apiv1.AttachmentDetaching, releases, lostNode, failoverActs, recorded(operation.WorkFence, "t")),
	} {
		before := attaching.Next(in)
		if before.Start == operation.WorkNone && before.GiveWay == "" {
			t.Errorf("%s: got %s, want work without a pause", name, summary(before))
		}
		paused(&in)
		got := attaching.Next(in)
		want := in.Attachment.Status.DeepCopy()
		if want.State == "" {
			want.State = apiv1.AttachmentPending
		}
		reason := apiv1.ReasonVolumePaused
		if want.State == apiv1.AttachmentFailed {
			reason = ""
		}
		if got.Start != operation.WorkNone || got.GiveWay != "" || got.RemoveFinalizer || got.Reason != reason {
			t.Errorf("%s: got %q while it is paused, want nothing but the reason %q", name, summary(got), reason)
		}
		if want.Conditions = got.Status.Conditions; !equality.Semantic.DeepEqual(&got.Status, want) {
			t.Errorf("%s: got status %+v while it is paused, want %+v", name, got.Status, want)
		}
		in.Attachment.Status = got.Status
		if unpaused(&in); summary(attaching.Next(in)) != summary(before) {
			t.Errorf("%s: got %q after the pause, want %q", name, summary(attaching.Next(in)), summary(before))
		}
	}
}

func TestTheHandOverGoesOnDuringAPause(t *testing.T) {
	t.Parallel()
	released := given(apiv1.AttachmentAttached, deletedNow, releases, paused)
	released.ReportProof = &apiv1.ReleaseProof{Type: apiv1.ProofUnstaged, Epoch: 2}
	if got := attaching.Next(released); got.Status.Proof == nil {
		t.Errorf("got %q, want the proof of the report recorded", summary(got))
	}
	for name, test := range map[string]struct {
		helpers []attaching.Helper
		ask     string
		proof   bool
	}{
		"a helper is asked": {helpers: []attaching.Helper{{NodeName: "b"}}, ask: "b"},
		"a helper has taken the reservation": {
			helpers: []attaching.Helper{helper(asked("b", time.Second)).answered(reservationKey)}, proof: true},
	} {
		in := beingFenced()
		in.Helpers = test.helpers
		paused(&in)
		got := attaching.Next(in)
		if got.Start != operation.WorkNone || got.Ask != test.ask || (got.Status.Proof != nil) != test.proof {
			t.Errorf("%s: got %q and proof %+v, want no request to Azure, to ask %q, a proof: %t", name, summary(got),
				got.Status.Proof, test.ask, test.proof)
		}
	}
	ended := given(apiv1.AttachmentAttaching, paused,
		endedWork(operation.WorkAttach, operation.Truth{VMID: "/vm/a", Attached: true, LUN: 1}, nil))
	if got := attaching.Next(ended); got.Status.State != apiv1.AttachmentAttached {
		t.Errorf("an attach that has ended: got %q, want it recorded", summary(got))
	}
}

func TestNoSlotIsTakenFromAPausedVolume(t *testing.T) {
	t.Parallel()
	replica := objects.NewAttachment("a", apiv1.RoleReplica, 0, apiv1.AttachmentAttached)
	leaving := objects.Deleted(objects.NewAttachment("a", apiv1.RoleReplica, 0, apiv1.AttachmentAttached))
	other := objects.NewAttachment("a", apiv1.RolePrimary, 2, "")
	other.Name = "other-a"
	for _, taken := range []*apiv1.AzVolumeAttachment{replica, leaving} {
		in := attaching.SlotInput{Attachment: other, MaxShares: 3, MaxDataDisks: 1,
			OnNode: []*apiv1.AzVolumeAttachment{taken, other}}
		if got := attaching.Slots(in); got.GiveWay == "" && !got.Wait {
			t.Errorf("got %+v without a pause, want the slot", got)
		}
		in.Paused = func(a *apiv1.AzVolumeAttachment) bool { return a == taken }
		if got := attaching.Slots(in); !got.Full {
			t.Errorf("got %+v while the volume is paused, want no slot", got)
		}
	}
}
