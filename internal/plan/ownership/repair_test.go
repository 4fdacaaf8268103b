package ownership_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func TestInWhichRoleAnAttachmentIsRestored(t *testing.T) {
	t.Parallel()
	scanned := metav1.NewMicroTime(objects.Now)
	adopted := func(v *apiv1.AzVolume) { v.Spec.Origin = apiv1.OriginAdopted }
	done, inUse, unscanned := objects.Staged(&scanned, "other"), objects.Staged(&scanned, "vol"), objects.Staged(nil, "other")
	for name, test := range map[string]struct {
		volume *apiv1.AzVolume
		report *apiv1.AzDriverNode
		role   apiv1.Role
		epoch  int64
	}{
		"the holder of the ownership is its primary": {objects.NewVolume(
			objects.Owned("a", 3, apiv1.OwnershipHeld)), inUse, apiv1.RolePrimary, 3},
		"also while it releases, and without a report": {objects.NewVolume(
			objects.Owned("a", 3, apiv1.OwnershipReleasing)), nil, apiv1.RolePrimary, 3},
		"a node that reports that it does not use the volume has a replica": {objects.NewVolume(
			objects.Owned("b", 3, apiv1.OwnershipHeld)), done, apiv1.RoleReplica, 0},
		"also after the release": {objects.NewVolume(
			objects.Owned("", 3, apiv1.OwnershipReleased)), done, apiv1.RoleReplica, 0},
		"also of an adopted volume that was published since": {objects.NewVolume(
			objects.Owned("b", 1, apiv1.OwnershipHeld), adopted), done, apiv1.RoleReplica, 0},
		"a volume that was never published": {objects.NewVolume(), done, apiv1.RoleReplica, 0},
		"a node that reports an ownership that is over has a replica": {objects.NewVolume(
			objects.Owned("b", 3, apiv1.OwnershipHeld)), inUse, apiv1.RoleReplica, 0},
		"also if that ownership was the last one": {objects.NewVolume(
			objects.Owned("", 1, apiv1.OwnershipReleased)), inUse, apiv1.RoleReplica, 0},
		"also if the node has not scanned its mounts": {objects.NewVolume(
			objects.Owned("b", 3, apiv1.OwnershipHeld)), unscanned, apiv1.RoleReplica, 0},
		"also if it was lost before its first report": {objects.NewVolume(
			objects.Owned("", 3, apiv1.OwnershipReleased)), nil, apiv1.RoleReplica, 0},
		"law 3: nothing is re-created if it reports a later ownership": {objects.NewVolume(
			objects.Owned("", 0, apiv1.OwnershipReleased)), inUse, "", 0},
		"law 3: nor if no ownership is known and it reports that it uses it": {objects.NewVolume(objects.NeverOwned), inUse, "",
			0},
		"law 3: nor if it has not scanned its mounts": {objects.NewVolume(objects.NeverOwned), unscanned, "",
			0},
		"law 3: nor if there is no report":                                  {objects.NewVolume(objects.NeverOwned), nil, "", 0},
		"law 3: nor of a volume that V1 published and an expansion adopted": {objects.NewVolume(adopted), done, "", 0},
		"a multi-node volume's node that does not use it has a replica": {objects.NewVolume(multiNode), done,
			apiv1.RoleReplica, 0},
		"law 3: a multi-node volume's node that uses it is a primary": {objects.NewVolume(multiNode), inUse,
			apiv1.RolePrimary, ownership.MultiNodeEpoch},
		"also where the plug-in has not scanned the mounts, or lost a scan": {objects.NewVolume(multiNode),
			objects.Staged(nil, "vol"), apiv1.RolePrimary, ownership.MultiNodeEpoch},
		"also where the V1 driver may have published the volume": {objects.NewVolume(multiNode, adopted), inUse,
			apiv1.RolePrimary, ownership.MultiNodeEpoch},
		"an ownership of the node counts for nothing if the volume is multi-node": {
			objects.NewVolume(multiNode, objects.Owned("a", 3, apiv1.OwnershipHeld)), done, apiv1.RoleReplica, 0},
		"law 3: nor does an ownership of another node": {
			objects.NewVolume(multiNode, objects.Owned("b", 3, apiv1.OwnershipHeld)), unscanned, "", 0},
		"law 3: nothing is made of a multi-node volume before a scan":    {objects.NewVolume(multiNode), unscanned, "", 0},
		"law 3: nor where there is no report, which an unpublish leaves": {objects.NewVolume(multiNode), nil, "", 0},
		"law 3: nor of one that V1 may have published, without a report": {objects.NewVolume(multiNode, adopted), nil, "", 0},
		"law 3: nor with one, because its pod may come later": {objects.NewVolume(multiNode, adopted), done, "",
			0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			role, epoch, why := ownership.RecreateAs(test.volume, "a", test.report, objects.Now)
			if role != test.role || epoch != test.epoch || (why == "") != (role != "") {
				t.Fatalf("got %q of epoch %d because of %q; want %q of epoch %d, and a reason only for neither", role, epoch, why,
					test.role, test.epoch)
			}
		})
	}
}

