package attaching_test

import (
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// A replica that was restored from before a publish says that its node was never primary, and its
// node writes to the volume.
func TestAnUnconfirmedReplicaNeedsItsNodesReport(t *testing.T) {
	t.Parallel()
	multi := func(v *apiv1.AzVolume) { v.Spec.Access = apiv1.AccessMultiNode }
	for name, test := range map[string]struct {
		volume  *apiv1.AzVolume
		another bool
		// start is the work without a proof from the report.
		start operation.Work
	}{
		"no AzVolume":           {nil, false, operation.WorkNone},
		"no ownership is known": {objects.NewVolume(objects.NeverOwned), false, operation.WorkNone},
		"the node itself became the owner since": {objects.NewVolume(objects.Owned("a", 1, apiv1.OwnershipHeld)),
			false, operation.WorkNone},
		"the volume is being taken from the node": {objects.NewVolume(objects.Owned("a", 1, apiv1.OwnershipReleasing)),
			false, operation.WorkNone},
		"the owner is another VM than the attachment's": {objects.NewVolume(objects.Owned("a", 1, apiv1.OwnershipHeld)), true,
			operation.WorkFence},
		"another node is the owner": {objects.NewVolume(objects.Owned("b", 1, apiv1.OwnershipHeld)),
			false, operation.WorkDetach},
		"the ownership was released": {objects.NewVolume(objects.Owned("", 1, apiv1.OwnershipReleased)),
			false, operation.WorkDetach},
		"a multi-node volume, which has no owner": {objects.NewVolume(objects.NeverOwned, multi), false,
			operation.WorkDetach},
		"a multi-node volume, and the node is another VM": {objects.NewVolume(objects.NeverOwned, multi), true,
			operation.WorkDetach},
		"no ownership is known, and the node is another VM": {objects.NewVolume(objects.NeverOwned), true, operation.WorkFence},
	} {
		in := attaching.Input{
			Now:          objects.Now,
			Attachment:   objects.Deleted(objects.NewAttachment("a", apiv1.RoleReplica, 0, apiv1.AttachmentAttached)),
			Volume:       test.volume,
			HasFinalizer: true,
			VMID:         "/vm/a",
			NodeLost:     test.another,
		}
		if test.another {
			in.VMID = "/vm/new"
		}
		step := attaching.Next(in)
		if step.Start != test.start || step.RemoveFinalizer {
			t.Errorf("%s: got start %q, finalizer removed %t; want %q", name, step.Start, step.RemoveFinalizer, test.start)
		}
		if test.start != operation.WorkNone {
			continue
		}
		if !ownership.ReportCounts(test.volume, in.Attachment) {
			t.Errorf("%s: got that the report is not read, want it read", name)
		}
		in.ReportProof, _ = ownership.UnstagedProof(objects.Report("a"), "vol", 0, objects.Now)
		in.Attachment.Status = attaching.Next(in).Status
		if step := attaching.Next(in); step.Start != operation.WorkDetach {
			t.Errorf("%s: got start %q after the report's proof, want %q", name, step.Start, operation.WorkDetach)
		}
	}
}
