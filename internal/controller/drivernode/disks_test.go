package drivernode_test

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// scan has the node plug-in report that it has looked, and which volumes it has staged.
func (w *world) scan(staged ...string) {
	w.t.Helper()
	d := &apiv1.AzDriverNode{}
	w.must(w.api.Get(w.t.Context(), w.request().NamespacedName, d))
	scanned := metav1.NewMicroTime(w.clock.Now())
	d.Status.MountsScannedTime, d.Status.StagedVolumes = &scanned, nil
	for _, volume := range staged {
		d.Status.StagedVolumes = append(d.Status.StagedVolumes, apiv1.StagedVolume{
			VolumeName: named(volume),
			Epoch:      1,
			Phase:      apiv1.PhaseStaged,
		})
	}
	w.must(w.api.Status().Update(w.t.Context(), d))
}

// phase sets the phase of what the node plug-in has reported.
func (w *world) phase(phase apiv1.StagePhase) {
	w.t.Helper()
	d := &apiv1.AzDriverNode{}
	w.must(w.api.Get(w.t.Context(), w.request().NamespacedName, d))
	for i := range d.Status.StagedVolumes {
		d.Status.StagedVolumes[i].Phase = phase
	}
	w.must(w.api.Status().Update(w.t.Context(), d))
}

// has returns the attachment of a volume to the node; nil if there is none.
func (w *world) has(volume string) *apiv1.AzVolumeAttachment {
	w.t.Helper()
	a := &apiv1.AzVolumeAttachment{}
	err := w.api.Get(w.t.Context(), client.ObjectKey{
		Namespace: w.namespace,
		Name:      apiv1.AttachmentName(named(volume), w.node),
	}, a)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return a
}

// A replica is detached without further questions, and so the disk was taken from under a mounted
// filesystem.
func TestLaw3ADiskIsNoReplicaWhereItMayBeInUse(t *testing.T) {
	t.Parallel()
	adopted := func(v *apiv1.AzVolume) { v.Spec.Origin = apiv1.OriginAdopted }
	for name, test := range map[string]struct {
		volume  func(*apiv1.AzVolume)
		prepare func(*world)
		made    bool
	}{
		"what V1 published and an expansion adopted": {adopted, func(w *world) { w.scan() }, false},
		"what V1 published, before a scan":           {adopted, func(*world) {}, false},
		"what the node reports as staged":            {func(*apiv1.AzVolume) {}, func(w *world) { w.scan("vol") }, false},
		"what the node has not spoken of yet":        {func(*apiv1.AzVolume) {}, func(*world) {}, false},
		"what the node does not use":                 {func(*apiv1.AzVolume) {}, func(w *world) { w.scan("other") }, true},
		// Such a VM may be started with its mounts.
		"what a node reports that Azure has stopped": {func(*apiv1.AzVolume) {},
			func(w *world) { w.scan("vol"); w.cloud.SetPower(w.vm(), provisioner.PowerStopped) }, false},
		"what V1 published to a VM that was deallocated": {adopted,
			func(w *world) { w.cloud.SetPower(w.vm(), provisioner.PowerDeallocated) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.volume("vol", test.volume)
			w.attach(disk("vol"))
			test.prepare(w)
			if got, _ := w.reconcile(); got != room(0) {
				t.Errorf("capacity %+v: the disk is counted as one from outside", got)
			}
			if a := w.has("vol"); (a != nil) != test.made || a != nil && a.Spec.Role != apiv1.RoleReplica {
				t.Errorf("got attachment %+v, want a replica: %t", a, test.made)
			}
		})
	}
}