func TestRepairs(t *testing.T) {
	t.Parallel()
	old := objects.Proved(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached), apiv1.ProofUnstaged)
	r := ownership.Repairs(objects.NewVolume(objects.Owned("b", 3, apiv1.OwnershipHeld)),
		objects.Attachments(old, objects.NewAttachment("b", apiv1.RolePrimary, 3, apiv1.AttachmentAttached)), objects.Now)
	if len(r.Demote) != 1 || r.Demote[0] != old || len(r.Remove) != 0 || r.Primary != "" {
		t.Fatalf("%+v", r)
	}
	fenced := objects.Proved(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached), apiv1.ProofVMDown)
	if r := ownership.Repairs(objects.NewVolume(objects.Owned("", 2, apiv1.OwnershipReleased)), objects.Attachments(fenced),
		objects.Now); len(r.Remove) != 1 || len(r.Demote) != 0 {
		t.Fatalf("%+v", r)
	}
	if r := ownership.Repairs(objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld)), nil, objects.Now); r.Primary != "a" {
		t.Fatalf("%+v", r)
	}
	if r := ownership.Repairs(objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld)), nil,
		objects.Now.Add(-58*time.Second)); r.Primary != "" || r.In <= 0 {
		t.Fatalf("repaired while the call may still be at work: %+v", r)
	}
	if r := ownership.Repairs(objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing)),
		objects.Attachments(objects.Proved(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached),
			apiv1.ProofDetached)), objects.Now); len(r.Demote)+len(r.Remove) != 0 {
		t.Error("the object with the proof was deleted before the ownership was released")
	}
	if r := ownership.Repairs(objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing)),
		objects.Attachments(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)),
		objects.Now); len(r.Demote)+len(r.Remove) != 0 {
		t.Fatalf("law 3: %+v", r)
	}
	edited := objects.NewAttachment("a", apiv1.RoleReplica, 2, apiv1.AttachmentAttached)
	if r := ownership.Repairs(objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld)), objects.Attachments(edited),
		objects.Now); r.Promote != edited {
		t.Errorf("the attachment of the primary was edited to be a replica: got %+v, want it promoted", r)
	}
	for name, v := range map[string]*apiv1.AzVolume{
		"a publish promotes the replica, and raises its epoch": objects.NewVolume(objects.Owned("a", 3, apiv1.OwnershipHeld)),
		"law 2: the ownership is being released": objects.NewVolume(
			objects.Owned("a", 2, apiv1.OwnershipReleasing)),
		"another node holds the ownership": objects.NewVolume(objects.Owned("b", 2, apiv1.OwnershipHeld)),
	} {
		if r := ownership.Repairs(v, objects.Attachments(edited), objects.Now); r.Promote != nil {
			t.Errorf("%s: got %+v, want no promotion", name, r)
		}
	}
	for name, a := range map[string]*apiv1.AzVolumeAttachment{
		"it is being deleted": objects.Deleted(edited.DeepCopy()),
		"it has a proof":      objects.Proved(edited.DeepCopy(), apiv1.ProofDetached),
	} {
		v := objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld))
		if r := ownership.Repairs(v, objects.Attachments(a), objects.Now); r.Promote != nil {
			t.Errorf("%s: got %+v, want no promotion", name, r)
		}
	}
	former := objects.Proved(objects.NewAttachment("c", apiv1.RoleReplica, 1, apiv1.AttachmentAttached), apiv1.ProofUnstaged)
	if r := ownership.Repairs(objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld)),
		objects.Attachments(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached), former),
		objects.Now); len(r.Demote)+len(r.Remove) != 0 {
		t.Errorf("a former primary is a replica already: got %+v, want it left alone", r)
	}
	if ownership.ProvedReleased(nil, edited) {
		t.Error("there is no AzVolume: got a proof, want none")
	}
	// created by a call that came after its ownership had been released
	late := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)
	renewed := objects.NewVolume(objects.Owned("b", 9, apiv1.OwnershipHeld))
	renewed.Status.Primary.LastTransitionTime = objects.Ago(0)
	if r := ownership.Repairs(renewed, objects.Attachments(late,
		objects.NewAttachment("b", apiv1.RolePrimary, 9, apiv1.AttachmentFailed)), objects.Now); len(r.Remove) != 1 {
		t.Errorf("an ownership that is acquired again and again delays the repair of an older attachment: %+v", r)
	}
}

