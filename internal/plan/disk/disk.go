// Package disk decides the next step of one AzVolume's disk at Azure: create, adopt, change,
// delete, and what its status says about it.
package disk

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Input is the input of Next, the decision about a volume's disk.
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

// Step is the next step of a volume's disk. The fields mean the same as those of an attachment's
// step.
type Step struct {
	AddFinalizer    bool
	RemoveFinalizer bool
	// DetachAll says that all attachments are to be deleted, and why.
	DetachAll string
	Start     operation.Work
	Resume    string
	// Uncertain says that a job that changes the disk starts from the disk itself, and not from its
	// record.
	Uncertain bool
	Status    apiv1.AzVolumeStatus
	// Spec is to be written after the status, to revert what was refused; nil leaves the spec
	// unchanged.
	Spec *apiv1.AzVolumeSpec
	// Forget says that the AzVolume is to be deleted: Kubernetes has given up the disk, and the
	// disk remains at Azure.
	Forget       bool
	RequeueAfter time.Duration
	// Reason and Message of the condition that the step sets, for event and log. Warning says that
	// a user should read it.
	Reason, Message string
	Warning         bool
}

// Next decides the next step of a volume's disk; see VolumeState for the states. Of a volume that is paused
// it begins nothing at Azure, and records how what had begun before has ended.
func Next(in Input) Step {
	s := next(in)
	paused := annotation.Paused.Switched(in.Volume.Annotations)
	if paused != "" && s.begins(in) {
		s = Step{Status: *in.Volume.Status.DeepCopy()}
		if exists(in.Volume.Status.State) && (in.Volume.DeletionTimestamp == nil || !carriedOut(in)) {
			s.belong(in)
			s.hold(in)
			s.Forget, s.Message = false, ""
		}
	}
	if in.HasFinalizer {
		s.pause(in, paused)
	}
	return s
}

// begins reports whether a step leads to a request to Azure: by itself, by the detach that it asks for, or
// when it has gathered the changes of the spec.
func (s *Step) begins(in Input) bool {
	return s.Start != operation.WorkNone || s.DetachAll != "" || s.Forget ||
		s.Status.UpdateWantedTime != nil && in.Volume.Status.UpdateWantedTime == nil
}

// pause sets the condition Paused. why is the annotation, "" if the volume is not paused.
func (s *Step) pause(in Input, why string) {
	c := metav1.Condition{
		Type: apiv1.VolumeConditionPaused, Status: metav1.ConditionFalse, Reason: apiv1.ReasonNotPaused,
		ObservedGeneration: in.Volume.Generation, LastTransitionTime: metav1.NewTime(in.Now),
	}
	if why != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, apiv1.ReasonVolumePaused, "the AzVolume has "+why
	} else if !exists(s.Status.State) && meta.FindStatusCondition(s.Status.Conditions, c.Type) == nil {
		return // the disk does not exist yet
	}
	meta.SetStatusCondition(&s.Status.Conditions, c)
}

func exists(state apiv1.VolumeState) bool {
	return state == apiv1.VolumeCreated || state == apiv1.VolumeUpdating || state == apiv1.VolumeUpdateFailed
}

func next(in Input) Step {
	s := Step{Status: *in.Volume.Status.DeepCopy()}
	switch {
	case in.Volume.DeletionTimestamp != nil && (!in.HasFinalizer || carriedOut(in)):
		s.remove(in)
	case !in.HasFinalizer:
		s.AddFinalizer = true
	case exists(in.Volume.Status.State):
		s.maintain(in)
		s.belong(in)
		s.hold(in)
	default:
		s.create(in)
	}
	return s
}

func creation(in Input) operation.Work {
	if in.Volume.Spec.Origin == apiv1.OriginAdopted || diskIsOlder(in.Volume, in.PersistentVolume) {
		return operation.WorkAdoptDisk
	}
	return operation.WorkCreateDisk
}

func (s *Step) create(in Input) {
	work := creation(in)
	state := in.Volume.Status.State
	switch {
	case in.Job.EndedAs(work) && in.Job.Err == nil && in.Job.Truth.Disk != nil:
		if in.Job.Truth.Filling {
			s.filling(in, in.Job.Truth.Disk)
		} else {
			s.created(in, in.Job.Truth.Disk)
		}
	case in.Job.EndedAs(work):
		s.failed(in, apiv1.VolumeCreationFailed, apiv1.ReasonDiskCreationFailed, in.Job.Err)
	case in.Job.Running():
		s.running(in, apiv1.VolumeCreating)
	case (state == apiv1.VolumeCreationFailed || fills(in.Volume)) && s.mustWait(in):
	default:
		s.begin(in, work, apiv1.VolumeCreating, apiv1.ReasonDiskCreating)
	}
}

