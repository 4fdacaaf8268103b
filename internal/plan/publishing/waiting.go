package publishing

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/refusal"
)

// Wait is why a node does not have a volume yet. The zero Wait belongs to a volume that no other
// node holds.
type Wait struct {
	// Cause has a row in the table of package cause.
	Cause string
	// Fence says that the holder is being fenced.
	Fence bool
	// Key is the same as long as the message says nothing new: times and the text of Azure's errors
	// do not change it.
	Key string
	// Message says who holds the volume, what is being done about it, and what Azure answered.
	Message string
	// Failing says that waiting alone does not help: Azure refuses, the holder does not answer, or
	// pods there keep the volume.
	Failing bool
}

// Holder says which node holds a single-node volume, and what is being done to release it.
// attachment is the holder's, nil if there is none.
func Holder(volume *apiv1.AzVolume, attachment *apiv1.AzVolumeAttachment) Wait {
	primary := volume.Status.Primary
	if volume.Spec.Access == apiv1.AccessMultiNode || primary == nil || primary.State == apiv1.OwnershipReleased {
		return Wait{}
	}
	w := Wait{
		Cause:   apiv1.ReasonStillMounted,
		Key:     fmt.Sprintf("%s %d %s %s", primary.NodeName, primary.Epoch, primary.State, primary.Cause),
		Message: fmt.Sprintf("volume %s is held by node %s (epoch %d)", volume.Name, primary.NodeName, primary.Epoch),
	}
	const forced = "detached by force"
	switch {
	case ownership.FenceDecided(volume, primary.NodeName):
		w.Cause, w.Fence = apiv1.ReasonVolumeFencing, true
		w.Message += ", which was lost"
		if primary.LastTransitionTime != nil {
			w.Message += " at " + clockTime(*primary.LastTransitionTime)
		}
		return w.detach(attachment, forced)
	case primary.State == apiv1.OwnershipReleasing && attachment != nil && attachment.Status.State == apiv1.AttachmentDetaching:
		w.Cause, w.Fence = apiv1.ReasonVolumeFencing, true
		return w.detach(attachment, forced)
	case primary.State == apiv1.OwnershipReleasing:
		w.Message += " and is being released; the node has not reported yet that it unstaged the volume"
	default:
		w.Message += "; the node must unstage it first"
	}
	return w
}

// clockTime is the time of day.
func clockTime(t metav1.Time) string { return t.UTC().Format(time.TimeOnly) + " UTC" }

// detach adds the progress of the detach of the disk.
func (w Wait) detach(a *apiv1.AzVolumeAttachment, how string) Wait {
	add := func(phase, text string, args ...any) Wait {
		w.Key += " " + phase
		w.Message += "; " + fmt.Sprintf(text, args...)
		return w
	}
	switch {
	case a == nil:
		return add("unattached", "its disk will be %s", how)
	case ownership.HasProof(a) && a.Status.Proof.Type != apiv1.ProofUnstaged:
		w.Cause = apiv1.ReasonFailoverProven
		return add("proven", "the node can no longer write to it (proof %s), and it is being released", a.Status.Proof.Type)
	case a.Status.Error != nil:
		w.Failing, w.Cause = true, cause.OfError(a.Status.Error, apiv1.ReasonDiskDetachFailed)
		return add("failed "+a.Status.Error.Reason, "its disk is being %s, and the request is repeated; the last one failed: %s",
			how, a.Status.Error.Message)
	case a.Status.Operation != nil:
		return add("accepted", "its disk is being %s; Azure accepted the request at %s", how,
			clockTime(a.Status.Operation.StartTime))
	}
	return add("asked", "its disk is being %s; Azure has not answered yet", how)
}

// WaitOf says why a node with pods that want a volume does not have it yet. A wait that will end by
// the next call is no reason.
func WaitOf(in Input, node string) Wait {
	if in.Volume != nil && in.Volume.Leaving() {
		return deletion(in.Volume)
	}
	if in.Volume == nil {
		return Wait{}
	}
	if in.Volume.Spec.Access == apiv1.AccessMultiNode || in.Volume.Status.Primary == nil {
		return in.paused(node)
	}
	primary := in.Volume.Status.Primary
	if primary.State == apiv1.OwnershipReleased {
		return in.leftOver(node)
	}
	if primary.NodeName == node && !ownership.FenceDecided(in.Volume, node) {
		return in.paused(node)
	}
	w := Holder(in.Volume, in.attachment(primary.NodeName))
	switch {
	case primary.State == apiv1.OwnershipReleasing:
		return w
	case PublishedFor(in.Pods, primary.NodeName) != nil:
		w.Cause, w.Key, w.Failing = apiv1.ReasonHeldByPods, w.Key+" used", true
		w.Message = fmt.Sprintf("volume %s can be used on one node at a time and is held by node %s (epoch %d), because pods there use it and have not been asked to end",
			in.Volume.Name, primary.NodeName, primary.Epoch)
	case in.Done(primary.NodeName):
		return Wait{}
	}
	if in.KubernetesLost(primary.NodeName) {
		return w.notReady(in.Report(primary.NodeName))
	}
	return w
}

