package explain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/problem"
)

// problemSentences say what a node reports of the volume of a claim, with the node.
var problemSentences = map[string]string{
	apiv1.ReasonFilesystemFrozen:        "The filesystem of %s%s is frozen, so each write to it waits.",
	apiv1.ReasonFilesystemTakesNoWrites: "The filesystem of %s%s takes no writes: the kernel has stopped it after an error.",
	apiv1.ReasonDeviceGone:              "The device of %s%s is gone.",
	apiv1.ReasonReadFailed:              "The device of %s%s does not answer reads.",
	apiv1.ReasonFilesystemDamaged:       "The filesystem of %s%s is damaged and must be repaired by a person.",
	apiv1.ReasonNodeDiskFull:            "The volume of %s%s waits, because the node's own disk is full.",
	apiv1.ReasonDeviceHeld:              "The volume of %s%s cannot be released, because something there holds its device.",
	apiv1.ReasonMountBusy:               "The volume of %s%s cannot be unmounted, because something there uses its mount.",
	apiv1.ReasonUnmountFailed:           "The volume of %s%s cannot be unmounted.",
}

// problem is about what a node reports of a volume that it has. Of a lost node the last report says nothing.
func (f Facts) problem(v *Volume) (Finding, bool) {
	if v.AzVolume == nil {
		return f.problemEvent(v)
	}
	c := meta.FindStatusCondition(v.AzVolume.Status.Conditions, apiv1.VolumeConditionUsable)
	if c == nil || c.Status != metav1.ConditionFalse {
		return Finding{}, false
	}
	holder := holderOf(v)
	if _, lost := f.lost(holder, v, nil); holder != "" && lost {
		return Finding{}, false
	}
	seen := Evidence{Object: "AzVolume " + v.AzVolume.Name, Says: c.Type + ": " + c.Reason, Since: moment(c.LastTransitionTime)}
	return problemOf(c.Reason, v.claim(), holder).quoting(c.Message).seen(seen).seen(f.azEvidence(v)...), true
}

// problemEvent reads the events on the claim, and those on the pod, which do not say which of its volumes they
// are about. The newest reports the last problem, or its end.
func (f Facts) problemEvent(v *Volume) (Finding, bool) {
	name, ofPod := v.claim(), f.Pod != nil && len(f.Volumes) > 0 && f.Volumes[0] == v
	if len(f.Volumes) > 1 {
		name = "one of the pod's claims"
	}
	var newest *corev1.Event
	for i := range f.Events {
		e := &f.Events[i]
		about := e.InvolvedObject.Kind == string(KindClaim) && e.InvolvedObject.Name == v.ClaimName ||
			e.InvolvedObject.Kind == string(KindPod) && ofPod
		if about && (e.Reason == apiv1.ReasonNoProblem || slices.Contains(problem.Reasons, e.Reason)) &&
			(newest == nil || EventTime(e).After(EventTime(newest).Time)) {
			newest = e
		}
	}
	if newest == nil || newest.Reason == apiv1.ReasonNoProblem {
		return Finding{}, false
	}
	return problemOf(newest.Reason, name, "").quoting(newest.Message).seen(f.said(newest)), true
}

func problemOf(reason, name, node string) Finding {
	sentence, known := problemSentences[reason]
	if !known {
		sentence = "A node reports a problem with the volume of %s%s."
	}
	return find(reason, sentence, name, onNode(node))
}
