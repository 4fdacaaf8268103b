package explain

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/plan/fencing"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// nodeSubject explains a node.
func (f Facts) nodeSubject(name string) Finding {
	n := f.node(name)
	switch {
	case f.unread(NodesResource) && f.unread(AzDriverNodes):
		return find(apiv1.ReasonNotReadable, "Nodes are not readable with these rights.")
	case n.Node == nil && !f.unread(NodesResource):
		return find(apiv1.ReasonNodeGone, "There is no Node %s.", name)
	}
	if finding, ok := f.lost(name, nil, nil); ok {
		return finding
	}
	if finding, ok := f.cannotTake(name); ok {
		return finding
	}
	if n.Node != nil && !nodehealth.KubeletReady(n.Node) {
		return find(apiv1.ReasonNodeNotReady, "Kubernetes does not see node %s as Ready%s.", name,
			f.sinceTime(nodehealth.NotReadySince(n.Node))).
			then("repair the node").seen(f.nodeEvidence(name)...)
	}
	if n.DriverNode == nil {
		return find(apiv1.ReasonNotReadable, "Kubernetes sees node %s as Ready. The driver's record of it is not readable with these rights.", name)
	}
	if c := meta.FindStatusCondition(n.DriverNode.Status.Conditions, apiv1.NodeConditionUndisturbed); c != nil &&
		c.Status == metav1.ConditionFalse {
		return find(c.Reason, "Azure has announced maintenance of the VM of node %s.", name).quoting(c.Message).
			seen(f.nodeEvidence(name)...)
	}
	for _, a := range n.Attachments {
		if attaching.WaitsForSlot(a) {
			c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached)
			if c != nil && c.Reason == apiv1.ReasonWaitingForDiskSlot {
				continue
			}
			return find(apiv1.ReasonNoDiskSlot, "Node %s has no free slot, and volume %s waits for one.",
				name, a.Spec.VolumeName).
				seen(attachmentEvidence(a, c))
		}
	}
	return find(apiv1.ReasonHealthy, "Node %s is healthy and can take volumes%s.", name, slotsLeft(n)).
		seen(f.nodeEvidence(name)...)
}

// ready returns the finding of a volume that a node has, or that is about to be mounted there. If the node
// is not Ready, or does not exist, it returns that instead of a finding by which nothing is wrong.
func (f Facts) ready(v Finding, node string) Finding {
	n := f.node(node)
	switch {
	case v.Outcome != cause.Healthy && v.ID != apiv1.ReasonMounting || node == "" || !f.wide() || f.unread(NodesResource):
		return v
	case n.Node == nil:
		return find(apiv1.ReasonNodeGone, "%s Node %s does not exist.", v.Sentence, node).seen(v.Evidence...)
	case !nodehealth.KubeletReady(n.Node):
		return find(apiv1.ReasonNodeNotReady, "%s Node %s has not been Ready%s.", v.Sentence, node,
			f.sinceTime(nodehealth.NotReadySince(n.Node))).seen(f.nodeEvidence(node)...)
	}
	return v
}

func slotsLeft(n *Node) string {
	free := attaching.FreeSlots(n.DriverNode.Capacity(), n.Attachments)
	if free < 0 {
		return ""
	}
	return fmt.Sprintf(": %d of %d disk slots are free", free, attaching.SlotLimit(n.DriverNode.Capacity()))
}

func (f Facts) sinceTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " since " + f.clock(t)
}

// lookAtPlugin is what to do about a node plug-in that does not run.
func (f Facts) lookAtPlugin(node string) string {
	return fmt.Sprintf("look at the node plug-in's pod: kubectl get pods -n %s -o wide --field-selector spec.nodeName=%s",
		f.DriverNamespace, node)
}

