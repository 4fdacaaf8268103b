package placement_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// TestNodesOutsideATopologyAreNoDomain has a volume on node a, and nodes b, c, d, and the racks: c is in
// the rack with the empty name, d in rack 1, a and b are in none. Nodes c and d have the feature x, b has
// a taint. Node a is in zone 1 with b and c, d in zone 2.
func TestNodesOutsideATopologyAreNoDomain(t *testing.T) {
	t.Parallel()
	const rack, zone = "rack", corev1.LabelTopologyZone
	everywhere, featuredOnes := []string{"b", "c", "d"}, []string{"c", "d"}
	web := func(node string, changes ...podChange) *corev1.Pod { return newPod("web", node, changes...) }
	over := func(key string, changes ...func(*constraint)) podChange {
		return evenly(constraint{MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: app("db")}, changes...)
	}
	dedicated := taintedFor(0, "dedicated", corev1.TaintEffectNoSchedule)
	rather := func(c *constraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway }
	affinity := func(p corev1.NodeInclusionPolicy) func(*constraint) {
		return func(c *constraint) { c.NodeAffinityPolicy = &p }
	}
	taints := func(p corev1.NodeInclusionPolicy) func(*constraint) {
		return func(c *constraint) { c.NodeTaintsPolicy = &p }
	}
	featured := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"feature": "x"} }
	tolerates := func(p *corev1.Pod) { p.Spec.Tolerations = tolerant().Pod.Spec.Tolerations }
	db := func(changes ...podChange) *corev1.Pod { return newPod("db", "a", append(changes, tolerates)...) }
	second := newPod("db-1", "b", called("db"))
	for name, test := range map[string]struct {
		user, other *corev1.Pod
		want        []string
	}{
		"far from a pod in no rack":               {db(farFrom(term("web", rack))), web("b"), everywhere},
		"far from a pod in the rack without name": {db(farFrom(term("web", rack))), web("c"), []string{"b", "d"}},
		"a pod in no rack that wants to be alone": {db(), web("b", farFrom(term("db", rack))), everywhere},
		"a pod of a rack that wants to be alone":  {db(), web("c", farFrom(term("db", rack))), []string{"b", "d"}},
		"a pod in no rack that needs it":          {db(), web("b", nearTo(term("db", rack))), everywhere},
		"rather near a pod in no rack":            {db(ratherNear(term("web", rack))), web("b"), everywhere},
		"rather near a pod in the unnamed rack":   {db(ratherNear(term("web", rack))), web("c"), []string{"c", "b", "d"}},
		"near pods of its set, and none runs":     {db(nearTo(term("db", rack))), web("b"), []string{"c", "d"}},

		"spread over racks and zones: only nodes with both count": {db(over(zone), over(rack)), second, featuredOnes},
		"spread over zones, and rather over racks":                {db(over(zone), over(rack, rather)), second, []string{"d"}},

		"spread over the nodes that it selects":       {db(featured, over(zone)), second, featuredOnes},
		"spread over the nodes that it must select":   {db(featured, over(zone, affinity("Honor"))), second, featuredOnes},
		"spread over all nodes, whatever it selects":  {db(featured, over(zone, affinity("Ignore"))), second, []string{"d"}},
		"spread over all nodes, whatever the taints":  {newPod("db", "a", over(zone)), second, []string{"d"}},
		"spread over all nodes, and taints are noise": {newPod("db", "a", over(zone, taints("Ignore"))), second, []string{"d"}},
		"spread over a taint that it tolerates":       {db(over(zone, taints("Honor"))), second, []string{"d"}},
		"spread over the nodes that it tolerates":     {newPod("db", "a", over(zone, taints("Honor"))), second, featuredOnes},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := placement.Input{
				Now:         objects.Now,
				Volume:      objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld)),
				Attachments: objects.Attachments(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)),
				Nodes:       nodes(newNode("a", ""), newNode("b", "", dedicated), newNode("c", ""), newNode("d", "")),
				Cluster:     placement.Cluster{Pods: []*corev1.Pod{test.user, test.other}},
				Pods:        []placement.PodView{{Pod: test.user}},
			}
			in.Volume.Spec.Disk.MaxShares, in.Volume.Spec.MaxMountReplicaCount, in.Volume.Spec.Disk.Zone = 10, 9, ""
			for i, labels := range []map[string]string{{zone: "1"}, {zone: "1"}, {zone: "1", rack: "", "feature": "x"},
				{zone: "2", rack: "1", "feature": "x"}} {
				in.Nodes[i].Node.Labels = labels
				in.Cluster.Nodes = append(in.Cluster.Nodes, in.Nodes[i].Node)
			}
			var got []string
			for _, d := range placement.Next(in).Decisions {
				got = append(got, d.Node)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
