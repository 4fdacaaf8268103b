package placement_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func decided(decisions []placement.Decision) []string {
	var s []string
	for _, d := range decisions {
		s = append(s, fmt.Sprintf("%s %s: %s", d.Verb, d.Node, d.Reason))
	}
	return s
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	attached, released := apiv1.AttachmentAttached, func(since time.Duration) func(*apiv1.AzVolume) {
		return func(v *apiv1.AzVolume) {
			v.Status.Primary = &apiv1.Ownership{Epoch: 2, State: apiv1.OwnershipReleased}
			v.Status.LastReleasedTime = objects.Ago(since)
		}
	}
	held := objects.Owned("a", 2, apiv1.OwnershipHeld)
	twoShares := func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 2 }
	waiting := objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentPending)
	primary := objects.NewAttachment("a", apiv1.RolePrimary, 2, attached)
	replica := func(node string) *apiv1.AzVolumeAttachment {
		return objects.NewAttachment(node, apiv1.RoleReplica, 0, attached)
	}
	three := []placement.NodeView{newNode("a", "1"), newNode("b", "1"), newNode("c", "1")}
	suspectB := []placement.NodeView{three[0], newNode("b", "1", suspect), three[2]}
	selects := func(node string) []placement.PodView {
		return []placement.PodView{
			{Pod: &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{"kubernetes.io/hostname": node}}}},
		}
	}
	releasedPV := &corev1.PersistentVolume{Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased}}
	for name, test := range map[string]struct {
		in   placement.Input
		want []string
	}{
		"a primary gets its replica": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary),
			Nodes:       three,
		}, []string{"Create b: ReplicaPlaced"}},
		"but not before it is attached itself (law 8)": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttaching)),
			Nodes:       three,
		}, nil},
		"nor while its attachment is still to come": {placement.Input{
			Volume: objects.NewVolume(held),
			Nodes:  three,
		}, nil},
		"enough is enough": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary, replica("b")),
			Nodes:       three,
		}, nil},
		"no replica comes to a node that Azure is going to service": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary),
			Nodes:       []placement.NodeView{three[0], newNode("b", "1", disturbed), three[2]},
		}, []string{"Create c: ReplicaPlaced"}},
		"a replica there stays while the primary's node does": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary, replica("b")),
			Nodes:       []placement.NodeView{three[0], newNode("b", "1", disturbed), three[2]},
		}, nil},
		"and is replaced if Azure services both": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary, replica("b")),
			Nodes:       []placement.NodeView{newNode("a", "1", disturbed), newNode("b", "1", disturbed), three[2]},
		}, []string{"Create c: ReplicaPlaced"}},
		"it leaves when the other one is attached": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary, replica("b"), replica("c")),
			Nodes:       []placement.NodeView{newNode("a", "1", disturbed), newNode("b", "1", disturbed), three[2]},
		}, []string{"Delete b: ReplicaDisturbed"}},
		"it stays if Azure services all nodes": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary, replica("b")),
			Nodes: []placement.NodeView{newNode("a", "1", disturbed), newNode("b", "1", disturbed),
				newNode("c", "1", disturbed)},
		}, nil},
		"a primary whose node Azure services keeps its replica elsewhere": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary, replica("b")),
			Nodes:       []placement.NodeView{newNode("a", "1", disturbed), three[1], three[2]},
		}, nil},
		"too many are cut": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary, replica("b"), replica("c")),
			Nodes:       three,
		}, []string{"Delete b: ReplicaSurplus"}},
		"those on cordoned nodes first": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary, replica("b"), replica("c")),
			Nodes:       []placement.NodeView{three[0], three[1], newNode("c", "1", cordoned)},
		}, []string{"Delete c: ReplicaSurplus"}},
		"after the release one more may stay": {placement.Input{
			Volume:      objects.NewVolume(released(time.Minute)),
			Attachments: objects.Attachments(replica("a"), replica("b")),
			Nodes:       three,
		}, nil},
		"until the clean-up": {placement.Input{
			Volume:      objects.NewVolume(released(6 * time.Minute)),
			Attachments: objects.Attachments(replica("a"), replica("b")),
			Nodes:       three,
		}, []string{"Delete a: ReplicasExpired", "Delete b: ReplicasExpired"}},
		"a PersistentVolume that is released is cleaned up at once": {placement.Input{
			Volume:           objects.NewVolume(released(time.Second)),
			PersistentVolume: releasedPV,
			Attachments:      objects.Attachments(replica("b")),
			Nodes:            three,
		}, []string{"Delete b: VolumeReleased"}},
		"but not while there is a primary": {placement.Input{
			Volume:           objects.NewVolume(held),
			PersistentVolume: releasedPV,
			Attachments:      objects.Attachments(primary, replica("b")),
			Nodes:            three,
		}, nil},
		"the node of a new primary is not cut before it is promoted": {placement.Input{
			Volume:      objects.NewVolume(objects.Owned("b", 3, apiv1.OwnershipHeld)),
			Attachments: objects.Attachments(replica("a"), replica("b")),
			Nodes:       three,
		}, nil},
		"a volume that never had a primary has none": {placement.Input{
			Volume: objects.NewVolume(),
			Nodes:  three,
		}, nil},
		"none are wanted for a volume of several nodes": {placement.Input{
			Volume: objects.NewVolume(
				func(v *apiv1.AzVolume) { v.Spec.Access = apiv1.AccessMultiNode; v.Spec.MaxMountReplicaCount = 0 }),
			Attachments: objects.Attachments(primary),
			Nodes:       three,
		}, nil},
		"one on a lost node is replaced": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary, replica("b")),
			Nodes:       []placement.NodeView{three[0], newNode("b", "1", lost), three[2]},
		}, []string{"Create c: ReplicaPlaced"}},
		"one on a node that is gone is replaced at once": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary, replica("x")),
			Nodes:       three,
		}, []string{"Delete x: ReplicaNodeLost", "Create b: ReplicaPlaced"}},
		"one on a suspect node stays": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary, replica("b")),
			Nodes:       []placement.NodeView{three[0], newNode("b", "1", suspect), three[2]},
		}, nil},
		"one that waits on a suspect node is made elsewhere": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary, waiting),
			Nodes:       suspectB,
		}, []string{"Create c: ReplicaPlaced"}},
		"and gives up the share that it may have": {placement.Input{
			Volume:      objects.NewVolume(held, twoShares),
			Attachments: objects.Attachments(primary, waiting),
			Nodes:       suspectB,
		}, []string{"Delete b: ReplicaFailed"}},
		"but stays where no other node can take one": {placement.Input{
			Volume:      objects.NewVolume(held, twoShares),
			Attachments: objects.Attachments(primary, waiting),
			Nodes:       suspectB[:2],
		}, nil},
		"one that failed is made elsewhere": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary, objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentFailed)),
			Nodes:       three,
		}, []string{"Create c: ReplicaPlaced"}},
		"and deleted when another is there": {placement.Input{
			Volume: objects.NewVolume(held),
			Attachments: objects.Attachments(primary, objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentFailed),
				replica("c")),
			Nodes: three,
		}, []string{"Delete b: ReplicaFailed"}},
		"nodes that the pod selects count": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary),
			Nodes:       three,
			Pods:        selects("c"),
		}, []string{"Create c: ReplicaPlaced"}},
		"one where the pod can never go is moved": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary, replica("b")),
			Nodes:       three,
			Pods:        selects("c"),
			ClosedSince: map[string]time.Time{"b": objects.Ago(time.Minute).Time},
		}, []string{"Create c: ReplicaPlaced"}},
		"other zones are out of reach": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary),
			Nodes:       []placement.NodeView{three[0], newNode("b", "2")},
		}, nil},
		"a zone-redundant disk spreads": {placement.Input{
			Volume:      objects.NewVolume(held, zoneRedundant),
			Attachments: objects.Attachments(primary),
			Nodes:       []placement.NodeView{three[0], three[1], newNode("z", "2")},
		}, []string{"Create z: ReplicaPlaced"}},
		"the pod's other volumes attract": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary),
			Nodes:       []placement.NodeView{three[0], three[1], newNode("c", "1", holds("other"))},
			Pods:        []placement.PodView{{Pod: &corev1.Pod{}, Volumes: []string{"other"}}},
		}, []string{"Create c: ReplicaPlaced"}},
		"the last slot is left to primaries (law 8)": {placement.Input{
			Volume:        objects.NewVolume(held),
			Attachments:   objects.Attachments(primary),
			Nodes:         []placement.NodeView{three[0], newNode("b", "1", slots(1)), newNode("c", "1", slots(2))},
			ReservedSlots: 1,
		}, []string{"Create c: ReplicaPlaced"}},
		"cordoned and tainted nodes get none": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary),
			Nodes:       []placement.NodeView{three[0], newNode("b", "1", cordoned), newNode("c", "1", tainted)},
		}, nil},
		"a taint that every pod tolerates is none": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary),
			Nodes:       []placement.NodeView{three[0], newNode("c", "1", tainted)},
			Pods:        []placement.PodView{tolerant(), tolerant()},
		}, []string{"Create c: ReplicaPlaced"}},
		"one of two pods does not tolerate it": {placement.Input{
			Volume:      objects.NewVolume(held),
			Attachments: objects.Attachments(primary),
			Nodes:       []placement.NodeView{three[0], newNode("c", "1", tainted)},
			Pods:        []placement.PodView{tolerant(), {Pod: &corev1.Pod{}}},
		}, nil},
		"shares that are on their way out are taken": {placement.Input{
			Volume:      objects.NewVolume(held, func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 2 }),
			Attachments: objects.Attachments(primary, objects.Deleted(replica("b"))),
			Nodes:       three,
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.in.Now, test.in.CleanUpDelay, test.in.DrainGrace = objects.Now, 5*time.Minute, time.Minute
			if got := decided(placement.Next(test.in).Decisions); !slices.Equal(got, test.want) {
				t.Fatalf("got %q, want %q", got, test.want)
			}
		})
	}
}

