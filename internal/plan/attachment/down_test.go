package attachment_test

import (
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attachment"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// A VM that is down may be started with its mounts, so a disk that it has is proved only by the reservation that the next owner takes.
func TestLaw3ADiskAtAVMThatIsDownIsProvedOnlyIfItIsReserved(t *testing.T) {
	for reserved, want := range map[bool]apiv1.ProofKind{true: apiv1.ProofVMDown, false: ""} {
		a := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentDetaching)
		a.Status.VMID = "vm"
		got := attachment.Next(attachment.Input{
			Now: objects.Now, Attachment: a, Volume: objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing)), VMID: "vm",
			HasFinalizer: true, NodeLost: true, Reserved: reserved,
			Job: operation.Job{
				Phase: operation.PhaseEnded, Work: operation.WorkFence, Ended: objects.Now, Truth: operation.Truth{VMDown: true, Attached: true, Epoch: 2},
			},
		}).Status.Proof
		if reserved && (got == nil || got.Kind != want) || !reserved && got != nil {
			t.Errorf("reserved %v: got the proof %+v, want %q", reserved, got, want)
		}
	}
}
