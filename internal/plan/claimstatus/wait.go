package claimstatus

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Wait is what a volume, or its next move, waits for. The zero Wait is of a volume that waits for
// nothing.
type Wait struct {
	// Cause has an entry on the page on troubleshooting.
	Cause string
	Since time.Time
	// Event is the reason of the event on the claim; "" if the wait is usual, or if another part of
	// the driver or of Kubernetes writes one.
	Event string
	// Patience is how long the wait lasts before the event is written.
	Patience time.Duration
	// Message says more, for the event.
	Message string
	// Usual says that nothing is wrong: the event is no warning.
	Usual bool
}

// patience before events: an attach and the placement of a replica usually take less, and pods
// usually end sooner.
const patience = time.Minute

// WaitOf returns the most urgent of the waits of a claim's volume.
func WaitOf(in Input) Wait {
	for _, part := range []func(Input) Wait{ofDeletion, ofDisk, ofHolder, ofAttachment, ofChange, ofReplicas} {
		if w := part(in); w.Cause != "" {
			return w
		}
	}
	return Wait{}
}

// protection is the finalizer by which Kubernetes keeps a claim that a pod uses.
const protection = "kubernetes.io/pvc-protection"

func ofDeletion(in Input) Wait {
	c := in.Claim
	if c == nil || c.DeletionTimestamp == nil {
		return Wait{}
	}
	w := Wait{Cause: apiv1.ReasonDiskDeleting, Since: c.DeletionTimestamp.Time}
	others := slices.DeleteFunc(slices.Clone(c.Finalizers), func(f string) bool { return f == protection })
	switch {
	case len(in.Users) > 0:
		w.Cause, w.Message = apiv1.ReasonClaimInUse, "the claim is deleted as soon as no pod uses it: "+strings.Join(in.Users,
			", ")
	case len(others) > 0:
		w.Cause, w.Message = apiv1.ReasonFinalizerWaits, "finalizers of other programs keep the claim: "+strings.Join(others,
			", ")
	default:
		return w
	}
	w.Event, w.Patience = w.Cause, patience
	return w
}

// ofDisk is about the disk itself.
func ofDisk(in Input) Wait {
	v := in.Volume
	c := meta.FindStatusCondition(v.Status.Conditions, apiv1.VolumeConditionReady)
	if c == nil {
		return Wait{}
	}
	w := Wait{Cause: c.Reason, Since: c.LastTransitionTime.Time, Message: c.Message}
	switch c.Reason {
	case apiv1.ReasonDiskDeletionFailed:
		w.Cause, w.Event = failure(v.Status.Error, c.Reason), c.Reason
	case apiv1.ReasonDiskCreationFailed:
		w.Cause, w.Event = creationFailure(v.Status.Error), c.Reason
	case apiv1.ReasonDiskCreating, apiv1.ReasonDiskFilling, apiv1.ReasonDiskDeleting:
	default:
		return Wait{}
	}
	return w
}

func failure(e *apiv1.Error, otherwise string) string {
	if e == nil {
		return otherwise
	}
	return cause.OfError(e, otherwise)
}

func creationFailure(e *apiv1.Error) string {
	switch {
	case e == nil:
		return apiv1.ReasonProvisioningFailed
	case e.Reason == string(provisioner.NotFound):
		return apiv1.ReasonDiskGone
	case e.Reason == string(provisioner.AlreadyExists):
		return apiv1.ReasonForeignDisk
	}
	return cause.OfError(e, apiv1.ReasonProvisioningFailed)
}

// ofHolder is about the node that has the volume. Package failover writes the events about a lost
// one.
func ofHolder(in Input) Wait {
	p := in.Volume.Status.Primary
	if p == nil || p.State == apiv1.OwnershipReleased {
		return Wait{}
	}
	a := in.attachment()
	since := in.Volume.CreationTimestamp.Time
	if p.LastTransitionTime != nil {
		since = p.LastTransitionTime.Time
	}
	switch {
	case ownership.FenceDecided(in.Volume, p.NodeName) && a != nil && ownership.ProvedReleased(in.Volume, a):
		return Wait{Cause: apiv1.ReasonFailoverProven, Since: since}
	case ownership.FenceDecided(in.Volume, p.NodeName) && a != nil && a.Status.Error != nil:
		return Wait{Cause: failure(a.Status.Error, apiv1.ReasonDiskDetachFailed), Since: since}
	case ownership.FenceDecided(in.Volume, p.NodeName):
		return Wait{Cause: apiv1.ReasonVolumeFencing, Since: since}
	}
	if in.Holder != nil {
		c := meta.FindStatusCondition(in.Holder.Status.Conditions, apiv1.NodeConditionReachable)
		if c != nil && c.Status != metav1.ConditionTrue && c.Reason != apiv1.ReasonHeartbeatStale {
			return Wait{Cause: c.Reason, Since: c.LastTransitionTime.Time}
		}
	}
	if p.State == apiv1.OwnershipReleasing {
		return Wait{Cause: apiv1.ReasonStillMounted, Since: since}
	}
	return Wait{}
}

