package scheduler

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
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
				v.Nodes = map[string]DiskState{"elsewhere": primary}
			}
			volumes = append(volumes, v)
		}
		d := node("n", func(n *apiv1.AzDriverNode) {
			n.Status.Capacity = &apiv1.NodeCapacity{
				MaxDataDisks: rapid.Int32Range(0, 8).Draw(t, "max"),
				ForeignDisks: rapid.Int32Range(0, 3).Draw(t, "outside"),
				LacksPremium: rapid.Bool().Draw(t, "lacks premium"),
				LacksUltra:   rapid.Bool().Draw(t, "lacks ultra"),
			}
		})
		var taken []string
		for i := range rapid.IntRange(0, 8).Draw(t, "taken") {
			taken = append(taken, fmt.Sprint("other", i))
		}
		var table nodeTable
		table.observe(nil, d, driver)
		table.change("n", func(f *nodeFacts) { f.taken = len(taken) })
		m := moment{nodes: table.nodes, demand: demandOf(volumes)}
		got := m.Feasible("n")
		if want := Room("n", d.Status.Capacity, taken, volumes); got != want {
			t.Fatalf("%+v with %v, for %+v: got %+v, want %+v", d.Status.Capacity, taken, volumes, got, want)
		}
	})
}

// TestACloneIsMadeInTheZoneOfItsSource: nothing else keeps kube-scheduler from choosing a node where
// the disk cannot be created, again and again.
func TestACloneIsMadeInTheZoneOfItsSource(t *testing.T) {
	t.Parallel()
	var table nodeTable
	for _, n := range []*apiv1.AzDriverNode{
		node("same", in("2")), node("other", in("1")), node("zoneless"),
		node("broken", in("1"), func(n *apiv1.AzDriverNode) { n.Status.Conditions = nil }),
	} {
		table.observe(nil, n, driver)
	}
	for name, c := range map[string]struct {
		volumes []Volume
		want    map[string]Fault
	}{
		"a clone":            {[]Volume{{Zone: "eastus-2"}}, map[string]Fault{"other": faultZone, "broken": faultNotReady}},
		"a disk of any zone": {[]Volume{{}}, map[string]Fault{"broken": faultNotReady}},
		"a clone beside a volume that is in another zone": {[]Volume{{Zone: "eastus-2"}, {Name: "v",
			Nodes: map[string]DiskState{"other": primary}}}, map[string]Fault{"other": faultZone, "broken": faultNotReady}},
		"clones of two zones": {[]Volume{{Zone: "eastus-2"}, {Zone: "eastus-1"}}, map[string]Fault{
			"same": faultZone, "other": faultZone, "broken": faultNotReady}},
	} {
		m := moment{nodes: table.nodes, demand: demandOf(c.volumes)}
		got := map[string]Fault{}
		for n := range table.nodes {
			if h := m.Feasible(n); !h.feasible() {
				got[n] = h.Fault
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: want (-) and got (+):\n%s", name, diff)
		}
	}
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
		{"nothing is known of it", func() {}, faultNoPlugin, 0},
		{"only its attachments are known", func() { table.change("n", func(f *nodeFacts) { f.taken = 2 }) }, faultNoPlugin, 2},
		{"its node plug-in registers", func() { table.observe(nil, node("n"), driver) }, faultNone, 2},
		{"it is not ready", func() {
			table.observe(nil, node("n", func(n *apiv1.AzDriverNode) { n.Status.Conditions = nil }), driver)
		}, faultNotReady, 2},
		{"its AzDriverNode is deleted", func() { table.forget(node("n")) }, faultNoPlugin, 2},
		{"its attachments are deleted", func() { table.change("n", func(f *nodeFacts) { f.taken = 0 }) }, faultNoPlugin, 0},
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

// TestTheJudgementOfListsIsThatOfTheCache compares Lists with View.
func TestTheJudgementOfListsIsThatOfTheCache(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names, disks := []string{"a", "b", "c"}, []string{"data", "logs", "other", "more"}
		view := &View{DriverName: driver, Namespace: apiv1.DefaultNamespace}
		drivers := map[string]*apiv1.AzDriverNode{}
		attachments := map[string][]*apiv1.AzVolumeAttachment{}
		var all []client.Object
		var before []*apiv1.AzVolumeAttachment
		for _, name := range names {
			if rapid.Bool().Draw(t, "registered") {
				drivers[name] = node(name, func(n *apiv1.AzDriverNode) {
					n.Status.Capacity = &apiv1.NodeCapacity{MaxDataDisks: rapid.Int32Range(0, 3).Draw(t, "max"),
						LacksPremium: rapid.Bool().Draw(t, "lacks premium")}
				})
				view.table.observe(nil, drivers[name], driver)
			}
			for _, disk := range disks {
				role := rapid.SampledFrom([]apiv1.Role{"", apiv1.RolePrimary, apiv1.RoleReplica}).Draw(t, "role")
				state := rapid.SampledFrom([]apiv1.AttachmentState{apiv1.AttachmentAttached, apiv1.AttachmentAttaching,
					apiv1.AttachmentFailed}).Draw(t, "state")
				if role == "" {
					continue
				}
				a := azva(disk, name, role, state)
				attachments[a.Spec.VolumeName] = append(attachments[a.Spec.VolumeName], a)
				all, before = append(all, a), append(before, a)
				view.countAttachment(nil, a)
			}
		}
		index := fakeapi.With(all...)
		index.WithIndex(&apiv1.AzVolumeAttachment{}, cluster.AttachmentNode, cluster.AttachmentNodeKeys)
		view.reader = index.Build()
		var volumes []Volume
		for _, disk := range disks[:rapid.IntRange(1, 2).Draw(t, "volumes")] {
			name := volumeName(diskURI(disk))
			report := func(node string) (*apiv1.AzDriverNode, error) { return drivers[node], nil }
			states, err := DiskStates(name, attachments[name], report)
			if err != nil {
				t.Fatal(err)
			}
			volumes = append(volumes, Volume{Name: name, SKU: "Premium_LRS", Nodes: states})
		}
		lists := NewLists(driver, drivers, before).Nodes(volumes)
		if err := view.Nodes(context.Background(), volumes, func(nodes Nodes) {
			for _, name := range names {
				if got, want := lists.Feasible(name), nodes.Feasible(name); got != want {
					t.Fatalf("node %s: got %+v, want %+v", name, got, want)
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
	})
}
