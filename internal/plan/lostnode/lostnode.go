// Package lostnode decides the next step for a node that is lost or down: which volumes are fenced,
// which pods are deleted, and which taints the Node gets.
package lostnode

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// Input is the input of Next, the decision about a node's failover.
type Input struct {
	NodeName string
	// Health is the judgement of the node, which decides whether new decisions to fence may be
	// made. Earlier decisions are carried out without it.
	Health nodehealth.Judgement
	// Heard says that this process itself has heard of the node: a new process takes every node for
	// alive at first.
	Heard bool
	// Unresponsive says that the node has not answered a request in time; see
	// fencing.Unresponsive.
	Unresponsive bool
	// OutOfServiceTaint allows the taint of that name if Azure says that the VM is deallocated or gone.
	OutOfServiceTaint bool
	// Node and DriverNode are nil if they do not exist.
	Node       *corev1.Node
	DriverNode *apiv1.AzDriverNode
	// Volumes that the node holds: those of which it has the ownership, and the multi-node volumes
	// of which it is a primary.
	Volumes []Volume
	// Pods on the node that have not ended.
	Pods []Pod
	// SchedulerPods are the running pods on the node that advise kube-scheduler: the driver's
	// webhook and extender.
	SchedulerPods []*corev1.Pod
}

// Volume is a volume that a node holds.
type Volume struct {
	Volume *apiv1.AzVolume
	// Attachment to the node; nil if there is none. A multi-node volume has one.
	Attachment *apiv1.AzVolumeAttachment
	// InUse says that the Node's status.volumesInUse lists it.
	InUse bool
}

// Epoch is the epoch that the node holds.
func (v Volume) Epoch() int64 {
	if v.Volume.Spec.Access == apiv1.AccessMultiNode {
		return ownership.MultiNodeEpoch
	}
	return v.Volume.Status.Primary.Epoch
}

// FenceDecided reports whether the decision to fence the node from the volume, because the node was
// lost, is written down. For a multi-node volume the finalizer says so: the deletion that follows
// is part of what is carried out.
func (v Volume) FenceDecided(node string) bool {
	if v.Volume.Spec.Access == apiv1.AccessMultiNode {
		return ownership.MultiNodeFenceDecided(v.Attachment)
	}
	return ownership.FenceDecided(v.Volume, node)
}

// Proof is the proof that the node can no longer write to the volume, or nil.
func (v Volume) Proof() *apiv1.ReleaseProof {
	if v.Attachment == nil || v.Attachment.Status.Proof == nil || v.Attachment.Status.Proof.Epoch < v.Epoch() {
		return nil
	}
	return v.Attachment.Status.Proof
}

// unpublished reports whether the release has begun because the volume was unpublished: no pod there needs it.
func (v Volume) unpublished() bool {
	if v.Volume.Spec.Access == apiv1.AccessMultiNode {
		return v.Attachment.DeletionTimestamp != nil
	}
	return v.Volume.Status.Primary.State == apiv1.OwnershipReleasing
}

// waitsForAzure returns the annotation by which the volume is paused, if the node can only be fenced from it by
// a request to Azure; "" otherwise. The decision to fence could not be carried out, and is not revoked if the
// node is Ready again.
func (v Volume) waitsForAzure() string {
	if v.Volume.Status.Fencing == apiv1.FencingPreemption {
		return ""
	}
	return annotation.Paused.Switched(v.Volume.Annotations)
}

// misfit reports whether the attachment of a volume that is being fenced is not in the state that
// the fence needs, because the process that wrote the decision died before it could correct it: the
// attachment is not the primary of the current epoch, or, for a multi-node volume, is not being
// deleted. Then no component would establish a proof.
func (v Volume) misfit() bool {
	a := v.Attachment
	if v.Volume.Spec.Access == apiv1.AccessMultiNode {
		return a.DeletionTimestamp == nil
	}
	return a == nil || (a.DeletionTimestamp == nil && v.Proof() == nil &&
		(a.Spec.Role != apiv1.RolePrimary || a.Spec.Epoch < v.Epoch()))
}