// cannotTake explains a node whose node plug-in cannot take volumes.
func (f Facts) cannotTake(name string) (Finding, bool) {
	n := f.node(name)
	if f.unread(AzDriverNodes) || f.unread(NodesResource) {
		return Finding{}, false
	}
	if n.DriverNode == nil {
		return find(apiv1.ReasonNodeUnknown, "The driver's node plug-in has not reported from node %s.", name).
			then("%s", f.lookAtPlugin(name)), true
	}
	seen := f.nodeEvidence(name)
	if c := meta.FindStatusCondition(n.DriverNode.Status.Conditions, apiv1.NodeConditionVMKnown); c != nil &&
		c.Status == metav1.ConditionFalse {
		return find(c.Reason, "The driver does not know which VM node %s is.", name).quoting(c.Message).seen(seen...), true
	}
	c := meta.FindStatusCondition(n.DriverNode.Status.Conditions, apiv1.NodeConditionPluginReady)
	if c != nil && c.Status == metav1.ConditionFalse {
		v := find(c.Reason, "The node plug-in on node %s is not ready: %s.", name, c.Reason).quoting(c.Message).seen(seen...)
		switch {
		case v.Outcome == cause.Waits:
			v = f.soon(v, c.LastTransitionTime.Time)
		case v.ID == apiv1.ReasonStopped:
			v = v.then("%s", f.lookAtPlugin(name))
		}
		return v, true
	}
	if n.CSINode != nil && n.Node != nil && !slices.ContainsFunc(n.CSINode.Spec.Drivers, f.isDriver) {
		return find(apiv1.ReasonNotInCSINode, "The CSINode of node %s does not list the driver, so no volume is mounted there.", name).seen(seen...), true
	}
	return Finding{}, false
}

// lost explains a node that is lost, or seems so; ok is false if it does not. v is the volume that
// matters, nil for all; pod is a pod on that node that matters, nil for any.
func (f Facts) lost(name string, v *Volume, pod *corev1.Pod) (Finding, bool) {
	n := f.node(name)
	if n.DriverNode == nil {
		return Finding{}, false
	}
	judgement, seen := nodehealth.PublishedJudgement(n.DriverNode), f.nodeEvidence(name)
	if v != nil {
		seen = append(f.azEvidence(v), seen...)
	}
	switch {
	case judgement.State == nodehealth.Suspect && judgement.Paused:
		return find(apiv1.ReasonNodeMaintenance, "Azure pauses the VM of node %s, as it had announced.", name).
			quoting(judgement.Evidence).
			seen(seen...), true
	case judgement.State == nodehealth.Suspect && n.Node != nil && nodehealth.KubeletReady(n.Node):
		if v != nil {
			return Finding{}, false // what it means depends on what the node has to do
		}
		return find(apiv1.ReasonNodePluginDown, "Kubernetes sees node %s, and the driver's node plug-in there does not report.", name).
			then("%s", f.lookAtPlugin(name)).quoting(judgement.Evidence).seen(seen...), true
	case judgement.State == nodehealth.Suspect:
		return find(apiv1.ReasonHeartbeatStale, "Node %s does not report, and nothing confirms yet that it is lost.", name).
			quoting(judgement.Evidence).seen(seen...), true
	case !judgement.State.LostOrDown():
		return Finding{}, false
	}
	return f.failover(name, judgement, v, pod, seen), true
}