func cordoned(n *placement.NodeView)  { n.Node.Spec.Unschedulable = true }
func lost(n *placement.NodeView)      { n.Health = nodehealth.Lost }
func disturbed(n *placement.NodeView) { n.Health, n.Disturbed = nodehealth.Suspect, true }
func suspect(n *placement.NodeView)   { n.Health = nodehealth.Suspect }
func tainted(n *placement.NodeView) {
	n.Node.Spec.Taints = []corev1.Taint{{
		Key:    "dedicated",
		Value:  "db",
		Effect: corev1.TaintEffectNoSchedule,
	}, {Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule}}
}
func slots(free int32) func(*placement.NodeView) {
	return func(n *placement.NodeView) { n.FreeSlots = free }
}
func holds(volume string) func(*placement.NodeView) {
	return func(n *placement.NodeView) { n.Volumes[volume] = true }
}
func zoneRedundant(v *apiv1.AzVolume) {
	v.Spec.Disk.SKUName, v.Spec.Disk.Zone, v.Status.Applied.SKUName = "Premium_ZRS", "", "Premium_ZRS"
}

func tolerant() placement.PodView {
	return placement.PodView{Pod: &corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{
		Key:      "dedicated",
		Operator: corev1.TolerationOpExists,
	}}}}}
}
