package attaching

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// leave is the next step of an attachment that is being deleted.
func (s *Step) leave(in Input) {
	a := in.Attachment
	switch {
	case !in.HasFinalizer:
	case in.Volume == nil && a.Status.VMID == "" && in.VMID == "":
		// There is neither an ownership that another node could acquire nor a disk to ask Azure
		// about.
		s.detach(in)
	case !ownership.ProvedReleased(in.Volume, a) && in.ReportProof != nil:
		s.Status.Proof = in.ReportProof
		s.condition(in, conditionNow(a), apiv1.ReasonWaitingForProof, in.ReportProof.Message)
	case !ownership.ProvedReleased(in.Volume, a) && (!held(in) || replicaOfAnotherVM(in)) &&
		(unanswered(in) || ownership.MultiNodeFenceDecided(a)):
		s.fence(in)
		s.preempt(in)
	case ownership.Preempted(a):
		// The node cannot write. Its disk is detached as the fence has begun it: its VM may not
		// answer a plain detach.
		s.fence(in)
	case in.Job.Work == operation.WorkAttach && in.Job.Running():
		// The detach waits for the attach: in the other order, the attach would win.
		s.attachRunning(in)
	case !ownership.ProvedReleased(in.Volume, a) && held(in):
		s.condition(in, conditionNow(a), apiv1.ReasonPrimaryHeld,
			"the node is primary; the attachment is deleted after the volume is released")
	case !ownership.ProvedReleased(in.Volume, a):
		s.condition(in, conditionNow(a), apiv1.ReasonWaitingForProof, "no proof yet that the node released the volume")
	default:
		s.detach(in)
	}
}

func held(in Input) bool {
	return ownership.OwnedBy(in.Volume, in.Attachment.Spec.NodeName) && in.Volume.Status.Primary.State == apiv1.OwnershipHeld
}

// replicaOfAnotherVM reports whether the attachment is a replica to a former VM of the node. The
// node's ownership does not depend on it, and its report proves nothing about that VM.
func replicaOfAnotherVM(in Input) bool {
	return in.Attachment.Spec.Epoch == 0 && in.VMID != "" && ownership.AttachedToAnotherVM(in.Attachment, in.VMID)
}

