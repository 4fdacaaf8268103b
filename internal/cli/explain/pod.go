package explain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// pod explains a pod: by its volumes, and for a pod without a node by its placement.
func (f Facts) pod() []Finding {
	p := f.Pod
	switch {
	case p.Status.Reason == apiv1.ReasonVolumeAttachmentLimitExceeded:
		return []Finding{find(apiv1.ReasonVolumeAttachmentLimitExceeded, "Node %s has no free slot for a disk of the pod.",
			p.Spec.NodeName).quoting(p.Status.Message)}
	case p.DeletionTimestamp == nil && ended(p):
		return []Finding{find(apiv1.ReasonPodEnded, "The pod has ended (%s).", p.Status.Phase)}
	case len(f.Volumes) == 0:
		return []Finding{find(apiv1.ReasonNoVolumes, "The pod uses no claim and names no disk.")}
	}
	var findings []Finding
	for _, v := range f.Volumes {
		findings = append(findings, f.volumeOfPod(v))
	}
	if p.Spec.NodeName == "" {
		blocked := slices.ContainsFunc(findings, func(v Finding) bool {
			return v.Outcome != cause.Healthy && v.ID != apiv1.ReasonWaitForFirstConsumer
		})
		if !blocked { // else the scheduler waits for the claims
			findings = append(findings, f.unplaced())
		}
		return findings
	}
	ready := slices.IndexFunc(findings, func(v Finding) bool { return v.Outcome != cause.Healthy }) < 0
	if ready && !running(p) {
		findings = []Finding{f.otherReason(findings[0])}
	}
	return findings
}

// ended reports whether all containers of the pod have ended for ever. A pod that is being deleted may
// still have its volumes.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// running reports whether every container of the pod runs.
func running(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning &&
		!slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running == nil })
}

// started reports whether a container of the pod has been created, for which the kubelet needs the
// volumes.
func started(p *corev1.Pod) bool {
	of := func(all []corev1.ContainerStatus) bool {
		return slices.ContainsFunc(all, func(c corev1.ContainerStatus) bool {
			return c.ContainerID != "" || c.State.Running != nil || c.State.Terminated != nil ||
				c.LastTerminationState.Terminated != nil
		})
	}
	return of(p.Status.InitContainerStatuses) || of(p.Status.ContainerStatuses)
}

// otherReason is for a pod whose volumes are ready and that does not run.
func (f Facts) otherReason(v Finding) Finding {
	if v.ID == apiv1.ReasonNoVolumes || v.ID == apiv1.ReasonOtherDriver {
		return v
	}
	if finding, ok := f.otherMount(); ok {
		return finding
	}
	ready := find(apiv1.ReasonVolumesReady, "The volumes of the pod are mounted on node %s.", f.Pod.Spec.NodeName)
	for _, c := range slices.Concat(f.Pod.Status.InitContainerStatuses, f.Pod.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" {
			return ready.quoting(strings.TrimSuffix(fmt.Sprintf("container %s: %s: %s", c.Name, w.Reason, w.Message), ": ")).
				then("nothing about its volumes: container %s waits (%s)", c.Name, w.Reason)
		}
	}
	return ready
}

// unplaced is for a pod without a node whose volumes do not prevent it by themselves.
func (f Facts) unplaced() Finding {
	for _, v := range f.Volumes {
		if finding, ok := f.placement(v); ok {
			return finding
		}
		if finding, ok := f.leftBehind(v, holderOf(v)); ok {
			return finding
		}
	}
	for _, c := range f.Pod.Status.Conditions {
		if c.Type != corev1.PodScheduled || c.Status == corev1.ConditionTrue {
			continue
		}
		if c.Reason == corev1.PodReasonSchedulingGated {
			return find(apiv1.ReasonSchedulingGated, "The pod has a scheduling gate.").quoting(c.Message)
		}
		unplaced := find(apiv1.ReasonUnschedulable, "The scheduler finds no node for the pod.")
		switch {
		case c.Reason == corev1.PodReasonSchedulerError:
			unplaced = find(apiv1.ReasonSchedulerError, "The scheduler has failed on the pod.")
		case strings.Contains(c.Message, cause.SlotsUsedUp) || strings.Contains(c.Message, attaching.NoRoom):
			unplaced = find(apiv1.ReasonNoNodeWithSlot, "The scheduler finds no node with free disk slots for the volumes of the pod.")
		}
		return unplaced.quoting(c.Message).
			seen(Evidence{Object: f.Subject.String(), Says: "PodScheduled: " + c.Reason, Since: moment(c.LastTransitionTime)})
	}
	return find(apiv1.ReasonScheduling, "The scheduler has not looked at the pod yet.")
}

