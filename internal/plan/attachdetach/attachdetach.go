// Package attachdetach decides, where Kubernetes uses no VolumeAttachments, to which nodes a volume is
// published and from which it is taken back, and what an event says while a pod waits.
package attachdetach

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// Input is what follows for one volume where no VolumeAttachments say to which nodes it is to be published, because
// the CSIDriver's attachRequired is false: then the pods say so themselves.
type Input struct {
	// Volume is nil if it has not been adopted yet.
	Volume *apiv1.AzVolume
	// Attachments of the volume.
	Attachments []*apiv1.AzVolumeAttachment
	// Pods that use the volume, through a claim or because they name the disk themselves, and that have not ended: those as well that have
	// been asked to.
	Pods []*corev1.Pod
	// Report returns the AzDriverNode of a node, nil if there is none.
	Report func(node string) *apiv1.AzDriverNode
	// Identity returns which VM a node is.
	Identity func(node string) identity.Identity
	// Silent says of a node that Kubernetes has lost it: the Node is not Ready, or there is none.
	Silent func(node string) bool
}

// Step is what is to be done at once: the Unpublishes, and then the Publishes.
type Step struct {
	// Unpublish are the nodes from which the volume is to be taken back.
	Unpublish []string
	// Publish are the nodes to which it is to be published.
	Publish []string
}

// Next decides to which nodes a volume is to be published, as Kubernetes' attach/detach controller decides which VolumeAttachments there
// are to be. It differs where that one has to guess:
//
//   - A node that no pod holds to the volume any more is waited for until it is done with it, which its report says, and not for a time.
//   - From a node of which no report is to be expected nothing is taken while a pod there uses the volume, even one that is to end. What is cut off may
//     be the path to the API server alone: then the kubelet does not know yet, and the pod goes on writing. Where the node may be fenced, the
//     failover brings the proof and deletes the pod.
//   - A volume for one node at a time goes to a second one only when the first one's pods have all been asked to end, so that pods of two
//     nodes that contend for a volume do not take it from each other.
//   - Nothing new is published to a node that Kubernetes has lost.
//   - A node of a multi-node volume that the volume is being taken from gets it back only when that has come to its end: there is no claim that could
//     be made anew meanwhile.
//
// It is safe to be wrong here: a publish makes a claim (law 1), and an unpublish waits for a proof (law 3).
func Next(in Input) Step {
	wanted := wantedBy(in.Pods)
	step := Step{}
	for _, node := range heldBy(in.Volume, in.Attachments) {
		if (!slices.Contains(wanted, node) || in.leaving(node) || in.anotherVM(node)) && in.Done(node) {
			step.Unpublish = append(step.Unpublish, node)
		}
	}
	switch {
	case len(wanted) == 0 || in.Volume != nil && in.Volume.DeletionTimestamp != nil:
		return step
	case in.Volume == nil:
		// The first publish adopts it; whether others can follow is known then.
		step.Publish = in.firstThatSpeaks(wanted)
		return step
	case in.Volume.Spec.Access == apiv1.AccessMultiNode:
		for _, node := range wanted {
			if !in.published(node) && !in.Silent(node) && !in.leaving(node) && !in.cutOff(node) && !in.anotherVM(node) {
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
	claim := in.Volume.Status.Primary
	switch {
	case claim == nil || claim.State == apiv1.OwnershipReleased || slices.Contains(step.Unpublish, claim.NodeName):
		step.Publish = in.firstThatSpeaks(wanted)
	case !slices.Contains(wanted, claim.NodeName):
		// Its node is not done with it yet.
	case !ownership.BeingFenced(in.Volume, claim.NodeName) && !in.published(claim.NodeName) && !in.Silent(claim.NodeName):
		step.Publish = []string{claim.NodeName}
	}
}

func (in Input) firstThatSpeaks(nodes []string) []string {
	if i := slices.IndexFunc(nodes, func(node string) bool { return !in.Silent(node) }); i >= 0 {
		return nodes[i : i+1]
	}
	return nil
}

// Done says that an unpublish from a node does not have to wait for the node: there is a proof, the node's report says that it released the
// volume, or the node will not report any more and no pod there can be using the volume, so that the proof has to come from Azure.
func (in Input) Done(node string) bool {
	a := in.attachment(node)
	if a != nil && ownership.HasProof(a) {
		return true
	}
	if ownership.BeingFenced(in.Volume, node) || in.cutOff(node) {
		return false // the proof is on its way
	}
	report := in.Report(node)
	if report != nil {
		// A node that is silent now may have said before that it let go.
		if proof, _ := ownership.UnstagedProof(report, in.Volume.Name, 0, report.CreationTimestamp.Time); proof != nil {
			return true
		}
	}
	return (report == nil || in.Silent(node)) && !in.used(node)
}

// used says that a pod on the node uses the volume, be it one that is to end.
func (in Input) used(node string) bool {
	return slices.ContainsFunc(in.Pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == node })
}

// leaving says that a multi-node volume is being taken from the node, and not because the node was lost.
func (in Input) leaving(node string) bool {
	a := in.attachment(node)
	return a != nil && a.DeletionTimestamp != nil && in.Volume.Spec.Access == apiv1.AccessMultiNode && !in.cutOff(node)
}

// cutOff says that a multi-node volume is being taken from the node, or was, because the node was lost, and that Kubernetes does not know it yet.
func (in Input) cutOff(node string) bool {
	a := in.attachment(node)
	return a != nil && ownership.FenceDecided(a)
}

// anotherVM says that the volume was published to the VM that the node was before: the one that it is now cannot use it.
func (in Input) anotherVM(node string) bool {
	a, report := in.attachment(node), in.Report(node)
	return a != nil && report != nil && in.Identity(node).Another(a)
}

// published says that a publish to the node has succeeded and has not been taken back.
func (in Input) published(node string) bool {
	a := in.attachment(node)
	if a == nil || !ownership.AttachAccepted(a) || ownership.HasProof(a) {
		return false
	}
	claim := in.Volume.Status.Primary
	return in.Volume.Spec.Access == apiv1.AccessMultiNode ||
		claim != nil && claim.State == apiv1.OwnershipHeld && claim.NodeName == node && claim.Epoch == a.Spec.Epoch
}

func (in Input) attachment(node string) *apiv1.AzVolumeAttachment {
	i := slices.IndexFunc(in.Attachments, func(a *apiv1.AzVolumeAttachment) bool { return a.Spec.NodeName == node })
	if i < 0 {
		return nil
	}
	return in.Attachments[i]
}

// wanting returns the pods that are on a node and are not to end, the oldest first.
func wanting(pods []*corev1.Pod) []*corev1.Pod {
	pods = slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p.Spec.NodeName == "" || p.DeletionTimestamp != nil })
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
	})
	return pods
}

