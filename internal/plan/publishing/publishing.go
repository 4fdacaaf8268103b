// Package publishing decides, where Kubernetes uses no VolumeAttachments, to which nodes a volume
// is published and from which it is unpublished, and what an event says while a pod waits.
package publishing

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// Input is the input of Next, which decides where one volume is published if the CSIDriver's
// attachRequired is false. Then the pods determine the nodes, and not VolumeAttachments.
type Input struct {
	// Volume is nil if it has not been adopted yet.
	Volume *apiv1.AzVolume
	// Attachments of the volume.
	Attachments []*apiv1.AzVolumeAttachment
	// Pods that use the volume, through a PersistentVolumeClaim or because they name the disk
	// themselves, and that have not ended, including pods that are being deleted.
	Pods []*corev1.Pod
	// Report returns the AzDriverNode of a node, nil if there is none.
	Report func(node string) *apiv1.AzDriverNode
	// Identity returns which VM a node is.
	Identity func(node string) identity.Identity
	// KubernetesLost is nodehealth.KubernetesLost of a node.
	KubernetesLost func(node string) bool
	// Idle reports whether no pod on a node has used the volume for so long that its kubelet may not
	// be going to unstage it. Nil means that this is not known of any node.
	Idle func(node string) bool
}

// Step is what to do at once: the Unpublishes, and then the Publishes.
type Step struct {
	// Unpublish are the nodes from which the volume is to be unpublished.
	Unpublish []string
	// Publish are the nodes to which it is to be published.
	Publish []string
}

// Next decides to which nodes a volume is to be published, as Kubernetes' attach/detach controller
// decides which VolumeAttachments there should be. It differs where that controller has to guess:
//
//   - If no pod on a node keeps the volume there any more, Next waits until the node's report says
//     that the node no longer uses it, and not for a time. If Azure has refused to attach the disk,
//     Next does not wait: the node has nothing to unmount, and its NodeStageVolume waits for the disk
//     until the release begins. Nor does it wait for an idle node, whose kubelet may have forgotten the
//     volume: the node plug-in unstages it after the release has begun (ownership.LeftStaged).
//   - If no report of a node is to be expected, the volume is not unpublished there while a pod on
//     it uses the volume, even a pod that is being deleted. The node may have lost only its path to
//     the API server: then the kubelet does not know of the deletion yet, and the pod continues to
//     write. If the node may be fenced, the failover establishes the proof and deletes the pod.
//   - A volume for one node at a time is published to a second node only when all pods of the first
//     node are being deleted, so that pods of two nodes that contend for a volume do not take it
//     from each other.
//   - Nothing new is published to a node that Kubernetes has lost.
//   - If a multi-node volume is being unpublished from a node, it is published there again only
//     when that is complete: there is no ownership that could be acquired again before.
//
// A wrong decision here is safe: a publish acquires ownership (law 1), and an unpublish waits for a
// proof (law 3).
func Next(in Input) Step {
	wanted := wantedBy(in.Pods)
	step := Step{}
	for _, node := range in.Held() {
		if (!slices.Contains(wanted, node) || in.leaving(node) || in.anotherVM(node)) && in.Done(node) {
			step.Unpublish = append(step.Unpublish, node)
		}
	}
	switch {
	case in.Volume != nil && in.Volume.Leaving():
		return step
	case in.Volume == nil:
		// The first publish adopts it; whether others can follow is known then.
		step.Publish = in.firstReady(wanted)
		return step
	case in.Volume.Spec.Access == apiv1.AccessMultiNode:
		for _, node := range wanted {
			if !in.published(node) && !in.KubernetesLost(node) && !in.leaving(node) && !in.cutOff(node) &&
				!in.anotherVM(node) {
				step.Publish = append(step.Publish, node)
			}
		}
		return step
	}
	in.oneNode(wanted, &step)
	return step
}

// oneNode is for a volume that has at most one primary.
func (in Input) oneNode(wanted []string, step *Step) {
	primary := in.Volume.Status.Primary
	switch {
	case primary == nil || primary.State == apiv1.OwnershipReleased || slices.Contains(step.Unpublish, primary.NodeName):
		step.Publish = in.firstReady(wanted)
	case !slices.Contains(wanted, primary.NodeName):
		// Its node still uses it.
	case !ownership.FenceDecided(in.Volume, primary.NodeName) && !in.published(primary.NodeName) &&
		!in.KubernetesLost(primary.NodeName):
		step.Publish = []string{primary.NodeName}
	}
}

func (in Input) firstReady(nodes []string) []string {
	if i := slices.IndexFunc(nodes, func(node string) bool { return !in.KubernetesLost(node) }); i >= 0 {
		return nodes[i : i+1]
	}
	return nil
}

