package disk_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestVolume(t *testing.T) {
	t.Parallel()
	state := func(s apiv1.VolumeState) func(*apiv1.AzVolume) {
		return func(v *apiv1.AzVolume) {
			v.Status = apiv1.AzVolumeStatus{State: s, ObservedGeneration: 1}
			if s == apiv1.VolumeCreated {
				v.Status.DiskID, v.Status.SizeBytes = "/disk", v.Spec.CapacityBytes
				v.Status.Applied = &apiv1.AppliedSettings{Generation: 1, DiskSettings: *v.Spec.Disk.DiskSettings.DeepCopy()}
			}
		}
	}
	asked := func(v *apiv1.AzVolume) { v.Spec.DeletionPolicy = apiv1.DeletionDelete }
	gone := func(v *apiv1.AzVolume) {
		v.DeletionTimestamp, v.Spec.DeletionPolicy = objects.Ago(time.Second), apiv1.DeletionDelete
	}
	failing := func(s apiv1.VolumeState, ago time.Duration) func(*apiv1.AzVolume) {
		return func(v *apiv1.AzVolume) {
			v.Status.State, v.Status.ObservedGeneration = s, 1
			v.Status.Error = &apiv1.Error{Reason: "Unavailable", FailureTime: *objects.Ago(ago)}
		}
	}
	inFlight := func(w operation.Work) func(*apiv1.AzVolume) {
		return func(v *apiv1.AzVolume) {
			v.Status.Operation = &apiv1.Operation{Type: string(w), ResumeToken: "t", StartTime: *objects.Ago(time.Minute)}
		}
	}
	unasked := func(v *apiv1.AzVolume) { v.DeletionTimestamp, v.Status.DiskID = objects.Ago(time.Second), "/disk" }
	belonged := func(v *apiv1.AzVolume) { v.Status.PersistentVolume, v.Status.DiskID = "pv", "/disk" }
	grown := func(v *apiv1.AzVolume) {
		v.Spec.CapacityBytes, v.Status.SizeBytes, v.Spec.Disk.MaxShares = 2<<30, 1<<30, 1
		v.Status.UpdateWantedTime = &metav1.MicroTime{Time: objects.Now.Add(-time.Minute)}
	}
	multi := func(v *apiv1.AzVolume) { v.Spec.Access = apiv1.AccessMultiNode }
	adopted := func(v *apiv1.AzVolume) { v.Spec.Origin = apiv1.OriginAdopted }
	replicas := objects.Attachments(objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentAttached))
	current := &provisioner.Disk{ID: "/disk", SizeBytes: 1 << 30}
	ended := func(w operation.Work, truth operation.Truth, err error) operation.Job {
		return operation.Job{Work: w, Phase: operation.PhaseEnded, Ended: objects.Now, Truth: truth, Err: err}
	}
	pv := func(phase corev1.PersistentVolumePhase, policy corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			Spec:   corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: policy},
			Status: corev1.PersistentVolumeStatus{Phase: phase},
		}
	}
	type want struct {
		start          operation.Work
		state          apiv1.VolumeState
		detach, reason string
		operation      string // kind and token
		resume         string
		removed        bool
		// forgets and reverts say that the AzVolume is to be deleted without its disk, and that a spec
		// is to be written with which the disk is not deleted.
		forgets, reverts bool
	}
	for name, test := range map[string]struct {
		in   disk.Input
		want want
	}{
		"a new one is created": {disk.Input{Volume: objects.NewVolume(state(""))},
			want{start: operation.WorkCreateDisk, state: apiv1.VolumeCreating, reason: apiv1.ReasonDiskCreating}},
		"one that is adopted is only read": {disk.Input{Volume: objects.NewVolume(state(""), adopted)},
			want{start: operation.WorkAdoptDisk, state: apiv1.VolumeCreating, reason: apiv1.ReasonDiskCreating}},
		"a restart continues": {disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreating))},
			want{start: operation.WorkCreateDisk, state: apiv1.VolumeCreating, reason: apiv1.ReasonDiskCreating}},
		"created": {disk.Input{
			Volume: objects.NewVolume(state(apiv1.VolumeCreating)),
			Job:    ended(operation.WorkCreateDisk, operation.Truth{Disk: current}, nil),
		}, want{state: apiv1.VolumeCreated, reason: apiv1.ReasonDiskCreated}},
		"failed": {
			disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreating)),
				Job: ended(operation.WorkCreateDisk, operation.Truth{},
					provisioner.Errorf(provisioner.InsufficientCapacity, "quota"))},
			want{state: apiv1.VolumeCreationFailed, reason: apiv1.ReasonDiskCreationFailed}},
		"failed, although the disk is there": {
			disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreating)),
				Job: ended(operation.WorkCreateDisk, operation.Truth{Disk: current},
					provisioner.Errorf(provisioner.Unavailable, "the creation failed"))},
			want{state: apiv1.VolumeCreationFailed, reason: apiv1.ReasonDiskCreationFailed}},
		"failed while its source was copied": {
			disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreating)),
				Job: ended(operation.WorkCreateDisk, operation.Truth{Disk: current, Filling: true},
					provisioner.Errorf(provisioner.Unavailable, "the copy failed"))},
			want{state: apiv1.VolumeCreationFailed, reason: apiv1.ReasonDiskCreationFailed}},
		"ended, and there is no disk": {
			disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreating)),
				Job: ended(operation.WorkCreateDisk, operation.Truth{}, nil)},
			want{state: apiv1.VolumeCreationFailed, reason: apiv1.ReasonDiskCreationFailed}},
		"a disk that a job of another kind found is not taken": {
			disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreating)),
				Job: ended(operation.WorkAdoptDisk, operation.Truth{Disk: current}, nil)},
			want{start: operation.WorkCreateDisk, state: apiv1.VolumeCreating, reason: apiv1.ReasonDiskCreating}},
		"what creates it is recorded": {disk.Input{
			Volume: objects.NewVolume(state(apiv1.VolumeCreating)),
			Job:    operation.Job{Work: operation.WorkCreateDisk, Phase: operation.PhaseAccepted, Tokens: []string{"t"}},
		}, want{state: apiv1.VolumeCreating, operation: "CreateDisk t"}},
		"a restart resumes what Azure has accepted": {
			disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreating), inFlight(operation.WorkCreateDisk))},
			want{start: operation.WorkCreateDisk, state: apiv1.VolumeCreating, reason: apiv1.ReasonDiskCreating,
				operation: "CreateDisk t", resume: "t"}},
		"a restart during a retry continues at once": {
			disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreating), failing(apiv1.VolumeCreating, 0),
				func(v *apiv1.AzVolume) {
					v.Status.Conditions = []metav1.Condition{{Type: apiv1.VolumeConditionReady, Reason: apiv1.ReasonDiskCreating}}
				})},
			want{start: operation.WorkCreateDisk, state: apiv1.VolumeCreating, reason: apiv1.ReasonDiskCreating}},
		"a failed creation is not repeated at once": {
			disk.Input{Volume: objects.NewVolume(state(""), failing(apiv1.VolumeCreationFailed, 0))},
			want{state: apiv1.VolumeCreationFailed}},
		"a failed creation is repeated at once for a new spec": {
			disk.Input{Volume: objects.NewVolume(state(""), failing(apiv1.VolumeCreationFailed, 0),
				func(v *apiv1.AzVolume) { v.Generation = 2 })},
			want{start: operation.WorkCreateDisk, state: apiv1.VolumeCreating, reason: apiv1.ReasonDiskCreating}},
		"a failed creation without a recorded error is repeated": {
			disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreationFailed))},
			want{start: operation.WorkCreateDisk, state: apiv1.VolumeCreating, reason: apiv1.ReasonDiskCreating}},
		"the wait after a failure grows from the first failure, not from the creation of the volume": {
			disk.Input{Volume: objects.NewVolume(state(""), failing(apiv1.VolumeCreationFailed, 10*time.Second),
				func(v *apiv1.AzVolume) {
					v.Status.Conditions = []metav1.Condition{{Type: apiv1.VolumeConditionReady,
						Reason:             apiv1.ReasonDiskCreationFailed,
						LastTransitionTime: *objects.Ago(12 * time.Second)}}
				})},
			want{start: operation.WorkCreateDisk, state: apiv1.VolumeCreating, reason: apiv1.ReasonDiskCreating}},
		"a created one rests": {disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreated))},
			want{state: apiv1.VolumeCreated, reason: apiv1.ReasonDiskCreated}},
		"deletion takes the replicas first": {disk.Input{Volume: objects.NewVolume(gone), Attachments: replicas},
			want{detach: apiv1.ReasonDiskDeleting, state: apiv1.VolumeDeleting, reason: apiv1.ReasonDiskDeleting}},
		"then the disk": {disk.Input{Volume: objects.NewVolume(gone)},
			want{start: operation.WorkDeleteDisk, state: apiv1.VolumeDeleting, reason: apiv1.ReasonDiskDeleting}},
		"what deletes it is recorded": {disk.Input{
			Volume: objects.NewVolume(gone),
			Job:    operation.Job{Work: operation.WorkDeleteDisk, Phase: operation.PhaseAccepted, Tokens: []string{"t"}},
		}, want{state: apiv1.VolumeDeleting, operation: "DeleteDisk t"}},
		"a deletion does not resume a creation": {
			disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreating), inFlight(operation.WorkCreateDisk), gone)},
			want{start: operation.WorkDeleteDisk, state: apiv1.VolumeDeleting, reason: apiv1.ReasonDiskDeleting}},
		"a deletion that failed keeps the finalizer": {
			disk.Input{Volume: objects.NewVolume(gone), Job: ended(operation.WorkDeleteDisk, operation.Truth{},
				provisioner.Errorf(provisioner.Unavailable, "try again"))},
			want{state: apiv1.VolumeDeletionFailed, reason: apiv1.ReasonDiskDeletionFailed}},
		"a failed deletion is not repeated at once": {
			disk.Input{Volume: objects.NewVolume(gone, failing(apiv1.VolumeDeletionFailed, 0))},
			want{state: apiv1.VolumeDeletionFailed}},
		"a failed deletion is repeated later": {
			disk.Input{Volume: objects.NewVolume(gone, failing(apiv1.VolumeDeletionFailed, time.Hour))},
			want{start: operation.WorkDeleteDisk, state: apiv1.VolumeDeleting, reason: apiv1.ReasonDiskDeleting}},
		"a deletion does not wait because a change failed": {
			disk.Input{Volume: objects.NewVolume(gone, failing(apiv1.VolumeUpdateFailed, 0))},
			want{start: operation.WorkDeleteDisk, state: apiv1.VolumeDeleting, reason: apiv1.ReasonDiskDeleting}},
		"then the finalizer": {
			disk.Input{Volume: objects.NewVolume(gone), Job: ended(operation.WorkDeleteDisk, operation.Truth{}, nil)},
			want{removed: true, state: apiv1.VolumeCreated, reason: apiv1.ReasonDiskDeleting}},
		"not while there is a primary": {disk.Input{Volume: objects.NewVolume(gone, objects.Owned("a", 1, apiv1.OwnershipHeld))},
			want{state: apiv1.VolumeCreated, reason: apiv1.ReasonVolumeDeletionHeld, reverts: true}},
		"not while nodes share it": {disk.Input{
			Volume:      objects.NewVolume(unasked, multi),
			Attachments: objects.Attachments(objects.NewAttachment("a", apiv1.RolePrimary, 1, apiv1.AttachmentAttached)),
		}, want{state: apiv1.VolumeCreated, reason: apiv1.ReasonVolumeDeletionHeld}},
		"not while its PersistentVolumeClaim is bound": {disk.Input{
			Volume:           objects.NewVolume(gone),
			PersistentVolume: pv(corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete),
		}, want{state: apiv1.VolumeCreated, reason: apiv1.ReasonVolumeDeletionHeld, reverts: true}},
		"not if it is to be retained": {disk.Input{
			Volume:           objects.NewVolume(gone),
			PersistentVolume: pv(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain),
		}, want{state: apiv1.VolumeCreated, reason: apiv1.ReasonVolumeDeletionHeld, reverts: true}},
		"not while a claim can be bound to it": {disk.Input{
			Volume:           objects.NewVolume(gone),
			PersistentVolume: pv(corev1.VolumeAvailable, corev1.PersistentVolumeReclaimDelete),
		}, want{state: apiv1.VolumeCreated, reason: apiv1.ReasonVolumeDeletionHeld, reverts: true}},
		"one that is kept grows": {disk.Input{
			Volume:           objects.NewVolume(unasked, grown),
			PersistentVolume: pv(corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete),
		}, want{start: operation.WorkUpdateDisk, state: apiv1.VolumeUpdating, reason: apiv1.ReasonDiskUpdating,
			operation: "UpdateDisk "}},
		"one that is kept says so while it changes": {disk.Input{
			Volume:           objects.NewVolume(unasked),
			PersistentVolume: pv(corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete),
			Job:              operation.Job{Work: operation.WorkUpdateDisk, Phase: operation.PhaseBegun},
		}, want{state: apiv1.VolumeCreated, reason: apiv1.ReasonVolumeDeletionHeld}},
		"one that is kept and was never read is adopted": {disk.Input{
			Volume: objects.NewVolume(state(""), adopted,
				func(v *apiv1.AzVolume) { v.DeletionTimestamp = objects.Ago(time.Second) }),
			PersistentVolume: pv(corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete),
		}, want{start: operation.WorkAdoptDisk, state: apiv1.VolumeCreating, reason: apiv1.ReasonDiskCreating}},
		"a deletion that has begun does not turn back, and leaves the disk to the claim that was bound since": {disk.Input{
			Volume:           objects.NewVolume(unasked, func(v *apiv1.AzVolume) { v.Status.State = apiv1.VolumeDeleting }),
			PersistentVolume: pv(corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete),
		}, want{removed: true, state: apiv1.VolumeDeleting, reason: apiv1.ReasonDiskKept}},
		"nor does one that Azure has refused so far": {
			disk.Input{Volume: objects.NewVolume(unasked, failing(apiv1.VolumeDeletionFailed, 0)),
				PersistentVolume: pv(corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete)},
			want{removed: true, state: apiv1.VolumeDeletionFailed, reason: apiv1.ReasonDiskKept}},
		"also if it was to take the disk with it": {
			disk.Input{Volume: objects.NewVolume(gone, func(v *apiv1.AzVolume) { v.Status.State = apiv1.VolumeDeleting }),
				Attachments: replicas, PersistentVolume: pv(corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete)},
			want{detach: apiv1.ReasonDiskKept, state: apiv1.VolumeDeleting, reason: apiv1.ReasonDiskKept, reverts: true}},
		"a volume that was never begun is removed without Azure": {disk.Input{Volume: objects.NewVolume(state(""), gone)},
			want{removed: true}},
		"a volume that only waited for its creation is removed without Azure": {
			disk.Input{Volume: objects.NewVolume(state(apiv1.VolumePending), gone)},
			want{removed: true, state: apiv1.VolumePending}},
		"a volume without a state whose disk is known is deleted with the disk": {
			disk.Input{Volume: objects.NewVolume(state(""), gone, func(v *apiv1.AzVolume) { v.Status.DiskID = "/disk" })},
			want{start: operation.WorkDeleteDisk, state: apiv1.VolumeDeleting, reason: apiv1.ReasonDiskDeleting}},
		"a volume whose creation has just ended is deleted with the disk": {
			disk.Input{Volume: objects.NewVolume(state(""), gone),
				Job: ended(operation.WorkCreateDisk, operation.Truth{Disk: current}, nil)},
			want{start: operation.WorkDeleteDisk, state: apiv1.VolumeDeleting, reason: apiv1.ReasonDiskDeleting}},
		"a creation in flight ends first": {disk.Input{
			Volume: objects.NewVolume(state(apiv1.VolumeCreating), gone),
			Job:    operation.Job{Work: operation.WorkCreateDisk, Phase: operation.PhaseBegun},
		}, want{state: apiv1.VolumeCreating}},
		"deleting the record deletes no data": {disk.Input{Volume: objects.NewVolume(unasked)},
			want{removed: true, state: apiv1.VolumeCreated, reason: apiv1.ReasonDiskKept}},
		"nor does that of a disk that is retained, once Kubernetes has forgotten it": {
			disk.Input{Volume: objects.NewVolume(unasked, belonged)},
			want{removed: true, state: apiv1.VolumeCreated, reason: apiv1.ReasonDiskKept}},
		"its replicas are detached": {disk.Input{Volume: objects.NewVolume(unasked), Attachments: replicas},
			want{detach: apiv1.ReasonDiskKept, state: apiv1.VolumeDeleting, reason: apiv1.ReasonDiskKept}},
		"its change ends first": {disk.Input{
			Volume: objects.NewVolume(unasked),
			Job:    operation.Job{Work: operation.WorkUpdateDisk, Phase: operation.PhaseBegun},
		}, want{state: apiv1.VolumeCreated}},
		"it stays while there is a primary": {
			disk.Input{Volume: objects.NewVolume(unasked, objects.Owned("a", 1, apiv1.OwnershipHeld))},
			want{state: apiv1.VolumeCreated, reason: apiv1.ReasonVolumeDeletionHeld}},
		"a creation that was cut short leaves no disk": {
			disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreating),
				func(v *apiv1.AzVolume) { v.DeletionTimestamp = objects.Ago(time.Second) })},
			want{start: operation.WorkDeleteDisk, state: apiv1.VolumeDeleting, reason: apiv1.ReasonDiskDeleting}},
		"a disk that Kubernetes has given up is forgotten": {disk.Input{Volume: objects.NewVolume(belonged)},
			want{state: apiv1.VolumeCreated, reason: apiv1.ReasonDiskCreated, forgets: true}},
		"not while a node uses it": {
			disk.Input{Volume: objects.NewVolume(belonged, objects.Owned("a", 1, apiv1.OwnershipReleasing))},
			want{state: apiv1.VolumeCreated, reason: apiv1.ReasonDiskCreated}},
		"nor one of several": {disk.Input{
			Volume:      objects.NewVolume(belonged, multi),
			Attachments: objects.Attachments(objects.NewAttachment("a", apiv1.RolePrimary, 1, apiv1.AttachmentAttached)),
		}, want{state: apiv1.VolumeCreated, reason: apiv1.ReasonDiskCreated}},
		"not while it is changed": {disk.Input{
			Volume: objects.NewVolume(belonged),
			Job:    operation.Job{Work: operation.WorkUpdateDisk, Phase: operation.PhaseAccepted},
		}, want{state: apiv1.VolumeCreated}},
		"not before a change that is due has begun": {disk.Input{Volume: objects.NewVolume(belonged, grown)},
			want{start: operation.WorkUpdateDisk, state: apiv1.VolumeUpdating, reason: apiv1.ReasonDiskUpdating,
				operation: "UpdateDisk "}},
		"not while its PersistentVolume exists": {disk.Input{
			Volume:           objects.NewVolume(belonged),
			PersistentVolume: pv(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain),
		}, want{state: apiv1.VolumeCreated, reason: apiv1.ReasonDiskCreated}},
		"not what CSI is about to delete": {disk.Input{Volume: objects.NewVolume(belonged, asked)},
			want{state: apiv1.VolumeCreated, reason: apiv1.ReasonDiskCreated}},
		"not one that never had a PersistentVolume": {disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreated))},
			want{state: apiv1.VolumeCreated, reason: apiv1.ReasonDiskCreated}},
		"an incomplete deletion is cancelled if a node uses the volume": {
			disk.Input{Volume: objects.NewVolume(belonged, asked, objects.Owned("a", 1, apiv1.OwnershipHeld))},
			want{state: apiv1.VolumeCreated, reason: apiv1.ReasonDiskCreated, reverts: true}},
		"an incomplete deletion is cancelled after a refused change is reverted": {
			disk.Input{Volume: objects.NewVolume(belonged, asked, grown, refusedSize,
				objects.Owned("a", 1, apiv1.OwnershipHeld))},
			want{state: apiv1.VolumeCreated}},
		"an incomplete deletion is cancelled if the disk is to be retained": {
			disk.Input{Volume: objects.NewVolume(belonged, asked),
				PersistentVolume: pv(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain)},
			want{state: apiv1.VolumeCreated, reason: apiv1.ReasonDiskCreated, reverts: true}},
		"an incomplete deletion continues if nothing prevents it": {disk.Input{
			Volume:           objects.NewVolume(belonged, asked),
			PersistentVolume: pv(corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete),
		}, want{state: apiv1.VolumeCreated, reason: apiv1.ReasonDiskCreated}},
		"a disk that was not created for the volume remains": {
			disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeDeleting), gone),
				Job: ended(operation.WorkDeleteDisk, operation.Truth{Unrelated: true}, nil)},
			want{removed: true, state: apiv1.VolumeDeleting, reason: apiv1.ReasonForeignDisk}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.in.Now, test.in.HasFinalizer = objects.Now, true
			step := disk.Next(test.in)
			got := want{
				start:   step.Start,
				state:   step.Status.State,
				detach:  step.DetachAll,
				reason:  step.Reason,
				resume:  step.Resume,
				removed: step.RemoveFinalizer,
				forgets: step.Forget,
			}
			if op := step.Status.Operation; op != nil {
				got.operation = op.Type + " " + op.ResumeToken
			}
			got.reverts = step.Spec != nil && step.Spec.DeletionPolicy == apiv1.DeletionRetain
			if got != test.want {
				t.Fatalf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestAnAzVolumeWithoutItsFinalizer(t *testing.T) {
	t.Parallel()
	bound := &corev1.PersistentVolume{Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}
	deleted := func(v *apiv1.AzVolume) {
		v.DeletionTimestamp, v.Spec.DeletionPolicy = objects.Ago(time.Second), apiv1.DeletionDelete
	}
	for name, test := range map[string]struct {
		in   disk.Input
		adds bool
	}{
		"gets it before anything else":   {disk.Input{Volume: objects.NewVolume(gathered, asked(larger))}, true},
		"is left alone if it is deleted": {disk.Input{Volume: objects.NewVolume(deleted)}, false},
		"is left alone if it is deleted, also if the disk is needed": {
			disk.Input{Volume: objects.NewVolume(deleted), PersistentVolume: bound}, false},
	} {
		test.in.Now = objects.Now
		got, want := disk.Next(test.in), disk.Step{AddFinalizer: test.adds, Status: test.in.Volume.Status}
		if !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestACreatedDiskIsRecorded(t *testing.T) {
	t.Parallel()
	applied := &apiv1.AppliedSettings{Generation: 1, DiskSettings: apiv1.DiskSettings{SKUName: "Premium_LRS"}}
	v := objects.NewVolume(func(v *apiv1.AzVolume) { v.Status = apiv1.AzVolumeStatus{State: apiv1.VolumeCreating} })
	job := operation.Job{
		Work:  operation.WorkCreateDisk,
		Phase: operation.PhaseEnded,
		Ended: objects.Now,
		Truth: operation.Truth{
			Disk:   &provisioner.Disk{ID: "/disk", SizeBytes: 2 << 30},
			Update: &operation.Updated{Generation: 1, Applied: applied},
		},
	}
	is := disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v, Job: job}).Status
	if is.DiskID != "/disk" || is.SizeBytes != 2<<30 || !equality.Semantic.DeepEqual(is.Applied, applied) {
		t.Errorf("got disk %q of %d bytes with %+v, want /disk of 2 GiB with %+v", is.DiskID, is.SizeBytes, is.Applied, applied)
	}
}

// A pod must start and stop while its disk grows, or cannot grow.
func TestADiskIsReadyWhileItIsChanged(t *testing.T) {
	t.Parallel()
	creating := func(v *apiv1.AzVolume) { v.Status = apiv1.AzVolumeStatus{State: apiv1.VolumeCreating} }
	failed := func(v *apiv1.AzVolume, work operation.Work) operation.Job {
		return operation.Job{
			Work:  work,
			Phase: operation.PhaseEnded,
			Ended: objects.Now,
			Begun: v.Status.Operation,
			Err:   provisioner.Errorf(provisioner.Unavailable, "try again"),
		}
	}
	ready := func(v *apiv1.AzVolume) {
		v.Status.Conditions = []metav1.Condition{
			{Type: apiv1.VolumeConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: *objects.Ago(time.Hour)},
		}
	}
	grows := objects.NewVolume(notShared, asked(larger), ready, gathered)
	changing := objects.NewVolume(notShared, asked(larger), ready, begun)
	created := objects.NewVolume(creating)
	for name, test := range map[string]struct {
		volume *apiv1.AzVolume
		job    operation.Job
		want   metav1.ConditionStatus
	}{
		"it is created":      {created, operation.Job{}, metav1.ConditionFalse},
		"its creation fails": {created, failed(created, operation.WorkCreateDisk), metav1.ConditionFalse},
		"it is changed":      {grows, operation.Job{}, metav1.ConditionTrue},
		"its change fails":   {changing, failed(changing, operation.WorkUpdateDisk), metav1.ConditionTrue},
	} {
		is := disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: test.volume, Job: test.job}).Status
		since := objects.Ago(0)
		if test.want == metav1.ConditionTrue {
			since = objects.Ago(time.Hour)
		}
		if c := meta.FindStatusCondition(is.Conditions, apiv1.VolumeConditionReady); c == nil || c.Status != test.want ||
			!c.LastTransitionTime.Equal(since) {
			t.Errorf("%s: got condition %+v, want status %s since %s", name, c, test.want, since)
		}
	}
}

