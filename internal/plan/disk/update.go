package disk

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// gatherTime is how long, after the first sign that a disk must be changed, the driver waits for
// more changes. A user who edits size and class of a PersistentVolumeClaim at once causes two
// calls, milliseconds apart, and Azure serves one change of a disk after the other.
const gatherTime = 500 * time.Millisecond

// lateRequest is how long after it has recorded an update a leader may still send the request,
// although another one leads: it ends at the latest 9 seconds after it has lost the lease (ADR
// 0014).
const lateRequest = 10 * time.Second

// firstLook and lastLook limit how often Azure is asked for the progress of a conversion: after
// each tenth of the time that it has lasted.
const firstLook, lastLook = time.Minute, 10 * time.Minute

// Caching is the host caching with which a disk is attached: the chosen one, but none if Azure
// supports none: for shared disks, those of provisioned performance and those from 4096 GiB on. A
// disk may have become one of those since the caching was chosen.
func Caching(v *apiv1.AzVolume) string {
	sku := SKU(v)
	if v.Shares() > 1 || v.Status.SizeBytes >= 4096<<30 || sku == "UltraSSD_LRS" || sku == "PremiumV2_LRS" {
		return "None"
	}
	return cmp.Or(v.Spec.Disk.ModifiedCachingMode, v.Spec.Disk.CachingMode)
}

// UpdateUncertain reports whether Azure may have made a change of the disk, or may be making one,
// that Applied does not contain: a process ended while the request was in flight, or the answer was
// lost. The next job starts from what the disk is. A failure counts until a job has read the disk,
// also while the next job waits for more changes or for the replicas.
func UpdateUncertain(status *apiv1.AzVolumeStatus) bool {
	asked := status.Operation != nil && status.Operation.Type == string(operation.WorkUpdateDisk)
	return asked || status.State == apiv1.VolumeUpdateFailed || status.State == apiv1.VolumeUpdating && status.Error != nil
}

// IsFinal reports whether the same request would fail again.
func IsFinal(kind provisioner.Kind) bool {
	switch kind {
	case provisioner.InvalidArgument, provisioner.AlreadyExists, provisioner.NotFound, provisioner.FailedPrecondition,
		provisioner.InsufficientCapacity, provisioner.Unauthorized, provisioner.Unsupported, provisioner.Unimplemented:
		return true
	case provisioner.Conflict, provisioner.RateLimited, provisioner.Unavailable:
		return false
	}
	return false
}

// maintain is the step of a disk that exists: it changes the disk if the spec asks for something
// else.
func (s *Step) maintain(in Input) {
	v := in.Volume
	want := wanted(v)
	late := arrivedLate(in)
	s.Uncertain = UpdateUncertain(&v.Status) || late
	_, isPending := Pending(v)
	switch {
	case in.Job.EndedAs(operation.WorkUpdateDisk) && in.Job.IsRecorded(v.Status.Operation):
		s.updated(in)
	case in.Job.EndedAs(operation.WorkReadDisk):
		s.looked(in)
	case in.Job.Running():
		if in.Job.Work != operation.WorkReadDisk {
			s.running(in, apiv1.VolumeUpdating)
		}
	case s.requestMayArrive(in):
	case late:
		// Also before a refusal counts: Azure may have refused to a former leader what it has made
		// for this one since.
		s.readUncertain(in)
	case refusedNow(v.Status.RefusedCapacity, v, want.capacity), refusedNow(v.Status.RefusedSettings, v, want.settings):
		s.Spec = RevertRefused(v)
	case !want.any() && s.Uncertain:
		// A change that is no longer requested may have been made.
		if v.Status.State != apiv1.VolumeUpdateFailed || !s.mustWait(in) {
			s.readUncertain(in)
		}
	case !want.any():
		s.rest(in)
	case v.Status.State == apiv1.VolumeUpdateFailed && s.mustWait(in):
	case s.waits(in) && !s.Uncertain && isPending:
	case s.waits(in):
		// Azure may have made the change although its answer was lost, or for a former leader that
		// did not record it. So the disk is read before the change waits, and what can be changed in
		// use is changed.
		s.begin(in, operation.WorkUpdateDisk, apiv1.VolumeUpdating, apiv1.ReasonDiskUpdating)
		s.updating(in, want.String())
	case want.alone && len(in.Attachments) > 0:
		s.startGathering(in)
		s.Status.State = apiv1.VolumeUpdating
		s.DetachAll = apiv1.ReasonVolumeUpdates
		s.updating(in, "detaching the replicas, so that the disk can be changed: "+want.String())
	case s.gathers(in):
		s.Status.State = apiv1.VolumeUpdating
		s.updating(in, want.String())
	default:
		s.begin(in, operation.WorkUpdateDisk, apiv1.VolumeUpdating, apiv1.ReasonDiskUpdating)
		s.updating(in, want.String())
	}
}

