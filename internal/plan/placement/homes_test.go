package placement_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func TestWhereADiskCanBeAttached(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		disk           apiv1.DiskParameters
		location, zone string
		want           bool
	}{
		"its zone":                      {apiv1.DiskParameters{Location: "eastus", Zone: "1"}, "eastus", "1", true},
		"its zone, in another spelling": {apiv1.DiskParameters{Location: "EastUS", Zone: "1"}, "eastus", "1", true},
		"another region":                {apiv1.DiskParameters{Location: "westus", Zone: "1"}, "eastus", "1", false},
		"a disk of an unknown region":   {apiv1.DiskParameters{Zone: "1"}, "eastus", "1", true},
		"a VM of an unknown region":     {apiv1.DiskParameters{Location: "eastus", Zone: "1"}, "", "1", true},
		"another zone":                  {apiv1.DiskParameters{Zone: "1"}, "", "2", false},
		"a disk that is in all zones": {
			apiv1.DiskParameters{DiskSettings: apiv1.DiskSettings{SKUName: "Premium_ZRS"}}, "", "2", true},
	} {
		v := objects.NewVolume(func(v *apiv1.AzVolume) { v.Spec.Disk = test.disk })
		if got := placement.Attachable(v, test.location, test.zone); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func TestWhereAPodCanMoveWithItsVolumes(t *testing.T) {
	t.Parallel()
	list := nodes(newNode("a", "1"), newNode("announced", "1", announced), newNode("cordoned", "1", cordoned),
		newNode("elsewhere", "2"), newNode("full", "1", slots(0)), newNode("lost", "1", lost), newNode("small", "1", small))
	var cluster placement.Cluster
	for _, n := range list {
		cluster.Nodes = append(cluster.Nodes, n.Node)
	}
	pod := newPod("db", "x")
	got := placement.Homes(placement.PodView{Pod: pod}, []*apiv1.AzVolume{objects.NewVolume()}, list, cluster)
	if want := []string{"a", "full"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func announced(n *placement.NodeView) { n.Disturbed = true }
func small(n *placement.NodeView) {
	n.Capacity = &apiv1.NodeCapacity{MaxDataDisks: 8, LacksPremium: true}
}

func TestTheChoicesOfAPodWithoutANode(t *testing.T) {
	t.Parallel()
	var cluster placement.Cluster
	for _, n := range nodes(newNode("a", "1"), newNode("b", "1", cordoned), newNode("c", "1")) {
		cluster.Nodes = append(cluster.Nodes, n.Node)
	}
	cluster.Pods = []*corev1.Pod{newPod("web", "c")}
	pod := newPod("db", "", ratherNear(term("web", corev1.LabelHostname)))
	got := placement.ChoicesOf(placement.PodView{Pod: pod}, cluster)
	if len(got.Open) != 2 || got.Open[0].Name != "a" || got.Open[1].Name != "c" || got.Preference[0] >= got.Preference[1] {
		t.Errorf("got %v with preferences %v, want a and c, and c preferred", got.Open, got.Preference)
	}
	if why := got.Closed["b"]; len(got.Closed) != 1 || !strings.Contains(why, "taint") {
		t.Errorf("got closed nodes %v, want b because of its taint", got.Closed)
	}
}