// The write that records the disk has all conditions of the disk. What a status had before stays.
func TestADiskThatIsCreatedHasAllConditions(t *testing.T) {
	t.Parallel()
	v := objects.NewVolume()
	v.Generation, v.Status = 3, apiv1.AzVolumeStatus{State: apiv1.VolumeCreating}
	v.Status.Conditions = []metav1.Condition{{Type: apiv1.VolumeConditionPublished, Status: metav1.ConditionFalse,
		Reason: apiv1.ReasonKubeletDown, ObservedGeneration: 2}}
	job := operation.Job{Work: operation.WorkCreateDisk, Phase: operation.PhaseEnded,
		Truth: operation.Truth{Disk: &provisioner.Disk{ID: "/disk", SizeBytes: 1 << 30, CompletionPercent: 100}}}
	is := disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v, Job: job}).Status
	for kind, want := range map[string]string{
		apiv1.VolumeConditionReady:          "True DiskCreated",
		apiv1.VolumeConditionUpdated:        "True DiskUpdated",
		apiv1.VolumeConditionDiskAsRecorded: "True DiskAsRecorded",
		apiv1.VolumeConditionWritesKept:     "True NoWritesLost",
		apiv1.VolumeConditionUsable:         "True NoProblem",
		apiv1.VolumeConditionPublished:      "False KubeletDown",
	} {
		c := meta.FindStatusCondition(is.Conditions, kind)
		if c == nil || string(c.Status)+" "+c.Reason != want || c.ObservedGeneration != v.Generation {
			t.Errorf("got condition %s %+v, want %s of generation %d", kind, c, want, v.Generation)
		}
	}
}

