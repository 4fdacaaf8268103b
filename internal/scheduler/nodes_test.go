package scheduler

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// TestNodesWithoutDisksOfThePodAreJudgedAsInDetail compares the judgement by counts with that by
// the names of the volumes.
func TestNodesWithoutDisksOfThePodAreJudgedAsInDetail(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var volumes []Volume
		for i := range rapid.IntRange(1, 4).Draw(t, "volumes") {
			v := Volume{
				Name: fmt.Sprint("v", i),
				SKU:  rapid.SampledFrom([]string{"", "Premium_LRS", "UltraSSD_LRS"}).Draw(t, "SKU"),
			}
			if rapid.Bool().Draw(t, "elsewhere") {
				v.Nodes = map[string]DiskState{"elsewhere": Primary}
			}
			volumes = append(volumes, v)
		}
		d := node("n", func(n *apiv1.AzDriverNode) {
			n.Status.Capacity = &apiv1.NodeCapacity{
				MaxDataDisks: rapid.Int32Range(0, 8).Draw(t, "max"),
				ForeignDisks: rapid.Int32Range(0, 3).Draw(t, "foreign"),
				LacksPremium: rapid.Bool().Draw(t, "lacks premium"),
				LacksUltra:   rapid.Bool().Draw(t, "lacks ultra"),
			}
		})
		var taken []string
		for i := range rapid.IntRange(0, 8).Draw(t, "taken") {
			taken = append(taken, fmt.Sprint("other", i))
		}
		var table nodeTable
		table.observe(d, driver)
		table.change("n", func(f *nodeFacts) { f.taken = len(taken) })
		m := moment{nodes: table.nodes, demand: demandOf(volumes)}
		got := m.Feasible("n")
		if want := Room("n", d.Status.Capacity, taken, volumes); got != want {
			t.Fatalf("%+v with %v, for %+v: got %+v, want %+v", d.Status.Capacity, taken, volumes, got, want)
		}
	})
}

func TestTheTableOfNodes(t *testing.T) {
	t.Parallel()
	var table nodeTable
	faultOf := func() Fault {
		return (&moment{nodes: table.nodes}).Mountable("n").Fault
	}
	for _, step := range []struct {
		name  string
		do    func()
		want  Fault
		taken int
	}{
		{"nothing is known of it", func() {}, FaultNoPlugin, 0},
		{"only its attachments are known", func() { table.change("n", func(f *nodeFacts) { f.taken = 2 }) }, FaultNoPlugin, 2},
		{"its node plug-in registers", func() { table.observe(node("n"), driver) }, FaultNone, 2},
		{"it is not ready", func() {
			table.observe(node("n", func(n *apiv1.AzDriverNode) { n.Status.Conditions = nil }), driver)
		}, FaultNotReady, 2},
		{"its AzDriverNode is deleted", func() { table.forget("n") }, FaultNoPlugin, 2},
		{"its attachments are deleted", func() { table.change("n", func(f *nodeFacts) { f.taken = 0 }) }, FaultNoPlugin, 0},
	} {
		step.do()
		taken := 0
		if facts := table.nodes["n"]; facts != nil {
			taken = facts.taken
		}
		if got := faultOf(); got != step.want || taken != step.taken {
			t.Errorf("after %s: got fault %q and %d attachments, want %q and %d", step.name, got, taken, step.want, step.taken)
		}
	}
	if len(table.nodes) != 0 {
		t.Errorf("a node without objects is still known: %+v", table.nodes)
	}
}
