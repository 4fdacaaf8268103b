// Package disk decides the next step of one AzVolume's disk at Azure: create, adopt, change, delete, and what
// its status says of that.
package disk

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Input is what the next step of a volume's disk follows from.
type Input struct {
	Now          time.Time
	Volume       *apiv1.AzVolume
	HasFinalizer bool
	// Attachments of the volume, all of them.
	Attachments []*apiv1.AzVolumeAttachment
	// PersistentVolume of the volume, nil if there is none.
	PersistentVolume *corev1.PersistentVolume
	Job              operation.Job
}

// Step is the next step of a volume's disk. The fields mean what they mean for an AttachmentStep.
type Step struct {
	AddFinalizer    bool
	RemoveFinalizer bool
	// DetachAll says that all attachments are to be deleted, and why.
	DetachAll string
	Start     operation.Work
	Resume    string
	Status    apiv1.AzVolumeStatus
	// Spec is to be written once the status is, to take back what was refused; nil leaves it alone.
	Spec *apiv1.AzVolumeSpec
	// Forget says that the AzVolume is to be deleted: Kubernetes has given the disk up, and it stays at Azure.
	Forget       bool
	RequeueAfter time.Duration
	// Reason and Message of the condition that the step sets, for event and log. Warning says that somebody should read it.
	Reason, Message string
	Warning         bool
}

// Next decides the next step of a volume's disk; see VolumeState for the states.
func Next(in Input) Step {
	s := Step{Status: *in.Volume.Status.DeepCopy()}
	state := in.Volume.Status.State
	switch {
	case in.Volume.DeletionTimestamp != nil:
		s.remove(in)
	case !in.HasFinalizer:
		s.AddFinalizer = true
	case state == apiv1.VolumeCreated, state == apiv1.VolumeUpdating, state == apiv1.VolumeUpdateFailed:
		s.maintain(in)
		s.belong(in)
	default:
		s.create(in)
	}
	return s
}

func creation(in Input) operation.Work {
	if in.Volume.Spec.Origin == apiv1.OriginAdopted || DiskIsOlder(in.Volume, in.PersistentVolume) {
		return operation.WorkAdoptDisk
	}
	return operation.WorkCreateDisk
}

func (s *Step) create(in Input) {
	work := creation(in)
	state := in.Volume.Status.State
	switch {
	case in.Job.EndedAs(work) && in.Job.Err == nil && in.Job.Truth.Disk != nil && in.Job.Truth.Filling:
		s.filling(in, in.Job.Truth.Disk)
	case in.Job.EndedAs(work) && in.Job.Err == nil && in.Job.Truth.Disk != nil:
		s.created(in, in.Job.Truth.Disk)
	case in.Job.EndedAs(work):
		s.failed(in, apiv1.VolumeCreationFailed, ReasonCreationFailed, in.Job.Err)
	case in.Job.Running():
		s.running(in, apiv1.VolumeCreating)
	case (state == apiv1.VolumeCreationFailed || fills(in.Volume)) && s.mustWait(in):
	default:
		s.begin(in, work, apiv1.VolumeCreating, ReasonCreating)
	}
}

// filling is the step of a disk that is there and whose content still arrives from its source: it cannot be attached before. The error is what a
// caller is told who does not wait so long, and its time is that of the last look.
func (s *Step) filling(in Input, disk *provisioner.Disk) {
	s.Status.State = apiv1.VolumeCreating
	s.Status.Operation = nil
	s.Status.Error = operation.Failure(provisioner.Errorf(provisioner.Conflict, "the disk is there, and %.0f %% of its source's content", disk.CompletionPercent), in.Job.Ended)
	s.ready(in, metav1.ConditionFalse, ReasonFilling, s.Status.Error.Message)
	s.RequeueAfter = operation.FirstRetry
}

func fills(v *apiv1.AzVolume) bool {
	c := meta.FindStatusCondition(v.Status.Conditions, ConditionReady)
	return v.Status.State == apiv1.VolumeCreating && c != nil && c.Reason == ReasonFilling
}

func (s *Step) created(in Input, disk *provisioner.Disk) {
	s.Status.State = apiv1.VolumeCreated
	s.Status.DiskURI = disk.ID
	s.Status.SizeBytes = disk.SizeBytes
	if u := in.Job.Truth.Update; u != nil {
		s.Status.Applied = u.Applied
	}
	s.Status.Operation = nil
	s.Status.Error = nil
	s.ready(in, metav1.ConditionTrue, ReasonCreated, "")
}

