package plan

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// ReplicasInput is what the placement of a volume's replicas follows from.
type ReplicasInput struct {
	Now    time.Time
	Volume *apiv1.AzVolume
	// PersistentVolume of the volume, nil if there is none.
	PersistentVolume *corev1.PersistentVolume
	// Attachments of the volume, all of them.
	Attachments []*apiv1.AzVolumeAttachment
	// Nodes of the cluster that run the node plug-in.
	Nodes []NodeView
	// Pods that use the volume.
	Pods []PodView
	// ReservedSlots of each node are left to primaries.
	ReservedSlots int32
	// CleanUpAfter is how long after its release a volume keeps its replicas.
	CleanUpAfter time.Duration
	// Filter says where a pod could run; Fits if nil.
	Filter PodFilter
}

func (in ReplicasInput) fits() PodFilter {
	if in.Filter == nil {
		return Fits
	}
	return in.Filter
}

// Verb is what is to be done with a replica.
type Verb string

// The verbs.
const (
	// Create makes a replica on the node.
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
	// Floor is made up when there are fewer, Ceiling is cut when there are more.
	Floor, Ceiling int
	// ChangesIn is when the target changes by itself; 0 for never.
	ChangesIn time.Duration
	Reason    string
}

// ReplicaTarget decides how many replicas a volume should have now. While it has a primary: as many as asked
// for. After its release: one more may stay, because one of them will be the next primary, until the
// clean-up is due or the PersistentVolume is released; then none.
func ReplicaTarget(in ReplicasInput) Target {
	wanted := int(in.Volume.Spec.MaxMountReplicaCount)
	claim := in.Volume.Status.Primary
	switch {
	case in.Volume.DeletionTimestamp != nil:
		return Target{Reason: ReasonDeleting}
	case in.Volume.Spec.Access == apiv1.AccessMultiNode, wanted == 0:
		return Target{Reason: ReasonReplicasNotWanted}
	case claim != nil && claim.State != apiv1.ClaimReleased:
		return Target{Floor: wanted, Ceiling: wanted, Reason: ReasonReplicasMissing}
	case in.PersistentVolume != nil && in.PersistentVolume.Status.Phase == corev1.VolumeReleased:
		return Target{Reason: ReasonVolumeReleased}
	case in.Volume.Status.LastReleasedTime == nil:
		// Never had a primary, so there is nothing to keep for.
		return Target{Reason: ReasonReplicasNotWanted}
	}
	left := in.Volume.Status.LastReleasedTime.Add(in.CleanUpAfter).Sub(in.Now)
	if left <= 0 {
		return Target{Reason: ReasonReplicasExpired}
	}
	return Target{Floor: wanted, Ceiling: wanted + 1, ChangesIn: left, Reason: ReasonReplicasMissing}
}

// Replicas decides, in order, which replicas of a volume are to be deleted and made. It
// never touches a primary, the node of the claim, or an attachment that is being deleted.
func Replicas(in ReplicasInput) []Decision {
	target := ReplicaTarget(in)
	useful, failed, decisions := sortReplicas(in)
	decisions = append(decisions, cut(in, useful, target)...)
	missing := target.Floor - len(useful)
	if missing <= 0 {
		if target.Ceiling == 0 || len(useful) >= target.Floor {
			decisions = append(decisions, deleteAll(failed, reasonFor(target, ReasonReplicaFailed))...)
		}
		return decisions
	}
	if in.Volume.Status.DiskURI == "" || in.Volume.Spec.CapacityBytes > in.Volume.Status.SizeBytes && in.Volume.Spec.Disk.MaxShares > 1 {
		return decisions // not yet, or not while it waits to grow
	}
	if !primarySettled(in) {
		return decisions
	}
	return append(decisions, place(in, useful, missing)...)
}

// primarySettled says that no attach of the primary is to come or under way. Azure attaches a shared disk to one VM
// after the other, and a replica must not be the first of them (law 8).
func primarySettled(in ReplicasInput) bool {
	claim := in.Volume.Status.Primary
	if claim == nil || claim.State == apiv1.ClaimReleased {
		return true
	}
	return slices.ContainsFunc(in.Attachments, func(a *apiv1.AzVolumeAttachment) bool {
		return a.Spec.NodeName == claim.NodeName && a.Status.State == apiv1.AttachmentAttached
	})
}

func reasonFor(target Target, otherwise string) string {
	if target.Ceiling == 0 {
		return target.Reason
	}
	return otherwise
}

