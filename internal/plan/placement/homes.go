package placement

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// Choices are the nodes that a pod without a node has.
type Choices struct {
	// Open are the nodes on which the pod could run, in the order of the cluster, and Preference how
	// much it prefers each, in the scheduler's scores.
	Open       []*corev1.Node
	Preference []int64
	// Closed says why the pod cannot run on each of the others.
	Closed map[string]string
}

// ChoicesOf decides where a pod without a node could run: by its selectors and those of its volumes,
// by taints, and by the rules between pods. It does not look at the resources of the nodes.
func ChoicesOf(p PodView, c Cluster) Choices {
	in := Input{Volume: &apiv1.AzVolume{}, Pods: []PodView{p}, Cluster: c}
	around := look(in)
	choices := Choices{Closed: map[string]string{}}
	var found []candidate
	for _, n := range c.Nodes {
		if reason := closed(in.Pods, around, n); reason != "" {
			choices.Closed[n.Name] = reason
			continue
		}
		choices.Open = append(choices.Open, n)
		found = append(found, candidate{NodeView: &NodeView{Node: n}})
	}
	choices.Preference = preferences(around, found)
	return choices
}

// Homes returns the names of the nodes to which a pod could move with its volumes: nodes that are
// Healthy and that Azure leaves alone. Nodes without their health are none. As ChoicesOf, it does not
// look at the resources of the nodes, nor at slots: a replica gives its slot to a primary.
func Homes(p PodView, volumes []*apiv1.AzVolume, nodes []NodeView, c Cluster) []string {
	around := look(Input{Volume: &apiv1.AzVolume{}, Pods: []PodView{p}, Cluster: c})
	var homes []string
	for i := range nodes {
		n := &nodes[i]
		if n.Disturbed || n.Health != nodehealth.Healthy || closed([]PodView{p}, around, n.Node) != "" ||
			slices.ContainsFunc(volumes, func(v *apiv1.AzVolume) bool {
				return !Attachable(v, n.Location, n.Zone) || !n.Capacity.Takes(disk.SKU(v))
			}) {
			continue
		}
		homes = append(homes, n.Node.Name)
	}
	return homes
}
