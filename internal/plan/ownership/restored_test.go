package ownership_test

import (
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func TestNextEpochIsPastEveryEpochThatTheAttachmentsKnow(t *testing.T) {
	t.Parallel()
	withProof := objects.Proved(objects.NewAttachment("b", apiv1.RoleReplica, 3, apiv1.AttachmentAttached), apiv1.ProofUnstaged)
	withProof.Status.Proof.Epoch = 7
	released := &apiv1.Ownership{Epoch: 9, State: apiv1.OwnershipReleased}
	for name, test := range map[string]struct {
		current     *apiv1.Ownership
		attachments []*apiv1.AzVolumeAttachment
		want        int64
	}{
		"a new volume": {nil, nil, 1},
		"an attachment of an ownership that is lost": {nil,
			objects.Attachments(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)), 3},
		"a proof of a later epoch": {nil,
			objects.Attachments(objects.NewAttachment("a", apiv1.RolePrimary, 2, ""), withProof), 8},
		"an ownership that is later than all": {released, objects.Attachments(withProof), 10},
	} {
		acquired, changed, err := ownership.Acquire(test.current, "a", ownership.LastEpoch(test.attachments), objects.Now)
		if err != nil || !changed || acquired.Epoch != test.want {
			t.Errorf("%s: got epoch %d, changed %t, %v; want epoch %d", name, acquired.Epoch, changed, err, test.want)
		}
	}
}

func TestWhichAttachmentsNeedAProofBeforeTheVolumeIsAcquired(t *testing.T) {
	t.Parallel()
	const primary, replica = apiv1.RolePrimary, apiv1.RoleReplica
	for name, test := range map[string]struct {
		volume *apiv1.AzVolume
		a      *apiv1.AzVolumeAttachment
		want   bool
		// deleted is whether it needs a proof while it is being deleted.
		deleted bool
	}{
		"the acquiring node's own": {objects.NewVolume(objects.NeverOwned),
			objects.NewAttachment("b", primary, 2, ""), false, true},
		"another primary, and no status": {objects.NewVolume(objects.NeverOwned),
			objects.NewAttachment("a", primary, 2, ""), true, true},
		"another primary with a proof, and no status": {objects.NewVolume(objects.NeverOwned),
			objects.Proved(objects.NewAttachment("a", primary, 2, ""), apiv1.ProofDetached), false, false},
		"a replica that was primary, and no status": {objects.NewVolume(objects.NeverOwned),
			objects.NewAttachment("a", replica, 2, ""), true, true},
		"a replica that never was primary": {objects.NewVolume(objects.NeverOwned),
			objects.NewAttachment("a", replica, 0, ""), false, true},
		"a primary of a later epoch than the ownership's": {objects.NewVolume(objects.Owned("", 1, apiv1.OwnershipReleased)),
			objects.NewAttachment("a", primary, 2, ""), true, true},
		"a primary of the epoch that was released": {objects.NewVolume(objects.Owned("", 2, apiv1.OwnershipReleased)),
			objects.NewAttachment("a", primary, 2, ""), false, false},
		"a former primary of a volume that another holds": {objects.NewVolume(objects.Owned("b", 3, apiv1.OwnershipHeld)),
			objects.NewAttachment("a", primary, 2, ""), false, false},
		"a primary of the epoch that another holds": {objects.NewVolume(objects.Owned("b", 2, apiv1.OwnershipHeld)),
			objects.NewAttachment("a", primary, 2, ""), true, true},
		"the primary that holds the volume": {objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld)),
			objects.NewAttachment("a", primary, 2, ""), true, false},
		"a replica from before its node's publish": {objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld)),
			objects.NewAttachment("a", replica, 0, ""), false, true},
		"a replica of a volume that another holds": {objects.NewVolume(objects.Owned("b", 2, apiv1.OwnershipHeld)),
			objects.NewAttachment("a", replica, 0, ""), false, false},
		"a primary without an AzVolume": {nil, objects.NewAttachment("a", primary, 2, ""), true, true},
		"a replica without an AzVolume": {nil, objects.NewAttachment("a", replica, 0, ""), false, true},
		"a primary of several, although an ownership was released": {
			objects.NewVolume(multiNode, objects.Owned("", 5, apiv1.OwnershipReleased)),
			objects.NewAttachment("a", primary, 1, ""), true, false},
	} {
		if got := len(ownership.UnreleasedElsewhere(test.volume, "b", objects.Attachments(test.a))) > 0; got != test.want {
			t.Errorf("%s: got unreleased = %t, want %t", name, got, test.want)
		}
		if ownership.ReportCounts(test.volume, test.a) {
			t.Errorf("%s: got that the report counts before the attachment is deleted, want not", name)
		}
		gone := objects.Deleted(test.a)
		if got := ownership.ReportCounts(test.volume, gone); got != test.deleted {
			t.Errorf("%s: got that the report counts = %t while it is deleted, want %t", name, got, test.deleted)
		}
	}
	if a := objects.Deleted(objects.NewAttachment("a", primary, 1, "")); ownership.ReportCounts(objects.NewVolume(multiNode),
		a) {
		t.Error("got that the report counts for a multi-node volume, want not: its proof comes from the unpublish")
	}
	if a := objects.Deleted(objects.NewAttachment("a", replica, 0, "")); !ownership.ProvedReleased(objects.NewVolume(multiNode),
		a) {
		t.Error("a multi-node volume's replica that is being deleted: got that it needs a proof, want not")
	}
}