// placement reports whether a volume leaves no node for the pod.
func (f Facts) placement(v *Volume) (Finding, bool) {
	r := v.Reachability
	switch {
	case r == nil || r.Selected:
		return Finding{}, false
	case !r.Nodes:
		return find(apiv1.ReasonWrongZone, "The volume of %s can be used only on nodes with %s, and the cluster has no such node.",
				v.claim(), r.Rule).seen(Evidence{Object: "PersistentVolume " + v.PersistentVolume.Name,
				Says: "requires " + r.Rule}),
			true
	default:
		return find(apiv1.ReasonSelectorExcludesZone,
				"The volume of %s can be used only on nodes with %s, and the pod's node selector or affinity excludes all of them.",
				v.claim(), r.Rule).seen(Evidence{Object: "PersistentVolume " + v.PersistentVolume.Name,
				Says: "requires " + r.Rule}),
			true
	}
}

// volumeOfPod explains one volume of the pod.
func (f Facts) volumeOfPod(v *Volume) Finding {
	if finding, ok := f.unbound(v, f.Pod); ok {
		return finding
	}
	node := f.Pod.Spec.NodeName
	if node == "" {
		if finding, ok := f.wrong(v); ok {
			return finding
		}
		if finding, ok := f.problem(v); ok {
			return finding
		}
		if f.refusedByAttacher(v) {
			return f.notAttachable(v, "The pod needs the volume.")
		}
		return find(apiv1.ReasonNotUsed, "The volume of %s is ready.", v.claim())
	}
	n := f.node(node)
	if f.wide() && !f.unread(NodesResource) {
		if n.Node == nil {
			return find(apiv1.ReasonNodeGone, "The pod is bound to node %s, which does not exist.", node)
		}
		if finding, ok := f.lost(node, v, f.Pod); ok {
			return finding
		}
	}
	if finding, ok := f.problem(v); ok {
		return finding
	}
	if started(f.Pod) && f.Pod.DeletionTimestamp == nil {
		return f.ready(f.degraded(v, find(apiv1.ReasonHealthy, "The volume of %s is in use on node %s.", v.claim(), node)), node)
	}
	if f.Pod.DeletionTimestamp != nil {
		return f.ending(n, node)
	}
	if !f.wide() {
		return f.narrow(v)
	}
	return f.ready(f.toNode(v, node), node)
}

// ending is for a pod that is being deleted on a node that is not lost. DeletionTimestamp is when
// its grace period ends.
func (f Facts) ending(n *Node, node string) Finding {
	end := f.Pod.DeletionTimestamp.Time
	seen := Evidence{Object: f.Subject.String(), Says: "is being deleted, with a grace period until " + f.clock(end)}
	if grace := f.Pod.DeletionGracePeriodSeconds; grace != nil && *grace == 0 && len(f.Pod.Finalizers) > 0 {
		return find(apiv1.ReasonFinalizerWaits, "The pod is deleted, and finalizers keep it: %s.",
			strings.Join(f.Pod.Finalizers, ", ")).seen(seen)
	}
	if n.Node != nil && !nodehealth.KubeletReady(n.Node) {
		return find(apiv1.ReasonKubeletDown, "The pod is being deleted, and the kubelet of node %s does not run, so nothing ends it.", node).
			seen(seen).seen(f.nodeEvidence(node)...)
	}
	if f.Now.After(end.Add(usually(apiv1.ReasonPodEnding))) {
		return f.late(node, find(apiv1.ReasonPodEndsLate, "The pod is being deleted, and should have ended on node %s at %s.", node,
			f.clock(end)).seen(seen))
	}
	return f.until(find(apiv1.ReasonPodEnding, "The pod is being deleted on node %s.", node).seen(seen), end)
}