// filling is the step of a disk that exists while the content of its source is still being copied:
// it cannot be attached before. A caller that does not wait that long receives the error; its time
// is the time of the last read.
func (s *Step) filling(in Input, disk *provisioner.Disk) {
	s.Status.State = apiv1.VolumeCreating
	s.Status.Operation = nil
	s.Status.Error = operation.Failure(provisioner.Errorf(provisioner.Conflict,
		"the disk exists, and %.0f %% of the content of its source has been copied", disk.CompletionPercent), in.Job.Ended)
	s.ready(in, metav1.ConditionFalse, apiv1.ReasonDiskFilling, s.Status.Error.Message)
	s.RequeueAfter = operation.FirstRetry
}

func fills(v *apiv1.AzVolume) bool {
	c := meta.FindStatusCondition(v.Status.Conditions, apiv1.VolumeConditionReady)
	return c != nil && c.Reason == apiv1.ReasonDiskFilling
}

func (s *Step) created(in Input, disk *provisioner.Disk) {
	s.Status.State = apiv1.VolumeCreated
	s.Status.DiskID = disk.ID
	s.Status.SizeBytes = disk.SizeBytes
	if u := in.Job.Truth.Update; u != nil {
		s.Status.Applied = u.Applied
	}
	if in.Job.Truth.Made {
		s.Status.ConfirmedUID = in.Volume.UID
	}
	s.Status.Operation = nil
	s.Status.Error = nil
	s.first(in)
	s.ready(in, metav1.ConditionTrue, apiv1.ReasonDiskCreated, "")
}

// first sets the conditions that the status of a disk that exists now does not have yet. ReplicasAttached
// belongs to the placement of replicas.
func (s *Step) first(in Input) {
	for _, c := range []metav1.Condition{
		{Type: apiv1.VolumeConditionUpdated, Reason: apiv1.ReasonDiskUpdated},
		{Type: apiv1.VolumeConditionDiskAsRecorded, Reason: apiv1.ReasonDiskAsRecorded},
		{Type: apiv1.VolumeConditionWritesKept, Reason: apiv1.ReasonNoWritesLost},
		{Type: apiv1.VolumeConditionUsable, Reason: apiv1.ReasonNoProblem},
		{Type: apiv1.VolumeConditionPublished, Reason: apiv1.ReasonPublished},
	} {
		if meta.FindStatusCondition(s.Status.Conditions, c.Type) == nil {
			c.Status, c.ObservedGeneration = metav1.ConditionTrue, in.Volume.Generation
			c.LastTransitionTime = metav1.NewTime(in.Now)
			meta.SetStatusCondition(&s.Status.Conditions, c)
		}
	}
}