func TestAPersistentVolumeThatNeedsItsDisk(t *testing.T) {
	t.Parallel()
	const retain, remove = corev1.PersistentVolumeReclaimRetain, corev1.PersistentVolumeReclaimDelete
	for _, test := range []struct {
		phase  corev1.PersistentVolumePhase
		policy corev1.PersistentVolumeReclaimPolicy
		want   string
	}{
		{corev1.VolumeBound, remove, "is bound"},
		{corev1.VolumeBound, retain, "is bound"},
		{corev1.VolumeReleased, retain, "Retain"},
		{corev1.VolumeAvailable, remove, "can be bound"},
		{"", remove, "can be bound"},
		{corev1.VolumeReleased, remove, ""},
		{corev1.VolumeFailed, remove, ""},
	} {
		pv := &corev1.PersistentVolume{Status: corev1.PersistentVolumeStatus{Phase: test.phase}}
		pv.Spec.PersistentVolumeReclaimPolicy = test.policy
		if got := disk.NeededBy(pv); !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s, %s: got %q, want %q", test.phase, test.policy, got, test.want)
		}
	}
}

func TestAnAzVolumeThatIsKeptIsNotLeaving(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		deleted, withDisk bool
		state             apiv1.VolumeState
		want              bool
	}{
		"in use":                                {false, false, apiv1.VolumeCreated, false},
		"DeleteVolume is about to delete it":    {false, true, apiv1.VolumeCreated, false},
		"deleted by a person":                   {true, false, apiv1.VolumeCreated, false},
		"deleted by a person during a change":   {true, false, apiv1.VolumeUpdating, false},
		"deleted by DeleteVolume":               {true, true, apiv1.VolumeCreated, true},
		"the deletion is carried out":           {true, false, apiv1.VolumeDeleting, true},
		"Azure does not delete the disk so far": {true, true, apiv1.VolumeDeletionFailed, true},
	} {
		v := &apiv1.AzVolume{Status: apiv1.AzVolumeStatus{State: test.state}}
		if test.withDisk {
			v.Spec.DeletionPolicy = apiv1.DeletionDelete
		}
		if test.deleted {
			v.DeletionTimestamp = objects.Ago(time.Second)
		}
		if got := v.Leaving(); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func TestFilesystemIsRecordedOnceAndFromThePrimaryOnly(t *testing.T) {
	t.Parallel()
	report := func(node string, epoch int64) *apiv1.AzDriverNode {
		d := objects.Staged(nil, "vol")
		d.Name = node
		d.Status.StagedVolumes[0].Epoch, d.Status.StagedVolumes[0].Filesystem = epoch, &apiv1.FilesystemRecord{
			Type: "xfs",
			UUID: "u",
		}
		return d
	}
	v := objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld))
	if disk.FilesystemRecord(v, report("b", 2)) != nil || disk.FilesystemRecord(v, report("a", 1)) != nil {
		t.Fatal("law 7: a report of another node or epoch was believed")
	}
	if got := disk.FilesystemRecord(v, report("a", 2)); got == nil || got.UUID != "u" {
		t.Fatalf("%+v", got)
	}
	unknown, unnamed := report("a", 2), report("a", 2)
	unknown.Status.StagedVolumes[0].Filesystem, unnamed.Status.StagedVolumes[0].Filesystem.UUID = nil, ""
	for name, r := range map[string]*apiv1.AzDriverNode{"no filesystem": unknown, "no UUID": unnamed} {
		if got := disk.FilesystemRecord(v, r); got != nil {
			t.Errorf("a report with %s: got %+v, want no record", name, got)
		}
	}
	v.Status.Filesystem = &apiv1.FilesystemRecord{Type: "ext4", UUID: "first"}
	if disk.FilesystemRecord(v, report("a", 2)) != nil {
		t.Fatal("law 4: the record was overwritten")
	}
}

