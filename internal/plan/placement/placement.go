// Package placement decides on which nodes a volume has its attachment replicas, and when a replica
// is removed.
package placement

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// NodeView is a node as placement sees it.
type NodeView struct {
	// Node with its name, labels, taints and whether it is unschedulable.
	Node *corev1.Node
	// Zone at Azure, as in "1"; "" for none.
	Zone string
	// Location at Azure, as in "eastus".
	Location string
	// Health for replicas; see nodehealth.ForReplicas.
	Health nodehealth.State
	// Disturbed says that Azure has announced maintenance of the VM.
	Disturbed bool
	// FreeSlots for data disks; negative if it is not known, and then it is not a limit.
	FreeSlots int32
	// Crowded says that an attachment there waits for a slot or found none, whatever the count is.
	Crowded bool
	// Capacity of the VM; nil if it is not known.
	Capacity *apiv1.NodeCapacity
	// Volumes that have an attachment here.
	Volumes map[string]bool
	// Report of the node; nil if there is none.
	Report *apiv1.AzDriverNode
}

// PodView is a pod that uses the volume, as placement sees it.
type PodView struct {
	Pod *corev1.Pod
	// Volumes of the pod, without the one that is placed. Replicated are the volumes that want
	// replicas; they matter only if there are Companions.
	Volumes, Replicated []string
	// PersistentVolumes of the pod, also those of other drivers, as far as they exist.
	PersistentVolumes []*corev1.PersistentVolume

	// selectors are made when they are needed first. One decision asks them about every node of the
	// cluster.
	selectors []selector
}

// selector reports whether a rule names a node.
type selector interface {
	Match(node *corev1.Node) (bool, error)
}

// Belongs reports whether a pod could ever run on a node: it uses the selectors of the pod and of
// its volumes, and not taints and other pods, which change.
func (p *PodView) Belongs(node *corev1.Node) bool {
	if p.selectors == nil {
		p.selectors = append(p.selectors, nodeaffinity.GetRequiredNodeAffinity(p.Pod))
		for _, pv := range p.PersistentVolumes {
			if a := pv.Spec.NodeAffinity; a != nil && a.Required != nil {
				p.selectors = append(p.selectors, nodeaffinity.NewLazyErrorNodeSelector(a.Required))
			}
		}
	}
	return !slices.ContainsFunc(p.selectors, func(s selector) bool {
		matches, _ := s.Match(node) // a rule that cannot be read matches no node
		return !matches
	})
}

// belongs reports whether all pods could ever run on a node.
func belongs(pods []PodView, node *corev1.Node) bool {
	for i := range pods {
		if !pods[i].Belongs(node) {
			return false
		}
	}
	return true
}

// untolerated returns the taints, among those that pass the filter, that keep a pod off a node.
func untolerated(pod *corev1.Pod, node *corev1.Node, filter func(*corev1.Taint) bool) []corev1.Taint {
	taints := node.Spec.Taints
	if node.Spec.Unschedulable { // Kubernetes adds the taint a moment later
		taints = append(slices.Clip(taints), corev1.Taint{
			Key:    corev1.TaintNodeUnschedulable,
			Effect: corev1.TaintEffectNoSchedule,
		})
	}
	var found []corev1.Taint
	for i := range taints {
		if filter(&taints[i]) && !schedulingcorev1.TolerationsTolerateTaint(logr.Discard(), pod.Spec.Tolerations, &taints[i],
			false) {
			found = append(found, taints[i])
		}
	}
	return found
}

// hard passes the taints that keep pods off a node.
func hard(t *corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
}

// soft passes the taints that only advise against a node.
func soft(t *corev1.Taint) bool { return t.Effect == corev1.TaintEffectPreferNoSchedule }

func tolerates(pod *corev1.Pod, node *corev1.Node) bool {
	return len(untolerated(pod, node, hard)) == 0
}

// candidate is a node that may have a replica, with what favours it.
type candidate struct {
	*NodeView
	// together counts the pods' other volumes that are attached there, and beside the volumes of
	// their companions.
	together, beside int
	// company counts the companions that could run there.
	company int
	// roomy says that there are slots for all of the pods' volumes that are not attached there.
	roomy bool
	// outdated says that the node has an older image than others of its pool, and will be drained.
	outdated bool
	// preference of the pods, the sum of all they prefer and avoid; see preferences.
	preference int64
}

// candidates returns the nodes that may have a new replica, and the others, by the reason why they
// may not.
func candidates(in Input, taken map[string]bool) ([]candidate, exclusions) {
	around := look(in)
	others := map[string]bool{}
	for _, p := range in.Pods {
		for _, v := range p.Volumes {
			others[v] = true
		}
	}
	companions := map[string]bool{}
	for _, p := range in.Companions {
		for _, v := range p.Volumes {
			companions[v] = !others[v]
		}
	}
	old, trusted := outdated(in.Nodes), in.trusted()
	var found []candidate
	excluded := exclusions{}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if taken[n.Node.Name] {
			continue
		}
		reason := why(in, around, n)
		if reason == "" && !trusted(n.Node) {
			reason = "the node does not have the label " + in.NodeLabel + " of the volume's node"
		}
		if reason != "" {
			excluded.add(reason, n.Node.Name)
			continue
		}
		c := candidate{
			NodeView: n,
			company:  around.company(n.Node),
			outdated: old[n.Node.Name],
		}
		for v := range others {
			if n.Volumes[v] {
				c.together++
			}
		}
		for v, counts := range companions {
			if counts && n.Volumes[v] {
				c.beside++
			}
		}
		c.roomy = n.FreeSlots < 0 || int(n.FreeSlots-in.ReservedSlots) > len(others)-c.together
		found = append(found, c)
	}
	for i, p := range preferences(around, found) {
		found[i].preference = p
	}
	return found, excluded
}