// wantedBy returns the nodes with pods that use a volume and are not to end, those of the oldest pods first.
func wantedBy(pods []*corev1.Pod) []string {
	var nodes []string
	for _, p := range wanting(pods) {
		if !slices.Contains(nodes, p.Spec.NodeName) {
			nodes = append(nodes, p.Spec.NodeName)
		}
	}
	return nodes
}

// PublishedFor returns the pod for which a volume is published to a node, of those that use it: the oldest there that is not to end. It is nil if
// there is none.
func PublishedFor(pods []*corev1.Pod, node string) *corev1.Pod {
	for _, p := range wanting(pods) {
		if p.Spec.NodeName == node {
			return p
		}
	}
	return nil
}

// heldBy returns the nodes to which a volume is published, or was until something went wrong on the way: the one with the claim, and all with an
// attachment that is a primary. Where a shared disk has nothing left to come but the detach, nobody has to wait for it.
func heldBy(volume *apiv1.AzVolume, attachments []*apiv1.AzVolumeAttachment) []string {
	var nodes []string
	if volume == nil {
		return nil
	}
	if c := volume.Status.Primary; c != nil && c.State != apiv1.OwnershipReleased {
		nodes = append(nodes, c.NodeName)
	}
	for _, a := range attachments {
		over := a.DeletionTimestamp != nil && ownership.ProvedReleased(volume, a) && volume.Spec.Disk.MaxShares > 1
		if a.Spec.Role == apiv1.RolePrimary && !over && !slices.Contains(nodes, a.Spec.NodeName) {
			nodes = append(nodes, a.Spec.NodeName)
		}
	}
	return nodes
}
