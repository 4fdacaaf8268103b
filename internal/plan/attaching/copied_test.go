package attaching_test

import (
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// The VM that a restored status names is another cluster's, which uses the disk.
func TestAStatusThatWasRestoredWithItsObjectIsDiscarded(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(in *attaching.Input){
		"a replica": func(*attaching.Input) {},
		"a primary": func(in *attaching.Input) { in.Attachment.Spec.Role, in.Attachment.Spec.Epoch = apiv1.RolePrimary, 7 },
		"a primary that is being deleted": func(in *attaching.Input) {
			in.Attachment.Spec.Epoch = 7
			objects.Deleted(
				in.Attachment)
		},
		"a primary with a proof, deleted": func(in *attaching.Input) {
			in.Attachment.Spec.Epoch = 7
			objects.Deleted(objects.Proved(in.Attachment, apiv1.ProofVMDown))
		},
		"a primary whose node is fenced": func(in *attaching.Input) {
			*in = beingFenced()
			in.Attachment.UID, in.Attachment.Status.UID = "present", "former"
		},
		"an object that was just attached": func(in *attaching.Input) { in.Attachment.Status.State = apiv1.AttachmentAttaching },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := objects.NewAttachment("production", apiv1.RoleReplica, 0, apiv1.AttachmentAttached)
			a.UID, a.Status.VMID, a.Status.UID = "present", "/vm/production", "former"
			in := attaching.Input{
				Now:          objects.Now,
				Attachment:   a,
				Volume:       objects.NewVolume(objects.NeverOwned),
				HasFinalizer: true,
				NodeLost:     true,
			}
			change(&in)
			step := attaching.Next(in)
			if step.Start != operation.WorkNone || step.RemoveFinalizer || step.Status.VMID != "" || step.Status.Proof != nil ||
				step.Status.State != apiv1.AttachmentPending {
				t.Errorf("got start %q, status %+v; want no work, and an empty status", step.Start, step.Status)
			}
		})
	}
}

func TestAStatusThatNamesAVMNamesItsObject(t *testing.T) {
	t.Parallel()
	a := objects.NewAttachment("a", apiv1.RolePrimary, 1, "")
	a.UID = "present"
	step := attaching.Next(attaching.Input{
		Now:          objects.Now,
		Attachment:   a,
		Volume:       objects.NewVolume(objects.Owned("a", 1, apiv1.OwnershipHeld)),
		VMID:         "/vm/a",
		HasFinalizer: true,
	})
	if step.Start != operation.WorkAttach || step.Status.VMID != "/vm/a" || step.Status.UID != "present" {
		t.Errorf("got start %q, VM %q, UID %q; want an attach to /vm/a and the object's UID", step.Start, step.Status.VMID,
			step.Status.UID)
	}
}
