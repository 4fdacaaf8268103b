package plan

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Wait is why a node does not have a volume yet. The zero Wait is that of a volume that no other node holds.
type Wait struct {
	// Key is the same as long as there is nothing new to say: times and Azure's own words do not change it.
	Key string
	// Message says who holds the volume, what is being done about it, and what Azure answered.
	Message string
	// Failing says that more than time has to pass: Azure refuses, the holder does not answer, or pods there keep the volume.
	Failing bool
}

// Holder says who holds a single-node volume, and what is being done to release it. attachment is the holder's, nil if there is none.
func Holder(volume *apiv1.AzVolume, attachment *apiv1.AzVolumeAttachment) Wait {
	claim := volume.Status.Primary
	if volume.Spec.Access == apiv1.AccessMultiNode || claim == nil || claim.State == apiv1.ClaimReleased {
		return Wait{}
	}
	w := Wait{
		Key:     fmt.Sprintf("%s %d %s %s", claim.NodeName, claim.Epoch, claim.State, claim.Cause),
		Message: fmt.Sprintf("volume %s is held by node %s (epoch %d)", volume.Name, claim.NodeName, claim.Epoch),
	}
	switch {
	case Fencing(volume, claim.NodeName):
		w.Message += ", which was lost"
		if claim.Since != nil {
			w.Message += " at " + claim.Since.UTC().Format(time.TimeOnly) + " UTC"
		}
		return w.fence(attachment)
	case claim.State == apiv1.ClaimReleasing && attachment != nil && attachment.Status.State == apiv1.AttachmentDetaching:
		return w.fence(attachment)
	case claim.State == apiv1.ClaimReleasing:
		w.Message += " and is being released; the node has not reported yet that it unstaged the volume"
	default:
		w.Message += "; the node has to unstage it first"
	}
	return w
}

// fence adds how far the forced detach of the holder's disk is.
func (w Wait) fence(a *apiv1.AzVolumeAttachment) Wait {
	add := func(phase, text string, args ...any) Wait {
		w.Key += " " + phase
		w.Message += "; " + fmt.Sprintf(text, args...)
		return w
	}
	switch {
	case a == nil:
		return add("unattached", "its disk is to be detached by force")
	case Void(a):
		return add("proven", "the node can no longer write to it (proof %s), and it is being released", a.Status.Proof.Kind)
	case a.Status.Error != nil:
		w.Failing = true
		return add("failed "+a.Status.Error.Kind, "its disk is being detached by force, and the request is repeated; the last one failed: %s", a.Status.Error.Message)
	case a.Status.Operation != nil:
		return add("accepted", "its disk is being detached by force; Azure accepted the request at %s UTC", a.Status.Operation.StartTime.UTC().Format(time.TimeOnly))
	}
	return add("asked", "its disk is being detached by force; Azure has not answered yet")
}

// Waiting says why a node with pods that want a volume does not have it yet.
func Waiting(in AttachDetachInput, node string) Wait {
	if in.Volume == nil {
		return Wait{}
	}
	claim := in.Volume.Status.Primary
	if claim == nil || claim.NodeName == node && !Fencing(in.Volume, node) {
		return Wait{}
	}
	w := Holder(in.Volume, in.attachment(claim.NodeName))
	if w.Key == "" || claim.State == apiv1.ClaimReleasing {
		return w
	}
	if PublishedFor(in.Pods, claim.NodeName) != nil {
		w.Key, w.Failing = w.Key+" used", true
		w.Message = fmt.Sprintf("volume %s can be used on one node at a time and is held by node %s (epoch %d), because pods there use it and have not been asked to end",
			in.Volume.Name, claim.NodeName, claim.Epoch)
	}
	if in.Silent(claim.NodeName) {
		w.Key, w.Failing = w.Key+" silent", true
		w.Message += "; that node is not Ready"
		if d := in.Report(claim.NodeName); d != nil {
			if c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionReachable); c != nil {
				w.Key += " " + c.Reason
				w.Message += strings.TrimSuffix(fmt.Sprintf(" (%s: %s", c.Reason, c.Message), ": ") + ")"
			}
		}
	}
	return w
}

// waitGrace is how long a pod waits before it is told why: a planned move takes about as long.
const waitGrace = 3 * time.Second

// TellsIn returns how long it is until a pod that waits for its volume is told why; 0 if the time has come.
func TellsIn(pod *corev1.Pod, now time.Time) time.Duration {
	return leftOf(waitGrace, pod.CreationTimestamp.Time, now)
}
