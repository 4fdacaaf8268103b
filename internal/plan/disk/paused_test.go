package disk_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func pausedBy(value string) func(*apiv1.AzVolume) {
	return func(v *apiv1.AzVolume) { v.Annotations = map[string]string{apiv1.AnnotationPaused: value} }
}

// accepted says that Azure has accepted a change.
func accepted(v *apiv1.AzVolume) {
	v.Status.State, v.Status.Operation = apiv1.VolumeUpdating, changeOf(time.Minute, "t")
}

func TestOfAPausedVolumeNothingBeginsAndItGoesOnAfterwards(t *testing.T) {
	t.Parallel()
	state := func(s apiv1.VolumeState) func(*apiv1.AzVolume) {
		return func(v *apiv1.AzVolume) { v.Status = apiv1.AzVolumeStatus{State: s, ObservedGeneration: 1} }
	}
	discarded := func(v *apiv1.AzVolume) {
		v.DeletionTimestamp, v.Spec.DeletionPolicy = objects.Ago(time.Second), apiv1.DeletionDelete
	}
	leftBehind := func(v *apiv1.AzVolume) { v.Status.PersistentVolume = "pv" }
	converting := func(v *apiv1.AzVolume) {
		v.Status.Conversion = &apiv1.Conversion{StartTime: *objects.Ago(time.Hour), ObservedTime: *objects.Ago(time.Hour)}
	}
	replicas := objects.Attachments(objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentAttached))
	for name, in := range map[string]disk.Input{
		"to create":                           {Volume: objects.NewVolume(state(""))},
		"to create again":                     {Volume: objects.NewVolume(state(apiv1.VolumeCreationFailed))},
		"to grow":                             {Volume: objects.NewVolume(gathered, asked(larger), notShared)},
		"to grow, with its replicas":          {Volume: objects.NewVolume(gathered, asked(larger)), Attachments: replicas},
		"to gather more changes":              {Volume: objects.NewVolume(asked(tagged))},
		"to tag":                              {Volume: objects.NewVolume(gathered, asked(tagged))},
		"to change again":                     {Volume: objects.NewVolume(accepted, asked(tagged))},
		"to look at its conversion":           {Volume: objects.NewVolume(converting)},
		"to delete":                           {Volume: objects.NewVolume(discarded)},
		"to delete, with its replicas":        {Volume: objects.NewVolume(discarded), Attachments: replicas},
		"to forget with its PersistentVolume": {Volume: objects.NewVolume(leftBehind)},
	} {
		in.Now, in.HasFinalizer = objects.Now, true
		begins := func(s disk.Step) bool {
			return s.Start != operation.WorkNone || s.DetachAll != "" || s.Forget || s.RequeueAfter > 0
		}
		before := disk.Next(in)
		if !begins(before) {
			t.Errorf("%s: got %+v, want a step without a pause", name, before)
		}
		paused := in
		paused.Volume = in.Volume.DeepCopy()
		pausedBy(apiv1.PausedTrue)(paused.Volume)
		got := disk.Next(paused)
		c := meta.FindStatusCondition(got.Status.Conditions, apiv1.VolumeConditionPaused)
		if begins(got) || c == nil || c.Status != metav1.ConditionTrue || c.Reason != apiv1.ReasonVolumePaused {
			t.Errorf("%s: got %+v while it is paused, want nothing to begin, and the condition", name, got)
		}
		meta.RemoveStatusCondition(&got.Status.Conditions, apiv1.VolumeConditionPaused)
		if len(got.Status.Conditions) == 0 {
			got.Status.Conditions = nil
		}
		if !equality.Semantic.DeepEqual(got.Status, in.Volume.Status) {
			t.Errorf("%s: got status %+v while it is paused, want it unchanged: %+v", name, got.Status, in.Volume.Status)
		}
		pausedBy(apiv1.PausedFalse)(paused.Volume)
		if after := disk.Next(paused); after.Start != before.Start || after.DetachAll != before.DetachAll ||
			after.Forget != before.Forget || after.RequeueAfter != before.RequeueAfter {
			t.Errorf("%s: got %+v after the pause, want %+v", name, after, before)
		}
	}
}

// The request was sent before the pause, so its result counts.
func TestWhatHadBegunIsRecordedDuringAPause(t *testing.T) {
	t.Parallel()
	in := disk.Input{Now: objects.Now, HasFinalizer: true, Volume: objects.NewVolume(accepted, asked(tagged), pausedBy("yes"))}
	applied := &apiv1.AppliedSettings{Generation: 2, DiskSettings: *in.Volume.Spec.Disk.DiskSettings.DeepCopy()}
	in.Job = operation.Job{
		Work: operation.WorkUpdateDisk, Phase: operation.PhaseEnded, Ended: objects.Now, Tokens: []string{"t"},
		Truth: operation.Truth{
			Disk:   &provisioner.Disk{ID: "/disk", SizeBytes: 1 << 30, CompletionPercent: 100},
			Update: &operation.Updated{Generation: 2, Applied: applied},
		},
	}
	got := disk.Next(in)
	if got.Start != operation.WorkNone || got.Status.State != apiv1.VolumeCreated ||
		!equality.Semantic.DeepEqual(got.Status.Applied, applied) {
		t.Errorf("got %+v, want the result recorded", got)
	}
}

// Azure has given the request another token since. The next leader must know it.
func TestWhatIsUnderWayIsRecordedDuringAPause(t *testing.T) {
	t.Parallel()
	in := disk.Input{
		Now: objects.Now, HasFinalizer: true, Volume: objects.NewVolume(gathered, accepted, asked(tagged), pausedBy("yes")),
		Job: operation.Job{Work: operation.WorkUpdateDisk, Phase: operation.PhaseAccepted, Tokens: []string{"t", "t2"}},
	}
	got := disk.Next(in)
	if got.Status.State != apiv1.VolumeUpdating || got.Status.Operation == nil || got.Status.Operation.ResumeToken != "t2" {
		t.Errorf("got status %+v, want the change under way with the token t2", got.Status)
	}
}

func TestTheEndOfAPauseIsACondition(t *testing.T) {
	t.Parallel()
	in := disk.Input{Now: objects.Now, HasFinalizer: true, Volume: objects.NewVolume(pausedBy(apiv1.PausedTrue))}
	in.Volume.Status = disk.Next(in).Status
	in.Volume.Annotations, in.Now = nil, objects.Now.Add(time.Minute)
	isFalse := func(in disk.Input) {
		t.Helper()
		c := meta.FindStatusCondition(disk.Next(in).Status.Conditions, apiv1.VolumeConditionPaused)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != apiv1.ReasonNotPaused ||
			!c.LastTransitionTime.Time.Equal(in.Now) {
			t.Errorf("got condition %+v, want False since %s", c, in.Now)
		}
	}
	isFalse(in)
	in.Volume.Status.State = "" // the disk does not exist yet
	isFalse(in)
}