// belong follows the volume's PersistentVolume: it takes back that the disk is to be deleted where something speaks against it, and forgets the volume
// when its PersistentVolume has gone and left the disk behind. A volume that never had one is somebody else's to delete, who asked CSI for it.
func (s *Step) belong(in Input) {
	v := in.Volume
	switch {
	case in.PersistentVolume != nil:
		s.Status.PersistentVolume = in.PersistentVolume.Name
	case v.Status.PersistentVolume != "" && !v.Spec.DeleteDisk && !ownership.HasPrimary(v, in.Attachments) && in.Job.Phase == operation.PhaseIdle && s.Start == operation.WorkNone:
		s.Forget = true
		s.Message = fmt.Sprintf("PersistentVolume %s has gone, and nobody asked for the deletion of the disk", v.Status.PersistentVolume)
	}
	if v.Spec.DeleteDisk && s.Spec == nil && holdBack(in) != "" {
		s.Spec = v.Spec.DeepCopy()
		s.Spec.DeleteDisk = false
	}
}

// remove lets go of the disk of a volume that is being deleted, if nothing speaks against it. The disk is deleted if CSI was asked for that, or if its
// creation did not come to its end, so that it was never anybody's. Otherwise somebody deleted a record, and no data.
func (s *Step) remove(in Input) {
	if !in.HasFinalizer {
		return
	}
	if why := holdBack(in); why != "" {
		s.ready(in, metav1.ConditionTrue, ReasonDeletionHeld, why)
		return
	}
	if in.Volume.Spec.DeleteDisk || in.Volume.Status.DiskURI == "" {
		s.removeDisk(in)
		return
	}
	switch {
	case len(in.Attachments) > 0:
		s.DetachAll = ReasonDiskKept
		s.ready(in, metav1.ConditionTrue, ReasonDiskKept, "the disk is detached, and stays at Azure")
	case in.Job.Running():
		// A change in flight comes to its end first.
	default:
		s.RemoveFinalizer = true
		s.Reason, s.Message = ReasonDiskKept, fmt.Sprintf("the disk %s stays at Azure: only CSI's DeleteVolume deletes it", in.Volume.Status.DiskURI)
	}
}

func (s *Step) removeDisk(in Input) {
	switch {
	case len(in.Attachments) > 0:
		s.Status.State = apiv1.VolumeDeleting
		s.DetachAll = ReasonDeleting
		s.ready(in, metav1.ConditionFalse, ReasonDeleting, "the disk is detached first")
	case in.Job.EndedAs(operation.WorkDeleteDisk) && in.Job.Err == nil:
		s.RemoveFinalizer = true
		s.Reason = ReasonDeleting
		if in.Job.Truth.Foreign {
			s.Reason, s.Message = ReasonForeignDisk, "a disk of this name exists that was not made for this volume; it is left alone"
		}
	case in.Job.EndedAs(operation.WorkDeleteDisk):
		s.failed(in, apiv1.VolumeDeletionFailed, ReasonDeletionFailed, in.Job.Err)
	case in.Job.Running() && in.Job.Work == operation.WorkDeleteDisk:
		s.running(in, apiv1.VolumeDeleting)
	case in.Job.Running():
		// The creation or change in flight comes to its end first.
	case neverBegun(in.Volume) && in.Job.Phase == operation.PhaseIdle:
		s.RemoveFinalizer = true
	case in.Volume.Status.State == apiv1.VolumeDeletionFailed && s.mustWait(in):
	default:
		s.begin(in, operation.WorkDeleteDisk, apiv1.VolumeDeleting, ReasonDeleting)
	}
}

// neverBegun says that Azure was never asked for the disk: the state Creating is written before that.
func neverBegun(v *apiv1.AzVolume) bool {
	return v.Status.DiskURI == "" && (v.Status.State == "" || v.Status.State == apiv1.VolumePending)
}

// holdBack says why a volume must not go though its object is being deleted: somebody uses it, or it was the object and not the volume that
// somebody deleted.
func holdBack(in Input) string {
	if claim := in.Volume.Status.Primary; claim != nil && claim.State != apiv1.OwnershipReleased {
		return fmt.Sprintf("node %s is primary", claim.NodeName)
	}
	pv := in.PersistentVolume
	switch {
	case pv == nil:
		return ""
	case pv.Status.Phase == corev1.VolumeBound:
		return fmt.Sprintf("PersistentVolume %s is bound", pv.Name)
	case pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain:
		return fmt.Sprintf("PersistentVolume %s has the reclaim policy Retain", pv.Name)
	default:
		return ""
	}
}