// waits is Waits, and sets the time at which it has to be asked again.
func (s *Step) waits(in Input) bool {
	waits, again := Waits(in.Volume, in.Attachments, in.Now)
	s.RequeueAfter = operation.Sooner(s.RequeueAfter, again)
	return waits
}

// readUncertain begins the job that reads what an earlier change has made of the disk.
func (s *Step) readUncertain(in Input) {
	s.begin(in, operation.WorkUpdateDisk, apiv1.VolumeUpdating, apiv1.ReasonDiskUpdating)
	s.updating(in, "reading the disk, because the outcome of an earlier change is not known")
}

// requestMayArrive reports whether the request of another process may reach Azure after a read of
// the disk, and sets the time at which that ends. The process has recorded that it asks, and no
// answer.
func (s *Step) requestMayArrive(in Input) bool {
	op := in.Volume.Status.Operation
	if op == nil || op.Type != string(operation.WorkUpdateDisk) || op.ResumeToken != "" {
		return false
	}
	left := op.StartTime.Add(lateRequest).Sub(in.Now)
	if left <= 0 || left > lateRequest { // the time of another clock
		return false
	}
	s.RequeueAfter = max(left, operation.MinWait)
	return true
}

// arrivedLate reports whether a job of this process ended after another process had recorded
// another result, and found another disk than that. Its request reached Azure later than
// lateRequest: the process may have been paused while it sent it.
func arrivedLate(in Input) bool {
	u, disk := in.Job.Truth.Update, in.Job.Truth.Disk
	return in.Job.EndedAs(operation.WorkUpdateDisk) && u != nil && u.Applied != nil && disk != nil &&
		(disk.SizeBytes != in.Volume.Status.SizeBytes || in.Volume.Status.Applied == nil ||
			!equality.Semantic.DeepEqual(u.Applied.DiskSettings, in.Volume.Status.Applied.DiskSettings))
}

// looked records what a read of the disk found, and the progress of a conversion. A read that
// failed counts as one, so that the next is made at its time.
func (s *Step) looked(in Input) {
	disk := in.Job.Truth.Disk
	s.read(in, disk)
	if disk != nil {
		s.converts(in, disk)
	} else if s.Status.Conversion != nil {
		s.Status.Conversion = s.Status.Conversion.DeepCopy()
		s.Status.Conversion.ObservedTime = metav1.NewTime(in.Job.Ended)
	}
}

// rest is the step of a disk that matches the spec.
func (s *Step) rest(in Input) {
	s.end(in)
	if c := meta.FindStatusCondition(s.Status.Conditions, apiv1.VolumeConditionUpdated); c != nil &&
		c.Status == metav1.ConditionFalse {
		message := "" // nothing is wanted any more
		if c.Reason == apiv1.ReasonDiskUpdateRefused {
			message = "the refused change has been reverted; status.refusedCapacity and status.refusedSettings keep the refusal"
		}
		s.upToDate(in, metav1.ConditionTrue, apiv1.ReasonDiskUpdated, message)
	}
	if mustBeRead(in) {
		s.Start = operation.WorkReadDisk
		return
	}
	c := s.Status.Conversion
	if c == nil {
		return
	}
	every := min(max(in.Now.Sub(c.StartTime.Time)/10, firstLook), lastLook)
	if s.RequeueAfter = c.ObservedTime.Add(every).Sub(in.Now); s.RequeueAfter <= 0 {
		s.RequeueAfter, s.Start = 0, operation.WorkReadDisk
	}
}

