package plan_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan"
)

func decided(decisions []plan.Decision) []string {
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
			v.Status.Primary = &apiv1.PrimaryClaim{Epoch: 2, State: apiv1.ClaimReleased}
			v.Status.LastReleasedTime = ago(since)
		}
	}
	held := claimed("a", 2, apiv1.ClaimHeld)
	primary := newAttachment("a", apiv1.RolePrimary, 2, attached)
	replica := func(node string) *apiv1.AzVolumeAttachment {
		return newAttachment(node, apiv1.RoleReplica, 0, attached)
	}
	three := []plan.NodeView{newNode("a", "1"), newNode("b", "1"), newNode("c", "1")}
	selects := func(node string) []plan.PodView {
		return []plan.PodView{{Pod: &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{"kubernetes.io/hostname": node}}}}}
	}
	releasedPV := &corev1.PersistentVolume{Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased}}
	for name, test := range map[string]struct {
		in   plan.ReplicasInput
		want []string
	}{
		"a primary gets its replica": {plan.ReplicasInput{Volume: newVolume(held), Attachments: list(primary), Nodes: three}, []string{"Create b: ReplicaPlaced"}},
		"but not before it is attached itself (law 8)": {plan.ReplicasInput{Volume: newVolume(held),
			Attachments: list(newAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttaching)), Nodes: three}, nil},
		"nor while its attachment is still to come":                 {plan.ReplicasInput{Volume: newVolume(held), Nodes: three}, nil},
		"enough is enough":                                          {plan.ReplicasInput{Volume: newVolume(held), Attachments: list(primary, replica("b")), Nodes: three}, nil},
		"too many are cut":                                          {plan.ReplicasInput{Volume: newVolume(held), Attachments: list(primary, replica("b"), replica("c")), Nodes: three}, []string{"Delete b: ReplicaSurplus"}},
		"those on cordoned nodes first":                             {plan.ReplicasInput{Volume: newVolume(held), Attachments: list(primary, replica("b"), replica("c")), Nodes: []plan.NodeView{three[0], three[1], newNode("c", "1", cordoned)}}, []string{"Delete c: ReplicaSurplus"}},
		"after the release one more may stay":                       {plan.ReplicasInput{Volume: newVolume(released(time.Minute)), Attachments: list(replica("a"), replica("b")), Nodes: three}, nil},
		"until the clean-up":                                        {plan.ReplicasInput{Volume: newVolume(released(6 * time.Minute)), Attachments: list(replica("a"), replica("b")), Nodes: three}, []string{"Delete a: ReplicasExpired", "Delete b: ReplicasExpired"}},
		"a PersistentVolume that is released is cleaned up at once": {plan.ReplicasInput{Volume: newVolume(released(time.Second)), PersistentVolume: releasedPV, Attachments: list(replica("b")), Nodes: three}, []string{"Delete b: VolumeReleased"}},
		"but not while there is a primary":                          {plan.ReplicasInput{Volume: newVolume(held), PersistentVolume: releasedPV, Attachments: list(primary, replica("b")), Nodes: three}, nil},
		"the node of a new claim is not cut before it is promoted":  {plan.ReplicasInput{Volume: newVolume(claimed("b", 3, apiv1.ClaimHeld)), Attachments: list(replica("a"), replica("b")), Nodes: three}, nil},
		"a volume that never had a primary has none":                {plan.ReplicasInput{Volume: newVolume(), Nodes: three}, nil},
		"none are wanted for a volume of several nodes":             {plan.ReplicasInput{Volume: newVolume(func(v *apiv1.AzVolume) { v.Spec.Access = apiv1.AccessMultiNode; v.Spec.MaxMountReplicaCount = 0 }), Attachments: list(primary), Nodes: three}, nil},
		"one on a lost node is replaced":                            {plan.ReplicasInput{Volume: newVolume(held), Attachments: list(primary, replica("b")), Nodes: []plan.NodeView{three[0], newNode("b", "1", lost), three[2]}}, []string{"Create c: ReplicaPlaced"}},
		"one on a node that is gone is replaced at once":            {plan.ReplicasInput{Volume: newVolume(held), Attachments: list(primary, replica("x")), Nodes: three}, []string{"Delete x: ReplicaNodeLost", "Create b: ReplicaPlaced"}},
		"one on a doubtful node stays":                              {plan.ReplicasInput{Volume: newVolume(held), Attachments: list(primary, replica("b")), Nodes: []plan.NodeView{three[0], newNode("b", "1", doubtful), three[2]}}, nil},
		"one that failed is made elsewhere":                         {plan.ReplicasInput{Volume: newVolume(held), Attachments: list(primary, newAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentFailed)), Nodes: three}, []string{"Create c: ReplicaPlaced"}},
		"and deleted when another is there":                         {plan.ReplicasInput{Volume: newVolume(held), Attachments: list(primary, newAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentFailed), replica("c")), Nodes: three}, []string{"Delete b: ReplicaFailed"}},
		"nodes that the pod selects count":                          {plan.ReplicasInput{Volume: newVolume(held), Attachments: list(primary), Nodes: three, Pods: selects("c")}, []string{"Create c: ReplicaPlaced"}},
		"one where the pod can never go is moved":                   {plan.ReplicasInput{Volume: newVolume(held), Attachments: list(primary, replica("b")), Nodes: three, Pods: selects("c")}, []string{"Delete b: ReplicaMisplaced", "Create c: ReplicaPlaced"}},
		"other zones are out of reach":                              {plan.ReplicasInput{Volume: newVolume(held), Attachments: list(primary), Nodes: []plan.NodeView{three[0], newNode("b", "2")}}, nil},
		"a zone-redundant disk spreads":                             {plan.ReplicasInput{Volume: newVolume(held, zoneRedundant), Attachments: list(primary), Nodes: []plan.NodeView{three[0], three[1], newNode("z", "2")}}, []string{"Create z: ReplicaPlaced"}},
		"the pod's other volumes attract":                           {plan.ReplicasInput{Volume: newVolume(held), Attachments: list(primary), Nodes: []plan.NodeView{three[0], three[1], newNode("c", "1", holds("other"))}, Pods: []plan.PodView{{Pod: &corev1.Pod{}, Volumes: []string{"other"}}}}, []string{"Create c: ReplicaPlaced"}},
		"the last slot is left to primaries (law 8)":                {plan.ReplicasInput{Volume: newVolume(held), Attachments: list(primary), Nodes: []plan.NodeView{three[0], newNode("b", "1", slots(1)), newNode("c", "1", slots(2))}, ReservedSlots: 1}, []string{"Create c: ReplicaPlaced"}},
		"cordoned and tainted nodes get none":                       {plan.ReplicasInput{Volume: newVolume(held), Attachments: list(primary), Nodes: []plan.NodeView{three[0], newNode("b", "1", cordoned), newNode("c", "1", tainted)}}, nil},
		"a taint that every pod tolerates is none":                  {plan.ReplicasInput{Volume: newVolume(held), Attachments: list(primary), Nodes: []plan.NodeView{three[0], newNode("c", "1", tainted)}, Pods: []plan.PodView{tolerant(), tolerant()}}, []string{"Create c: ReplicaPlaced"}},
		"one of two pods does not tolerate it":                      {plan.ReplicasInput{Volume: newVolume(held), Attachments: list(primary), Nodes: []plan.NodeView{three[0], newNode("c", "1", tainted)}, Pods: []plan.PodView{tolerant(), {Pod: &corev1.Pod{}}}}, nil},
		"shares that are on their way out are taken":                {plan.ReplicasInput{Volume: newVolume(held, func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 2 }), Attachments: list(primary, deleted(replica("b"))), Nodes: three}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.in.Now, test.in.CleanUpAfter, test.in.DrainGrace = now, 5*time.Minute, time.Minute
			if got := decided(plan.Replicas(test.in).Decisions); !slices.Equal(got, test.want) {
				t.Fatalf("got %q, want %q", got, test.want)
			}
		})
	}
}

func cordoned(n *plan.NodeView) { n.Node.Spec.Unschedulable = true }
func lost(n *plan.NodeView)     { n.Health = plan.Lost }
func doubtful(n *plan.NodeView) { n.Health = plan.Doubtful }
func tainted(n *plan.NodeView) {
	n.Node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoSchedule}, {Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule}}
}
func slots(free int32) func(*plan.NodeView) { return func(n *plan.NodeView) { n.FreeSlots = free } }
func holds(volume string) func(*plan.NodeView) {
	return func(n *plan.NodeView) { n.Volumes[volume] = true }
}
func zoneRedundant(v *apiv1.AzVolume) {
	v.Spec.Disk.SKUName, v.Spec.Disk.Zone, v.Status.Applied.SKUName = "Premium_ZRS", "", "Premium_ZRS"
}

func tolerant() plan.PodView {
	return plan.PodView{Pod: &corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}}}}
}
