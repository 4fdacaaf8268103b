package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

func TestRoom(t *testing.T) {
	t.Parallel()
	absent := func(name string) Volume { return Volume{Name: name, Nodes: map[string]DiskState{"other": primary}} }
	here := func(name string, presence DiskState) Volume {
		return Volume{Name: name, Nodes: map[string]DiskState{"n": presence}}
	}
	for name, c := range map[string]struct {
		capacity apiv1.NodeCapacity
		taken    []string
		volumes  []Volume
		fits     bool
	}{
		"a VM of unknown size has room":   {apiv1.NodeCapacity{}, []string{"a", "b"}, []Volume{absent("v")}, true},
		"the last slot is for the taking": {apiv1.NodeCapacity{MaxDataDisks: 2}, []string{"a"}, []Volume{absent("v")}, true},
		"a full VM has none":              {apiv1.NodeCapacity{MaxDataDisks: 2}, []string{"a", "b"}, []Volume{absent("v")}, false},
		"disks from outside the driver take slots": {apiv1.NodeCapacity{MaxDataDisks: 2, ForeignDisks: 1}, []string{"a"},
			[]Volume{absent("v")}, false},
		"every volume of the pod needs a slot": {apiv1.NodeCapacity{MaxDataDisks: 3}, []string{"a"},
			[]Volume{absent("v"), absent("w"), absent("x")}, false},
		"a claim that has no disk yet will need one": {apiv1.NodeCapacity{MaxDataDisks: 2}, []string{"a"},
			[]Volume{{}, absent("v")}, false},
		"a volume that is there needs no second slot": {apiv1.NodeCapacity{MaxDataDisks: 2},
			[]string{"a", "v"}, []Volume{here("v", primary)}, true},
		"a replica of the pod's own volume does not give way to the other": {apiv1.NodeCapacity{MaxDataDisks: 2}, []string{"a"},
			[]Volume{here("v", Replica), absent("w")}, false},
		"and leaves it what is free": {apiv1.NodeCapacity{MaxDataDisks: 3}, []string{"a"},
			[]Volume{here("v", Replica), absent("w")}, true},
		"what is there may stay though the VM is overbooked": {apiv1.NodeCapacity{MaxDataDisks: 2, ForeignDisks: 2},
			[]string{"v"}, []Volume{here("v", primary)}, true},
		"an attach under way counts once": {apiv1.NodeCapacity{MaxDataDisks: 2}, []string{"a", "v"},
			[]Volume{here("v", Attaching)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := Room("n", &c.capacity, c.taken, c.volumes)
			if h.feasible() != c.fits || (h.Message == "") != c.fits {
				t.Errorf("got %+v, want room: %t", h, c.fits)
			}
		})
	}
	h := Room("n", &apiv1.NodeCapacity{
		MaxDataDisks: 8,
		ForeignDisks: 2,
	}, []string{"a", "b", "c", "d", "e"}, []Volume{absent("v"), absent("w")})
	const want = "no room for the pod's data disks (2): the VM can take 8, and volumes in use and disks from outside the driver do not leave enough"
	if h.Message != want {
		t.Errorf("the message is %q", h.Message)
	}
}

// TestRoomIsThereExactlyWhenAllPrimariesFit compares with a count over the union of what stays and
// what comes.
func TestRoomIsThereExactlyWhenAllPrimariesFit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := func(i int) string { return fmt.Sprint("v", i) }
		capacity := &apiv1.NodeCapacity{
			MaxDataDisks: rapid.Int32Range(1, 8).Draw(t, "max"),
			ForeignDisks: rapid.Int32Range(0, 3).Draw(t, "outside"),
		}
		var taken []string
		union, missing := map[string]bool{}, false
		for i := range 8 {
			if rapid.Bool().Draw(t, "taken") {
				taken = append(taken, name(i))
				union[name(i)] = true
			}
		}
		var volumes []Volume
		for i := range rapid.IntRange(1, 4).Draw(t, "volumes") {
			v := Volume{Name: name(i + 5), Nodes: map[string]DiskState{}}
			v.Nodes["n"] = DiskState(rapid.IntRange(int(absent), int(primary)).Draw(t, "presence"))
			missing = missing || v.Nodes["n"] < Replica
			union[v.Name] = true
			volumes = append(volumes, v)
		}
		if want := !missing || len(union)+
			int(capacity.ForeignDisks) <= int(capacity.MaxDataDisks); Room("n", capacity, taken, volumes).feasible() != want {
			t.Fatalf("%+v that has %v, with %+v: want room %t", capacity, taken, volumes, want)
		}
	})
}

// roomOf is the view's judgement of one node.
func roomOf(t *testing.T, v *View, node string, volumes []Volume) (h Feasibility) {
	t.Helper()
	expect.Must(t, v.Nodes(t.Context(), volumes, func(nodes Nodes) { h = nodes.Feasible(node) }))
	return h
}

