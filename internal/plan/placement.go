package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Health is what is known of a node.
type Health string

// The healths of a node.
const (
	// Healthy: it may be given replicas.
	Healthy Health = "Healthy"
	// Doubtful: it keeps the replicas that it has and gets no new ones.
	Doubtful Health = "Doubtful"
	// Lost: its replicas are of no use.
	Lost Health = "Lost"
)

// NodeView is a node as placement sees it.
type NodeView struct {
	// Node with its name, labels, taints and whether it is unschedulable.
	Node *corev1.Node
	// Zone at Azure, as in "1"; "" for none.
	Zone string
	// Location at Azure, as in "eastus".
	Location string
	Health   Health
	// FreeSlots for data disks; negative if it is not known, and then it is not a limit.
	FreeSlots int32
	// Volumes that have an attachment here.
	Volumes map[string]bool
}

// PodView is a pod that uses the volume, as placement sees it.
type PodView struct {
	Pod *corev1.Pod
	// Volumes of the pod, without the one that is placed.
	Volumes []string
}

// PodFilter says whether a pod could run on a node. It is the seam for the
// predicates that need more than the pod and the node, as inter-pod affinity does.
type PodFilter func(pod *corev1.Pod, node *corev1.Node) bool

// Fits is the PodFilter for node name, node selector, required node affinity, taints and cordon.
func Fits(pod *corev1.Pod, node *corev1.Node) bool {
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !matches {
		return false
	}
	return tolerates(pod, node, func(t *corev1.Taint) bool { return true })
}

// belongs says whether a pod could ever run on a node: it looks at the selectors and not at taints, which come and go.
func belongs(pod *corev1.Pod, node *corev1.Node) bool {
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return err == nil && matches
}

func tolerates(pod *corev1.Pod, node *corev1.Node, filter func(*corev1.Taint) bool) bool {
	taints := node.Spec.Taints
	if node.Spec.Unschedulable {
		taints = append(slices.Clip(taints), corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	_, untolerated := schedulingcorev1.FindMatchingUntoleratedTaint(logr.Discard(), taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && filter(t)
	}, false)
	return !untolerated
}

// candidate is a node that may take a replica, with what speaks for it.
type candidate struct {
	*NodeView
	// together counts the pods' other volumes that are attached there.
	together int
	// preferred is the sum of the pods' preferred node affinities.
	preferred int64
}

// candidates returns the nodes that may take a new replica, in the order of their names.
func candidates(in ReplicasInput, taken map[string]bool) []candidate {
	var found []candidate
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if taken[n.Node.Name] || why(in, n) != "" {
			continue
		}
		c := candidate{NodeView: n}
		for _, p := range in.Pods {
			for _, v := range p.Volumes {
				if n.Volumes[v] {
					c.together++
				}
			}
			c.preferred += preference(p.Pod, n.Node)
		}
		found = append(found, c)
	}
	slices.SortFunc(found, func(a, b candidate) int { return strings.Compare(a.Node.Name, b.Node.Name) })
	return found
}

// why says why a node takes no new replica, or "".
func why(in ReplicasInput, n *NodeView) string {
	switch {
	case n.Health != Healthy:
		return fmt.Sprintf("node is %s", n.Health)
	case !reachable(in, n):
		return "the disk cannot be attached in the node's zone"
	case n.FreeSlots >= 0 && n.FreeSlots <= in.ReservedSlots:
		return "no free slot beyond the reserve"
	}
	if len(in.Pods) == 0 {
		if !tolerates(&corev1.Pod{}, n.Node, func(*corev1.Taint) bool { return true }) {
			return "node is tainted"
		}
		return ""
	}
	for _, p := range in.Pods {
		if !in.fits()(p.Pod, n.Node) {
			return "pod " + p.Pod.Name + " could not run there"
		}
	}
	return ""
}

// reachable says whether the disk can be attached to VMs of the node's zone.
func reachable(in ReplicasInput, n *NodeView) bool {
	disk := in.Volume.Spec.Disk
	if disk.Location != "" && n.Location != "" && !strings.EqualFold(disk.Location, n.Location) {
		return false
	}
	return zoneRedundant(disk.SKUName) || disk.Zone == n.Zone
}

func zoneRedundant(skuName string) bool { return strings.HasSuffix(skuName, "_ZRS") }

func preference(pod *corev1.Pod, node *corev1.Node) int64 {
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || len(affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) == 0 {
		return 0
	}
	terms, err := nodeaffinity.NewPreferredSchedulingTerms(affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	if err != nil { // an unreadable preference prefers nothing; the API server refuses such pods
		return 0
	}
	return terms.Score(node)
}

// pick chooses n of the candidates: first those that hold most of the pods' other volumes, so
// that all volumes of a pod are ready on the same nodes; then, for a zone-redundant disk, those in the zones
// that have the fewest attachments of the volume; then those that the pods prefer; then those with more free slots.
// Taking the best one by one gives the best set: each choice changes only what zones count.
func pick(from []candidate, n int, zones map[string]int, spread bool) []candidate {
	var chosen []candidate
	for len(chosen) < n && len(from) > 0 {
		best := 0
		for i := 1; i < len(from); i++ {
			if better(from[i], from[best], zones, spread) {
				best = i
			}
		}
		chosen = append(chosen, from[best])
		zones[from[best].Zone]++
		from = slices.Delete(slices.Clone(from), best, best+1)
	}
	return chosen
}

func better(a, b candidate, zones map[string]int, spread bool) bool {
	if a.together != b.together {
		return a.together > b.together
	}
	if spread && zones[a.Zone] != zones[b.Zone] {
		return zones[a.Zone] < zones[b.Zone]
	}
	if a.preferred != b.preferred {
		return a.preferred > b.preferred
	}
	if a.FreeSlots != b.FreeSlots {
		return roomier(a.FreeSlots, b.FreeSlots)
	}
	return a.Node.Name < b.Node.Name
}

// roomier compares numbers of free slots, where a negative one is not known and taken for plenty.
func roomier(a, b int32) bool {
	if a < 0 || b < 0 {
		return a < 0
	}
	return a > b
}
