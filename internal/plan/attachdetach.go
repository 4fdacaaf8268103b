package plan

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// AttachDetachInput is what follows for one volume where no VolumeAttachments say to which nodes it is to be published, because
// the CSIDriver's attachRequired is false: then the pods say so themselves.
type AttachDetachInput struct {
	// Volume is nil if it has not been adopted yet.
	Volume *apiv1.AzVolume
	// Attachments of the volume.
	Attachments []*apiv1.AzVolumeAttachment
	// Pods that use the claim to which the volume's PersistentVolume is bound, and that have not ended.
	Pods []*corev1.Pod
	// Report returns the AzDriverNode of a node, nil if there is none.
	Report func(node string) *apiv1.AzDriverNode
	// Silent says of a node that Kubernetes has lost it: the Node is not Ready, or there is none.
	Silent func(node string) bool
}

// AttachDetachStep is what is to be done at once: the Unpublishes, and then the Publishes.
type AttachDetachStep struct {
	// Unpublish are the nodes from which the volume is to be taken back.
	Unpublish []string
	// Publish are the nodes to which it is to be published.
	Publish []string
	// Contended are the nodes whose pods wait because the pods of another node, the Holder, keep the volume.
	Contended []string
	Holder    string
}

// AttachDetach decides to which nodes a volume is to be published, as Kubernetes' attach/detach controller decides which VolumeAttachments there
// are to be. It differs where that one has to guess:
//
//   - A node that no pod holds to the volume any more is waited for until it is done with it, which its report says, and not for a time.
//   - A volume for one node at a time goes to a second one only when the first one's pods have all been asked to end, so that pods of two
//     nodes that contend for a volume do not take it from each other.
//   - Nothing new is published to a node that Kubernetes has lost.
//
// It is safe to be wrong here: a publish makes a claim (law 1), and an unpublish waits for a proof (law 3).
func AttachDetach(in AttachDetachInput) AttachDetachStep {
	wanted := wantedBy(in.Pods)
	step := AttachDetachStep{}
	for _, node := range heldBy(in.Volume, in.Attachments) {
		if !slices.Contains(wanted, node) && in.done(node) {
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
			if !in.published(node) && !in.Silent(node) {
				step.Publish = append(step.Publish, node)
			}
		}
		return step
	}
	in.oneNode(wanted, &step)
	return step
}

// oneNode is for a volume that has at most one primary.
func (in AttachDetachInput) oneNode(wanted []string, step *AttachDetachStep) {
	claim := in.Volume.Status.Primary
	switch {
	case claim == nil || claim.State == apiv1.ClaimReleased || slices.Contains(step.Unpublish, claim.NodeName):
		step.Publish = in.firstThatSpeaks(wanted)
		if len(step.Publish) > 0 {
			step.contend(wanted, step.Publish[0])
		}
	case !slices.Contains(wanted, claim.NodeName):
		// Its node is not done with it yet.
	default:
		step.contend(wanted, claim.NodeName)
		if !Fencing(in.Volume, claim.NodeName) && !in.published(claim.NodeName) && !in.Silent(claim.NodeName) {
			step.Publish = []string{claim.NodeName}
		}
	}
}

func (s *AttachDetachStep) contend(wanted []string, holder string) {
	for _, node := range wanted {
		if node != holder {
			s.Contended, s.Holder = append(s.Contended, node), holder
		}
	}
}

func (in AttachDetachInput) firstThatSpeaks(nodes []string) []string {
	if i := slices.IndexFunc(nodes, func(node string) bool { return !in.Silent(node) }); i >= 0 {
		return nodes[i : i+1]
	}
	return nil
}

// done says that an unpublish from a node has not to wait for the node: it reports to have let go, there is a proof, or it will not
// report any more, so that the proof has to come from Azure.
func (in AttachDetachInput) done(node string) bool {
	a := in.attachment(node)
	if a != nil && a.Status.Proof != nil && a.Status.Proof.Epoch >= a.Spec.Epoch {
		return true
	}
	if Fencing(in.Volume, node) || a != nil && slices.Contains(a.Finalizers, apiv1.FinalizerFenced) {
		return false // the proof is on its way
	}
	report := in.Report(node)
	if report == nil || in.Silent(node) {
		return true
	}
	proof, _ := Unstaged(report, in.Volume.Name, 0, report.CreationTimestamp.Time)
	return proof != nil
}

// published says that a publish to the node has succeeded and has not been taken back.
func (in AttachDetachInput) published(node string) bool {
	a := in.attachment(node)
	if a == nil || !accepted(a) {
		return false
	}
	if a.Status.Proof != nil && a.Status.Proof.Epoch >= a.Spec.Epoch {
		return false
	}
	claim := in.Volume.Status.Primary
	return in.Volume.Spec.Access == apiv1.AccessMultiNode ||
		claim != nil && claim.State == apiv1.ClaimHeld && claim.NodeName == node && claim.Epoch == a.Spec.Epoch
}

func (in AttachDetachInput) attachment(node string) *apiv1.AzVolumeAttachment {
	i := slices.IndexFunc(in.Attachments, func(a *apiv1.AzVolumeAttachment) bool { return a.Spec.NodeName == node })
	if i < 0 {
		return nil
	}
	return in.Attachments[i]
}

// wantedBy returns the nodes with pods that use a volume and are not to end, those of the oldest pods first.
func wantedBy(pods []*corev1.Pod) []string {
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var nodes []string
	for _, p := range pods {
		if p.Spec.NodeName != "" && p.DeletionTimestamp == nil && !slices.Contains(nodes, p.Spec.NodeName) {
			nodes = append(nodes, p.Spec.NodeName)
		}
	}
	return nodes
}

// heldBy returns the nodes to which a volume is published, or was until something went wrong on the way: the one with the claim, and all with an
// attachment that is a primary. Where a shared disk has nothing left to come but the detach, nobody has to wait for it.
func heldBy(volume *apiv1.AzVolume, attachments []*apiv1.AzVolumeAttachment) []string {
	var nodes []string
	if volume == nil {
		return nil
	}
	if c := volume.Status.Primary; c != nil && c.State != apiv1.ClaimReleased {
		nodes = append(nodes, c.NodeName)
	}
	for _, a := range attachments {
		over := a.DeletionTimestamp != nil && Proven(volume, a) && volume.Spec.Disk.MaxShares > 1
		if a.Spec.Role == apiv1.RolePrimary && !over && !slices.Contains(nodes, a.Spec.NodeName) {
			nodes = append(nodes, a.Spec.NodeName)
		}
	}
	return nodes
}
