// Package operation describes work at Azure that runs beside the reconcilers: a Job with its phase,
// its resume token and the state that was read after it ended, and the waits between two tries.
package operation

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Work names a piece of work at the platform, which runs beside the reconcilers. It is also the
// kind of an Operation in a status.
type Work string

// The pieces of work.
const (
	WorkNone       Work = ""
	WorkAttach     Work = "AttachDisk"
	WorkDetach     Work = "DetachDisk"
	WorkFence      Work = "FenceNode"
	WorkCreateDisk Work = "CreateDisk"
	WorkAdoptDisk  Work = "AdoptDisk"
	WorkUpdateDisk Work = "UpdateDisk"
	WorkReadDisk   Work = "ReadDisk"
	WorkDeleteDisk Work = "DeleteDisk"
)

// Phase is how far a job has come.
type Phase string

// The phases of a job.
const (
	// PhaseIdle: this process runs no job for the object.
	PhaseIdle Phase = ""
	// PhaseBegun: the request is being sent to the platform.
	PhaseBegun Phase = "Begun"
	// PhaseAccepted: the platform has accepted the operation.
	PhaseAccepted Phase = "Accepted"
	// PhaseEnded: the operation has ended and its result has been read.
	PhaseEnded Phase = "Ended"
)

// Job is what this process knows of the work at the platform for one object. It is lost with the
// process, and found again by the resume token or by a new read from the platform.
type Job struct {
	Work  Work
	Phase Phase
	// Begun is the operation that the status recorded when the job began; nil for none.
	Begun *apiv1.Operation
	// Tokens to resume the operations with that the platform has accepted, in their order; "" for
	// an operation that cannot be resumed.
	Tokens []string
	// Accepted is when the platform accepted the last one.
	Accepted time.Time
	// Ended is when the job ended.
	Ended time.Time
	// Err is the error with which the job ended.
	Err error
	// Truth was read from the platform after the end.
	Truth Truth
}

// Truth is the answer of the platform to a read.
type Truth struct {
	// VMID is the VM that an attach was asked for; set by that job only.
	VMID string
	// Epoch is the attachment's when a fence began. Its result is a proof for no later epoch. Set
	// by that job only.
	Epoch int64
	// Attached says that the disk is attached to the VM, also while it is being detached.
	Attached bool
	// Detaching says that the disk is being detached.
	Detaching bool
	LUN       int32
	// OtherClusterVM is a VM outside of this cluster that has the disk, as Azure answered after the
	// attach or instead of it. Exclusive says that it answered after the attach that there is none,
	// and Unasked that it did not answer. Set by the job of an attach only.
	OtherClusterVM     string
	Exclusive, Unasked bool
	// VMGone says that the VM does not exist; VMDown that it cannot run code.
	VMGone, VMDown bool
	// OnlyRead reports whether a fence has read the VM, which may write again, and has detached
	// nothing. Set by that job only.
	OnlyRead bool
	// Disk is set by the jobs of volumes.
	Disk *provisioner.Disk
	// Made reports whether the disk was created for this very AzVolume, and not for an earlier one
	// of the same PersistentVolume.
	Made bool
	// Filling says that the disk exists and that the content of its source is still being copied.
	Filling bool
	// Update is set by the jobs that create, adopt or change a disk.
	Update *Updated
	// Unrelated says that the disk of that name was not created for the volume.
	Unrelated bool
}

// Running reports whether the job has begun and not ended.
func (j Job) Running() bool { return j.Phase == PhaseBegun || j.Phase == PhaseAccepted }

// EndedAs reports whether a job of this work has ended.
func (j Job) EndedAs(work Work) bool { return j.Phase == PhaseEnded && j.Work == work }

// IsRecorded reports whether a status, whose operation is op, still records the job. If not,
// another process has recorded an operation or a result since, for example the next leader: the
// result of the job is older than the status.
func (j Job) IsRecorded(op *apiv1.Operation) bool {
	switch {
	case op == nil || op.Type != string(j.Work):
		return false
	case op.ResumeToken != "" && slices.Contains(j.Tokens, op.ResumeToken):
		return true
	}
	accepted := metav1.NewTime(j.Accepted)
	return op.ResumeToken == "" && op.StartTime.Equal(&accepted) ||
		j.Begun != nil && op.ResumeToken == j.Begun.ResumeToken && op.StartTime.Equal(&j.Begun.StartTime)
}

// Operation returns what a status records of a job that Azure has accepted; nil before and after.
func (j Job) Operation() *apiv1.Operation {
	if j.Phase != PhaseAccepted || len(j.Tokens) == 0 {
		return nil
	}
	token := j.Tokens[len(j.Tokens)-1]
	if len(token) > maxToken {
		token = "" // the next process cannot resume the operation, and asks Azure what has become of it
	}
	return &apiv1.Operation{
		Type:        string(j.Work),
		ResumeToken: token,
		StartTime:   metav1.NewTime(j.Accepted),
	}
}

// Failure turns an error into its record in the API.
func Failure(err error, now time.Time) *apiv1.Error {
	kind := provisioner.KindOf(err)
	if kind == "" {
		kind = provisioner.Unavailable
	}
	return &apiv1.Error{
		Reason:      string(kind),
		Code:        ShortenTo(provisioner.CodeOf(err), maxCode),
		Message:     Shorten(err.Error()),
		FailureTime: metav1.NewTime(now),
	}
}

// The custom resources take no longer texts.
const (
	maxMessage = 1024
	maxCode    = 256
	maxToken   = 8192
)

// Shorten removes the middle of a text that is too long for a message of a status.
func Shorten(s string) string { return ShortenTo(s, maxMessage) }

// ShortenTo removes the middle of a text that has more bytes than most, which is at least 8. It splits
// no character.
func ShortenTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const gap = " … "
	begin := most * 2 / 5
	end := len(s) - (most - begin - len(gap))
	return strings.ToValidUTF8(s[:begin], "") + gap + strings.ToValidUTF8(s[end:], "")
}

// Updated is the result of a job that changes a disk.
type Updated struct {
	// Generation of the AzVolume whose spec was applied.
	Generation int64
	// Applied are the settings that the disk has now; nil if they were not changed.
	Applied *apiv1.AppliedSettings
	// RefusedCapacity and RefusedSettings are why Azure refused that part permanently.
	RefusedCapacity, RefusedSettings error
	// Uncertain says that Azure may have made a change that only a read of the disk shows.
	Uncertain bool
}

// KeepStartTime returns the recorded operation if it is the same one, so that its start time
// remains.
func KeepStartTime(recorded, current *apiv1.Operation) *apiv1.Operation {
	if recorded != nil && recorded.Type == current.Type && recorded.ResumeToken == current.ResumeToken {
		return recorded
	}
	return current
}
