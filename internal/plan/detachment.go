package plan

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// leave is the next step of an attachment that is being deleted.
func (s *AttachmentStep) leave(in AttachmentInput) {
	a := in.Attachment
	switch {
	case !in.HasFinalizer:
	case in.Job.Work == WorkAttach && in.Job.running():
		// The detach waits for the attach: the other way round, the attach would win.
		s.attachRunning(in)
	case !Proven(in.Volume, a) && held(in):
		s.condition(in, conditionNow(a), ReasonPrimaryHeld, "the node is primary; the attachment goes when the volume has been released")
	case !Proven(in.Volume, a) && (in.NodeLost || Fencing(in.Volume, a.Spec.NodeName) || slices.Contains(a.Finalizers, apiv1.FinalizerFenced)):
		s.fence(in)
	case !Proven(in.Volume, a):
		s.condition(in, conditionNow(a), ReasonWaitingForProof, "no proof yet that the node let go of the volume")
	default:
		s.detach(in)
	}
}

func held(in AttachmentInput) bool {
	return Holds(in.Volume, in.Attachment.Spec.NodeName) && in.Volume.Status.Primary.State == apiv1.ClaimHeld
}

func conditionNow(a *apiv1.AzVolumeAttachment) metav1.ConditionStatus {
	if a.Status.State == apiv1.AttachmentAttached {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

func (s *AttachmentStep) detach(in AttachmentInput) {
	a := in.Attachment
	switch {
	case a.Status.VMID == "":
		// Nothing was ever asked of Azure: the VM is recorded before that.
		s.RemoveFinalizer = true
		s.Reason = ReasonDetached
	case in.Job.ended(WorkDetach):
		s.detachEnded(in)
	case in.Job.Work == WorkDetach && in.Job.running():
		if op := in.Job.operation(); op != nil {
			s.Status.Operation = keep(s.Status.Operation, op)
		}
	case in.Job.running():
	case a.Status.State == apiv1.AttachmentDetachFail && a.Status.Error != nil &&
		RetryIn(failingSince(a), a.Status.Error.Time.Time, in.Now) > 0:
		s.RequeueAfter = RetryIn(failingSince(a), a.Status.Error.Time.Time, in.Now)
	default:
		s.Start = WorkDetach
		if op := a.Status.Operation; op != nil && op.Kind == string(WorkDetach) {
			s.Resume = op.ResumeToken
		} else {
			s.Status.Operation = nil
		}
		s.Status.State = apiv1.AttachmentDetaching
		s.condition(in, metav1.ConditionFalse, ReasonDetaching, "")
	}
}

func (s *AttachmentStep) detachEnded(in AttachmentInput) {
	truth := in.Job.Truth
	if in.Job.Err == nil && (truth.VMGone || !truth.Attached) {
		s.RemoveFinalizer = true
		s.Reason = ReasonDetached
		return
	}
	err := in.Job.Err
	if err == nil {
		err = provisioner.Errorf(provisioner.Conflict, "Azure detached the disk, and yet it is attached to the VM")
	}
	s.failed(in, apiv1.AttachmentDetachFail, ReasonDetachFailed, err)
}

// fence brings about the proof that a node that does not answer can no longer
// write: the job reads VM and disk from Azure, and cuts the disk off by force if the VM may run.
func (s *AttachmentStep) fence(in AttachmentInput) {
	switch {
	case in.Job.ended(WorkFence):
		s.fenceEnded(in)
	case in.Job.running():
		if op := in.Job.operation(); op != nil && in.Job.Work == WorkFence {
			s.Status.Operation = keep(s.Status.Operation, op)
		}
	case in.Attachment.Status.VMID == "" && in.VMID == "":
		// Azure was never asked to attach the disk, and there is no VM to ask about.
		s.prove(in, apiv1.ProofDetached, "the disk was never attached to a VM of this node")
	case fenceAgainIn(in) > 0:
		s.RequeueAfter = fenceAgainIn(in)
	default:
		s.Start = WorkFence
		if op := s.Status.Operation; op != nil && op.Kind == string(WorkFence) {
			s.Resume = op.ResumeToken
		}
		s.unsure()
		s.Reason, s.Message = ReasonFencing, "the node does not answer; asking Azure for proof"
	}
}

// unsure records, before the disk may be cut off, that it is not known to be attached any more. A node that claims the volume anew before
// anybody has released it must not be sent to a LUN where another disk may be by then.
func (s *AttachmentStep) unsure() {
	s.Status.State = apiv1.AttachmentDetaching
	s.Status.LUN = nil
}

// fenceRetry is how long a fence that failed waits for its next try. It does not grow: somebody waits for the disk, and what Azure asks for
// when it has too much to do is kept to by those who call it.
const fenceRetry = 4 * time.Second

// fenceAgainIn returns how long to wait until the next try; 0 if the time has come.
func fenceAgainIn(in AttachmentInput) time.Duration {
	failed := in.Attachment.Status.Error
	if failed == nil {
		return 0
	}
	// Times in the API have whole seconds; one that seems to lie ahead is a rounding or another's clock.
	passed := max(in.Now.Sub(failed.Time.Time), 0)
	if passed >= fenceRetry {
		return 0
	}
	return max(fenceRetry-passed, notBeforeIn)
}

func (s *AttachmentStep) fenceEnded(in AttachmentInput) {
	truth := in.Job.Truth
	switch {
	case in.Job.Err != nil:
		s.Status.Error = failure(in.Job.Err, in.Job.Ended)
		s.Reason, s.Message = ReasonFencing, s.Status.Error.Message
		s.RequeueAfter = fenceRetry
		if in.Job.Token != "" {
			s.Status.Operation = nil // it has ended, and failed
		}
	case truth.VMGone:
		s.Status.State = apiv1.AttachmentPending
		s.prove(in, apiv1.ProofVMDown, "Azure has no VM "+in.Attachment.Status.VMID)
	case truth.VMDown:
		s.prove(in, apiv1.ProofVMDown, "Azure says that the VM is stopped or deallocated")
	case !truth.Attached:
		s.Status.State = apiv1.AttachmentPending
		s.prove(in, apiv1.ProofDetached, "Azure says that the disk is not attached to the VM")
	default:
		s.Status.Error = failure(provisioner.Errorf(provisioner.Conflict, "the disk is still attached after a forced detach"), in.Job.Ended)
		s.Status.Operation = nil
		s.RequeueAfter = fenceRetry
	}
}

func (s *AttachmentStep) prove(in AttachmentInput, kind apiv1.ProofKind, message string) {
	s.Status.Proof = &apiv1.ReleaseProof{Kind: kind, Epoch: in.Attachment.Spec.Epoch, Time: metav1.NewTime(decidedAt(in)), Message: message}
	s.Status.Error = nil
	s.Status.Operation = nil
	s.Reason, s.Message = ReasonFenced, message
}