// Done reports whether an unpublish from a node does not have to wait for the node: there is a
// proof, the node's report says that it released the volume, or no pod there can be using the
// volume, and either Azure has refused to attach the disk, the node is idle, or the node will not
// report any more, so that the proof must come from Azure.
func (in Input) Done(node string) bool {
	a := in.attachment(node)
	if a != nil && ownership.HasProof(a) {
		return true
	}
	if ownership.FenceDecided(in.Volume, node) || in.cutOff(node) {
		return false // the proof is being established
	}
	if in.refused(node) && !in.Used(node) {
		return true
	}
	report := in.Report(node)
	if report != nil {
		// A node that Kubernetes has lost may have reported before that it released the volume.
		if proof, _ := ownership.UnstagedProof(report, in.Volume.Name, 0, report.CreationTimestamp.Time); proof != nil {
			return true
		}
	}
	return (report == nil || in.KubernetesLost(node) || in.Idle != nil && in.Idle(node)) && !in.Used(node)
}

// refused reports whether Azure has refused to attach the disk of a single-node volume to the node.
// An unpublish of a multi-node volume could not be undone for a pod that the cache does not know.
func (in Input) refused(node string) bool {
	a := in.attachment(node)
	return a != nil && a.Status.State == apiv1.AttachmentFailed && in.Volume.Spec.Access != apiv1.AccessMultiNode
}

// Used reports whether a pod on the node uses the volume, including pods that are being deleted.
func (in Input) Used(node string) bool {
	return slices.ContainsFunc(in.Pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == node })
}

// leaving reports whether a multi-node volume is being unpublished from the node, for another
// reason than that the node was lost.
func (in Input) leaving(node string) bool {
	a := in.attachment(node)
	return a != nil && a.DeletionTimestamp != nil && in.Volume.Spec.Access == apiv1.AccessMultiNode && !in.cutOff(node)
}

// cutOff reports whether the node is being or was fenced from a multi-node volume because the node
// was lost, and Kubernetes does not know it yet.
func (in Input) cutOff(node string) bool {
	a := in.attachment(node)
	return a != nil && ownership.MultiNodeFenceDecided(a)
}

// anotherVM reports whether the volume was published to the VM that the node was before: the VM
// that the node is now cannot use it.
func (in Input) anotherVM(node string) bool {
	a, report := in.attachment(node), in.Report(node)
	return a != nil && report != nil && in.Identity(node).Another(a)
}

// published reports whether a publish to the node has succeeded and no unpublish has begun. The node
// is the primary of the volume, or the volume is multi-node.
func (in Input) published(node string) bool {
	a := in.attachment(node)
	if a == nil || !ownership.AttachAccepted(a) || ownership.HasProof(a) {
		return false
	}
	primary := in.Volume.Status.Primary
	return in.Volume.Spec.Access == apiv1.AccessMultiNode ||
		primary.State == apiv1.OwnershipHeld && primary.Epoch == a.Spec.Epoch
}

func (in Input) attachment(node string) *apiv1.AzVolumeAttachment {
	i := slices.IndexFunc(in.Attachments, func(a *apiv1.AzVolumeAttachment) bool { return a.Spec.NodeName == node })
	if i < 0 {
		return nil
	}
	return in.Attachments[i]
}

// wanting returns the pods that are on a node and are not being deleted, the oldest first.
func wanting(pods []*corev1.Pod) []*corev1.Pod {
	pods = slices.DeleteFunc(slices.Clone(pods),
		func(p *corev1.Pod) bool { return p.Spec.NodeName == "" || p.DeletionTimestamp != nil })
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Namespace, b.Namespace))
	})
	return pods
}

// wantedBy returns the nodes with pods that use a volume and are not being deleted, the nodes of
// the oldest pods first.
func wantedBy(pods []*corev1.Pod) []string {
	var nodes []string
	for _, p := range wanting(pods) {
		if !slices.Contains(nodes, p.Spec.NodeName) {
			nodes = append(nodes, p.Spec.NodeName)
		}
	}
	return nodes
}

// PublishedFor returns the pod for which a volume is published to a node: the oldest of the pods
// there that use it and are not being deleted. It is nil if there is none.
func PublishedFor(pods []*corev1.Pod, node string) *corev1.Pod {
	for _, p := range wanting(pods) {
		if p.Spec.NodeName == node {
			return p
		}
	}
	return nil
}

// Held returns the nodes to which a volume is published, or was until an error on the way: the
// node that holds the ownership, and all with an attachment that is a primary. If only the detach
// of a shared disk remains, nothing has to wait for it.
func (in Input) Held() []string {
	volume := in.Volume
	var nodes []string
	if volume == nil {
		return nil
	}
	if c := volume.Status.Primary; c != nil && c.State != apiv1.OwnershipReleased {
		nodes = append(nodes, c.NodeName)
	}
	for _, a := range in.Attachments {
		over := a.DeletionTimestamp != nil && ownership.ProvedReleased(volume, a) && volume.Shares() > 1
		if a.Spec.Role == apiv1.RolePrimary && !over && !slices.Contains(nodes, a.Spec.NodeName) {
			nodes = append(nodes, a.Spec.NodeName)
		}
	}
	return nodes
}
