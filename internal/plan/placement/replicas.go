package placement

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

const (
	// settleAfter is how long no replica is created after a release, or a change of a released disk. A pod that
	// moves acquires the volume again within that time, and Azure attaches a shared disk to one VM after the
	// other: the next primary must not wait for a replica (law 8).
	settleAfter = 10 * time.Second
	// mostFailed is how many replicas of a volume that cannot be attached are kept, so that their
	// nodes are avoided.
	mostFailed = 4
	// firstDetour and lastDetour limit how long it takes until a further node is tried, after
	// several could not attach the disk.
	firstDetour, lastDetour = 5 * time.Second, 5 * time.Minute
	// recheckAfter is when to look again at a node that is unhealthy: no event shows that it has
	// been unhealthy for too long.
	recheckAfter = 30 * time.Second
)

// Step is the next step towards the wanted replicas.
type Step struct {
	// Decisions in the order in which to carry them out.
	Decisions []Decision
	// Short says that fewer replicas exist or are being created than there should be, and no place
	// was found. Why says why each node gets none, or that the volume is paused.
	Short bool
	Why   string
	// Guards are the replicas that would be deleted, and are not, because their nodes guard against
	// others (ownership.GuardsAgainst).
	Guards []Guard
	// Closed are the nodes of attached replicas from which the pods have been kept for longer than
	// the grace. These replicas are of no use, and stay until others are attached.
	Closed []string
	// ChangesIn is when the step changes even if nothing happens; 0 for never.
	ChangesIn time.Duration
}

// MissesReplicas reports whether Next would look for a place. It may be called with the nodes of
// the attachments alone.
func MissesReplicas(in Input) bool {
	s := stand(in)
	return annotation.Paused.Switched(in.Volume.Annotations) == "" &&
		len(s.useful) < s.target.Floor && settled(in) == 0 && detour(in, s) == 0 && canTakeMore(in)
}

// Guard is a replica that is kept because of another node.
type Guard struct {
	Node string
	// For is the node that only the reservation of Node keeps from writing to the volume.
	For string
}

// Next decides which replicas of a volume to delete and to create. It never changes a primary, the
// node that holds the ownership, or an attachment that is being deleted. It deletes no replica
// whose node guards against a fenced node, whatever the reason: the data's safety (law 3) comes
// before a drain, the clean-up and law 8. The replica is deleted after the fenced node's
// attachment, whose end is an event of the volume. While the volume is paused it decides nothing.
func Next(in Input) Step {
	if paused := annotation.Paused.Switched(in.Volume.Annotations); paused != "" {
		return Step{Why: "the AzVolume has " + paused}
	}
	step := next(in)
	step.Decisions = slices.DeleteFunc(step.Decisions, func(d Decision) bool {
		if d.Verb != Delete {
			return false
		}
		fenced := ownership.GuardsAgainst(in.Volume, d.Attachment, in.Attachments)
		if fenced != "" {
			step.Guards = append(step.Guards, Guard{Node: d.Node, For: fenced})
		}
		return fenced != ""
	})
	slices.SortFunc(step.Guards, func(a, b Guard) int { return strings.Compare(a.Node, b.Node) })
	return step
}

func next(in Input) Step {
	s := stand(in)
	step := Step{Decisions: s.useless, Closed: s.closed, ChangesIn: operation.Sooner(s.target.ChangesIn, s.in)}
	step.Decisions = append(step.Decisions, s.cut(in)...)
	if s.target.Ceiling == 0 {
		step.Decisions = append(step.Decisions, s.leaving...)
		step.Decisions = append(step.Decisions, deleteAll(s.failed, s.target.Reason)...)
		return step
	}
	if wait := settled(in); wait != 0 {
		step.ChangesIn = operation.Sooner(step.ChangesIn, wait)
		return step
	}
	if attached(s.useful) >= s.target.Floor {
		step.Decisions = append(step.Decisions, s.leaving...)
		step.Decisions = append(step.Decisions, deleteAll(s.failed, apiv1.ReasonReplicaFailed)...)
		return step
	}
	missing := s.target.Floor - len(s.useful)
	if missing <= 0 || !canTakeMore(in) {
		return step
	}
	if wait := detour(in, s); wait > 0 {
		step.Short, step.ChangesIn = true, operation.Sooner(step.ChangesIn, wait)
		step.Why = s.failures().String()
		return step
	}
	decisions, made, excluded := s.place(in, missing)
	step.Decisions = append(step.Decisions, decisions...)
	if step.Short = made < missing; step.Short {
		step.Why = excluded.String()
	}
	return step
}

// canTakeMore reports whether the disk exists, and is not about to be detached from all nodes so
// that it can be changed. A change that waits for the next release is no reason against a replica.
func canTakeMore(in Input) bool {
	waits, _ := disk.Waits(in.Volume, in.Attachments, in.Now)
	return in.Volume.Status.DiskID != "" && (waits || !disk.ChangesAlone(in.Volume))
}

// settled returns 0 if no attach or detach of a primary is due or in flight; else how long to wait,
// or less than 0 if an event will follow. A replica must not delay it (law 8).
func settled(in Input) time.Duration {
	primary := in.Volume.Status.Primary
	switch {
	case primary == nil:
		return 0
	case primary.State == apiv1.OwnershipReleased:
		return releaseSettled(in)
	case primary.State == apiv1.OwnershipHeld && slices.ContainsFunc(in.Attachments, func(a *apiv1.AzVolumeAttachment) bool {
		return a.Spec.NodeName == primary.NodeName && a.Status.State == apiv1.AttachmentAttached
	}):
		return 0
	}
	return -1
}

