package plan_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestVolume(t *testing.T) {
	t.Parallel()
	state := func(s apiv1.VolumeState) func(*apiv1.AzVolume) {
		return func(v *apiv1.AzVolume) {
			v.Status = apiv1.AzVolumeStatus{State: s, ObservedGeneration: 1}
			if s == apiv1.VolumeCreated {
				v.Status.DiskURI, v.Status.SizeBytes = "/disk", v.Spec.CapacityBytes
				v.Status.Applied = &apiv1.AppliedSettings{Generation: 1, DiskSettings: v.Spec.Disk.Settings()}
			}
		}
	}
	asked := func(v *apiv1.AzVolume) { v.Spec.DeleteDisk = true }
	gone := func(v *apiv1.AzVolume) { v.DeletionTimestamp, v.Spec.DeleteDisk = ago(time.Second), true }
	unasked := func(v *apiv1.AzVolume) { v.DeletionTimestamp, v.Status.DiskURI = ago(time.Second), "/disk" }
	belonged := func(v *apiv1.AzVolume) { v.Status.PersistentVolume, v.Status.DiskURI = "pv", "/disk" }
	multi := func(v *apiv1.AzVolume) { v.Spec.Access = apiv1.AccessMultiNode }
	adopted := func(v *apiv1.AzVolume) { v.Spec.Origin = apiv1.OriginAdopted }
	replicas := list(newAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentAttached))
	disk := &provisioner.Disk{ID: "/disk", SizeBytes: 1 << 30}
	ended := func(w plan.Work, truth plan.Truth, err error) plan.Job {
		return plan.Job{Work: w, Phase: plan.PhaseEnded, Ended: now, Truth: truth, Err: err}
	}
	pv := func(phase corev1.PersistentVolumePhase, policy corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: policy}, Status: corev1.PersistentVolumeStatus{Phase: phase}}
	}
	type want struct {
		start          plan.Work
		state          apiv1.VolumeState
		detach, reason string
		removed        bool
		// forgets and takesBack say that the AzVolume is to be deleted without its disk, and that the disk is not to be deleted after all.
		forgets, takesBack bool
	}
	for name, test := range map[string]struct {
		in   plan.VolumeInput
		want want
	}{
		"a new one is created":             {plan.VolumeInput{Volume: newVolume(state(""))}, want{start: plan.WorkCreateDisk, state: apiv1.VolumeCreating, reason: plan.ReasonCreating}},
		"one that is adopted is only read": {plan.VolumeInput{Volume: newVolume(state(""), adopted)}, want{start: plan.WorkAdoptDisk, state: apiv1.VolumeCreating, reason: plan.ReasonCreating}},
		"a restart goes on":                {plan.VolumeInput{Volume: newVolume(state(apiv1.VolumeCreating))}, want{start: plan.WorkCreateDisk, state: apiv1.VolumeCreating, reason: plan.ReasonCreating}},
		"created":                          {plan.VolumeInput{Volume: newVolume(state(apiv1.VolumeCreating)), Job: ended(plan.WorkCreateDisk, plan.Truth{Disk: disk}, nil)}, want{state: apiv1.VolumeCreated, reason: plan.ReasonCreated}},
		"failed": {plan.VolumeInput{Volume: newVolume(state(apiv1.VolumeCreating)), Job: ended(plan.WorkCreateDisk, plan.Truth{}, provisioner.Errorf(provisioner.InsufficientCapacity, "quota"))},
			want{state: apiv1.VolumeCreationFailed, reason: plan.ReasonCreationFailed}},
		"a created one rests":                                  {plan.VolumeInput{Volume: newVolume(state(apiv1.VolumeCreated))}, want{state: apiv1.VolumeCreated, reason: plan.ReasonCreated}},
		"deletion takes the replicas first":                    {plan.VolumeInput{Volume: newVolume(gone), Attachments: replicas}, want{detach: plan.ReasonDeleting, state: apiv1.VolumeDeleting, reason: plan.ReasonDeleting}},
		"then the disk":                                        {plan.VolumeInput{Volume: newVolume(gone)}, want{start: plan.WorkDeleteDisk, state: apiv1.VolumeDeleting, reason: plan.ReasonDeleting}},
		"then the finalizer":                                   {plan.VolumeInput{Volume: newVolume(gone), Job: ended(plan.WorkDeleteDisk, plan.Truth{}, nil)}, want{removed: true, state: apiv1.VolumeCreated, reason: plan.ReasonDeleting}},
		"not while there is a primary":                         {plan.VolumeInput{Volume: newVolume(gone, claimed("a", 1, apiv1.ClaimHeld))}, want{state: apiv1.VolumeCreated, reason: plan.ReasonDeletionHeld}},
		"not while a claim is bound":                           {plan.VolumeInput{Volume: newVolume(gone), PersistentVolume: pv(corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete)}, want{state: apiv1.VolumeCreated, reason: plan.ReasonDeletionHeld}},
		"not if it is to be retained":                          {plan.VolumeInput{Volume: newVolume(gone), PersistentVolume: pv(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain)}, want{state: apiv1.VolumeCreated, reason: plan.ReasonDeletionHeld}},
		"what was never begun goes without Azure":              {plan.VolumeInput{Volume: newVolume(state(""), gone)}, want{removed: true}},
		"a creation in flight ends first":                      {plan.VolumeInput{Volume: newVolume(state(apiv1.VolumeCreating), gone), Job: plan.Job{Work: plan.WorkCreateDisk, Phase: plan.PhaseBegun}}, want{state: apiv1.VolumeCreating}},
		"a record that somebody deletes takes no data with it": {plan.VolumeInput{Volume: newVolume(unasked)}, want{removed: true, state: apiv1.VolumeCreated, reason: plan.ReasonDiskKept}},
		"nor does that of a disk that is retained, once Kubernetes has forgotten it": {plan.VolumeInput{Volume: newVolume(unasked, belonged)}, want{removed: true, state: apiv1.VolumeCreated, reason: plan.ReasonDiskKept}},
		"its replicas are detached":                                                  {plan.VolumeInput{Volume: newVolume(unasked), Attachments: replicas}, want{detach: plan.ReasonDiskKept, state: apiv1.VolumeCreated, reason: plan.ReasonDiskKept}},
		"its change ends first":                                                      {plan.VolumeInput{Volume: newVolume(unasked), Job: plan.Job{Work: plan.WorkUpdateDisk, Phase: plan.PhaseBegun}}, want{state: apiv1.VolumeCreated}},
		"it stays while there is a primary":                                          {plan.VolumeInput{Volume: newVolume(unasked, claimed("a", 1, apiv1.ClaimHeld))}, want{state: apiv1.VolumeCreated, reason: plan.ReasonDeletionHeld}},
		"a creation that was cut short leaves no disk":                               {plan.VolumeInput{Volume: newVolume(state(apiv1.VolumeCreating), func(v *apiv1.AzVolume) { v.DeletionTimestamp = ago(time.Second) })}, want{start: plan.WorkDeleteDisk, state: apiv1.VolumeDeleting, reason: plan.ReasonDeleting}},
		"a disk that Kubernetes has given up is forgotten":                           {plan.VolumeInput{Volume: newVolume(belonged)}, want{state: apiv1.VolumeCreated, reason: plan.ReasonCreated, forgets: true}},
		"not while a node uses it":                                                   {plan.VolumeInput{Volume: newVolume(belonged, claimed("a", 1, apiv1.ClaimReleasing))}, want{state: apiv1.VolumeCreated, reason: plan.ReasonCreated}},
		"nor one of several":                                                         {plan.VolumeInput{Volume: newVolume(belonged, multi), Attachments: list(newAttachment("a", apiv1.RolePrimary, 1, apiv1.AttachmentAttached))}, want{state: apiv1.VolumeCreated, reason: plan.ReasonCreated}},
		"not while it is changed":                                                    {plan.VolumeInput{Volume: newVolume(belonged), Job: plan.Job{Work: plan.WorkUpdateDisk, Phase: plan.PhaseAccepted}}, want{state: apiv1.VolumeUpdating}},
		"not while its PersistentVolume is there":                                    {plan.VolumeInput{Volume: newVolume(belonged), PersistentVolume: pv(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain)}, want{state: apiv1.VolumeCreated, reason: plan.ReasonCreated}},
		"not what CSI is about to delete":                                            {plan.VolumeInput{Volume: newVolume(belonged, asked)}, want{state: apiv1.VolumeCreated, reason: plan.ReasonCreated}},
		"not one that never had a PersistentVolume":                                  {plan.VolumeInput{Volume: newVolume(state(apiv1.VolumeCreated))}, want{state: apiv1.VolumeCreated, reason: plan.ReasonCreated}},
		"a deletion that stopped half-way is taken back when a node uses the volume": {plan.VolumeInput{Volume: newVolume(belonged, asked, claimed("a", 1, apiv1.ClaimHeld))}, want{state: apiv1.VolumeCreated, reason: plan.ReasonCreated, takesBack: true}},
		"and when it is to be retained":                                              {plan.VolumeInput{Volume: newVolume(belonged, asked), PersistentVolume: pv(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain)}, want{state: apiv1.VolumeCreated, reason: plan.ReasonCreated, takesBack: true}},
		"but not when it may go":                                                     {plan.VolumeInput{Volume: newVolume(belonged, asked), PersistentVolume: pv(corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete)}, want{state: apiv1.VolumeCreated, reason: plan.ReasonCreated}},
		"somebody else's disk stays":                                                 {plan.VolumeInput{Volume: newVolume(state(apiv1.VolumeDeleting), gone), Job: ended(plan.WorkDeleteDisk, plan.Truth{Foreign: true}, nil)}, want{removed: true, state: apiv1.VolumeDeleting, reason: plan.ReasonForeignDisk}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.in.Now, test.in.HasFinalizer = now, true
			step := plan.Volume(test.in)
			got := want{start: step.Start, state: step.Status.State, detach: step.DetachAll, reason: step.Reason, removed: step.RemoveFinalizer, forgets: step.Forget}
			got.takesBack = step.Spec != nil && test.in.Volume.Spec.DeleteDisk && !step.Spec.DeleteDisk
			if got != test.want {
				t.Fatalf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestFilesystemIsRecordedOnceAndFromThePrimaryOnly(t *testing.T) {
	t.Parallel()
	report := func(node string, epoch int64) *apiv1.AzDriverNode {
		d := staged(nil, "vol")
		d.Name = node
		d.Status.StagedVolumes[0].Epoch, d.Status.StagedVolumes[0].Filesystem = epoch, &apiv1.FilesystemRecord{Type: "xfs", UUID: "u"}
		return d
	}
	v := newVolume(claimed("a", 2, apiv1.ClaimHeld))
	if plan.Record(v, report("b", 2)) != nil || plan.Record(v, report("a", 1)) != nil {
		t.Fatal("law 7: a report of another node or epoch was believed")
	}
	if got := plan.Record(v, report("a", 2)); got == nil || got.UUID != "u" {
		t.Fatalf("%+v", got)
	}
	v.Status.Filesystem = &apiv1.FilesystemRecord{Type: "ext4", UUID: "first"}
	if plan.Record(v, report("a", 2)) != nil {
		t.Fatal("law 4: the record was overwritten")
	}
}

// A blank disk would take the place of one whose data is gone, and nobody would notice.
func TestTheDiskOfARestoredVolumeIsNotCreated(t *testing.T) {
	t.Parallel()
	handle := "/Subscriptions/SUB/resourceGroups/rg/providers/Microsoft.Compute/disks/vol"
	pv := func(handle string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{VolumeHandle: handle}},
		}}
	}
	v := newVolume(unclaimed)
	v.Status = apiv1.AzVolumeStatus{}
	v.Spec.Origin = apiv1.OriginProvisioned
	v.Spec.Disk.SubscriptionID, v.Spec.Disk.ResourceGroup, v.Spec.Disk.Name = "sub", "RG", "vol"
	for name, test := range map[string]struct {
		pv   *corev1.PersistentVolume
		want plan.Work
	}{
		"no PersistentVolume":                  {nil, plan.WorkCreateDisk},
		"a PersistentVolume names the disk":    {pv(handle), plan.WorkAdoptDisk},
		"a PersistentVolume of another disk":   {pv(handle + "-2"), plan.WorkCreateDisk},
		"a PersistentVolume of another driver": {&corev1.PersistentVolume{}, plan.WorkCreateDisk},
	} {
		step := plan.Volume(plan.VolumeInput{Now: now, Volume: v, HasFinalizer: true, PersistentVolume: test.pv})
		if step.Start != test.want {
			t.Errorf("%s: got start %q, want %q", name, step.Start, test.want)
		}
	}
}
