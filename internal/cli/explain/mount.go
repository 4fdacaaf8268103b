package explain

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/refusal"
)

// Events of the kubelet and of Kubernetes' controllers.
const (
	eventFailedMount  = apiv1.ReasonFailedMount
	eventFailedMap    = "FailedMapVolume"
	eventFailedAttach = apiv1.ReasonFailedAttachVolume
	eventProvisioning = apiv1.ReasonProvisioningFailed
)

// EventTime is when an event was last seen.
func EventTime(e *corev1.Event) metav1.Time {
	switch {
	case e.Series != nil:
		return metav1.NewTime(e.Series.LastObservedTime.Time)
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp
	case !e.EventTime.IsZero():
		return metav1.NewTime(e.EventTime.Time)
	}
	return e.CreationTimestamp
}

func (f Facts) said(e *corev1.Event) Evidence {
	return Evidence{
		Object: "event on " + Subject{Kind(e.InvolvedObject.Kind), e.InvolvedObject.Namespace, e.InvolvedObject.Name}.String(),
		Says:   e.Reason,
		Since:  moment(EventTime(e)),
	}
}

// refusedMount is about an event in which the driver names the reason of its refusal.
func (f Facts) refusedMount() (Finding, bool) {
	e := f.event(KindPod, eventFailedMount, eventFailedMap, eventFailedAttach)
	if e == nil {
		return Finding{}, false
	}
	reason, rest, ok := refusal.In(e.Message)
	if !ok {
		return Finding{}, false
	}
	sentences := map[string]string{
		apiv1.ReasonFilesystemMismatch: "The disk does not hold the filesystem that the driver expects, so the driver neither mounts nor formats it.",
		apiv1.ReasonReservedElsewhere:  "Another cluster or another program has reserved the disk.",
		apiv1.ReasonUsedOutsideCluster: "A VM that is no node of this cluster has the disk.",
		apiv1.ReasonWriteRefused:       "The cluster refuses a request of the driver.",
	}
	return find(reason, "%s", sentences[reason]).quoting(rest).seen(f.said(e)), true
}

// failedMount is about any other failure to mount.
func (f Facts) failedMount() (Finding, bool) {
	e := f.event(KindPod, eventFailedMount, eventFailedMap)
	if e == nil {
		return Finding{}, false
	}
	return find(apiv1.ReasonFailedMount, "Node %s cannot mount the volume.", f.Pod.Spec.NodeName).quoting(e.Message).
		seen(f.said(e)), true
}
