package keeper_test

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/keeper"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
)

func volumeOf(node string, epoch int64) *apiv1.AzVolume {
	return &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vol"},
		Status: apiv1.AzVolumeStatus{
			Primary: &apiv1.Ownership{NodeName: node, Epoch: epoch, State: apiv1.OwnershipReleasing},
		},
	}
}

func attachmentOf(role apiv1.Role, epoch int64) *apiv1.AzVolumeAttachment {
	return &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  "ns",
			Name:       apiv1.AttachmentName("vol", "a"),
			Finalizers: []string{apiv1.FinalizerAttachment},
		},
		Spec: apiv1.AzVolumeAttachmentSpec{VolumeName: "vol", NodeName: "a", Role: role, Epoch: epoch},
	}
}

func with(a *apiv1.AzVolumeAttachment, kind apiv1.ProofType, epoch int64) *apiv1.AzVolumeAttachment {
	a.Status.Proof = &apiv1.ReleaseProof{Type: kind, Epoch: epoch}
	return a
}

func deleted(a *apiv1.AzVolumeAttachment) *apiv1.AzVolumeAttachment {
	now := metav1.Now()
	a.DeletionTimestamp = &now
	return a
}

func asPrimary(epoch int64) apiv1.AzVolumeAttachmentSpec {
	return apiv1.AzVolumeAttachmentSpec{VolumeName: "vol", NodeName: "a", Role: apiv1.RolePrimary, Epoch: epoch}
}

func emptyAPI() client.Client {
	return memapi.NewClient(memapi.New(fakeapi.Scheme(), clock.RealClock{}), memapi.Open, nil)
}

// stored returns an API server with the attachment, and the attachment as it was read there.
func stored(t *testing.T, a *apiv1.AzVolumeAttachment) (client.Client, *apiv1.AzVolumeAttachment) {
	t.Helper()
	api, made := emptyAPI(), a.DeepCopy()
	expect.Must(t, api.Create(t.Context(), made))
	made.Status = a.Status
	expect.Must(t, api.Status().Update(t.Context(), made))
	if a.DeletionTimestamp != nil {
		expect.Must(t, api.Delete(t.Context(), made))
	}
	return api, read(t, api)
}

func read(t *testing.T, api client.Client) *apiv1.AzVolumeAttachment {
	t.Helper()
	a, err := kube.Find[apiv1.AzVolumeAttachment](t.Context(), api,
		client.ObjectKey{Namespace: "ns", Name: apiv1.AttachmentName("vol", "a")})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

type attachment = apiv1.AzVolumeAttachment

type write func(ctx context.Context, api client.Client, a *attachment) error

// writes are all functions that write an attachment that was read, each with one that it accepts.
var writes = map[string]struct {
	on *apiv1.AzVolumeAttachment
	do write
}{
	"Promote": {attachmentOf(apiv1.RoleReplica, 1), func(ctx context.Context, api client.Client, a *attachment) error {
		_, err := keeper.Promote(ctx, api, a, asPrimary(2))
		return err
	}},
	"Demote": {with(attachmentOf(apiv1.RolePrimary, 1), apiv1.ProofUnstaged, 1),
		func(ctx context.Context, api client.Client, a *attachment) error {
			_, err := keeper.Demote(ctx, api, volumeOf("b", 2), a)
			return err
		}},
	"Restore": {attachmentOf(apiv1.RoleReplica, 1), func(ctx context.Context, api client.Client, a *attachment) error {
		_, err := keeper.Restore(ctx, api, volumeOf("a", 2), a)
		return err
	}},
	"Delete": {attachmentOf(apiv1.RoleReplica, 1), func(ctx context.Context, api client.Client, a *attachment) error {
		return keeper.Delete(ctx, api, a)
	}},
	"RecordProof": {attachmentOf(apiv1.RolePrimary, 1),
		func(ctx context.Context, api client.Client, a *attachment) error {
			_, err := keeper.RecordProof(ctx, api, a, &apiv1.ReleaseProof{Type: apiv1.ProofUnstaged, Epoch: 1})
			return err
		}},
	"WriteStatus": {attachmentOf(apiv1.RolePrimary, 1),
		func(ctx context.Context, api client.Client, a *attachment) error {
			_, err := keeper.WriteStatus(ctx, api, a, apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentPending})
			return err
		}},
	"AddFinalizer": {attachmentOf(apiv1.RolePrimary, 1),
		func(ctx context.Context, api client.Client, a *attachment) error {
			_, err := keeper.AddFinalizer(ctx, api, a, apiv1.FinalizerFenced)
			return err
		}},
	"RemoveFinalizer": {deleted(attachmentOf(apiv1.RolePrimary, 1)),
		func(ctx context.Context, api client.Client, a *attachment) error {
			return keeper.RemoveFinalizer(ctx, api, a, apiv1.FinalizerAttachment)
		}},
}