// sortReplicas tells the replicas that are of use from those that failed, and decides on those that are of none.
func sortReplicas(in ReplicasInput) (useful, failed []*apiv1.AzVolumeAttachment, decisions []Decision) {
	nodes := map[string]*NodeView{}
	for i := range in.Nodes {
		nodes[in.Nodes[i].Node.Name] = &in.Nodes[i]
	}
	for _, a := range in.Attachments {
		if a.Spec.Role != apiv1.RoleReplica || a.DeletionTimestamp != nil || Holds(in.Volume, a.Spec.NodeName) {
			continue
		}
		node := nodes[a.Spec.NodeName]
		switch {
		case node == nil || node.Health == Lost:
			decisions = append(decisions, Decision{Verb: Delete, Node: a.Spec.NodeName, Attachment: a, Reason: ReasonReplicaNodeLost})
		case !reachable(in, node) || slices.ContainsFunc(in.Pods, func(p PodView) bool { return !belongs(p.Pod, node.Node) }):
			decisions = append(decisions, Decision{Verb: Delete, Node: a.Spec.NodeName, Attachment: a, Reason: ReasonReplicaMisplaced})
		case a.Status.State == apiv1.AttachmentFailed:
			failed = append(failed, a)
		default:
			useful = append(useful, a)
		}
	}
	return useful, failed, decisions
}

// cut deletes what is above the ceiling: first what is not attached yet, then what stands where pods cannot go now.
func cut(in ReplicasInput, useful []*apiv1.AzVolumeAttachment, target Target) []Decision {
	surplus := len(useful) - target.Ceiling
	if surplus <= 0 {
		return nil
	}
	worth := func(a *apiv1.AzVolumeAttachment) int {
		points := 0
		if a.Status.State == apiv1.AttachmentAttached {
			points += 2
		}
		for i := range in.Nodes {
			if n := &in.Nodes[i]; n.Node.Name == a.Spec.NodeName && n.Health == Healthy && !n.Node.Spec.Unschedulable {
				points++
			}
		}
		return points
	}
	ordered := slices.Clone(useful)
	slices.SortFunc(ordered, func(a, b *apiv1.AzVolumeAttachment) int {
		if d := worth(a) - worth(b); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	return deleteAll(ordered[:surplus], reasonFor(target, ReasonReplicaSurplus))
}

func deleteAll(attachments []*apiv1.AzVolumeAttachment, reason string) []Decision {
	decisions := make([]Decision, 0, len(attachments))
	for _, a := range attachments {
		decisions = append(decisions, Decision{Verb: Delete, Node: a.Spec.NodeName, Attachment: a, Reason: reason})
	}
	return decisions
}

// place makes up what is missing, as far as shares and nodes allow.
func place(in ReplicasInput, useful []*apiv1.AzVolumeAttachment, missing int) []Decision {
	taken := map[string]bool{}
	shares := int(in.Volume.Spec.Disk.MaxShares)
	for _, a := range in.Attachments {
		taken[a.Spec.NodeName] = true
		if a.Status.State != apiv1.AttachmentFailed {
			shares--
		}
	}
	if claim := in.Volume.Status.Primary; claim != nil && claim.State != apiv1.ClaimReleased && !taken[claim.NodeName] {
		taken[claim.NodeName] = true // its attachment is about to come
		shares--
	}
	zones := map[string]int{}
	for i := range in.Nodes {
		if n := &in.Nodes[i]; occupies(in, n.Node.Name, useful) {
			zones[n.Zone]++
		}
	}
	var decisions []Decision
	for _, c := range pick(candidates(in, taken), min(missing, shares), zones, zoneRedundant(in.Volume.Spec.Disk.SKUName)) {
		decisions = append(decisions, Decision{Verb: Create, Node: c.Node.Name, Reason: ReasonReplicaPlaced})
	}
	return decisions
}

func occupies(in ReplicasInput, node string, useful []*apiv1.AzVolumeAttachment) bool {
	return Holds(in.Volume, node) || slices.ContainsFunc(useful, func(a *apiv1.AzVolumeAttachment) bool { return a.Spec.NodeName == node })
}

// repairAfter is how long the CSI controller server is given to finish a release
// or a claim that it has begun, before the reconciler does it.
const repairAfter = 5 * time.Second

// Repair is what a half-finished hand-over leaves to be done.
type Repair struct {
	// Demote and Remove are attachments whose role Primary has ended.
	Demote, Remove []*apiv1.AzVolumeAttachment
	// Primary is the node whose attachment is missing though it holds the claim.
	Primary string
	// In is when to look again.
	In time.Duration
}

// Repairs decides what is left to do of a hand-over whose process was killed.
func Repairs(volume *apiv1.AzVolume, attachments []*apiv1.AzVolumeAttachment, now time.Time) Repair {
	claim := volume.Status.Primary
	if claim == nil || volume.Spec.Access == apiv1.AccessMultiNode || volume.DeletionTimestamp != nil {
		return Repair{}
	}
	var r Repair
	found := false
	for _, a := range attachments {
		found = found || a.Spec.NodeName == claim.NodeName
		if a.Spec.Role != apiv1.RolePrimary || a.DeletionTimestamp != nil || !Proven(volume, a) {
			continue
		}
		if Demotion(volume, a, attachments) == Demote {
			r.Demote = append(r.Demote, a)
		} else {
			r.Remove = append(r.Remove, a)
		}
	}
	if claim.State == apiv1.ClaimHeld && !found {
		r.Primary = claim.NodeName
	}
	if r.Primary == "" && len(r.Demote)+len(r.Remove) == 0 {
		return r
	}
	if claim.Since != nil {
		if left := claim.Since.Add(repairAfter).Sub(now); left > 0 {
			return Repair{In: left}
		}
	}
	return r
}