func (s *Step) begin(in Input, work operation.Work, state apiv1.VolumeState, reason string) {
	s.Start = work
	switch op := in.Volume.Status.Operation; {
	case op != nil && op.Kind == string(work):
		s.Resume = op.ResumeToken
	case work == operation.WorkUpdateDisk:
		// Whoever finds this without a token knows that Azure may have been asked.
		s.Status.Operation = &apiv1.Operation{Kind: string(work), StartTime: metav1.NewTime(in.Now)}
	default:
		s.Status.Operation = nil
	}
	s.Status.State = state
	status := metav1.ConditionFalse
	if state == apiv1.VolumeUpdating {
		status = metav1.ConditionTrue
	}
	s.ready(in, status, reason, "")
}

func (s *Step) running(in Input, state apiv1.VolumeState) {
	s.Status.State = state
	if op := in.Job.Operation(); op != nil {
		s.Status.Operation = operation.KeepStartTime(s.Status.Operation, op)
	}
}

func (s *Step) failed(in Input, state apiv1.VolumeState, reason string, err error) {
	if err == nil {
		err = provisioner.Errorf(provisioner.Conflict, "the operation ended, and yet there is no disk")
	}
	s.Status.State = state
	s.Status.Operation = nil
	s.Status.Error = operation.Failure(err, in.Job.Ended)
	s.Warning = true
	status := metav1.ConditionFalse
	if state == apiv1.VolumeUpdateFailed {
		status = metav1.ConditionTrue
	}
	s.ready(in, status, reason, s.Status.Error.Message)
	s.RequeueAfter = operation.FirstRetry
}

// mustWait says, of a failed state of this generation, that its retry is not due, and sets the time of it.
func (s *Step) mustWait(in Input) bool {
	v := in.Volume
	if v.Status.Error == nil || v.Status.ObservedGeneration != v.Generation {
		return false
	}
	since := v.CreationTimestamp.Time
	if c := meta.FindStatusCondition(v.Status.Conditions, ConditionReady); c != nil {
		since = c.LastTransitionTime.Time
	}
	s.RequeueAfter = operation.RetryIn(since, v.Status.Error.Time.Time, in.Now)
	return s.RequeueAfter > 0
}

func (s *Step) ready(in Input, status metav1.ConditionStatus, reason, message string) {
	s.Reason, s.Message = reason, message
	s.Status.ObservedGeneration = in.Volume.Generation
	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{
		Type: ConditionReady, Status: status, Reason: reason, Message: message,
		ObservedGeneration: in.Volume.Generation, LastTransitionTime: metav1.NewTime(in.Now),
	})
}

// FilesystemRecord decides whether the filesystem that a node reports becomes the volume's
// record: only while there is none, and only from the node that holds the claim, for its epoch (law 7).
func FilesystemRecord(volume *apiv1.AzVolume, report *apiv1.AzDriverNode) *apiv1.FilesystemRecord {
	claim := volume.Status.Primary
	if volume.Status.Filesystem != nil || claim == nil || report == nil || claim.NodeName != report.Name {
		return nil
	}
	for _, staged := range report.Status.StagedVolumes {
		if staged.VolumeName == volume.Name && staged.Epoch == claim.Epoch && staged.Filesystem != nil && staged.Filesystem.UUID != "" {
			return staged.Filesystem.DeepCopy()
		}
	}
	return nil
}

// DiskIsOlder says that the disk of a volume was made before its AzVolume was: a PersistentVolume names it, which is made after the disk. It is never made
// again: a blank disk would take the place of one whose data is gone.
func DiskIsOlder(v *apiv1.AzVolume, pv *corev1.PersistentVolume) bool {
	if v.Status.DiskURI != "" || pv == nil || pv.Spec.CSI == nil {
		return false
	}
	d := v.Spec.Disk
	return strings.EqualFold(pv.Spec.CSI.VolumeHandle, "/subscriptions/"+d.SubscriptionID+"/resourceGroups/"+d.ResourceGroup+"/providers/Microsoft.Compute/disks/"+d.Name)
}