func TestFencingIsWhatThePrimaryReports(t *testing.T) {
	t.Parallel()
	v := objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld))
	report := objects.Staged(nil, "vol")
	report.Name = "a"
	entry := &report.Status.StagedVolumes[0]
	for _, test := range []struct {
		phase      apiv1.StagePhase
		epoch      int64
		key        string
		unreserved string
		want       apiv1.FencingMethod
		says       string
	}{
		{apiv1.PhaseStaging, 2, "0xad1d540000020002", "", "", ""},
		{apiv1.PhaseStaged, 1, "0xad1d540000010002", "", "", ""},
		{apiv1.PhaseStaged, 1, "", "another epoch's", "", ""},
		{apiv1.PhaseStaged, 2, "0xad1d540000020002", "", apiv1.FencingPreemption, ""},
		{apiv1.PhaseUnstaging, 2, "", "", apiv1.FencingPreemption, ""}, // it stays until the next one stages
		{apiv1.PhaseStaged, 2, "", "no answer", apiv1.FencingForcedDetach, "by a forced detach if it is lost: no answer"},
		{apiv1.PhaseStaged, 2, "", "no answer", apiv1.FencingForcedDetach, ""}, // it is recorded
		{apiv1.PhaseStaged, 2, "", "", apiv1.FencingForcedDetach, ""},
	} {
		entry.Phase, entry.Epoch, entry.ReservationKey, entry.UnreservedReason = test.phase, test.epoch, test.key, test.unreserved
		if got := disk.NotReserved(v, report); !strings.HasSuffix(got, test.says) || (got == "") != (test.says == "") {
			t.Errorf("%+v: got event %q, want %q", *entry, got, test.says)
		}
		if v.Status.Fencing = disk.Fencing(v, report); v.Status.Fencing != test.want {
			t.Errorf("%+v: got fencing %q, want %q", *entry, v.Status.Fencing, test.want)
		}
	}
	if got := disk.Fencing(v, nil); got != apiv1.FencingForcedDetach {
		t.Errorf("without a report: got fencing %q, want what is recorded", got)
	}
}

