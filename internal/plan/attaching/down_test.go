package attaching_test

import (
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// A VM that is down may be started with its mounts, so that it has the disk is no proof, and the
// detach is.
func TestLaw3ADiskAtAVMThatIsDownIsProvedByItsDetach(t *testing.T) {
	t.Parallel()
	for _, attached := range []bool{true, false} {
		a := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentDetaching)
		a.Status.VMID = "vm"
		got := attaching.Next(attaching.Input{
			Now:          objects.Now,
			Attachment:   a,
			Volume:       objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing)),
			VMID:         "vm",
			HasFinalizer: true,
			NodeLost:     true,
			Job: operation.Job{
				Phase: operation.PhaseEnded,
				Work:  operation.WorkFence,
				Ended: objects.Now,
				Truth: operation.Truth{
					VMDown:   true,
					Attached: attached,
					Epoch:    2,
				},
			},
		}).Status.Proof
		if attached != (got == nil) || got != nil && got.Type != apiv1.ProofVMDown {
			t.Errorf("attached %t: got the proof %+v", attached, got)
		}
	}
}
