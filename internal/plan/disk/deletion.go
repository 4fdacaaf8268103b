package disk

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// carriedOut reports whether the deletion of the object is carried out: there is no reason to keep
// it, or it has begun. It never turns back, so that a node gets either the volume or a refusal; a
// disk that is still needed is adopted when the object is gone.
func carriedOut(in Input) bool {
	state := in.Volume.Status.State
	return state == apiv1.VolumeDeleting || state == apiv1.VolumeDeletionFailed || keptBecause(in) == ""
}

// hold says of an object that was deleted why it remains. Everything else about it is as if it had
// not been deleted.
func (s *Step) hold(in Input) {
	if in.Volume.DeletionTimestamp == nil {
		return
	}
	reason, message := s.Reason, s.Message
	s.ready(in, metav1.ConditionTrue, apiv1.ReasonVolumeDeletionHeld, keptBecause(in))
	if reason != "" && reason != apiv1.ReasonDiskCreated {
		s.Reason, s.Message = reason, message // what happens to the disk is the event
	}
}

// ClaimOf returns the claim to which a PersistentVolume is bound, or is to be; nil for none.
func ClaimOf(pv *corev1.PersistentVolume) *apiv1.ClaimReference {
	if pv.Spec.ClaimRef == nil {
		return nil
	}
	return &apiv1.ClaimReference{Namespace: pv.Spec.ClaimRef.Namespace, Name: pv.Spec.ClaimRef.Name, UID: pv.Spec.ClaimRef.UID}
}

// belong follows the volume's PersistentVolume and its claim: it cancels the deletion of the disk if there is a
// reason to keep it, and forgets the volume if its PersistentVolume is deleted and has left the
// disk behind. A volume that never had a PersistentVolume belongs to the caller that created it
// with CSI, which deletes it.
func (s *Step) belong(in Input) {
	v := in.Volume
	switch {
	case in.PersistentVolume != nil:
		s.Status.PersistentVolume = in.PersistentVolume.Name
		s.Status.ClaimRef = ClaimOf(in.PersistentVolume)
	case v.Status.PersistentVolume != "" && !v.DeletesDisk() && !ownership.HasPrimary(v, in.Attachments) &&
		in.Job.Phase == operation.PhaseIdle && s.Start == operation.WorkNone:
		s.Forget = true
		s.Message = fmt.Sprintf("PersistentVolume %s is deleted, and DeleteVolume was not called for the disk",
			v.Status.PersistentVolume)
	}
	if v.DeletesDisk() && s.Spec == nil && keptBecause(in) != "" {
		s.Spec = v.Spec.DeepCopy()
		s.Spec.DeletionPolicy = apiv1.DeletionRetain
	}
}

// remove gives up the disk of a volume that is being deleted, if there is no reason to keep the
// volume. The disk is deleted if DeleteVolume was called, or if its creation was not completed, so
// that no user ever had it. Otherwise a user deleted a record, and no data.
func (s *Step) remove(in Input) {
	if !in.HasFinalizer {
		return
	}
	wanted := keptBecause(in) != ""
	if in.Volume.DeletesDisk() && wanted {
		s.Spec = in.Volume.Spec.DeepCopy()
		s.Spec.DeletionPolicy = apiv1.DeletionRetain
	}
	if !wanted && (in.Volume.DeletesDisk() || in.Volume.Status.DiskID == "") {
		s.removeDisk(in)
		return
	}
	switch {
	case len(in.Attachments) > 0:
		s.Status.State = apiv1.VolumeDeleting // no node acquires the volume from now on
		s.DetachAll = apiv1.ReasonDiskKept
		s.ready(in, metav1.ConditionTrue, apiv1.ReasonDiskKept, "the disk is detached, and remains at Azure")
	case in.Job.Running():
		// A change in flight completes first.
	default:
		s.RemoveFinalizer = true
		s.Reason, s.Message = apiv1.ReasonDiskKept, fmt.Sprintf("the disk %s remains at Azure: only CSI's DeleteVolume deletes it",
			in.Volume.Status.DiskID)
	}
}

func (s *Step) removeDisk(in Input) {
	switch {
	case len(in.Attachments) > 0:
		s.Status.State = apiv1.VolumeDeleting
		s.DetachAll = apiv1.ReasonDiskDeleting
		s.ready(in, metav1.ConditionFalse, apiv1.ReasonDiskDeleting, "the disk is detached first")
	case in.Job.EndedAs(operation.WorkDeleteDisk) && in.Job.Err == nil:
		s.RemoveFinalizer = true
		s.Reason = apiv1.ReasonDiskDeleting
		if in.Job.Truth.Unrelated {
			s.Reason, s.Message = apiv1.ReasonForeignDisk, "a disk of this name exists that was not created for this volume; the driver does not change it"
		}
	case in.Job.EndedAs(operation.WorkDeleteDisk):
		s.failed(in, apiv1.VolumeDeletionFailed, apiv1.ReasonDiskDeletionFailed, in.Job.Err)
	case in.Job.Running():
		// A creation or change in flight completes first.
		if in.Job.Work == operation.WorkDeleteDisk {
			s.running(in, apiv1.VolumeDeleting)
		}
	case neverBegun(in.Volume) && in.Job.Phase == operation.PhaseIdle:
		s.RemoveFinalizer = true
	case in.Volume.Status.State == apiv1.VolumeDeletionFailed && s.mustWait(in):
	default:
		s.begin(in, operation.WorkDeleteDisk, apiv1.VolumeDeleting, apiv1.ReasonDiskDeleting)
	}
}

// neverBegun reports whether Azure was never asked to create the disk: the state Creating is
// written before that.
func neverBegun(v *apiv1.AzVolume) bool {
	return v.Status.DiskID == "" && (v.Status.State == "" || v.Status.State == apiv1.VolumePending)
}

// keptBecause says why a volume must remain although its object is being deleted: a node uses it,
// or a user deleted the object and not the volume.
func keptBecause(in Input) string {
	if pv := in.PersistentVolume; pv != nil {
		if why := NeededBy(pv); why != "" {
			return why
		}
	}
	switch {
	case !ownership.HasPrimary(in.Volume, in.Attachments):
		return ""
	case in.Volume.Spec.Access == apiv1.AccessMultiNode:
		return "nodes use it"
	default:
		return fmt.Sprintf("node %s is primary", in.Volume.Status.Primary.NodeName)
	}
}

// NeededBy says why the disk that a PersistentVolume names must stay; "" if Kubernetes has given up
// the PersistentVolume together with its disk.
func NeededBy(pv *corev1.PersistentVolume) string {
	switch phase := pv.Status.Phase; {
	case phase == corev1.VolumeBound:
		return fmt.Sprintf("PersistentVolume %s is bound", pv.Name)
	case pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain:
		return fmt.Sprintf("PersistentVolume %s has the reclaim policy Retain", pv.Name)
	case phase == corev1.VolumeReleased, phase == corev1.VolumeFailed:
		return ""
	default:
		return fmt.Sprintf("PersistentVolume %s can be bound to a claim", pv.Name)
	}
}