// TaintChange is what to do about a taint.
type TaintChange string

// The changes.
const (
	TaintAsIs   TaintChange = ""
	TaintAdd    TaintChange = "Add"
	TaintRemove TaintChange = "Remove"
)

// Step is the next step of a node's failover. All of it can be done at once, in the order of the
// fields.
type Step struct {
	// Fence are the volumes for which to write the decision: the node is fenced from them, and the
	// decision is not revoked.
	Fence []Volume
	// Repair are volumes whose attachment must become the primary of the current epoch, or must be
	// deleted, so that there can be a proof.
	Repair []Volume
	// LeftAlone are the pods that keep their volumes, with the reason.
	LeftAlone []LeftPod
	// Quarantine and Unresponsive are about the taints that keep new pods away, OutOfService about
	// Kubernetes' own.
	Quarantine, Unresponsive, OutOfService TaintChange
	// Unserve are the pods to delete by force so that they leave their Service: a scheduler that
	// still calls them waits in vain, or is advised by what they knew before they were cut off.
	// They have no state.
	Unserve []*corev1.Pod
	// Delete are the pods to delete.
	Delete []PodDeletion
	// Prune are the volumes to remove from the Node's status.volumesInUse.
	Prune []Volume
	// Unblocked are the fenced volumes for which nothing on the node prevents the unpublish any
	// more.
	Unblocked []Volume
	// Proven are the fenced volumes with a proof, Waiting those without.
	Proven, Waiting []Volume
	// Active says that the failover of the node is not over.
	Active bool
}

// PodDeletion is a pod to be deleted.
type PodDeletion struct {
	Pod *corev1.Pod
	// Force deletes the pod without the kubelet. Without it the kubelet, which is running, ends the
	// pod.
	Force bool
	// Volumes of this driver that it uses.
	Volumes []string
}

// Next decides the next step of a node's failover.
//
//	held ──(lost, may be fenced)──▶ decided ──(Azure)──▶ proven ──▶ pods deleted ──▶ volumesInUse pruned ──▶ Unpublish
//
// New decisions need a node that is Lost or Down now, and a Node that does not opt out of failover. What was
// decided is carried out in any state of the node.
func Next(in Input) Step {
	f := newFailover(in)
	f.judgePods()
	f.volumes()
	f.pods()
	f.taints()
	if f.begins || in.Unresponsive {
		f.step.Unserve = in.SchedulerPods
	}
	f.step.Active = len(f.decided) > 0 || len(f.step.Fence) > 0 || len(f.step.Delete) > 0
	return f.step
}

// decision is the work on one step.
type decision struct {
	in   Input
	step Step
	// begins says that new decisions may be made, alive that the node is known to be Ready again.
	begins, alive bool
	// held by the node, by name; decided and proven are subsets.
	held            map[string]Volume
	decided, proven map[string]bool
	// optOut is the annotation by which the Node opts out of failover; "" if it does not.
	optOut string
	// leave says why each pod must be left alone, in the order of in.Pods; "" for the other pods.
	leave []string
	// kept are volumes that remain with the node because of a pod that must be left alone, because the Node
	// opts out, or because a pause keeps Azure from proving the fence.
	kept map[string]bool
	// users counts the pods on the node that use a volume.
	users map[string]int
}

func newFailover(in Input) *decision {
	f := &decision{
		in:      in,
		begins:  in.Health.Fence(),
		alive:   in.Health.State == nodehealth.Healthy && in.Heard && !in.Unresponsive,
		held:    map[string]Volume{},
		decided: map[string]bool{},
		proven:  map[string]bool{},
		kept:    map[string]bool{},
		users:   map[string]int{},
	}
	if in.Node != nil {
		f.optOut = annotation.Failover.Switched(in.Node.Annotations)
	}
	for _, v := range in.Volumes {
		name := v.Volume.Name
		f.held[name] = v
		if v.FenceDecided(in.NodeName) {
			f.decided[name] = true
		} else if f.optOut != "" && !v.unpublished() || v.waitsForAzure() != "" {
			f.kept[name] = true
		}
		if v.Proof() != nil {
			f.proven[name] = true
		}
	}
	for _, p := range in.Pods {
		for _, name := range p.ours() {
			f.users[name]++
		}
	}
	return f
}