func TestALostAttachmentIsFoundWhileTheProcessRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held := func(v *apiv1.AzVolume) {
		v.Status.Primary = &apiv1.Ownership{State: apiv1.OwnershipHeld, NodeName: w.node, Epoch: 3}
	}
	w.volume("primary", held)
	w.volume("replica")
	pv := persistentVolume(w.namespace, driverName, disk("primary"))
	pv.Spec.CSI.ReadOnly = true
	w.make(pv)
	w.scan()
	w.reconcile()
	w.attach(disk("primary"))
	w.attach(disk("replica"))
	w.clock.Step(5 * time.Minute)
	if got, _ := w.reconcile(); got != room(0) {
		t.Errorf("capacity %+v", got)
	}
	for volume, want := range map[string]apiv1.AzVolumeAttachmentSpec{
		"primary": {VolumeName: named("primary"), NodeName: w.node, Role: apiv1.RolePrimary, Epoch: 3, ReadOnly: true},
		"replica": {VolumeName: named("replica"), NodeName: w.node, Role: apiv1.RoleReplica},
	} {
		a := &apiv1.AzVolumeAttachment{}
		w.must(w.api.Get(t.Context(), client.ObjectKey{
			Namespace: w.namespace,
			Name:      apiv1.AttachmentName(named(volume), w.node),
		}, a))
		if a.Spec != want || len(a.Finalizers) != 1 || a.Status.VMID != w.vm() {
			t.Errorf("%s: got %+v of VM %q with finalizers %v; want %+v of VM %q, or the disk stays attached when it goes",
				volume, a.Spec, a.Status.VMID, a.Finalizers, want, w.vm())
		}
	}
}

// attachedAt makes an attachment that was attached a while ago, at a LUN.
func (w *world) attachedAt(volume string, lun int32, spec apiv1.AzVolumeAttachmentSpec) *apiv1.AzVolumeAttachment {
	w.t.Helper()
	spec.VolumeName, spec.NodeName = named(volume), w.node
	a := &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: apiv1.AttachmentName(named(volume), w.node)},
		Spec:       spec,
		Status: apiv1.AzVolumeAttachmentStatus{
			State: apiv1.AttachmentAttached,
			VMID:  w.vm(),
			LUN:   &lun,
			Conditions: []metav1.Condition{{
				Type: apiv1.AttachmentConditionAttached, Status: metav1.ConditionTrue, Reason: apiv1.ReasonDiskAttached,
				LastTransitionTime: metav1.NewTime(w.clock.Now().Add(-time.Hour)),
			}},
		},
	}
	w.make(a)
	return a
}

// A replica was recorded as attached forever, and the pod that moved to it was sent to the LUN
// where another volume's disk was by then.
func TestAnAttachmentThatAzureDoesNotHaveIsAttachedAgain(t *testing.T) {
	t.Parallel()
	replica, primary := apiv1.AzVolumeAttachmentSpec{Role: apiv1.RoleReplica}, apiv1.AzVolumeAttachmentSpec{
		Role:  apiv1.RolePrimary,
		Epoch: 3,
	}
	for name, test := range map[string]struct {
		spec    apiv1.AzVolumeAttachmentSpec
		lun     int32
		prepare func(*world)
		want    apiv1.AttachmentState
	}{
		"as recorded":                 {replica, 0, func(w *world) { w.attach(disk("vol")); w.scan() }, apiv1.AttachmentAttached},
		"a replica that was detached": {replica, 0, func(w *world) { w.scan() }, apiv1.AttachmentPending},
		"a replica at another LUN": {replica, 0,
			func(w *world) { w.attach(disk("other")); w.attach(disk("vol")); w.scan() }, apiv1.AttachmentPending},
		"a primary that is not staged": {primary, 0, func(w *world) { w.scan("other") }, apiv1.AttachmentPending},
		"a primary that is staged":     {primary, 0, func(w *world) { w.scan("vol") }, apiv1.AttachmentAttached},
		"a primary that the node waits for": {primary, 0, func(w *world) { w.scan("vol"); w.phase(apiv1.PhaseStaging) },
			apiv1.AttachmentPending},
		"a node that has not looked yet": {replica, 0, func(*world) {}, apiv1.AttachmentAttached},
		"a VM that is gone": {
			replica, 0, func(w *world) { w.scan(); w.cloud.RemoveVM(w.vm()) }, apiv1.AttachmentAttached},
		"another volume's disk at that LUN": {replica, 0, func(w *world) { w.attach(disk("other")); w.scan() },
			apiv1.AttachmentPending},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.volume("vol")
			w.volume("other")
			w.attachedAt("vol", test.lun, test.spec)
			test.prepare(w)
			if _, next := w.reconcile(); next != 5*time.Minute {
				t.Errorf("again in %s", next)
			}
			a := w.has("vol")
			if a.Status.State != test.want || (a.Status.LUN == nil) != (test.want == apiv1.AttachmentPending) ||
				a.Spec.Role != test.spec.Role {
				t.Errorf("%+v", a.Status)
			}
		})
	}
}

