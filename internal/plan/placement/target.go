package placement

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Input is the input of Next, the decision about a volume's replicas.
type Input struct {
	Now    time.Time
	Volume *apiv1.AzVolume
	// PersistentVolume of the volume, nil if there is none.
	PersistentVolume *corev1.PersistentVolume
	// Attachments of the volume, all of them.
	Attachments []*apiv1.AzVolumeAttachment
	// Nodes of the cluster that run the node plug-in. Unless MissesReplicas, the nodes of the
	// attachments are enough.
	Nodes []NodeView
	// Pods that use the volume.
	Pods []PodView
	// Cluster is used only if MissesReplicas, and there are Pods.
	Cluster Cluster
	// Beside are the pods on the nodes of the volume's replicas, by node.
	Beside map[string][]*corev1.Pod
	// Companions are the pods that leave together with Pods; see the function Companions.
	Companions []PodView
	// ReservedSlots of each node are kept free for primaries.
	ReservedSlots int32
	// NodeLabel is the key of a label: new replicas go to nodes that have it with the value of the
	// node that uses the volume, or used it last. "" for all nodes.
	NodeLabel string
	// CleanUpDelay is how long after its release a volume keeps its replicas.
	CleanUpDelay time.Duration
	// DrainGrace is how long the pods may be kept off a node before its replicas are replaced.
	DrainGrace time.Duration
	// ClosedSince is when the controller saw first that a node is one of Closed. A controller that
	// was restarted sees it later, and then the replica is replaced later.
	ClosedSince map[string]time.Time
}

// Verb is what to do with a replica.
type Verb string

// The verbs.
const (
	// Create creates a replica on the node.
	Create Verb = "Create"
	// Delete deletes the attachment of the node.
	Delete Verb = "Delete"
)

// Decision is one step towards the wanted replicas.
type Decision struct {
	Verb Verb
	Node string
	// Attachment to delete.
	Attachment *apiv1.AzVolumeAttachment
	Reason     string
}

// Target is the number of replicas that a volume should have.
type Target struct {
	// If there are fewer than Floor, replicas are created; if there are more than Ceiling, replicas
	// are deleted.
	Floor, Ceiling int
	// ChangesIn is when the target changes by itself; 0 for never.
	ChangesIn time.Duration
	Reason    string
}

// ReplicaTarget decides how many replicas a volume should have now. While it has a primary: as many
// as requested. After its release: one more may remain, because one of them will be the next
// primary, until the clean-up is due or the PersistentVolume is released; then none.
func ReplicaTarget(in Input) Target {
	wanted := int(in.Volume.WantedReplicas())
	primary := in.Volume.Status.Primary
	switch {
	case in.Volume.Leaving():
		return Target{Reason: apiv1.ReasonDiskDeleting}
	case in.Volume.Spec.Access == apiv1.AccessMultiNode, wanted == 0:
		return Target{Reason: apiv1.ReasonReplicasNotWanted}
	case primary != nil && primary.State != apiv1.OwnershipReleased:
		return Target{
			Floor:   wanted,
			Ceiling: wanted,
			Reason:  apiv1.ReasonReplicasMissing,
		}
	case in.PersistentVolume != nil && in.PersistentVolume.Status.Phase == corev1.VolumeReleased:
		return Target{Reason: apiv1.ReasonVolumeReleased}
	case in.Volume.Status.LastReleasedTime == nil:
		// Never had a primary, so there is nothing to keep replicas for.
		return Target{Reason: apiv1.ReasonReplicasNotWanted}
	}
	left := in.Volume.Status.LastReleasedTime.Add(in.CleanUpDelay).Sub(in.Now)
	if left <= 0 {
		return Target{Reason: apiv1.ReasonReplicasExpired}
	}
	return Target{
		Floor:     wanted,
		Ceiling:   wanted + 1,
		ChangesIn: left,
		Reason:    apiv1.ReasonReplicasMissing,
	}
}