func TestARepairIsOfAHandOverThatWasCutShort(t *testing.T) {
	t.Parallel()
	const primary, replica = apiv1.RolePrimary, apiv1.RoleReplica
	const held, releasing, released = apiv1.OwnershipHeld, apiv1.OwnershipReleasing, apiv1.OwnershipReleased
	since := func(d time.Duration) func(*apiv1.AzVolume) {
		return func(v *apiv1.AzVolume) { v.Status.Primary.LastTransitionTime = objects.Ago(d) }
	}
	leaving := func(v *apiv1.AzVolume) {
		v.DeletionTimestamp, v.Spec.DeletionPolicy = objects.Ago(0), apiv1.DeletionDelete
	}
	attached := func(node string, role apiv1.Role, epoch int64) *apiv1.AzVolumeAttachment {
		return objects.NewAttachment(node, role, epoch, apiv1.AttachmentAttached)
	}
	// former is a primary of epoch 2 with a proof of an epoch, which was recorded some time ago.
	former := func(node string, epoch int64, ago time.Duration) *apiv1.AzVolumeAttachment {
		a := attached(node, primary, 2)
		a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofDetached, Epoch: epoch, ProvenTime: *objects.Ago(ago)}
		return a
	}
	b := attached("b", primary, 3)
	for name, test := range map[string]struct {
		volume      *apiv1.AzVolume
		attachments []*apiv1.AzVolumeAttachment
		want        string
	}{
		"the primary's attachment is missing": {objects.NewVolume(objects.Owned("a", 2, held)), nil, "primary a"},
		"the volume was never owned":          {objects.NewVolume(), nil, ""},
		"several nodes use the volume":        {objects.NewVolume(objects.Owned("a", 2, held), multiNode), nil, ""},
		"the disk is being deleted":           {objects.NewVolume(objects.Owned("a", 2, held), leaving), nil, ""},
		"the ownership is being released":     {objects.NewVolume(objects.Owned("a", 2, releasing)), nil, ""},
		"the primary is attached": {objects.NewVolume(objects.Owned("a", 2, held)),
			objects.Attachments(attached("a", primary, 2)), ""},
		"the publish is a second old, and has a replica": {objects.NewVolume(objects.Owned("a", 2, held), since(time.Second)),
			objects.Attachments(attached("a", replica, 2)), "in 4s"},
		"the release is a second old": {objects.NewVolume(objects.Owned("", 2, released), since(time.Second)),
			objects.Attachments(attached("a", primary, 2)), "in 4s"},
		"the release is 5 seconds old": {objects.NewVolume(objects.Owned("", 2, released), since(5*time.Second)),
			objects.Attachments(attached("a", primary, 2)), "remove a"},
		"the proof is a second old": {objects.NewVolume(objects.Owned("b", 3, held)),
			objects.Attachments(former("a", 2, time.Second), b), "in 4s"},
		"the proof is a minute old": {objects.NewVolume(objects.Owned("b", 3, held)),
			objects.Attachments(former("a", 2, time.Minute), b), "remove a"},
		"the proof is of an epoch before": {objects.NewVolume(objects.Owned("b", 3, held)),
			objects.Attachments(former("a", 1, time.Second), b), "remove a"},
		"the former primary is being deleted": {objects.NewVolume(objects.Owned("b", 3, held)),
			objects.Attachments(objects.Deleted(former("a", 2, time.Minute)), b), ""},
		"law 3: the release of a later epoch is not proved": {objects.NewVolume(objects.Owned("b", 3, held)),
			objects.Attachments(attached("a", primary, 5), b), ""},
		"the first of several waits counts": {objects.NewVolume(objects.Owned("b", 3, held), since(0)),
			objects.Attachments(former("a", 2, 2*time.Second), former("c", 2, 3*time.Second)), "in 2s"},
		"a wait is not forgotten for a repair that is due": {objects.NewVolume(objects.Owned("b", 3, held), since(5*time.Second)),
			objects.Attachments(former("a", 2, time.Second)), "primary b in 4s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := ownership.Repairs(test.volume, test.attachments, objects.Now)
			var got []string
			for _, a := range r.Demote {
				got = append(got, "demote "+a.Spec.NodeName)
			}
			for _, a := range r.Remove {
				got = append(got, "remove "+a.Spec.NodeName)
			}
			if r.Promote != nil {
				got = append(got, "promote "+r.Promote.Spec.NodeName)
			}
			if r.Primary != "" {
				got = append(got, "primary "+r.Primary)
			}
			if r.In != 0 {
				got = append(got, "in "+r.In.String())
			}
			if line := strings.Join(got, " "); line != test.want {
				t.Errorf("got %q, want %q", line, test.want)
			}
		})
	}
}
