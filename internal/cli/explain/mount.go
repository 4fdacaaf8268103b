package explain

import (
	"slices"
	"strings"

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
	eventResizeFailed = "VolumeResizeFailed"
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
	e := f.podEvent(eventFailedMount, eventFailedMap, eventFailedAttach)
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

// ofAny is for the events of Nodes, which have several UIDs: kubelets give the Node's name as its UID.
func ofAny(*corev1.Event) bool { return true }

// mountEvent returns the newest event of the pod about a failure to mount for whose volume is is true.
func (f Facts) mountEvent(is func(names []string) bool) *corev1.Event {
	return f.event(KindPod, func(e *corev1.Event) bool {
		return f.Pod != nil && e.InvolvedObject.UID == f.Pod.UID && is(volumesIn(e.Message))
	}, eventFailedMount, eventFailedMap)
}

// volumesIn returns the names of the volumes that an event of the kubelet about a mount is about: that of
// a PersistentVolume, or that of a volume in the pod. It is empty if the event names none.
func volumesIn(message string) []string {
	if _, rest, ok := strings.Cut(message, `for volume "`); ok {
		name, _, _ := strings.Cut(rest, `"`)
		return []string{name}
	}
	if _, rest, ok := strings.Cut(message, "unmounted volumes=["); ok {
		names, _, _ := strings.Cut(rest, "]")
		return strings.Fields(names)
	}
	return nil
}

// named reports whether one of the names in an event is that of a volume.
func (f Facts) named(v *Volume, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		if pv := v.PersistentVolume; pv != nil && pv.Name == name || v.Claim != nil && v.Claim.Spec.VolumeName == name {
			return true
		}
		return f.Pod != nil && slices.ContainsFunc(f.Pod.Spec.Volumes, func(s corev1.Volume) bool {
			switch {
			case s.Name != name:
				return false
			case s.PersistentVolumeClaim != nil:
				return s.PersistentVolumeClaim.ClaimName == v.ClaimName
			case s.Ephemeral != nil: // whose claim Kubernetes names after the pod and the volume
				return f.Pod.Name+"-"+s.Name == v.ClaimName
			}
			return v.ClaimName == "" && s.AzureDisk != nil
		})
	})
}

// otherMount is about a failure to mount a volume of the pod that is none of those that are explained.
func (f Facts) otherMount() (Finding, bool) {
	e := f.mountEvent(func(names []string) bool {
		return len(names) > 0 && !slices.ContainsFunc(f.Volumes, func(v *Volume) bool { return f.named(v, names) })
	})
	if e == nil {
		return Finding{}, false
	}
	other := find(apiv1.ReasonOtherVolumeNotMounted, "Another volume of the pod cannot be mounted on node %s.",
		f.Pod.Spec.NodeName)
	return other.quoting(e.Message).seen(f.said(e)), true
}

// failedMount is about any other failure to mount the volume.
func (f Facts) failedMount(v *Volume) (Finding, bool) {
	e := f.mountEvent(func(names []string) bool { return len(names) == 0 || f.named(v, names) })
	if e == nil {
		return Finding{}, false
	}
	return find(apiv1.ReasonFailedMount, "Node %s cannot mount the volume.", f.Pod.Spec.NodeName).quoting(e.Message).
		seen(f.said(e)), true
}