// notReady adds that the holder's Node is not Ready, and how the driver sees the node.
func (w Wait) notReady(d *apiv1.AzDriverNode) Wait {
	w.Cause, w.Key, w.Failing = apiv1.ReasonKubeletDown, w.Key+" not Ready", true
	w.Message += "; that node is not Ready"
	if d == nil {
		return w
	}
	c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionReachable)
	if c == nil {
		return w
	}
	if c.Status != metav1.ConditionTrue {
		w.Cause = c.Reason
	}
	w.Key += " " + c.Reason
	w.Message += strings.TrimSuffix(fmt.Sprintf(" (%s: %s", c.Reason, c.Message), ": ") + ")"
	return w
}

// deletion is the wait for a volume that no node gets any more.
func deletion(v *apiv1.AzVolume) Wait {
	if v.DeletesDisk() {
		return Wait{
			Cause: apiv1.ReasonDiskDeleting, Key: "deleted with its disk", Failing: true,
			Message: fmt.Sprintf("volume %s is being deleted with its disk, and no node gets it any more", v.Name),
		}
	}
	return Wait{
		Cause: apiv1.ReasonDiskDeleting, Key: "record deleted",
		Message: fmt.Sprintf("AzVolume %s is being deleted, and its disk stays; the volume is attached again when that is complete",
			v.Name),
	}
}

// leftOver says what remains of a released volume elsewhere: a disk that only one VM can have must
// be detached from the last one first.
func (in Input) leftOver(node string) Wait {
	for _, a := range in.Attachments {
		if a.Spec.NodeName != node && a.DeletionTimestamp != nil && in.Volume.Shares() <= 1 {
			w := Wait{
				Cause:   apiv1.ReasonDiskDetaching,
				Key:     a.Spec.NodeName + " released",
				Message: fmt.Sprintf("volume %s was released by node %s", in.Volume.Name, a.Spec.NodeName),
			}
			return w.detach(a, "detached")
		}
	}
	return in.paused(node)
}

// paused is the wait for a disk that the node does not have while the volume is paused.
func (in Input) paused(node string) Wait {
	refused := refusal.Paused(in.Volume, "node "+node+" does not have the disk")
	if refused == nil || ownership.MayPromote(in.attachment(node)) {
		return Wait{}
	}
	return Wait{Cause: apiv1.ReasonVolumePaused, Key: "paused " + node, Failing: true, Message: refused.Error()}
}

// waitGrace is how long a pod waits before an event and the condition of its volume say why: a planned
// move takes about as long.
const waitGrace = 3 * time.Second

// FirstEventIn returns how long it is until an event and the condition say why a pod waits for its
// volume; 0 if the time has come.
func FirstEventIn(pod *corev1.Pod, now time.Time) time.Duration {
	return operation.Remaining(waitGrace, pod.CreationTimestamp.Time, now)
}

// Recorded sets the condition Published of an AzVolume to a wait that has lasted longer than its grace; the
// zero Wait ends what was recorded. changed is false if the condition says so already. A wait for the
// same cause is recorded again only if its key is not the one that was recorded last.
func Recorded(v *apiv1.AzVolume, w Wait, sameKey bool) (changed bool) {
	c := meta.FindStatusCondition(v.Status.Conditions, apiv1.VolumeConditionPublished)
	if w.Key == "" {
		return Obtained(v)
	}
	if c != nil && c.Reason == w.Cause && sameKey {
		return false
	}
	return meta.SetStatusCondition(&v.Status.Conditions, metav1.Condition{
		Type: apiv1.VolumeConditionPublished, Status: metav1.ConditionFalse, Reason: w.Cause,
		Message: operation.Shorten(w.Message), ObservedGeneration: v.Generation,
	})
}

// Obtained ends a wait that the condition Published has recorded, and returns whether it had one.
func Obtained(v *apiv1.AzVolume) (changed bool) {
	return meta.IsStatusConditionFalse(v.Status.Conditions, apiv1.VolumeConditionPublished) &&
		meta.SetStatusCondition(&v.Status.Conditions, metav1.Condition{
			Type: apiv1.VolumeConditionPublished, Status: metav1.ConditionTrue, Reason: apiv1.ReasonPublished,
			ObservedGeneration: v.Generation,
		})
}