// releaseSettled is how much longer the next publish of a released volume may be about to come: after the
// release, and after a change of the disk for which the publish has waited.
func releaseSettled(in Input) time.Duration {
	last := ptr.Deref(in.Volume.Status.LastReleasedTime, metav1.Time{}).Time
	changed := meta.FindStatusCondition(in.Volume.Status.Conditions, apiv1.VolumeConditionUpdated)
	if changed != nil && changed.Status == metav1.ConditionTrue && changed.LastTransitionTime.After(last) {
		last = changed.LastTransitionTime.Time
	}
	return max(settleAfter-in.Now.Sub(last), 0)
}

// cut deletes the replicas above the ceiling: first replicas that are not attached yet, then
// replicas on nodes where pods cannot run now. While fewer than wanted are attached nothing is
// deleted: it is not known which of the others will be attached.
func (s *standing) cut(in Input) []Decision {
	surplus := len(s.useful) - s.target.Ceiling
	if attached(s.useful) < s.target.Ceiling {
		return nil
	}
	worth := func(a *apiv1.AzVolumeAttachment) int {
		points := 0
		if a.Status.State == apiv1.AttachmentAttached {
			points += 4
		}
		for i := range in.Nodes {
			if n := &in.Nodes[i]; n.Node.Name == a.Spec.NodeName && n.Health == nodehealth.Healthy {
				points += 2
				if reason, _, _ := closedTo(in, n); reason == "" {
					points++
				}
			}
		}
		return points
	}
	ordered := slices.Clone(s.useful)
	slices.SortFunc(ordered, func(a, b *apiv1.AzVolumeAttachment) int {
		if d := worth(a) - worth(b); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	reason := apiv1.ReasonReplicaSurplus
	if s.target.Ceiling == 0 {
		reason = s.target.Reason
	}
	return deleteAll(ordered[:surplus], reason)
}

func attached(all []*apiv1.AzVolumeAttachment) int {
	n := 0
	for _, a := range all {
		if a.Status.State == apiv1.AttachmentAttached {
			n++
		}
	}
	return n
}

func deleteAll(attachments []*apiv1.AzVolumeAttachment, reason string) []Decision {
	decisions := make([]Decision, 0, len(attachments))
	for _, a := range attachments {
		decisions = append(decisions, Decision{
			Verb:       Delete,
			Node:       a.Spec.NodeName,
			Attachment: a,
			Reason:     reason,
		})
	}
	return decisions
}

// detour returns how long it is until a further node is tried. After one failure another node is
// tried at once; after more the cause may be the disk, and the wait doubles with each node. The
// objects of those that failed are the record of it: they remain until enough others are attached,
// are retried by themselves, and their nodes are avoided until then.
func detour(in Input, s standing) time.Duration {
	if len(s.failed) < 2 {
		return 0
	}
	// Each is retried by itself, so the time runs from the creation of the youngest.
	youngest := time.Time{}
	for _, a := range s.failed {
		if a.CreationTimestamp.After(youngest) {
			youngest = a.CreationTimestamp.Time
		}
	}
	wait := lastDetour
	if len(s.failed) < mostFailed {
		wait = firstDetour << (len(s.failed) - 2)
	}
	return max(min(wait-in.Now.Sub(youngest), wait), 0)
}

// place chooses nodes for the missing replicas and creates them there as far as there are shares.
// If there is none, a leaving replica gives up its share, and the new replica is created when that
// one is deleted. A primary that holds the volume is among the attachments, because settled waits for it.
func (s *standing) place(in Input, missing int) (decisions []Decision, made int, excluded exclusions) {
	taken, shares, going := map[string]bool{}, int(in.Volume.Shares()), 0
	for _, a := range in.Attachments {
		taken[a.Spec.NodeName] = true
		if a.Status.State != apiv1.AttachmentFailed {
			shares--
		}
		if a.DeletionTimestamp != nil {
			going++
		}
	}
	zones := map[string]int{}
	for i := range in.Nodes {
		if n := &in.Nodes[i]; s.occupies(in, n.Node.Name) {
			zones[n.Zone]++
		}
	}
	found, excluded := candidates(in, taken)
	maps.Copy(excluded, s.failures())
	for _, node := range s.closed {
		excluded.add("pods cannot run there, and its replica stays until another one is attached", node)
	}
	chosen := pick(found, missing, zones, ZoneRedundant(disk.SKU(in.Volume)))
	made = min(len(chosen), max(shares, 0))
	for _, c := range chosen[made:] {
		excluded.add("the disk has no free share", c.Node.Name)
	}
	for _, c := range chosen[:made] {
		decisions = append(decisions, Decision{
			Verb:   Create,
			Node:   c.Node.Name,
			Reason: apiv1.ReasonReplicaPlaced,
		})
	}
	if made > 0 && len(s.failed) >= mostFailed {
		// The node that was avoided longest is tried again.
		oldest := slices.MinFunc(s.failed,
			func(a, b *apiv1.AzVolumeAttachment) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
		decisions = append(decisions, deleteAll([]*apiv1.AzVolumeAttachment{oldest}, apiv1.ReasonReplicaFailed)...)
	}
	without := len(chosen) - made - going
	if shares <= 0 {
		without += min(s.withoutRoom(), missing-len(chosen))
	}
	decisions = append(decisions, s.leaving[:min(max(without, 0), len(s.leaving))]...)
	return decisions, made, excluded
}
