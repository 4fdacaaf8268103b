package disk_test

import (
	"strings"
	"testing"
	"time"

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
				v.Status.DiskURI, v.Status.SizeBytes = "/disk", v.Spec.CapacityBytes
				v.Status.Applied = &apiv1.AppliedSettings{Generation: 1, DiskSettings: *v.Spec.Disk.DiskSettings.DeepCopy()}
			}
		}
	}
	asked := func(v *apiv1.AzVolume) { v.Spec.DeleteDisk = true }
	gone := func(v *apiv1.AzVolume) { v.DeletionTimestamp, v.Spec.DeleteDisk = objects.Ago(time.Second), true }
	unasked := func(v *apiv1.AzVolume) { v.DeletionTimestamp, v.Status.DiskURI = objects.Ago(time.Second), "/disk" }
	belonged := func(v *apiv1.AzVolume) { v.Status.PersistentVolume, v.Status.DiskURI = "pv", "/disk" }
	grown := func(v *apiv1.AzVolume) {
		v.Spec.CapacityBytes, v.Status.SizeBytes, v.Spec.Disk.MaxShares = 2<<30, 1<<30, 1
		v.Status.UpdateSince = &metav1.MicroTime{Time: objects.Now.Add(-time.Minute)}
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
		operation      string // the token
		removed        bool
		// forgets and reverts say that the AzVolume is to be deleted without its disk, and that the
		// disk is not to be deleted after all.
		forgets, reverts bool
	}
	for name, test := range map[string]struct {
		in   disk.Input
		want want
	}{
		"a new one is created": {disk.Input{Volume: objects.NewVolume(state(""))},
			want{start: operation.WorkCreateDisk, state: apiv1.VolumeCreating, reason: apiv1.ReasonCreating}},
		"one that is adopted is only read": {disk.Input{Volume: objects.NewVolume(state(""), adopted)},
			want{start: operation.WorkAdoptDisk, state: apiv1.VolumeCreating, reason: apiv1.ReasonCreating}},
		"a restart continues": {disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreating))},
			want{start: operation.WorkCreateDisk, state: apiv1.VolumeCreating, reason: apiv1.ReasonCreating}},
		"created": {disk.Input{
			Volume: objects.NewVolume(state(apiv1.VolumeCreating)),
			Job:    ended(operation.WorkCreateDisk, operation.Truth{Disk: current}, nil),
		}, want{state: apiv1.VolumeCreated, reason: apiv1.ReasonCreated}},
		"failed": {
			disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreating)),
				Job: ended(operation.WorkCreateDisk, operation.Truth{},
					provisioner.Errorf(provisioner.InsufficientCapacity, "quota"))},
			want{state: apiv1.VolumeCreationFailed, reason: apiv1.ReasonCreationFailed}},
		"failed, although the disk is there": {
			disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreating)),
				Job: ended(operation.WorkCreateDisk, operation.Truth{Disk: current},
					provisioner.Errorf(provisioner.Unavailable, "the creation failed"))},
			want{state: apiv1.VolumeCreationFailed, reason: apiv1.ReasonCreationFailed}},
		"failed while its source was copied": {
			disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreating)),
				Job: ended(operation.WorkCreateDisk, operation.Truth{Disk: current, Filling: true},
					provisioner.Errorf(provisioner.Unavailable, "the copy failed"))},
			want{state: apiv1.VolumeCreationFailed, reason: apiv1.ReasonCreationFailed}},
		"a created one rests": {disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreated))},
			want{state: apiv1.VolumeCreated, reason: apiv1.ReasonCreated}},
		"deletion takes the replicas first": {disk.Input{Volume: objects.NewVolume(gone), Attachments: replicas},
			want{detach: apiv1.ReasonDeleting, state: apiv1.VolumeDeleting, reason: apiv1.ReasonDeleting}},
		"then the disk": {disk.Input{Volume: objects.NewVolume(gone)},
			want{start: operation.WorkDeleteDisk, state: apiv1.VolumeDeleting, reason: apiv1.ReasonDeleting}},
		"what deletes it is recorded": {disk.Input{
			Volume: objects.NewVolume(gone),
			Job:    operation.Job{Work: operation.WorkDeleteDisk, Phase: operation.PhaseAccepted, Tokens: []string{"t"}},
		}, want{state: apiv1.VolumeDeleting, operation: "t"}},
		"then the finalizer": {
			disk.Input{Volume: objects.NewVolume(gone), Job: ended(operation.WorkDeleteDisk, operation.Truth{}, nil)},
			want{removed: true, state: apiv1.VolumeCreated, reason: apiv1.ReasonDeleting}},
		"not while there is a primary": {disk.Input{Volume: objects.NewVolume(gone, objects.Owned("a", 1, apiv1.OwnershipHeld))},
			want{state: apiv1.VolumeCreated, reason: apiv1.ReasonDeletionHeld, reverts: true}},
		"not while nodes share it": {disk.Input{
			Volume:      objects.NewVolume(unasked, multi),
			Attachments: objects.Attachments(objects.NewAttachment("a", apiv1.RolePrimary, 1, apiv1.AttachmentAttached)),
		}, want{state: apiv1.VolumeCreated, reason: apiv1.ReasonDeletionHeld}},
		"not while its PersistentVolumeClaim is bound": {disk.Input{
			Volume:           objects.NewVolume(gone),
			PersistentVolume: pv(corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete),
		}, want{state: apiv1.VolumeCreated, reason: apiv1.ReasonDeletionHeld, reverts: true}},
		"not if it is to be retained": {disk.Input{
			Volume:           objects.NewVolume(gone),
			PersistentVolume: pv(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain),
		}, want{state: apiv1.VolumeCreated, reason: apiv1.ReasonDeletionHeld, reverts: true}},
		"not while a claim can be bound to it": {disk.Input{
			Volume:           objects.NewVolume(gone),
			PersistentVolume: pv(corev1.VolumeAvailable, corev1.PersistentVolumeReclaimDelete),
		}, want{state: apiv1.VolumeCreated, reason: apiv1.ReasonDeletionHeld, reverts: true}},
		"one that is kept grows": {disk.Input{
			Volume:           objects.NewVolume(unasked, grown),
			PersistentVolume: pv(corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete),
		}, want{start: operation.WorkUpdateDisk, state: apiv1.VolumeUpdating, reason: apiv1.ReasonUpdating}},
		"one that is kept and was never read is adopted": {disk.Input{
			Volume: objects.NewVolume(state(""), adopted,
				func(v *apiv1.AzVolume) { v.DeletionTimestamp = objects.Ago(time.Second) }),
			PersistentVolume: pv(corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete),
		}, want{start: operation.WorkAdoptDisk, state: apiv1.VolumeCreating, reason: apiv1.ReasonCreating}},
		"a deletion that has begun does not turn back, and leaves the disk to the claim that was bound since": {disk.Input{
			Volume:           objects.NewVolume(unasked, func(v *apiv1.AzVolume) { v.Status.State = apiv1.VolumeDeleting }),
			PersistentVolume: pv(corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete),
		}, want{removed: true, state: apiv1.VolumeDeleting, reason: apiv1.ReasonDiskKept}},
		"also if it was to take the disk with it": {
			disk.Input{Volume: objects.NewVolume(gone, func(v *apiv1.AzVolume) { v.Status.State = apiv1.VolumeDeleting }),
				Attachments: replicas, PersistentVolume: pv(corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete)},
			want{detach: apiv1.ReasonDiskKept, state: apiv1.VolumeDeleting, reason: apiv1.ReasonDiskKept, reverts: true}},
		"a volume that was never begun is removed without Azure": {disk.Input{Volume: objects.NewVolume(state(""), gone)},
			want{removed: true}},
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
			want{state: apiv1.VolumeCreated, reason: apiv1.ReasonDeletionHeld}},
		"a creation that was cut short leaves no disk": {
			disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreating),
				func(v *apiv1.AzVolume) { v.DeletionTimestamp = objects.Ago(time.Second) })},
			want{start: operation.WorkDeleteDisk, state: apiv1.VolumeDeleting, reason: apiv1.ReasonDeleting}},
		"a disk that Kubernetes has given up is forgotten": {disk.Input{Volume: objects.NewVolume(belonged)},
			want{state: apiv1.VolumeCreated, reason: apiv1.ReasonCreated, forgets: true}},
		"not while a node uses it": {
			disk.Input{Volume: objects.NewVolume(belonged, objects.Owned("a", 1, apiv1.OwnershipReleasing))},
			want{state: apiv1.VolumeCreated, reason: apiv1.ReasonCreated}},
		"nor one of several": {disk.Input{
			Volume:      objects.NewVolume(belonged, multi),
			Attachments: objects.Attachments(objects.NewAttachment("a", apiv1.RolePrimary, 1, apiv1.AttachmentAttached)),
		}, want{state: apiv1.VolumeCreated, reason: apiv1.ReasonCreated}},
		"not while it is changed": {disk.Input{
			Volume: objects.NewVolume(belonged),
			Job:    operation.Job{Work: operation.WorkUpdateDisk, Phase: operation.PhaseAccepted},
		}, want{state: apiv1.VolumeCreated}},
		"not while its PersistentVolume exists": {disk.Input{
			Volume:           objects.NewVolume(belonged),
			PersistentVolume: pv(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain),
		}, want{state: apiv1.VolumeCreated, reason: apiv1.ReasonCreated}},
		"not what CSI is about to delete": {disk.Input{Volume: objects.NewVolume(belonged, asked)},
			want{state: apiv1.VolumeCreated, reason: apiv1.ReasonCreated}},
		"not one that never had a PersistentVolume": {disk.Input{Volume: objects.NewVolume(state(apiv1.VolumeCreated))},
			want{state: apiv1.VolumeCreated, reason: apiv1.ReasonCreated}},
		"an incomplete deletion is cancelled if a node uses the volume": {
			disk.Input{Volume: objects.NewVolume(belonged, asked, objects.Owned("a", 1, apiv1.OwnershipHeld))},
			want{state: apiv1.VolumeCreated, reason: apiv1.ReasonCreated, reverts: true}},
		"an incomplete deletion is cancelled if the disk is to be retained": {
			disk.Input{Volume: objects.NewVolume(belonged, asked),
				PersistentVolume: pv(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain)},
			want{state: apiv1.VolumeCreated, reason: apiv1.ReasonCreated, reverts: true}},
		"an incomplete deletion continues if nothing prevents it": {disk.Input{
			Volume:           objects.NewVolume(belonged, asked),
			PersistentVolume: pv(corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete),
		}, want{state: apiv1.VolumeCreated, reason: apiv1.ReasonCreated}},
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
				removed: step.RemoveFinalizer,
				forgets: step.Forget,
			}
			if op := step.Status.Operation; op != nil {
				got.operation = op.ResumeToken
			}
			got.reverts = step.Spec != nil && test.in.Volume.Spec.DeleteDisk && !step.Spec.DeleteDisk
			if got != test.want {
				t.Fatalf("got %+v, want %+v", got, test.want)
			}
		})
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
		v := &apiv1.AzVolume{Spec: apiv1.AzVolumeSpec{DeleteDisk: test.withDisk}, Status: apiv1.AzVolumeStatus{State: test.state}}
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
	for name, test := range map[string]struct {
		phase     apiv1.StagePhase
		epoch     int64
		exclusive bool
		want      types.UID
	}{
		"the primary is staging it":       {apiv1.PhaseStaging, 2, true, "former"},
		"staged under an earlier epoch":   {apiv1.PhaseStaged, 1, true, "former"},
		"the primary has staged it":       {apiv1.PhaseStaged, 2, true, "present"},
		"the primary is unstaging it now": {apiv1.PhaseUnstaging, 2, true, "former"},
		"staged, and Azure contradicts":   {apiv1.PhaseStaged, 2, false, "former"},
	} {
		v := objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld))
		v.UID, v.Status.ConfirmedUID = "present", "former"
		report := objects.Staged(nil, "vol")
		report.Name = "a"
		report.Status.StagedVolumes[0].Phase, report.Status.StagedVolumes[0].Epoch = test.phase, test.epoch
		a := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)
		a.UID, a.Status.UID, a.Status.Exclusive = "a", "a", test.exclusive
		if got := disk.ConfirmedUID(v, objects.Attachments(a), report); got != test.want {
			t.Errorf("%s: got confirmed UID %q, want %q", name, got, test.want)
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
