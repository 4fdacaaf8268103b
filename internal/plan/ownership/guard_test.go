package ownership_test

import (
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// TestTheNodeThatGuardsAgainstAFencedOne has node a, which was fenced under epoch 2 by node x, and
// node y with a replica.
func TestTheNodeThatGuardsAgainstAFencedOne(t *testing.T) {
	t.Parallel()
	released := func(epoch int64) *apiv1.AzVolume {
		return objects.NewVolume(objects.Owned("", epoch, apiv1.OwnershipReleased))
	}
	takenBy := func(node string, from *apiv1.AzVolumeAttachment) *apiv1.AzVolumeAttachment {
		objects.Proved(from, apiv1.ProofPreempted)
		from.Status.Proof.Preemption = &apiv1.Preemption{NodeName: node}
		return from
	}
	primary := func(node string, epoch int64) *apiv1.AzVolumeAttachment {
		return objects.NewAttachment(node, apiv1.RolePrimary, epoch, apiv1.AttachmentAttached)
	}
	replica := func(node string) *apiv1.AzVolumeAttachment {
		return objects.NewAttachment(node, apiv1.RoleReplica, 0, apiv1.AttachmentAttached)
	}
	a := takenBy("x", primary("a", 2))
	detached := objects.Proved(primary("a", 2), apiv1.ProofDetached)
	// The next owner, z, was lost as well. Its VM was down, and nothing records that node y took
	// the reservation from it before that.
	zLost := released(3)
	zLost.Status.LastRelease = &apiv1.ReleaseRecord{
		NodeName: "z",
		Cause:    apiv1.CauseNodeLost,
		Proof:    *objects.Proved(primary("z", 3), apiv1.ProofVMDown).Status.Proof,
	}
	zUnstaged := released(3)
	zUnstaged.Status.LastRelease = &apiv1.ReleaseRecord{
		NodeName: "z",
		Cause:    apiv1.CauseUnpublished,
		Proof:    *objects.Proved(primary("z", 3), apiv1.ProofUnstaged).Status.Proof,
	}
	zIsFenced := objects.NewVolume(objects.Owned("z", 3, apiv1.OwnershipReleasing))
	zIsFenced.Status.Primary.Cause = apiv1.CauseNodeLost
	aLost := released(2)
	aLost.Status.LastRelease = &apiv1.ReleaseRecord{NodeName: "a", Cause: apiv1.CauseNodeLost, Proof: *a.Status.Proof}
	// Node y owned the volume under epoch 1, before node a.
	yBefore := objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing))
	yBefore.Status.Primary.Cause = apiv1.CauseNodeLost
	yBefore.Status.LastRelease = &apiv1.ReleaseRecord{
		NodeName: "y",
		Cause:    apiv1.CauseUnpublished,
		Proof:    *objects.Proved(primary("y", 1), apiv1.ProofUnstaged).Status.Proof,
	}
	for name, test := range map[string]struct {
		volume *apiv1.AzVolume
		all    []*apiv1.AzVolumeAttachment
		of     *apiv1.AzVolumeAttachment
		want   string
	}{
		"the node that took the reservation":        {released(2), objects.Attachments(a), replica("x"), "a"},
		"it is being deleted":                       {released(2), objects.Attachments(a), objects.Deleted(replica("x")), "a"},
		"another replica":                           {released(2), objects.Attachments(a, replica("x")), replica("y"), ""},
		"the fenced node itself":                    {released(2), objects.Attachments(a, replica("x")), a, ""},
		"the disk is detached from the fenced node": {released(2), objects.Attachments(detached), replica("x"), ""},
		"the fenced node's attachment is gone":      {released(2), nil, replica("x"), ""},
		"the next owner": {objects.NewVolume(objects.Owned("z", 3, apiv1.OwnershipHeld)),
			objects.Attachments(a), primary("z", 3), "a"},
		"the next owner has released the volume": {released(3), objects.Attachments(a),
			objects.Proved(primary("z", 3), apiv1.ProofUnstaged), "a"},
		"the next owner was fenced": {released(3), objects.Attachments(a), takenBy("y", primary("z", 3)), ""},
		"a replica took it from the next owner": {zLost, objects.Attachments(a, takenBy("y", primary("z", 3))), replica("y"),
			"a"},
		"a replica that may have taken it from the next owner, whose attachment is gone": {zLost, objects.Attachments(a),
			replica("y"), "a"},
		"a replica that may be taking it from the next owner": {zIsFenced,
			objects.Attachments(a, primary("z", 3)), replica("y"), "a"},
		"the next owner, after its attachment became a replica":   {zUnstaged, objects.Attachments(a), replica("z"), "a"},
		"another replica, after one next owner that was not lost": {zUnstaged, objects.Attachments(a), replica("w"), ""},
		"another replica, after the release of the fenced node": {
			aLost, objects.Attachments(a, replica("x")), replica("y"), ""},
		"a replica whose node owned the volume before": {yBefore, objects.Attachments(a), replica("y"), ""},
		"any replica after several owners, because no record says which": {released(4), objects.Attachments(a),
			replica("w"), "a"},
		"any replica if the proof names no node": {released(2),
			objects.Attachments(objects.Proved(primary("a", 2), apiv1.ProofPreempted)), replica("w"), "a"},
		"any replica if the AzVolume is lost": {nil, objects.Attachments(a), replica("w"), "a"},
		"the first node by name, in whatever order the attachments come": {nil,
			objects.Attachments(takenBy("x", primary("c", 1)), takenBy("x", primary("b", 1))), replica("x"), "b"},
		"the fenced node owns the volume again, so the proof does not count": {objects.NewVolume(
			objects.Owned("a", 3, apiv1.OwnershipHeld)),
			objects.Attachments(func() *apiv1.AzVolumeAttachment { again := a.DeepCopy(); again.Spec.Epoch = 3; return again }()),
			replica("x"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := ownership.GuardsAgainst(test.volume, test.of, append(test.all, test.of)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestANodeThatGuardsAgainstAFencedOneIsDemotedAndNotRemoved(t *testing.T) {
	t.Parallel()
	volume := objects.NewVolume(objects.Owned("", 3, apiv1.OwnershipReleased))
	next := objects.Proved(objects.NewAttachment("z", apiv1.RolePrimary, 3, apiv1.AttachmentAttached), apiv1.ProofUnstaged)
	all := objects.Attachments(next,
		objects.NewAttachment("x", apiv1.RoleReplica, 0, apiv1.AttachmentAttached),
		objects.NewAttachment("y", apiv1.RoleReplica, 0, apiv1.AttachmentAttached))
	if got := ownership.Demotion(volume, next, all); got != ownership.Remove {
		t.Fatalf("got %s with two other replicas, want Remove", got)
	}
	fenced := objects.Proved(objects.Deleted(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentDetaching)),
		apiv1.ProofPreempted)
	if got := ownership.Demotion(volume, next, append(all, fenced)); got != ownership.Demote {
		t.Errorf("got %s while only its reservation keeps node a from writing, want Demote", got)
	}
}