func conditionNow(a *apiv1.AzVolumeAttachment) metav1.ConditionStatus {
	if a.Status.State == apiv1.AttachmentAttached {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

func (s *Step) detach(in Input) {
	a := in.Attachment
	switch {
	case in.Job.EndedAs(operation.WorkDetach) && a.Status.State != apiv1.AttachmentAttaching:
		// If the state is Attaching, another leader has begun to attach the disk since, and the
		// result of the job is out of date.
		s.detachEnded(in)
	case guardsStill(in, operation.WorkDetach) && in.SharedWith == "" && (a.Status.VMID != "" || in.VMID != ""):
		s.keep(in)
	case a.Status.VMID == "" && in.VMID != "" && in.Volume != nil && in.SharedWith == "":
		// The VM is recorded before Azure is asked, but a status can be lost, and the disk may be
		// attached. An object that was created for a disk that Azure has attached, or restored
		// without its status, may have been Pending since.
		s.Start = operation.WorkDetach
		s.Status.VMID = in.VMID
		s.Status.State = apiv1.AttachmentDetaching
		s.condition(in, metav1.ConditionFalse, apiv1.ReasonDiskDetaching, "")
	case a.Status.VMID == "":
		// There is nothing to ask Azure about. If the disk is attached nevertheless, the next look
		// at the VM finds it.
		s.RemoveFinalizer = true
		s.Reason = apiv1.ReasonDiskDetached
	case in.SharedWith != "" && !in.Job.Running():
		s.RemoveFinalizer = true
		s.Reason, s.Message = apiv1.ReasonDiskDetached, sharedWith(in)+"; the disk remains attached there"
	case in.Job.Work == operation.WorkDetach && in.Job.Running():
		if op := in.Job.Operation(); op != nil {
			s.Status.Operation = operation.KeepStartTime(s.Status.Operation, op)
		} else {
			s.tellWaiting(in, apiv1.ReasonDiskDetaching)
		}
	case in.Job.Running():
	case s.attachMayArrive(in):
	case a.Status.State == apiv1.AttachmentDetachFail && a.Status.Error != nil &&
		operation.RetryIn(failingSince(a), a.Status.Error.FailureTime.Time, in.Now) > 0:
		s.RequeueAfter = operation.RetryIn(failingSince(a), a.Status.Error.FailureTime.Time, in.Now)
	default:
		s.Start = operation.WorkDetach
		if op := a.Status.Operation; op != nil && op.Type == string(operation.WorkDetach) {
			s.Resume = op.ResumeToken
		} else {
			s.Status.Operation = nil
		}
		s.Status.State = apiv1.AttachmentDetaching
		s.condition(in, metav1.ConditionFalse, apiv1.ReasonDiskDetaching, "")
	}
}

// attachMayArrive reports whether a former leader may still send an attach that it began, and sets
// the time at which that ends: the disk would stay attached without an object. It is false for a
// disk that was attached longer ago than the overlap, and for a detach that has begun: it has
// waited. A fence does not wait: a pod waits for the proof, and no node mounts the disk again
// without the present epoch.
func (s *Step) attachMayArrive(in Input) bool {
	a := in.Attachment
	left := operation.Remaining(in.Overlap, in.LeadingSince, in.Now)
	if c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached); c != nil {
		switch {
		case a.Status.State == apiv1.AttachmentDetachFail,
			a.Status.State == apiv1.AttachmentDetaching && c.Reason == apiv1.ReasonDiskDetaching:
			return false
		case c.Status == metav1.ConditionTrue:
			left = min(left, operation.Remaining(in.Overlap, c.LastTransitionTime.Time, in.Now))
		}
	}
	s.RequeueAfter = left
	return left > 0
}

func (s *Step) detachEnded(in Input) {
	truth := in.Job.Truth
	if in.Job.Err == nil && !truth.Attached {
		s.RemoveFinalizer = true
		s.Reason = apiv1.ReasonDiskDetached
		return
	}
	err := in.Job.Err
	if err == nil {
		err = provisioner.Errorf(provisioner.Conflict, "Azure completed the detach, but the disk is still attached to the VM")
	}
	s.failed(in, apiv1.AttachmentDetachFail, apiv1.ReasonDiskDetachFailed, err)
}

// fence establishes the proof that a node that does not answer can no longer write: the job reads
// VM and disk from Azure, and detaches the disk by force, also from a VM that is down: the VM may
// be started with its mounts. An object that names no VM does not prove that there is no VM: it may
// have been re-created after the object that named the VM was lost. Then the job uses what Azure lists
// for the disk; see VMsToDetach.
func (s *Step) fence(in Input) {
	switch {
	case in.Job.EndedAs(operation.WorkFence) && (in.Job.Err != nil || in.Job.Truth.Epoch == in.Attachment.Spec.Epoch):
		s.fenceEnded(in)
	case in.Job.Running() && in.Job.Work == operation.WorkFence:
		if op := in.Job.Operation(); op != nil {
			s.Status.Operation = operation.KeepStartTime(s.Status.Operation, op)
		}
	case fenceAgainIn(in.Attachment, in.Attachment.Status.Error, in.Now) > 0:
		s.RequeueAfter = fenceAgainIn(in.Attachment, in.Attachment.Status.Error, in.Now)
	case in.SharedWith != "" && in.Volume == nil:
		// Without the disk's ID the driver cannot find where else the disk is attached.
		s.condition(in, conditionNow(in.Attachment), apiv1.ReasonWaitingForProof,
			sharedWith(in)+", and there is no AzVolume; waiting for either to change")
	case guardsStill(in, operation.WorkFence):
		s.fenceOfGuard(in)
	default:
		s.Start = operation.WorkFence
		if op := s.Status.Operation; op != nil && op.Type == string(operation.WorkFence) {
			s.Resume = op.ResumeToken
		}
		s.Deserted = MayBeDeserted(in) && !ownership.FenceDecided(in.Volume, in.Attachment.Spec.NodeName) &&
			!ownership.MultiNodeFenceDecided(in.Attachment)
		s.unsure()
		s.Reason, s.Message = apiv1.ReasonVolumeFencing, fenceReason(in)
	}
}

// unsure records, before the disk may be detached by force, that it is not known to be attached any
// more. A node that acquires the volume again before its release is recorded must not be sent to a
// LUN where another disk may be by then.
func (s *Step) unsure() {
	s.Status.State = apiv1.AttachmentDetaching
	s.Status.LUN = nil
}

const (
	// fenceRetry is the period of the tries of a fence that fails. A pod waits for the disk, so the
	// period does not grow as for other work.
	fenceRetry = 4 * time.Second
	// fenceRetryLater is the period after fenceUrgentFor. Together with the monitors of nodes in
	// two controllers it stays below the 12 reads of a VM that Azure allows in a minute, so that
	// the quota is not used up when Azure answers again.
	fenceRetryLater = 8 * time.Second
	fenceUrgentFor  = 2 * fenceRetry
)

// fenceAgainIn returns how long a fence that failed waits until its next try; 0 if the time has
// come. The tries of all fences are at the same instants, the multiples of the period, so the
// fences of one VM share the read of the VM and the forced detach.
func fenceAgainIn(a *apiv1.AzVolumeAttachment, failed *apiv1.Error, now time.Time) time.Duration {
	if failed == nil || failed.FailureTime.Sub(now) > operation.ClockSkew {
		return 0
	}
	period := fenceRetry
	if failed.FailureTime.Sub(failingSince(a)) > fenceUrgentFor {
		period = fenceRetryLater
	}
	left := failed.FailureTime.Truncate(period).Add(period).Sub(now)
	if left <= 0 {
		return 0
	}
	return max(left, operation.MinWait)
}

func (s *Step) fenceEnded(in Input) {
	truth := in.Job.Truth
	switch {
	case in.Job.Err != nil:
		s.fenceFailed(in, in.Job.Err)
		if len(in.Job.Tokens) > 0 {
			s.Status.Operation = nil // it has ended, and failed
		}
	case truth.OnlyRead:
		s.fenceRead(in)
	case truth.VMGone:
		s.Status.State = apiv1.AttachmentPending
		s.prove(in, apiv1.ProofVMDown, "Azure has no VM "+in.Attachment.Status.VMID)
	case truth.VMDown && !truth.Attached:
		s.Status.State = apiv1.AttachmentPending
		s.prove(in, apiv1.ProofVMDown, "Azure reports the VM as stopped or deallocated, and has detached the disk")
	case !truth.Attached:
		s.Status.State = apiv1.AttachmentPending
		s.prove(in, apiv1.ProofDetached, notAttached(in.Attachment))
	default:
		s.fenceFailed(in, provisioner.Errorf(provisioner.Conflict, "the disk is still attached after a forced detach"))
		s.Status.Operation = nil
	}
}

func (s *Step) fenceFailed(in Input, err error) {
	s.Status.Error = operation.Failure(err, in.Job.Ended)
	s.condition(in, conditionNow(in.Attachment), apiv1.ReasonVolumeFencing, s.Status.Error.Message)
	s.RequeueAfter = max(fenceAgainIn(in.Attachment, s.Status.Error, in.Now), operation.MinWait)
}

func notAttached(a *apiv1.AzVolumeAttachment) string {
	if a.Status.VMID == "" {
		return "Azure lists the disk at no VM that could be this node's"
	}
	return "Azure does not list the disk at the VM"
}

func sharedWith(in Input) string {
	return fmt.Sprintf("attachment %s names the VM %s as well", in.SharedWith, cmp.Or(in.Attachment.Status.VMID, in.VMID))
}

// SharedVM returns the name of another attachment of the volume that names the VM of attachment a,
// and for which the disk must remain attached to that VM if a is deleted; "" if there is none. vmID
// is the VM of a's node, which counts if a does not name one yet. Two nodes are never one VM, so
// one of the two attachments is wrong: its node's VM has another name now, or it is from before the
// controller knew the VM. If both may be deleted, the first by name detaches the disk.
func SharedVM(volume *apiv1.AzVolume, a *apiv1.AzVolumeAttachment, vmID string, all []*apiv1.AzVolumeAttachment) string {
	vmID = cmp.Or(a.Status.VMID, vmID)
	for _, other := range all {
		if other.Name == a.Name || vmID == "" || !strings.EqualFold(other.Status.VMID, vmID) {
			continue
		}
		if other.DeletionTimestamp == nil || !ownership.ProvedReleased(volume, other) || other.Name < a.Name {
			return other.Name
		}
	}
	return ""
}

// VMsToDetach returns the VMs from which a fence must detach a disk by force, for a node whose
// attachment does not say reliably to which VM the disk was attached. attachedTo are the VMs that
// Azure lists for the disk. attachments are the volume's, and nodes the identities of all nodes by
// name, both read from the API server after the disk: an attachment names its VM before Azure is
// asked.
//
//	the VM that the node is                          detach
//	… and an attachment of another node names it     contested: if two nodes name one VM, nothing is detached for either, and there is no proof
//	a VM that another node's attachment names        nothing to do with this node
//	another node's VM, without an attachment         contested by that node. Its own report decides how that attachment is re-created (see
//	                                                 ownership.RecreateAs), and then it is the case above
//	any other                                        unknown: it may be the node's, or another cluster's, whatever the objects say. There is no proof
//
// The disk is also detached from the VM that the node is if Azure does not list it there: an attach
// that was requested before the attachment lost its status may be in flight, and ends before the
// forced detach does. It is not if the node's attachment names another VM, or another node's
// attachment names this VM.
func VMsToDetach(attachedTo []string, node string, attachments []*apiv1.AzVolumeAttachment,
	nodes map[string]identity.Identity) (cut []string, contested string, unknown []string) {
	owners := map[string]string{}
	for name, id := range nodes {
		if id.VMID != "" {
			owners[strings.ToLower(id.VMID)] = name
		}
	}
	for _, vm := range attachedTo {
		owner, named := owners[strings.ToLower(vm)], namedByAnother(vm, node, attachments)
		switch {
		case owner == node && named != "":
			contested = named
		case owner == node:
			cut = append(cut, vm)
		case owner == "" && named == "":
			unknown = append(unknown, vm)
		case named != "":
		default:
			contested = owner
		}
	}
	own := nodes[node].VMID
	listed := slices.ContainsFunc(attachedTo, func(vm string) bool { return strings.EqualFold(vm, own) })
	elsewhere := slices.ContainsFunc(attachments, func(a *apiv1.AzVolumeAttachment) bool {
		return a.Spec.NodeName == node && ownership.AttachedToAnotherVM(a, own)
	})
	if own != "" && !listed && !elsewhere && namedByAnother(own, node, attachments) == "" {
		cut = append(cut, own)
	}
	return cut, contested, unknown
}

// namedByAnother returns another node whose attachment names a VM; "" if there is none.
func namedByAnother(vm, node string, attachments []*apiv1.AzVolumeAttachment) string {
	for _, a := range attachments {
		if a.Spec.NodeName != node && strings.EqualFold(a.Status.VMID, vm) {
			return a.Spec.NodeName
		}
	}
	return ""
}

func (s *Step) prove(in Input, kind apiv1.ProofType, message string) {
	s.Status.Proof = &apiv1.ReleaseProof{
		Type:       kind,
		Epoch:      in.Attachment.Spec.Epoch,
		ProvenTime: metav1.NewTime(decidedAt(in)),
		Message:    message,
	}
	s.Status.Error = nil
	s.Status.Operation = nil
	s.condition(in, conditionNow(in.Attachment), apiv1.ReasonVolumeFenced, message)
}