func (s *Step) startGathering(in Input) {
	if s.Status.UpdateWantedTime == nil {
		since := metav1.NewMicroTime(in.Now.Truncate(time.Microsecond))
		s.Status.UpdateWantedTime = &since
	}
}

// gathers reports whether the driver waits for more changes, and sets the time at which that ends.
func (s *Step) gathers(in Input) bool {
	s.startGathering(in)
	left := s.Status.UpdateWantedTime.Add(gatherTime).Sub(in.Now)
	if left <= 0 || left > gatherTime { // the time of another clock
		return false
	}
	s.RequeueAfter = max(left, operation.MinWait)
	return true
}

func (s *Step) updating(in Input, message string) {
	s.ready(in, metav1.ConditionTrue, apiv1.ReasonDiskUpdating, message)
	s.upToDate(in, metav1.ConditionFalse, apiv1.ReasonDiskUpdating, message)
}

// updated records the result of a job that changed the disk.
func (s *Step) updated(in Input) {
	err, u := in.Job.Err, in.Job.Truth.Update
	if u == nil || err != nil && (u.Uncertain || !IsFinal(provisioner.KindOf(err))) {
		s.failed(in, apiv1.VolumeUpdateFailed, apiv1.ReasonDiskUpdateFailed, err)
		s.upToDate(in, metav1.ConditionFalse, apiv1.ReasonDiskUpdateFailed, s.Status.Error.Message)
		return
	}
	if err != nil {
		// The disk itself could not be read, and Azure was asked for nothing.
		w := wanted(in.Volume)
		u = &operation.Updated{Generation: u.Generation}
		if w.capacity {
			u.RefusedCapacity = err
		}
		if w.settings {
			u.RefusedSettings = err
		}
	}
	s.end(in)
	if u.Applied != nil {
		s.Status.Applied, s.Status.RefusedSettings = u.Applied, nil
	}
	disk := in.Job.Truth.Disk
	if disk != nil {
		if disk.SizeBytes > s.Status.SizeBytes {
			s.Status.RefusedCapacity = nil
		}
		s.Status.SizeBytes = disk.SizeBytes
		s.readWithChange(in, disk)
	}
	switch {
	case s.refused(in, *u):
	case u.Generation == in.Volume.Generation && s.stillWaits(in):
		s.pend(in)
	case disk != nil && (s.heldUnrecorded(in, disk) || s.converts(in, disk)):
	default:
		s.upToDate(in, metav1.ConditionTrue, apiv1.ReasonDiskUpdated, "")
	}
}

// heldUnrecorded is the step for a change that Azure makes only while the disk is attached nowhere,
// if a VM has the disk and no attachment says so, and reports whether that is the case: the driver
// can detach nothing, and looks again after the wait for a failure.
func (s *Step) heldUnrecorded(in Input, disk *provisioner.Disk) bool {
	v := in.Volume.DeepCopy()
	v.Status = s.Status
	if !ChangesAlone(v) || len(disk.AttachedTo) == 0 || len(in.Attachments) > 0 || ownership.HasPrimary(v, nil) {
		return false
	}
	s.failed(in, apiv1.VolumeUpdateFailed, apiv1.ReasonDiskUpdateFailed, provisioner.Errorf(provisioner.Conflict,
		"Azure changes size, SKU and tier of a shared disk only while it is attached nowhere, and it is attached to %s, for which there is no AzVolumeAttachment: detach it there",
		strings.Join(disk.AttachedTo, ", ")))
	s.upToDate(in, metav1.ConditionFalse, apiv1.ReasonDiskUpdateFailed, s.Status.Error.Message)
	return true
}