// The decision was made from what the cache had. Another client was first.
func TestAWriteThatCameTooLateChangesNothing(t *testing.T) {
	t.Parallel()
	for name, w := range writes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, old := stored(t, w.on.DeepCopy())
			changed := old.DeepCopy()
			changed.Annotations = map[string]string{"other": "client"}
			if err := api.Update(t.Context(), changed); err != nil {
				t.Fatal(err)
			}
			if err := w.do(t.Context(), api, old); !apierrors.IsConflict(err) {
				t.Errorf("got %v, want a Conflict", err)
			}
			if now := read(t, api); now == nil || now.ResourceVersion != changed.ResourceVersion {
				t.Errorf("got %+v, want the attachment as the other client left it", now)
			}
			if err := w.do(t.Context(), api, changed); err != nil {
				t.Errorf("from what the API server has: %v", err)
			}
		})
	}
}

func TestDeleteLeavesAnAttachmentThatWasCreatedAgain(t *testing.T) {
	t.Parallel()
	api, old := stored(t, attachmentOf(apiv1.RoleReplica, 0))
	old.UID = "the one before"
	if err := keeper.Delete(t.Context(), api, old); !apierrors.IsConflict(err) || read(t, api) == nil {
		t.Errorf("got %v and attachment %v, want a Conflict and the attachment", err, read(t, api))
	}
}

// A guard forbids what no caller may do, whatever it has decided.
func TestGuards(t *testing.T) {
	t.Parallel()
	primary := func(epoch int64) *apiv1.AzVolumeAttachment { return attachmentOf(apiv1.RolePrimary, epoch) }
	promote := writes["Promote"].do
	demote := writes["Demote"].do
	for name, c := range map[string]struct {
		a  *apiv1.AzVolumeAttachment
		do write
	}{
		"a promotion of one that is being deleted":   {deleted(primary(1)), promote},
		"a promotion of one that is Preempted":       {with(primary(1), apiv1.ProofPreempted, 1), promote},
		"a promotion to an earlier epoch":            {primary(3), promote},
		"a demotion without a proof":                 {primary(2), demote},
		"a demotion with the proof of another epoch": {with(primary(2), apiv1.ProofUnstaged, 1), demote},
		"a demotion of one that is being deleted":    {deleted(with(primary(1), apiv1.ProofUnstaged, 1)), demote},
		"a demotion of one that is Preempted":        {with(primary(1), apiv1.ProofPreempted, 1), demote},
		"the removal of the finalizer of one in use": {primary(1), writes["RemoveFinalizer"].do},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, a := stored(t, c.a)
			if err := c.do(t.Context(), api, a); !apierrors.IsConflict(err) {
				t.Errorf("got %v, want a Conflict", err)
			}
			if now := read(t, api); now.ResourceVersion != a.ResourceVersion {
				t.Errorf("it was written: %+v", now)
			}
		})
	}
}

func TestCreateKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	api := emptyAPI()
	a, err := keeper.Create(t.Context(), api, "ns", asPrimary(2))
	if err != nil || len(a.Finalizers) != 1 || a.Finalizers[0] != apiv1.FinalizerAttachment || read(t, api).Spec != asPrimary(2) {
		t.Errorf("got %+v, %v, want a primary with the finalizer", a, err)
	}
	if _, err := keeper.Create(t.Context(), api, "ns", asPrimary(3)); !apierrors.IsAlreadyExists(err) {
		t.Errorf("got %v for a second one, want AlreadyExists", err)
	}
}

func TestAPromotionEndsTheLastRelease(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		a    *apiv1.AzVolumeAttachment
		want bool // that the proof stays
	}{
		"of the same epoch":   {with(attachmentOf(apiv1.RolePrimary, 2), apiv1.ProofUnstaged, 2), false},
		"of an earlier epoch": {with(attachmentOf(apiv1.RolePrimary, 1), apiv1.ProofUnstaged, 1), true},
		// A user edited the role while the ownership was being released.
		"of an edited role":    {with(attachmentOf(apiv1.RoleReplica, 2), apiv1.ProofUnstaged, 2), true},
		"of a replica's past":  {with(attachmentOf(apiv1.RoleReplica, 1), apiv1.ProofUnstaged, 1), true},
		"that there never was": {attachmentOf(apiv1.RolePrimary, 2), false},
	} {
		api, a := stored(t, c.a)
		before := a.DeepCopy()
		wanted := asPrimary(2)
		wanted.Role = a.Spec.Role
		promoted, err := keeper.Promote(t.Context(), api, a, wanted)
		if now := read(t, api); err != nil || now.Spec != asPrimary(2) || (now.Status.Proof != nil) != c.want ||
			promoted.ResourceVersion != now.ResourceVersion {
			t.Errorf("a proof %s: got %+v, %v, want it to stay: %t", name, now, err, c.want)
		}
		if before.ResourceVersion != a.ResourceVersion || before.Spec != a.Spec {
			t.Errorf("a proof %s: the attachment that was given changed: %+v", name, a)
		}
	}
}

