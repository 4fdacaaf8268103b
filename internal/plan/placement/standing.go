package placement

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// standing is the state of a volume's replicas.
type standing struct {
	target Target
	// useful ones count.
	useful, failed []*apiv1.AzVolumeAttachment
	// leaving ones stand on nodes that are lost or closed to the pods, or that Azure services together
	// with the primary's, or wait on a suspect node.
	// They go when enough others are attached, or when another one needs their share; where no
	// other node can take the replica they stay, because their node may come back first. Those on
	// lost nodes come first.
	leaving []Decision
	// useless replicas are to be deleted, whether or not another one replaces them.
	useless []Decision
	// closed are the nodes of leaving replicas that are attached and closed to the pods.
	closed []string
	// in is when a grace ends.
	in time.Duration
}

// stand sorts the replicas.
func stand(in Input) standing {
	s := standing{target: ReplicaTarget(in)}
	nodes := map[string]*NodeView{}
	for i := range in.Nodes {
		nodes[in.Nodes[i].Node.Name] = &in.Nodes[i]
	}
	for _, a := range in.Attachments {
		if a.Spec.Role == apiv1.RoleReplica && a.DeletionTimestamp == nil && !ownership.OwnedBy(in.Volume, a.Spec.NodeName) {
			s.sort(in, a, nodes[a.Spec.NodeName])
		}
	}
	return s
}

func (s *standing) sort(in Input, a *apiv1.AzVolumeAttachment, node *NodeView) {
	because := func(reason string) Decision {
		if s.target.Ceiling == 0 {
			reason = s.target.Reason
		}
		return Decision{
			Verb:       Delete,
			Node:       a.Spec.NodeName,
			Attachment: a,
			Reason:     reason,
		}
	}
	failed := a.Status.State == apiv1.AttachmentFailed
	if node == nil || node.Health == nodehealth.Lost && failed {
		s.useless = append(s.useless, because(apiv1.ReasonReplicaNodeLost))
		return
	}
	closed, wait := closedTooLong(in, node)
	s.in = operation.Sooner(s.in, wait)
	switch {
	case in.mistrusted(node.Node): // root there must not have the disk for the time of a grace
		s.useless = append(s.useless, because(apiv1.ReasonReplicaMisplaced))
	case closed != "" && failed:
		s.useless = append(s.useless, because(closed))
	case node.Health == nodehealth.Lost:
		s.leaving = slices.Insert(s.leaving, 0, because(apiv1.ReasonReplicaNodeLost))
	case failed:
		s.failed = append(s.failed, a)
	case node.Health == nodehealth.Suspect && a.Status.State == apiv1.AttachmentPending:
		// Azure is not asked to attach the disk while it is not known which VM the node is. But the
		// disk may be attached since an earlier try, and take a share.
		s.in = operation.Sooner(s.in, recheckAfter)
		s.leaving = append(s.leaving, because(apiv1.ReasonReplicaFailed))
	default:
		if node.Health == nodehealth.Suspect {
			// It may be back in a minute, after a reboot or a partition, and then nothing has to be
			// done.
			s.in = operation.Sooner(s.in, recheckAfter)
		}
		switch {
		case closed != "":
			s.leaving = append(s.leaving, because(closed))
			if a.Status.State == apiv1.AttachmentAttached {
				s.closed = append(s.closed, a.Spec.NodeName)
			}
		case node.Disturbed && primaryDisturbed(in):
			// The volume is going to move, and must find a replica on a node that stays.
			s.leaving = append(s.leaving, because(apiv1.ReasonReplicaDisturbed))
		default:
			s.useful = append(s.useful, a)
		}
	}
}

// mistrusted reports whether a replica must leave a node because of NodeLabel. While it is not known
// which node uses the volume, or used it last, the replicas remain.
func (in Input) mistrusted(node *corev1.Node) bool {
	_, known := in.nodeLabel()
	return known && !in.trusted()(node)
}

// primaryDisturbed reports whether Azure has announced maintenance of the VM that uses the volume.
func primaryDisturbed(in Input) bool {
	return slices.ContainsFunc(in.Nodes, func(n NodeView) bool {
		return n.Disturbed && ownership.OwnedBy(in.Volume, n.Node.Name)
	})
}

// withoutRoom counts the replicas that failed because no slot was free. Each is retried by itself,
// but cannot be attached before the disk has a free share.
func (s *standing) withoutRoom() int {
	n := 0
	for _, a := range s.failed {
		if e := a.Status.Error; e != nil && e.Reason == string(provisioner.InsufficientCapacity) {
			n++
		}
	}
	return n
}

// failures are the nodes to which the disk could not be attached.
func (s *standing) failures() exclusions {
	excluded := exclusions{}
	for _, a := range s.failed {
		excluded.add(failure(a), a.Spec.NodeName)
	}
	return excluded
}

// failure says why a disk could not be attached, by the attachment's own reason. Of Azure's errors it has the code
// alone: their texts differ with each answer.
func failure(a *apiv1.AzVolumeAttachment) string {
	c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached)
	switch e := a.Status.Error; {
	case c != nil && c.Reason == apiv1.ReasonNoDiskSlot:
		return c.Reason + ", " + c.Message
	case e != nil && e.Code != "":
		return "Azure does not attach the disk there (" + e.Code + ")"
	case c != nil:
		return "the disk could not be attached there (" + c.Reason + ")"
	}
	return "the disk could not be attached there"
}

func (s *standing) occupies(in Input, node string) bool {
	return ownership.OwnedBy(in.Volume, node) ||
		slices.ContainsFunc(s.useful, func(a *apiv1.AzVolumeAttachment) bool { return a.Spec.NodeName == node })
}
