package plan_test

import (
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan"
)

func TestAClaimIsPastEveryEpochThatTheAttachmentsKnow(t *testing.T) {
	t.Parallel()
	withProof := proven(newAttachment("b", apiv1.RoleReplica, 3, apiv1.AttachmentAttached), apiv1.ProofUnstaged)
	withProof.Status.Proof.Epoch = 7
	released := &apiv1.PrimaryClaim{Epoch: 9, State: apiv1.ClaimReleased}
	for name, test := range map[string]struct {
		current     *apiv1.PrimaryClaim
		attachments []*apiv1.AzVolumeAttachment
		want        int64
	}{
		"a new volume":                          {nil, nil, 1},
		"an attachment of a claim that is lost": {nil, list(newAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)), 3},
		"a proof of a later epoch":              {nil, list(newAttachment("a", apiv1.RolePrimary, 2, ""), withProof), 8},
		"a claim that is later than all":        {released, list(withProof), 10},
	} {
		claim, changed, err := plan.Claim(test.current, "a", plan.LastEpoch(test.attachments), now)
		if err != nil || !changed || claim.Epoch != test.want {
			t.Errorf("%s: got epoch %d, changed %t, %v; want epoch %d", name, claim.Epoch, changed, err, test.want)
		}
	}
}

func TestWhichAttachmentsNeedAProofBeforeAClaim(t *testing.T) {
	t.Parallel()
	const primary, replica = apiv1.RolePrimary, apiv1.RoleReplica
	multi := func(v *apiv1.AzVolume) { v.Spec.Access = apiv1.AccessMultiNode }
	for name, test := range map[string]struct {
		volume *apiv1.AzVolume
		a      *apiv1.AzVolumeAttachment
		want   bool
	}{
		"the claimant's own":                              {newVolume(unclaimed), newAttachment("b", primary, 2, ""), false},
		"another primary, and no status":                  {newVolume(unclaimed), newAttachment("a", primary, 2, ""), true},
		"another primary with a proof, and no status":     {newVolume(unclaimed), proven(newAttachment("a", primary, 2, ""), apiv1.ProofDetached), false},
		"a replica that was primary, and no status":       {newVolume(unclaimed), newAttachment("a", replica, 2, ""), true},
		"a replica that never was primary":                {newVolume(unclaimed), newAttachment("a", replica, 0, ""), false},
		"a primary of a later epoch than the claim's":     {newVolume(claimed("", 1, apiv1.ClaimReleased)), newAttachment("a", primary, 2, ""), true},
		"a primary of the epoch that was released":        {newVolume(claimed("", 2, apiv1.ClaimReleased)), newAttachment("a", primary, 2, ""), false},
		"a former primary of a volume that another holds": {newVolume(claimed("b", 3, apiv1.ClaimHeld)), newAttachment("a", primary, 2, ""), false},
	} {
		if got := len(plan.Forgotten(test.volume, "b", list(test.a))) > 0; got != test.want {
			t.Errorf("%s: got forgotten = %t, want %t", name, got, test.want)
		}
		gone := deleted(test.a)
		if got := plan.Unclaimed(test.volume, gone); got != (test.want || test.a.Spec.NodeName == "b") {
			t.Errorf("%s: got unclaimed = %t while it is deleted, want %t", name, got, test.want)
		}
	}
	if a := deleted(newAttachment("a", primary, 1, "")); plan.Unclaimed(newVolume(multi), a) {
		t.Error("got an attachment of a multi-node volume as unclaimed: its proof comes from the unpublish")
	}
}

// The deletion of an attachment without a claim is what Releasing is for a claim: the node's report counts after it, and the disk is detached.
func TestAnAttachmentWithoutAClaimGoesByItsNodesReport(t *testing.T) {
	t.Parallel()
	a := deleted(newAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached))
	in := plan.AttachmentInput{Now: now, Attachment: a, Volume: newVolume(unclaimed), HasFinalizer: true}
	if step := plan.Attachment(in); step.Start != plan.WorkNone || step.Status.Proof != nil {
		t.Fatalf("got %+v without a proof, want nothing done", step)
	}
	in.LetGo, _ = plan.Unstaged(report("a"), "vol", 2, now)
	step := plan.Attachment(in)
	if step.Start != plan.WorkNone || step.Status.Proof == nil || step.Status.Proof.Kind != apiv1.ProofUnstaged {
		t.Fatalf("got %+v, want the proof recorded before anything else", step)
	}
	a.Status = step.Status
	if step := plan.Attachment(in); step.Start != plan.WorkDetach {
		t.Errorf("got start %q after the proof, want %q", step.Start, plan.WorkDetach)
	}
}

func TestWhyANodeMayBeUsingAVolumeByItsReport(t *testing.T) {
	t.Parallel()
	unscanned := report("a")
	unscanned.Status.MountsScannedTime = nil
	staged := func(epoch int64) *apiv1.AzDriverNode {
		d := report("a", "vol")
		d.Status.StagedVolumes[0].Epoch = epoch
		return d
	}
	released := newVolume(claimed("", 5, apiv1.ClaimReleased))
	for name, test := range map[string]struct {
		volume *apiv1.AzVolume
		report *apiv1.AzDriverNode
		want   bool
	}{
		"no claim is known, and it is staged":                        {newVolume(unclaimed), staged(0), true},
		"no claim is known, and another volume is staged":            {newVolume(unclaimed), report("a", "other"), false},
		"no claim is known, and the mounts have not been looked at":  {newVolume(unclaimed), unscanned, true},
		"no claim is known, and there is no report":                  {newVolume(unclaimed), nil, true},
		"it is staged under a later epoch than the last claim's":     {released, staged(6), true},
		"it is staged under the last claim's epoch":                  {released, staged(5), false},
		"a claim is known, and the mounts have not been looked at":   {released, unscanned, false},
		"a claim is known, and there is no report to speak for them": {released, nil, false},
	} {
		if got := plan.MayUse(test.volume, test.report); (got != "") != test.want {
			t.Errorf("%s: got %q, want a reason: %t", name, got, test.want)
		}
	}
}