// late explains a pod that should have ended on a node: by its node plug-in, or else as given.
func (f Facts) late(node string, otherwise Finding) Finding {
	if finding, ok := f.cannotUnmount(node); ok {
		return finding.seen(otherwise.Evidence...)
	}
	return otherwise
}

// cannotUnmount explains a node without a node plug-in, by which the kubelet unmounts the volumes of a pod.
func (f Facts) cannotUnmount(node string) (Finding, bool) {
	if finding, ok := f.cannotTake(node); ok && finding.Outcome == cause.NeedsAction {
		return finding, true
	}
	d := f.node(node).DriverNode
	if d == nil {
		return Finding{}, false
	}
	if health, _ := nodehealth.Published(d); health != nodehealth.Suspect {
		return Finding{}, false
	}
	return find(apiv1.ReasonNodePluginDown,
		"The driver's node plug-in on node %s, which unmounts the volumes there, does not report.", node).
		then("%s", f.lookAtPlugin(node)).seen(f.nodeEvidence(node)...), true
}

// narrow explains a volume from the pod, its claim and their events alone.
func (f Facts) narrow(v *Volume) Finding {
	if finding, ok := f.notInstalled(); ok {
		return finding
	}
	if finding, ok := f.refusedMount(); ok {
		return finding
	}
	for _, reason := range []string{apiv1.ReasonFailoverHeldBack, apiv1.ReasonFailedAttachVolume, apiv1.ReasonWaitingForVolume} {
		if e := f.podEvent(reason); e != nil {
			return find(reason, "%s", sentenceOf[reason](v.claim(), f.Pod.Spec.NodeName)).quoting(e.Message).seen(f.said(e))
		}
	}
	if finding, ok := f.failedMount(v); ok {
		return finding
	}
	return find(apiv1.ReasonNotReadable, "%s is bound, and what happens to its disk is not readable with these rights.",
		upper(v.claim())).seen(v.claimEvidence())
}

var sentenceOf = map[string]func(claim, node string) string{
	apiv1.ReasonFailoverHeldBack: func(claim, _ string) string {
		return "The node of the pod is lost, and the driver leaves the volume of " + claim + " there."
	},
	apiv1.ReasonFailedAttachVolume: func(claim, node string) string {
		return "The volume of " + claim + " cannot be attached to node " + node + "."
	},
	apiv1.ReasonWaitingForVolume: func(claim, node string) string {
		return "The volume of " + claim + " is on its way to node " + node + "."
	},
}

// event returns the newest event of a kind of object with one of the reasons, and about which is true; nil
// if there is none.
func (f Facts) event(kind Kind, is func(*corev1.Event) bool, reasons ...string) *corev1.Event {
	var newest *corev1.Event
	for i := range f.Events {
		e := &f.Events[i]
		if e.InvolvedObject.Kind != string(kind) || !is(e) || !slices.Contains(reasons, e.Reason) {
			continue
		}
		if newest == nil || EventTime(e).After(EventTime(newest).Time) {
			newest = e
		}
	}
	return newest
}

// podEvent returns the newest event of the pod, and not of an earlier one of its name.
func (f Facts) podEvent(reasons ...string) *corev1.Event {
	return f.event(KindPod, func(e *corev1.Event) bool { return f.Pod != nil && e.InvolvedObject.UID == f.Pod.UID }, reasons...)
}

// claimEvent returns the newest event of a volume's claim, and not of an earlier one of its name.
func (f Facts) claimEvent(v *Volume, reasons ...string) *corev1.Event {
	is := func(e *corev1.Event) bool { return v.Claim != nil && e.InvolvedObject.UID == v.Claim.UID }
	return f.event(KindClaim, is, reasons...)
}