func TestThisClusterUsesADiskThatItCreatedOrItsPrimaryHasStaged(t *testing.T) {
	t.Parallel()
	current := &provisioner.Disk{ID: "/disk", SizeBytes: 1 << 30}
	for made, want := range map[bool]types.UID{true: "present", false: ""} {
		v := objects.NewVolume(func(v *apiv1.AzVolume) {
			v.UID, v.Status = "present", apiv1.AzVolumeStatus{State: apiv1.VolumeCreating}
		})
		job := operation.Job{
			Work:  operation.WorkCreateDisk,
			Phase: operation.PhaseEnded,
			Ended: objects.Now,
			Truth: operation.Truth{Disk: current, Made: made},
		}
		if got := disk.Next(disk.Input{
			Now:          objects.Now,
			Volume:       v,
			HasFinalizer: true,
			Job:          job,
		}).Status.ConfirmedUID; got != want {
			t.Errorf("created for this object: %t: got confirmed UID %q, want %q", made, got, want)
		}
	}
	type (
		volume     = *apiv1.AzVolume
		attachment = *apiv1.AzVolumeAttachment
		staged     = *apiv1.StagedVolume
	)
	for name, differs := range map[string]func(volume, attachment, staged){
		"the primary has staged it":       nil,
		"the volume has no primary":       func(v volume, _ attachment, _ staged) { v.Status.Primary = nil },
		"the primary is staging it":       func(_ volume, _ attachment, s staged) { s.Phase = apiv1.PhaseStaging },
		"the primary is unstaging it now": func(_ volume, _ attachment, s staged) { s.Phase = apiv1.PhaseUnstaging },
		"staged under an earlier epoch":   func(_ volume, _ attachment, s staged) { s.Epoch = 1 },
		"another volume is staged":        func(_ volume, _ attachment, s staged) { s.VolumeName = "other" },
		"staged, and Azure contradicts":   func(_ volume, a attachment, _ staged) { a.Status.Exclusive = false },
		"attached to another node":        func(_ volume, a attachment, _ staged) { a.Spec.NodeName = "b" },
		"attached under an earlier epoch": func(_ volume, a attachment, _ staged) { a.Spec.Epoch = 1 },
		"the attachment was restored from a backup": func(_ volume, a attachment, _ staged) {
			a.Status.UID = "of another cluster"
		},
	} {
		v := objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld))
		v.UID, v.Status.ConfirmedUID = "present", "former"
		report := objects.Staged(nil, "vol")
		report.Name, report.Status.StagedVolumes[0].Epoch = "a", 2
		a := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)
		a.UID, a.Status.UID, a.Status.Exclusive = "a", "a", true
		want := types.UID("present")
		if differs != nil {
			differs(v, a, &report.Status.StagedVolumes[0])
			want = "former"
		}
		if got := disk.ConfirmedUID(v, objects.Attachments(a), report); got != want {
			t.Errorf("%s: got confirmed UID %q, want %q", name, got, want)
		}
	}
}