func (s *Step) begin(in Input, work operation.Work, state apiv1.VolumeState, reason string) {
	s.Start = work
	switch op := in.Volume.Status.Operation; {
	case op != nil && op.Type == string(work):
		s.Resume = op.ResumeToken
	case work == operation.WorkUpdateDisk:
		// A process that finds this state without a token knows that Azure may have been asked.
		s.Status.Operation = &apiv1.Operation{Type: string(work), StartTime: metav1.NewTime(in.Now.Truncate(time.Second))}
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
	if in.Job.Work == operation.WorkUpdateDisk && !in.Job.IsRecorded(in.Volume.Status.Operation) {
		return // the leader that has recorded something since goes on from there
	}
	s.Status.State = state
	if op := in.Job.Operation(); op != nil {
		s.Status.Operation = operation.KeepStartTime(s.Status.Operation, op)
	}
}

func (s *Step) failed(in Input, state apiv1.VolumeState, reason string, err error) {
	if err == nil {
		err = provisioner.Errorf(provisioner.Conflict, "the operation ended, but the disk does not exist")
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

// mustWait reports whether the retry of a failed state of this generation is not due yet, and sets
// the time of the retry.
func (s *Step) mustWait(in Input) bool {
	v := in.Volume
	if v.Status.Error == nil || v.Status.ObservedGeneration != v.Generation {
		return false
	}
	since := v.CreationTimestamp.Time
	if c := meta.FindStatusCondition(v.Status.Conditions, apiv1.VolumeConditionReady); c != nil {
		since = c.LastTransitionTime.Time
	}
	s.RequeueAfter = operation.RetryIn(since, v.Status.Error.FailureTime.Time, in.Now)
	return s.RequeueAfter > 0
}

func (s *Step) ready(in Input, status metav1.ConditionStatus, reason, message string) {
	message = operation.Shorten(message)
	s.Reason, s.Message = reason, message
	s.observed(in)
	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{
		Type:               apiv1.VolumeConditionReady,
		Status:             status,
		Reason:             reason,
		Message:            message,
		ObservedGeneration: in.Volume.Generation,
		LastTransitionTime: metav1.NewTime(in.Now),
	})
}

// observed records that the status speaks of the present generation: also the conditions that are as they
// were.
func (s *Step) observed(in Input) {
	s.Status.ObservedGeneration = in.Volume.Generation
	for i := range s.Status.Conditions {
		s.Status.Conditions[i].ObservedGeneration = in.Volume.Generation
	}
}

// FilesystemRecord decides whether the filesystem that a node reports becomes the volume's record:
// only while there is none, and only from the node that holds the ownership, for its epoch (law 7).
func FilesystemRecord(volume *apiv1.AzVolume, report *apiv1.AzDriverNode) *apiv1.FilesystemRecord {
	staged := stagedByPrimary(volume, report)
	if volume.Status.Filesystem != nil || staged == nil || staged.Filesystem == nil || staged.Filesystem.UUID == "" {
		return nil
	}
	return staged.Filesystem.DeepCopy()
}

// Fencing is how the node that holds the ownership is fenced if it is lost, according to its
// report; the recorded value while that node does not report the volume as staged.
func Fencing(volume *apiv1.AzVolume, report *apiv1.AzDriverNode) apiv1.FencingMethod {
	staged := stagedByPrimary(volume, report)
	switch {
	case staged == nil || staged.Phase != apiv1.PhaseStaged:
		return volume.Status.Fencing
	case staged.ReservationKey == "":
		return apiv1.FencingForcedDetach
	default:
		return apiv1.FencingPreemption
	}
}

// NotReserved returns the message for a volume that the node which holds the ownership has staged
// without a reservation, because the disk did not answer. It is "" otherwise, and if that is
// recorded.
func NotReserved(volume *apiv1.AzVolume, report *apiv1.AzDriverNode) string {
	staged := stagedByPrimary(volume, report)
	if staged == nil || staged.UnreservedReason == "" || Fencing(volume, report) == volume.Status.Fencing {
		return ""
	}
	return fmt.Sprintf("node %s has staged the volume without a reservation of its disk, and is fenced by a forced detach if it is lost: %s",
		report.Name, staged.UnreservedReason)
}

// ConfirmedUID is the UID that confirms that this cluster uses the disk, once the node that holds
// the ownership reports the volume as staged, and Azure listed the disk at no VM outside of this
// cluster after the attach to that node; what is recorded before that. The report alone confirms
// nothing: the disk may have been taken from the node since. attachments are the volume's.
func ConfirmedUID(volume *apiv1.AzVolume, attachments []*apiv1.AzVolumeAttachment, report *apiv1.AzDriverNode) types.UID {
	staged := stagedByPrimary(volume, report)
	exclusive := func(a *apiv1.AzVolumeAttachment) bool {
		return a.Spec.NodeName == report.Name && a.Spec.Epoch == staged.Epoch && a.Status.Exclusive && !ownership.Copied(a)
	}
	if staged == nil || staged.Phase != apiv1.PhaseStaged || !slices.ContainsFunc(attachments, exclusive) {
		return volume.Status.ConfirmedUID
	}
	return volume.UID
}

// stagedByPrimary is the entry of the volume in the report of the node that holds the ownership,
// for its epoch; nil if there is none.
func stagedByPrimary(volume *apiv1.AzVolume, report *apiv1.AzDriverNode) *apiv1.StagedVolume {
	primary := volume.Status.Primary
	if primary == nil || report == nil || primary.NodeName != report.Name {
		return nil
	}
	for i, staged := range report.Status.StagedVolumes {
		if staged.VolumeName == volume.Name && staged.Epoch == primary.Epoch {
			return &report.Status.StagedVolumes[i]
		}
	}
	return nil
}

// diskIsOlder reports whether the disk of a volume was created before its AzVolume: a
// PersistentVolume, which is created after the disk, names it. Such a disk is never created again:
// a blank disk would replace one whose data is lost.
func diskIsOlder(v *apiv1.AzVolume, pv *corev1.PersistentVolume) bool {
	if pv == nil || pv.Spec.CSI == nil {
		return false
	}
	d := v.Spec.Disk
	return strings.EqualFold(pv.Spec.CSI.VolumeHandle,
		"/subscriptions/"+d.SubscriptionID+"/resourceGroups/"+d.ResourceGroup+"/providers/Microsoft.Compute/disks/"+d.Name)
}