// trusted returns whether a node may have replicas by NodeLabel: root there can read and write the
// disk. If it is not known which node uses the volume, or used it last, no node may.
func (in Input) trusted() func(*corev1.Node) bool {
	if in.NodeLabel == "" {
		return func(*corev1.Node) bool { return true }
	}
	value, known := in.nodeLabel()
	return func(node *corev1.Node) bool {
		got, has := node.Labels[in.NodeLabel]
		return known && has && got == value
	}
}

// nodeLabel returns the value of NodeLabel on the node that uses the volume, or used it last.
func (in Input) nodeLabel() (value string, known bool) {
	node := ""
	if last := in.Volume.Status.LastRelease; last != nil {
		node = last.NodeName
	}
	if primary := in.Volume.Status.Primary; primary != nil && primary.State != apiv1.OwnershipReleased {
		node = primary.NodeName
	}
	for i := range in.Nodes {
		if n := in.Nodes[i].Node; n.Name == node {
			value, known = n.Labels[in.NodeLabel]
		}
	}
	return value, known
}

// why says why a node gets no new replica, or "".
func why(in Input, around *surroundings, n *NodeView) string {
	switch {
	case n.Disturbed:
		return "Azure has announced maintenance of the VM"
	case n.Health != nodehealth.Healthy:
		return fmt.Sprintf("the node is %s", n.Health)
	case ownership.LeftBehind(n.Report, in.Volume.Name, false):
		// Its pod is gone, or waits for the volume elsewhere: an owner's node has an attachment.
		return "a process there that outlived its pod may use the volume"
	case !Attachable(in.Volume, n.Location, n.Zone):
		return "the disk cannot be attached in the node's zone"
	case !n.Capacity.Takes(disk.SKU(in.Volume)):
		return "the VM cannot have disks of the SKU"
	case n.FreeSlots >= 0 && n.FreeSlots <= in.ReservedSlots:
		return "no free slot beyond the reserve"
	case n.Crowded:
		return "attachments wait for a slot there"
	}
	return closed(in.Pods, around, n.Node)
}

// closed says why pods cannot run on a node, or "". It does not look at the node's resources.
func closed(pods []PodView, around *surroundings, node *corev1.Node) string {
	if len(pods) == 0 {
		if !tolerates(&corev1.Pod{}, node) {
			return "the node is tainted"
		}
		return ""
	}
	for i := range pods {
		p := &pods[i]
		if !p.Belongs(node) {
			return "the selectors of pod " + p.Pod.Name + " or of its volumes exclude the node"
		}
		if !tolerates(p.Pod, node) {
			return "pod " + p.Pod.Name + " does not tolerate the node's taints"
		}
	}
	return around.forbids(node)
}

// Attachable reports whether the disk of a volume can be attached to VMs of a region and a zone.
func Attachable(volume *apiv1.AzVolume, location, zone string) bool {
	disk := volume.Spec.Disk
	if disk.Location != "" && location != "" && !strings.EqualFold(disk.Location, location) {
		return false
	}
	return ZoneRedundant(disk.SKUName) || disk.Zone == zone
}

// ZoneRedundant says of a SKU that its disks are in all zones of their region.
func ZoneRedundant(skuName string) bool { return strings.HasSuffix(skuName, "_ZRS") }

// pick chooses n of the candidates: first those that have most of the pods' other volumes, so that
// all volumes of a pod are ready on the same nodes, and those that have slots for the rest; then
// those that have most of the volumes of the companions, and those where most of the companions
// could run; then, for a zone-redundant disk, those in the zones that have the fewest attachments
// of the volume; then those that an upgrade of their pool will not drain; then those that the pods
// prefer; then those with more free slots. Choosing the best one by one gives the best set: each
// choice changes only the counts of the zones.
func pick(from []candidate, n int, zones map[string]int, spread bool) []candidate {
	var chosen []candidate
	from = slices.Clone(from)
	for len(chosen) < n && len(from) > 0 {
		best := 0
		for i := 1; i < len(from); i++ {
			if better(from[i], from[best], zones, spread) {
				best = i
			}
		}
		chosen = append(chosen, from[best])
		zones[from[best].Zone]++
		from = slices.Delete(from, best, best+1)
	}
	return chosen
}

func better(a, b candidate, zones map[string]int, spread bool) bool {
	zone := 0
	if spread {
		zone = cmp.Compare(zones[a.Zone], zones[b.Zone])
	}
	return cmp.Or(
		cmp.Compare(b.together, a.together),
		onlyFirst(b.roomy, a.roomy),
		cmp.Compare(b.beside, a.beside),
		cmp.Compare(b.company, a.company),
		zone,
		onlyFirst(a.outdated, b.outdated),
		cmp.Compare(b.preference, a.preference),
		cmp.Compare(room(b.FreeSlots), room(a.FreeSlots)),
		strings.Compare(a.Node.Name, b.Node.Name)) < 0
}

// onlyFirst compares two bools: true is more.
func onlyFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// room is a number of free slots to compare: a negative number is unknown and counts as plenty.
func room(slots int32) int32 {
	if slots < 0 {
		return math.MaxInt32
	}
	return slots
}
