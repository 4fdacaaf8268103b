package placement_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
)

// A pod follows another one to the nodes that have the most of that one's volumes, and a volume that both
// pods use counts once.
func TestHowTheVolumesOfACompanionCount(t *testing.T) {
	t.Parallel()
	with := func(name string, volumes ...string) placement.NodeView {
		n := newNode(name, "1")
		for _, v := range volumes {
			holds(v)(&n)
		}
		return n
	}
	full := with("c", "w", "z")
	full.FreeSlots = 0
	for name, test := range map[string]struct {
		nodes []placement.NodeView
		want  []string
	}{
		"the node with both":                  {nodes(with("b", "w"), with("c", "w", "z")), []string{"c"}},
		"also if it is full":                  {nodes(with("b", "w"), full), nil},
		"two nodes with one each":             {nodes(with("b", "w"), with("c", "z")), []string{"b"}},
		"a volume that both pods use":         {nodes(with("b", "w", "own"), with("c", "w", "both")), []string{"b"}},
		"a volume of the other pod decides":   {nodes(with("b", "w", "both"), with("c", "w", "both", "x")), []string{"c"}},
		"a volume of no replicas attracts no": {nodes(with("b", "w"), with("c", "x")), []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := together{replicas: 1, nodes: []string{"a"}}
			c.pods = []*corev1.Pod{newPod("app", "a", nearTo(term("db", corev1.LabelHostname))), newPod("db", "a")}
			in := c.input("app")
			in.Nodes = append(in.Nodes, test.nodes...)
			for _, n := range test.nodes {
				in.Cluster.Nodes = append(in.Cluster.Nodes, n.Node)
			}
			in.Pods[0].Volumes = []string{"own", "both"}
			in.Companions[0].Replicated, in.Companions[0].Volumes = []string{"w", "z"}, []string{"w", "z", "x", "both"}
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

// Of pods that need one another, the one with the first volume leads. If they share that volume, none
// waits for the other.
func TestPodsThatShareTheirFirstVolumeDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	set := []podChange{called("set"), nearTo(term("set", corev1.LabelHostname))}
	c := together{replicas: 1, nodes: []string{"a", "b"}}
	c.pods = []*corev1.Pod{newPod("app", "a", set...), newPod("db", "a", set...)}
	in := c.input("app")
	in.Pods[0].Replicated, in.Companions[0].Replicated = []string{"aa"}, []string{"aa", "w"}
	if step := placement.Next(in); len(step.Decisions) != 1 || step.Decisions[0].Node != "b" {
		t.Errorf("got %v because %q, want a replica on b", step.Decisions, step.Why)
	}
}