// free reports whether the node can no longer write to the volume, or does not hold it. A volume
// that the node does not hold because this driver never published it is handled by Pod.hold.
func (f *decision) free(volume string) bool {
	_, held := f.held[volume]
	return !held || f.proven[volume]
}

func (f *decision) volumes() {
	for _, v := range f.in.Volumes {
		name := v.Volume.Name
		switch {
		case !f.decided[name]:
			if f.begins && !f.kept[name] && !f.proven[name] {
				f.step.Fence = append(f.step.Fence, v)
			}
			continue
		case v.misfit():
			f.step.Repair = append(f.step.Repair, v)
		}
		if !f.proven[name] {
			f.step.Waiting = append(f.step.Waiting, v)
			continue
		}
		f.step.Proven = append(f.step.Proven, v)
		switch {
		case f.users[name] > 0 || v.misfit():
		case v.InUse:
			f.step.Prune = append(f.step.Prune, v)
		default:
			f.step.Unblocked = append(f.step.Unblocked, v)
		}
	}
}

func (f *decision) taints() {
	n, d := f.in.Node, f.in.DriverNode
	if n == nil || d == nil {
		return
	}
	concerns := len(f.decided) > 0 || len(f.step.Fence) > 0 || len(f.step.Delete) > 0
	back := f.alive && nodehealth.KubeletReady(n)
	quarantined := nodehealth.HasTaint(n, apiv1.TaintNodeLost)
	switch {
	case !quarantined && concerns:
		// Also on a node that is Ready again: a new pod would be deleted, and while there are new
		// pods Kubernetes does not unpublish the volume.
		f.step.Quarantine = TaintAdd
	case quarantined && back && len(f.decided) == 0:
		f.step.Quarantine = TaintRemove
	}
	f.step.Unresponsive = f.unresponsive(back)
	ours := meta.IsStatusConditionFalse(d.Status.Conditions, apiv1.NodeConditionInService) || OurOutOfServiceTaint(n)
	switch {
	case ours && back:
		f.step.OutOfService = TaintRemove
	case f.in.OutOfServiceTaint && f.begins && concerns && f.in.Health.Off() && !f.optedOut() &&
		!nodehealth.HasTaint(n, corev1.TaintNodeOutOfService):
		f.step.OutOfService = TaintAdd
	}
}

// unresponsive is about the taint of a node that does not answer. back says that the node is alive
// and Ready.
func (f *decision) unresponsive(back bool) TaintChange {
	tainted := nodehealth.HasTaint(f.in.Node, apiv1.TaintNodeUnresponsive)
	switch {
	case !tainted && f.in.Unresponsive:
		return TaintAdd
	case tainted && back:
		return TaintRemove
	}
	return TaintAsIs
}

// AdvisesScheduler reports whether a pod is one of the driver's that advise kube-scheduler, by the
// labels of the chart.
func AdvisesScheduler(pod *corev1.Pod) bool {
	return pod.Labels["app.kubernetes.io/name"] == "azuredisk" && pod.Labels["app.kubernetes.io/component"] == "scheduler"
}

// OutOfServiceValue is the value of the out-of-service taints that the driver sets. Kubernetes uses
// the key alone, so the value may name the driver.
const OutOfServiceValue = apiv1.GroupName

// OurOutOfServiceTaint reports whether the Node has an out-of-service taint that the driver has
// set, even if the AzDriverNode that recorded it is lost.
func OurOutOfServiceTaint(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeOutOfService && t.Value == OutOfServiceValue
	})
}