func TestAnAzVolumeThatIsOlderThanAnAttachment(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		volume *apiv1.AzVolume
		epoch  int64
		want   bool
	}{
		"it knows of no ownership":                  {objects.NewVolume(), 3, true},
		"its ownership is of an earlier epoch":      {objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld)), 3, true},
		"its ownership is of the epoch":             {objects.NewVolume(objects.Owned("a", 3, apiv1.OwnershipHeld)), 3, false},
		"the attachment was never a primary":        {objects.NewVolume(), 0, false},
		"the volume is multi-node and has no owner": {objects.NewVolume(multiNode), 1, false},
	} {
		a := objects.NewAttachment("a", apiv1.RolePrimary, test.epoch, apiv1.AttachmentAttached)
		if got := ownership.OlderThan(test.volume, a); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

// The deletion of an attachment that no ownership covers has the effect of Releasing: the node's
// report counts after it, and then the disk is detached.
func TestAnAttachmentWithoutOwnershipIsReleasedByItsNodesReport(t *testing.T) {
	t.Parallel()
	a := objects.Deleted(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached))
	in := attaching.Input{
		Now:          objects.Now,
		Attachment:   a,
		Volume:       objects.NewVolume(objects.NeverOwned),
		HasFinalizer: true,
	}
	if step := attaching.Next(in); step.Start != operation.WorkNone || step.Status.Proof != nil {
		t.Fatalf("got %+v without a proof, want nothing done", step)
	}
	in.ReportProof, _ = ownership.UnstagedProof(objects.Report("a"), "vol", 2, objects.Now)
	step := attaching.Next(in)
	if step.Start != operation.WorkNone || step.Status.Proof == nil || step.Status.Proof.Type != apiv1.ProofUnstaged {
		t.Fatalf("got %+v, want the proof recorded before anything else", step)
	}
	a.Status = step.Status
	if step := attaching.Next(in); step.Start != operation.WorkDetach {
		t.Errorf("got start %q after the proof, want %q", step.Start, operation.WorkDetach)
	}
}

func TestWhyANodeMayBeUsingAVolumeByItsReport(t *testing.T) {
	t.Parallel()
	unscanned := objects.Report("a")
	unscanned.Status.MountsScannedTime = nil
	staged := func(epoch int64) *apiv1.AzDriverNode {
		d := objects.Report("a", "vol")
		d.Status.StagedVolumes[0].Epoch = epoch
		return d
	}
	released := objects.NewVolume(objects.Owned("", 5, apiv1.OwnershipReleased))
	for name, test := range map[string]struct {
		volume *apiv1.AzVolume
		report *apiv1.AzDriverNode
		want   bool
	}{
		"no ownership is known, and it is staged": {objects.NewVolume(objects.NeverOwned), staged(0), true},
		"no ownership is known, and another volume is staged": {objects.NewVolume(objects.NeverOwned),
			objects.Report("a", "other"), false},
		"no ownership is known, and the mounts are not scanned":    {objects.NewVolume(objects.NeverOwned), unscanned, true},
		"no ownership is known, and there is no report":            {objects.NewVolume(objects.NeverOwned), nil, true},
		"it is staged under a later epoch than the last ownership": {released, staged(6), true},
		"it is staged under the epoch of the last ownership":       {released, staged(5), false},
		"an ownership is known, and the mounts are not scanned":    {released, unscanned, false},
		"an ownership is known, and there is no report":            {released, nil, false},
	} {
		if got := ownership.ReportedUse(test.volume, test.report); (got != "") != test.want {
			t.Errorf("%s: got %q, want a reason: %t", name, got, test.want)
		}
	}
}