// end is what all results of a change have in common.
func (s *Step) end(in Input) {
	s.Status.State = apiv1.VolumeCreated
	s.Status.Operation, s.Status.Error, s.Status.UpdateWantedTime = nil, nil, nil
	s.ready(in, metav1.ConditionTrue, apiv1.ReasonDiskCreated, "")
}

// stillWaits reports whether a change waits although the job has looked at the disk.
func (s *Step) stillWaits(in Input) bool {
	v := in.Volume.DeepCopy()
	v.Status = s.Status
	in.Volume = v
	return s.waits(in)
}

// refused records what was refused, and reports whether there was anything.
func (s *Step) refused(in Input, u operation.Updated) bool {
	record := func(err error) *apiv1.Refusal {
		d := in.Volume.Spec.Disk
		return &apiv1.Refusal{Generation: u.Generation, Error: *operation.Failure(err, in.Job.Ended),
			CapacityBytes: in.Volume.Spec.CapacityBytes, SKUName: d.SKUName, Tier: d.Tier}
	}
	message := ""
	if u.RefusedCapacity != nil {
		s.Status.RefusedCapacity = record(u.RefusedCapacity)
		message = "size: " + s.Status.RefusedCapacity.Message
	}
	if u.RefusedSettings != nil {
		s.Status.RefusedSettings = record(u.RefusedSettings)
		if m := "parameters: " + s.Status.RefusedSettings.Message; message == "" {
			message = m
		} else if u.RefusedCapacity.Error() != u.RefusedSettings.Error() {
			message += "; " + m
		}
	}
	if message == "" {
		return false
	}
	s.upToDate(in, metav1.ConditionFalse, apiv1.ReasonDiskUpdateRefused, message)
	s.Warning = true
	return true
}

// refusedNow reports whether what the spec wants now is what was refused.
func refusedNow(r *apiv1.Refusal, v *apiv1.AzVolume, wants bool) bool {
	return wants && r != nil && r.Generation == v.Generation
}

// RevertRefused returns the spec of a volume without the parts that were refused permanently, so
// that they do not block other changes. Each new change of the spec starts from it.
func RevertRefused(v *apiv1.AzVolume) *apiv1.AzVolumeSpec {
	spec, want := v.Spec.DeepCopy(), wanted(v)
	if refusedNow(v.Status.RefusedCapacity, v, want.capacity) {
		spec.CapacityBytes = v.Status.SizeBytes
	}
	if refusedNow(v.Status.RefusedSettings, v, want.settings) && v.Status.Applied != nil {
		spec.Disk.DiskSettings = *v.Status.Applied.DiskSettings.DeepCopy()
	}
	return spec
}

// converts records the progress of a change of the disk's SKU that Azure makes in the background,
// and reports whether there is one or was.
func (s *Step) converts(in Input, disk *provisioner.Disk) bool {
	before := s.Status.Conversion
	if disk.CompletionPercent >= 100 {
		if before == nil {
			return false
		}
		s.Status.Conversion = nil
		s.upToDate(in, metav1.ConditionTrue, apiv1.ReasonDiskConverted, "Azure has converted the disk to "+disk.SKUName)
		return true
	}
	at := metav1.NewTime(in.Job.Ended)
	c := &apiv1.Conversion{
		Percent:      int32(disk.CompletionPercent),
		StartTime:    at,
		ObservedTime: at,
	}
	if before != nil {
		c.StartTime = before.StartTime
	}
	s.Status.Conversion = c
	s.upToDate(in, metav1.ConditionTrue, apiv1.ReasonDiskConverting,
		fmt.Sprintf("Azure is converting the disk to %s in the background", disk.SKUName))
	return true
}

// upToDate sets the condition Updated.
func (s *Step) upToDate(in Input, status metav1.ConditionStatus, reason, message string) {
	message = operation.Shorten(message)
	s.Reason, s.Message = reason, message
	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{
		Type:               apiv1.VolumeConditionUpdated,
		Status:             status,
		Reason:             reason,
		Message:            message,
		ObservedGeneration: in.Volume.Generation,
		LastTransitionTime: metav1.NewTime(in.Now),
	})
}