// ofAttachment is about the attach of the disk to the node that has the volume.
func ofAttachment(in Input) Wait {
	a := in.attachment()
	if a == nil || a.Status.State == apiv1.AttachmentAttached {
		return Wait{}
	}
	c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached)
	w := Wait{Cause: apiv1.ReasonDiskAttaching, Since: a.CreationTimestamp.Time, Patience: patience}
	if c != nil {
		w.Since, w.Message = c.LastTransitionTime.Time, ": "+c.Message
		switch c.Reason {
		case apiv1.ReasonWaitingForAzureQuota, apiv1.ReasonWaitingForDiskSlot, apiv1.ReasonNoDiskSlot,
			apiv1.ReasonVolumeNotReady, apiv1.ReasonDiskDetaching, apiv1.ReasonNodeUnknown:
			w.Cause = c.Reason
		}
	}
	w.Event = w.Cause
	if e := a.Status.Error; e != nil { // it stays while the request is repeated
		w.Cause, w.Event, w.Message = failure(e, apiv1.ReasonDiskAttachFailed), apiv1.ReasonDiskAttachFailed, ": "+e.Message
	}
	w.Message = "the disk is not attached to node " + a.Spec.NodeName + " yet" + strings.TrimSuffix(w.Message, ": ")
	return w
}

// ofChange is about a change of the disk. Of one that fails, csi-resizer writes the event.
func ofChange(in Input) Wait {
	c := meta.FindStatusCondition(in.Volume.Status.Conditions, apiv1.VolumeConditionUpdated)
	if c == nil {
		return Wait{}
	}
	w := Wait{Since: c.LastTransitionTime.Time}
	switch c.Reason {
	case apiv1.ReasonDiskUpdateRefused, apiv1.ReasonDiskUpdating:
		w.Cause = c.Reason
	case apiv1.ReasonDiskUpdatePending:
		w.Cause, w.Event, w.Message, w.Usual = c.Reason, c.Reason, "the disk: "+c.Message, true
	case apiv1.ReasonDiskUpdateFailed:
		w.Cause = failure(in.Volume.Status.Error, c.Reason)
	}
	return w
}

func ofReplicas(in Input) Wait {
	c := meta.FindStatusCondition(in.Volume.Status.Conditions, apiv1.VolumeConditionReplicasAttached)
	if c == nil || c.Reason != apiv1.ReasonReplicasMissing {
		return Wait{}
	}
	w := Wait{
		Cause: apiv1.ReasonReplicasMissing, Since: c.LastTransitionTime.Time,
		Event: apiv1.ReasonReplicasMissing, Patience: patience,
	}
	ready, wanted := int32(0), in.Volume.WantedReplicas()
	if r := in.Volume.Status.Replicas; r != nil {
		ready, wanted = r.Ready, r.Wanted
	}
	w.Message = fmt.Sprintf("%d of %d replicas are attached", ready, wanted)
	if c.Message == "" { // places were found
		w.Cause = apiv1.ReasonReplicaAttaching
	} else {
		w.Message += ": " + c.Message
	}
	return w
}

// Restored returns the event after the event of a wait for replicas; "" if they are not attached.
func Restored(v *apiv1.AzVolume) (message string) {
	c := meta.FindStatusCondition(v.Status.Conditions, apiv1.VolumeConditionReplicasAttached)
	if c == nil || c.Reason != apiv1.ReasonReplicasAttached || v.Status.Replicas == nil {
		return ""
	}
	return fmt.Sprintf("%d of %d replicas are attached again", v.Status.Replicas.Ready, v.Status.Replicas.Wanted)
}