// The person who detached the disk may have started it in another cluster.
func TestAContradictionByAzureEndsWhatWasConfirmed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		staged, attached bool
		confirmed        bool
	}{
		"as recorded":                          {attached: true, confirmed: true},
		"detached":                             {},
		"detached, and the node has it staged": {staged: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.volume("vol", func(v *apiv1.AzVolume) { v.Status.ConfirmedUID = "uid" })
			a := w.attachedAt("vol", 0, apiv1.AzVolumeAttachmentSpec{Role: apiv1.RolePrimary, Epoch: 3})
			before := a.DeepCopy()
			a.Status.Exclusive = true
			w.must(w.api.Status().Patch(t.Context(), a, client.MergeFrom(before)))
			if test.attached {
				w.attach(disk("vol"))
			}
			w.scan()
			if test.staged {
				w.scan("vol")
			}
			w.reconcile()
			v := &apiv1.AzVolume{}
			w.must(w.api.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: named("vol")}, v))
			if (v.Status.ConfirmedUID != "") != test.confirmed || w.has("vol").Status.Exclusive != test.confirmed {
				t.Errorf("got confirmed UID %q and an attachment that is exclusive: %t; want both: %t", v.Status.ConfirmedUID,
					w.has("vol").Status.Exclusive, test.confirmed)
			}
		})
	}
}

// answered calls then after each list of a VM's disks, before the caller has the answer.
type answered struct {
	*fake.Cloud
	then func()
}

func (c answered) Attachments() provisioner.Attachments {
	return answeredAttachments{c.Cloud.Attachments(), c.then}
}

type answeredAttachments struct {
	provisioner.Attachments
	then func()
}

func (a answeredAttachments) List(ctx context.Context, vmID string) ([]provisioner.Attachment, error) {
	disks, err := a.Attachments.List(ctx, vmID)
	a.then()
	return disks, err
}

func TestWhatChangedWhileAzureWasAskedIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.volume("vol")
	a := w.attachedAt("vol", 0, apiv1.AzVolumeAttachmentSpec{Role: apiv1.RoleReplica})
	w.scan()
	w.r.Cloud = answered{w.cloud, func() {
		before := a.DeepCopy()
		a.Spec.Role, a.Spec.Epoch = apiv1.RolePrimary, 4
		w.must(w.api.Patch(t.Context(), a, client.MergeFrom(before)))
	}}
	result, err := w.r.Reconcile(t.Context(), w.request())
	w.must(err)
	w.r.Cloud = w.cloud
	if result.RequeueAfter <= 0 || result.RequeueAfter > time.Second {
		t.Errorf("got the next look in %s, want it within 1s", result.RequeueAfter)
	}
	if got := w.has("vol"); got.Status.State != apiv1.AttachmentAttached {
		t.Errorf("what was promoted meanwhile was set back: %+v", got.Status)
	}
	w.reconcile()
	if got := w.has("vol"); got.Status.State != apiv1.AttachmentPending {
		t.Errorf("the next time: %+v", got.Status)
	}
}