func TestRestore(t *testing.T) {
	t.Parallel()
	readOnly := attachmentOf(apiv1.RoleReplica, 1)
	readOnly.Spec.ReadOnly = true
	restored := asPrimary(2)
	restored.ReadOnly = true
	for name, c := range map[string]struct {
		a    *apiv1.AzVolumeAttachment
		want *apiv1.AzVolumeAttachmentSpec // nil: it is deleted
	}{
		"a missing one is created":                      {nil, ptr.To(asPrimary(2))},
		"an edited one is the primary again, read-only": {readOnly, &restored},
		"one that is as it was stays":                   {attachmentOf(apiv1.RolePrimary, 2), ptr.To(asPrimary(2))},
		"one of a later ownership stays":                {attachmentOf(apiv1.RolePrimary, 5), ptr.To(asPrimary(5))},
		"one that is Preempted is deleted":              {with(attachmentOf(apiv1.RolePrimary, 1), apiv1.ProofPreempted, 1), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := emptyAPI()
			a := c.a
			if a != nil {
				api, a = stored(t, a)
			}
			_, err := keeper.Restore(t.Context(), api, volumeOf("a", 2), a)
			now := read(t, api)
			switch {
			case err != nil:
				t.Error(err)
			case c.want == nil && now.DeletionTimestamp == nil:
				t.Errorf("got %+v, want it deleted", now)
			case c.want != nil && now.Spec != *c.want:
				t.Errorf("got %+v, want %+v", now.Spec, *c.want)
			}
		})
	}
}

func TestAProofIsNotReplacedByAnEarlierOne(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		a    *apiv1.AzVolumeAttachment
		want apiv1.ProofType
	}{
		"none":                  {attachmentOf(apiv1.RolePrimary, 2), apiv1.ProofUnstaged},
		"one of an older epoch": {with(attachmentOf(apiv1.RolePrimary, 2), apiv1.ProofVMDown, 1), apiv1.ProofUnstaged},
		"one of the same epoch": {with(attachmentOf(apiv1.RolePrimary, 2), apiv1.ProofVMDown, 2), apiv1.ProofVMDown},
		"one of a later epoch":  {with(attachmentOf(apiv1.RolePrimary, 2), apiv1.ProofVMDown, 3), apiv1.ProofVMDown},
		"Preempted":             {with(attachmentOf(apiv1.RolePrimary, 1), apiv1.ProofPreempted, 1), apiv1.ProofPreempted},
	} {
		api, a := stored(t, c.a)
		got, err := keeper.RecordProof(t.Context(), api, a, &apiv1.ReleaseProof{Type: apiv1.ProofUnstaged, Epoch: 2})
		if err != nil || got.Status.Proof.Type != c.want || read(t, api).Status.Proof.Type != c.want {
			t.Errorf("%s: got %+v, %v, want %s", name, got, err, c.want)
		}
	}
}

// Nothing is written: there is no client.
func TestNothingIsWrittenThatIsThere(t *testing.T) {
	t.Parallel()
	leaving := deleted(with(attachmentOf(apiv1.RolePrimary, 1), apiv1.ProofPreempted, 1))
	if got, err := keeper.Restore(t.Context(), nil, volumeOf("a", 2), leaving); err != nil || got != leaving {
		t.Errorf("got %+v, %v for one that is Preempted and is being deleted, want the attachment itself", got, err)
	}
	a := attachmentOf(apiv1.RolePrimary, 1)
	if got, err := keeper.AddFinalizer(t.Context(), nil, a, apiv1.FinalizerAttachment); err != nil || got != a {
		t.Errorf("got %+v, %v for a finalizer that is there, want the attachment itself", got, err)
	}
	if err := keeper.RemoveFinalizer(t.Context(), nil, a, apiv1.FinalizerFenced); err != nil {
		t.Errorf("got %v for a finalizer that is not there, want no error", err)
	}
}

func TestAnAttachmentInUseLosesTheFinalizerOfItsFenceAlone(t *testing.T) {
	t.Parallel()
	fenced := attachmentOf(apiv1.RolePrimary, 1)
	fenced.Finalizers = append(fenced.Finalizers, apiv1.FinalizerFenced)
	api, a := stored(t, fenced)
	expect.Must(t, keeper.RemoveFinalizer(t.Context(), api, a, apiv1.FinalizerFenced))
	if now := read(t, api); len(now.Finalizers) != 1 || now.Finalizers[0] != apiv1.FinalizerAttachment {
		t.Errorf("got finalizers %q, want the driver's", now.Finalizers)
	}
}