// A blank disk would replace one whose data is lost, without a sign to the user.
func TestTheDiskOfARestoredVolumeIsNotCreated(t *testing.T) {
	t.Parallel()
	handle := "/Subscriptions/SUB/resourceGroups/rg/providers/Microsoft.Compute/disks/vol"
	pv := func(handle string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{VolumeHandle: handle}},
		}}
	}
	v := objects.NewVolume(objects.NeverOwned)
	v.Status = apiv1.AzVolumeStatus{}
	v.Spec.Origin = apiv1.OriginProvisioned
	v.Spec.Disk.SubscriptionID, v.Spec.Disk.ResourceGroup, v.Spec.Disk.Name = "sub", "RG", "vol"
	for name, test := range map[string]struct {
		pv   *corev1.PersistentVolume
		want operation.Work
	}{
		"no PersistentVolume":                  {nil, operation.WorkCreateDisk},
		"a PersistentVolume names the disk":    {pv(handle), operation.WorkAdoptDisk},
		"a PersistentVolume of another disk":   {pv(handle + "-2"), operation.WorkCreateDisk},
		"a PersistentVolume of another driver": {&corev1.PersistentVolume{}, operation.WorkCreateDisk},
	} {
		step := disk.Next(disk.Input{
			Now:              objects.Now,
			Volume:           v,
			HasFinalizer:     true,
			PersistentVolume: test.pv,
		})
		if step.Start != test.want {
			t.Errorf("%s: got start %q, want %q", name, step.Start, test.want)
		}
	}
}