func TestAVMThatCannotHaveTheDiskIsLeftOut(t *testing.T) {
	t.Parallel()
	plain := func(n *apiv1.AzDriverNode) {
		n.Spec.VMSize = "Standard_A2_v2"
		n.Status.Capacity = &apiv1.NodeCapacity{
			VMSize:       "Standard_A2_v2",
			MaxDataDisks: 4,
			LacksPremium: true,
			LacksUltra:   true,
		}
	}
	premium, ultra := class("premium", driver), class("ultra", driver)
	premium.Parameters = map[string]string{"SkuName": "Premium_LRS", "tags": "a=b"}
	ultra.Parameters = map[string]string{"storageaccounttype": "UltraSSD_LRS"}
	bound, changed := volume("pv-bound", driver, diskURI("bound")), volume("pv-changed", driver, diskURI("changed"))
	bound.Spec.CSI.VolumeAttributes = map[string]string{"skuName": "PremiumV2_LRS"}
	changed.Spec.CSI.VolumeAttributes = map[string]string{"skuName": "Premium_LRS"}
	changed.Spec.VolumeAttributesClassName = ptr.To("silver")
	_, config := startAPI(t, premium, ultra, class("ours", driver), bound, changed,
		claim("wants-premium", "", "premium"), claim("wants-ultra", "", "ultra"), claim("wants-any", "", "ours"),
		claim("bound", "pv-bound", "premium"), claim("changed", "pv-changed", "premium"), node("plain", plain), node("unknown"),
	)
	view := startView(t, config)
	for name, want := range map[string]bool{
		"wants-premium": false,
		"wants-ultra":   false,
		"wants-any":     true,
		"bound":         false,
		"changed":       true,
	} {
		volumes := seenVolumes(t, view, pod(name))
		if h := roomOf(t, view.View, "plain", volumes); h.feasible() != want || (!want && h.Fault != faultUnsupported) {
			t.Errorf("%s: got %+v, want feasible: %t", name, h, want)
		}
		if h := roomOf(t, view.View, "unknown", volumes); !h.feasible() {
			t.Errorf("%s on a node that is not known: got %+v, want it feasible", name, h)
		}
	}
}

func TestRoomOnNodesOfTheCluster(t *testing.T) {
	t.Parallel()
	sized := func(most, outside int32) func(*apiv1.AzDriverNode) {
		return func(n *apiv1.AzDriverNode) {
			n.Spec.VMSize = "Standard_D2s_v3"
			n.Status.Capacity = &apiv1.NodeCapacity{VMSize: "Standard_D2s_v3", MaxDataDisks: most, ForeignDisks: outside}
		}
	}
	attached := apiv1.AttachmentAttached
	stub, config := startAPI(t,
		claim("data", "pv-data", "ours"), volume("pv-data", driver, diskURI("data")),
		node("replicas", sized(2, 0)), node("primaries", sized(2, 0)), node("outside", sized(2, 1)), node("unknown"),
		node("resized", sized(2, 0), func(n *apiv1.AzDriverNode) { n.Spec.VMSize = "Standard_D64s_v5" }),
		node("holds", sized(1, 0)),
		azva("a", "replicas", apiv1.RoleReplica, attached), azva("b", "replicas", apiv1.RoleReplica, attached),
		azva("a", "primaries", apiv1.RolePrimary, attached), azva("b", "primaries", apiv1.RolePrimary, attached),
		azva("c", "outside", apiv1.RolePrimary, attached), azva("c", "unknown", apiv1.RolePrimary, attached),
		azva("d", "resized", apiv1.RolePrimary, attached), azva("e", "resized", apiv1.RolePrimary, attached),
		azva("data", "holds", apiv1.RolePrimary, attached),
	)
	view := startView(t, config)
	fits := func(name string) bool {
		h := roomOf(t, view.View, name, seenVolumes(t, view, pod("data")))
		if !h.feasible() && (h.Fault != FaultNoRoom || !strings.Contains(h.Message, "the VM can take")) {
			t.Errorf("%s: %+v", name, h)
		}
		return h.feasible()
	}
	full := []string{"primaries", "outside"}
	for _, name := range []string{"replicas", "primaries", "outside", "unknown", "resized", "holds"} {
		if got, want := fits(name), !slices.Contains(full, name); got != want {
			t.Errorf("%s has room: %t, want %t", name, got, want)
		}
	}
	stub.put(azva("b", "primaries", apiv1.RoleReplica, attached))
	expect.Eventually(t, "a primary that was demoted gives way", func() bool { return fits("primaries") })
	stub.put(node("outside", sized(2, 0)))
	expect.Eventually(t, "a disk from outside is gone", func() bool { return fits("outside") })
	stub.put(azva("a", "replicas", apiv1.RolePrimary, attached))
	stub.put(azva("b", "replicas", apiv1.RolePrimary, attached))
	expect.Eventually(t, "replicas that were promoted do not give way", func() bool { return !fits("replicas") })
}
