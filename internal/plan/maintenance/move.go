package maintenance

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
)

const (
	// moveBefore is how long before the maintenance may begin a pod is evicted whose volumes all
	// have a replica on a node that stays. Earlier the maintenance may still be cancelled or
	// postponed.
	moveBefore = 2 * time.Minute
	// moveColdBefore is when a pod is evicted whose volumes do not, if the VM does not survive the
	// maintenance.
	moveColdBefore = time.Minute
	// MoveAgain is when to look at a pod again whose eviction a PodDisruptionBudget does not allow.
	MoveAgain = 2 * time.Second
)

// Pod is a pod on a node that Azure is going to service.
type Pod struct {
	*corev1.Pod
	// Replicated says that a volume of the pod wants replicas. Homeless says that no node that stays
	// could take the pod. Warm says that each of those volumes has a replica attached to one that
	// could.
	Replicated, Homeless, Warm bool
}

// Announcement is an event of a node's VM.
type Announcement struct {
	*apiv1.MaintenanceEvent
	// Seen is when the controller saw the event first.
	Seen time.Time
}

// Evict returns the event that has a pod evicted now, or nil and when to decide again; 0 for
// never. Each event is decided by itself: one that is over, and still listed, does not
// hide another. A pod is evicted only if a controller creates it again, if the driver has prepared a
// replica of its volumes, and if a node that stays could take it.
//
// Because of one event a pod leaves once: a pod that was created after the event was seen came to the
// node, or back to it, because kube-scheduler found no better one.
func (p Policies) Evict(announced []Announcement, pod Pod, now time.Time) (because *apiv1.MaintenanceEvent, in time.Duration) {
	for _, a := range announced {
		if p.Of(a.Type) != Move || !movable(pod) || pod.CreationTimestamp.After(a.Seen) {
			continue
		}
		evict, wait := evictFor(a.MaintenanceEvent, pod, now)
		if evict && pod.Homeless {
			evict, wait = false, MoveAgain // a node may come yet
		}
		if evict {
			return a.MaintenanceEvent, 0
		}
		in = operation.Sooner(in, wait)
	}
	return nil, in
}

// evictFor decides whether a movable pod is evicted now because of an event, and if not, when to
// decide again; 0 for never.
func evictFor(e *apiv1.MaintenanceEvent, pod Pod, now time.Time) (evict bool, in time.Duration) {
	survives, starts := e.Type == apiv1.MaintenanceFreeze, begins(e)
	switch {
	case now.After(starts):
		// A VM that is about to be paused cannot end its pods in time. To wait is shorter.
		return !survives, 0
	case pod.Warm:
		in = starts.Sub(now) - moveBefore
	case survives:
		in = MoveAgain // it may get its replica yet
	default:
		in = min(starts.Sub(now)-moveColdBefore, MoveAgain)
	}
	return in <= 0, max(in, 0)
}

// movable reports whether a controller creates the pod again on another node, and the pod has not
// opted out.
func movable(pod Pod) bool {
	if !pod.Replicated || Ends(pod.Pod) || annotation.Maintenance.Switched(pod.Annotations) != "" {
		return false
	}
	return Recreated(pod.Pod)
}

// Ends reports whether a pod has ended or is being deleted, so that it needs no eviction.
func Ends(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Recreated reports whether a pod has a controller that creates it again, and not only on its node.
func Recreated(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind != "Node" && owner.Kind != "DaemonSet"
}