// failover explains what happens to the volumes of a lost node.
func (f Facts) failover(name string, judgement nodehealth.Judgement, v *Volume, pod *corev1.Pod, seen []Evidence) Finding {
	n := f.node(name)
	unresponsive, _ := fencing.Unresponsive(n.DriverNode, f.Now)
	step := lostnode.Next(lostnode.Input{
		NodeName:     name,
		Health:       judgement,
		Heard:        true,
		Unresponsive: unresponsive,
		Node:         n.Node,
		DriverNode:   n.DriverNode,
		Volumes:      n.Held,
		Pods:         n.Pods,
	})
	for _, kept := range step.LeftAlone {
		if pod != nil && kept.Pod.UID != pod.UID || pod == nil && v != nil && !slices.Contains(kept.Volumes, v.Name) {
			continue
		}
		return f.heldBack(name, kept, seen)
	}
	if judgement.Guarded() {
		return find(apiv1.ReasonFencingHeldBack, "Node %s seems lost, and so do so many others that the driver takes no volume from any of them.",
			name).quoting(judgement.HeldBack).seen(seen...)
	}
	if v != nil && v.AzVolume != nil && holderOf(v) == name && beingFenced(v, step) {
		return f.fencing(v, name)
	}
	if off, ok := f.Driver.setting("failover-enabled"); ok && off == "false" {
		return find(apiv1.ReasonFailoverDisabled, "Node %s is lost, and failover is switched off.", name).
			quoting(judgement.Evidence).
			seen(seen...)
	}
	id := apiv1.ReasonNodeLost
	sentence := fmt.Sprintf("Node %s does not answer, by two independent signals.", name)
	if judgement.State == nodehealth.Down {
		id, sentence = apiv1.ReasonVMDown, fmt.Sprintf("Azure says that the VM of node %s does not run.", name)
	}
	if judgement.Stopped {
		id, sentence = apiv1.ReasonVMStopped, fmt.Sprintf("Azure says that the VM of node %s is stopped. It may continue with its memory.", name)
	}
	finding := find(id, "%s", sentence).quoting(judgement.Evidence).seen(seen...)
	switch {
	case len(step.Waiting) > 0:
		return f.soon(finding, judgement.Since.Add(usually(apiv1.ReasonVolumeFencing)))
	case len(step.Fence) > 0:
		return f.soon(finding, judgement.Since)
	case v == nil:
		finding.Outcome = cause.NeedsAction
		return finding.then("start the node again, or delete the Node if it is gone for ever. No volume waits for it")
	}
	return finding
}

func beingFenced(v *Volume, step lostnode.Step) bool {
	is := func(l lostnode.Volume) bool { return l.Volume.Name == v.Name }
	return slices.ContainsFunc(step.Waiting, is) || slices.ContainsFunc(step.Proven, is)
}

// heldBack explains a pod that the failover leaves alone.
func (f Facts) heldBack(node string, kept lostnode.LeftPod, seen []Evidence) Finding {
	pod := Subject{KindPod, kept.Pod.Namespace, kept.Pod.Name}
	v := find(kept.Reason, "Node %s is lost, and the driver leaves its volume there because of %s: %s.", node, pod, kept.Message).
		seen(seen...).seen(Evidence{Object: pod.String(), Says: "left alone: " + kept.Reason})
	switch kept.Reason {
	case apiv1.ReasonOptedOut, apiv1.ReasonNoOwner, apiv1.ReasonForeignVolume, apiv1.ReasonUnknownVolume:
		v.Next += fmt.Sprintf(": kubectl delete pod %s -n %s --force", kept.Pod.Name, kept.Pod.Namespace)
	}
	return v
}

// nodeEvidence is what Node and AzDriverNode say.
func (f Facts) nodeEvidence(name string) []Evidence {
	n := f.node(name)
	var all []Evidence
	if n.Node != nil {
		e := Evidence{Object: "Node " + name, Says: "Ready"}
		if !nodehealth.KubeletReady(n.Node) {
			at := nodehealth.NotReadySince(n.Node)
			e.Says, e.Since = "not Ready", &at
		}
		all = append(all, e)
	}
	if n.DriverNode != nil {
		for _, c := range n.DriverNode.Status.Conditions {
			if c.Type == apiv1.NodeConditionReachable || c.Type == apiv1.NodeConditionPluginReady {
				all = append(all, Evidence{
					Object: "AzDriverNode " + name,
					Says:   fmt.Sprintf("%s: %s (%s)", c.Type, c.Status, c.Reason),
					Since:  moment(c.LastTransitionTime),
				})
			}
		}
	}
	return all
}