// A claim can be renamed, restored or swapped while the disk stays the same.
func TestTheClaimFollowsThePersistentVolume(t *testing.T) {
	t.Parallel()
	made := objects.NewVolume(func(v *apiv1.AzVolume) {
		v.Status.DiskID, v.Status.SizeBytes, v.Spec.ClaimRef = "/disk", v.Spec.CapacityBytes, objects.Claim("shop/data")
	})
	if got := made.Claim().String(); got != "shop/data" {
		t.Errorf("without a PersistentVolume: got claim %q, want that of the spec", got)
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	for _, claim := range []*corev1.ObjectReference{
		{Namespace: "shop", Name: "data", UID: "1"}, {Namespace: "shop", Name: "restored", UID: "2"}, nil,
	} {
		pv.Spec.ClaimRef = claim
		step := disk.Next(disk.Input{Now: objects.Now, Volume: made, HasFinalizer: true, PersistentVolume: pv})
		made.Status = step.Status
		switch got := made.Status.ClaimRef; {
		case claim == nil && got != nil:
			t.Errorf("without a claim: got %s, want none", got)
		case claim != nil && (got == nil || got.Name != claim.Name || got.Namespace != claim.Namespace || got.UID != claim.UID):
			t.Errorf("got claim %s, want %s", got, claim.Name)
		}
	}
}
