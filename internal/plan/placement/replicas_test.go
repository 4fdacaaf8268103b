package placement_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// in is the input for a volume with nodes and attachments.
func in(volume *apiv1.AzVolume, nodes []placement.NodeView, attachments ...*apiv1.AzVolumeAttachment) placement.Input {
	return placement.Input{Volume: volume, Nodes: nodes, Attachments: attachments}
}

// with adds what more has.
func with(in, more placement.Input) placement.Input {
	in.Pods, in.PersistentVolume = more.Pods, more.PersistentVolume
	in.ClosedSince, in.ReservedSlots = more.ClosedSince, more.ReservedSlots
	return in
}

func nodes(list ...placement.NodeView) []placement.NodeView { return list }

func TestReplicas(t *testing.T) {
	t.Parallel()
	attached, attaching := apiv1.AttachmentAttached, apiv1.AttachmentAttaching
	released := func(since time.Duration) func(*apiv1.AzVolume) {
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
	boundPV := &corev1.PersistentVolume{Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}
	releasedPV := &corev1.PersistentVolume{Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased}}
	roomy := newNode("c", "1", slots(2), discouraged)
	volume := objects.NewVolume
	paused := func(v *apiv1.AzVolume) { v.Annotations = map[string]string{apiv1.AnnotationPaused: apiv1.PausedTrue} }
	for name, test := range map[string]struct {
		in   placement.Input
		want []string
	}{

		"a volume that is paused gets no replica": {in(volume(held, paused), three, primary), nil},
		"a volume that is paused keeps its replicas after the clean-up delay": {
			in(volume(released(time.Hour), paused), three, replica("b")), nil},
		"a primary gets its replica": {in(volume(held), three, primary), []string{"Create b: ReplicaPlaced"}},
		"but not before it is attached itself (law 8)": {
			in(volume(held), three, objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttaching)), nil},
		"nor while its attachment is still to come": {in(volume(held), three), nil},
		"enough is enough":                          {in(volume(held), three, primary, replica("b")), nil},
		"no replica comes to a node that Azure is going to service": {
			in(volume(held), nodes(three[0], newNode("b", "1", disturbed), three[2]), primary),
			[]string{"Create c: ReplicaPlaced"}},
		"a replica there stays while the primary's node does": {
			in(volume(held), nodes(three[0], newNode("b", "1", disturbed), three[2]), primary, replica("b")), nil},
		"and is replaced if Azure services both": {
			in(volume(held), nodes(newNode("a", "1", disturbed), newNode("b", "1", disturbed), three[2]), primary, replica("b")),
			[]string{"Create c: ReplicaPlaced"}},
		"it leaves when the other one is attached": {
			in(volume(held), nodes(newNode("a", "1", disturbed), newNode("b", "1", disturbed), three[2]), primary, replica("b"),
				replica("c")), []string{"Delete b: ReplicaDisturbed"}},
		"it stays if Azure services all nodes": {
			in(volume(held), nodes(newNode("a", "1", disturbed), newNode("b", "1", disturbed), newNode("c", "1", disturbed)),
				primary, replica("b")), nil},
		"a primary whose node Azure services keeps its replica elsewhere": {
			in(volume(held), nodes(newNode("a", "1", disturbed), three[1], three[2]), primary, replica("b")), nil},
		"too many are cut": {in(volume(held), three, primary, replica("b"), replica("c")), []string{"Delete b: ReplicaSurplus"}},
		"those on cordoned nodes first": {
			in(volume(held), nodes(three[0], three[1], newNode("c", "1", cordoned)), primary, replica("b"), replica("c")),
			[]string{"Delete c: ReplicaSurplus"}},
		"those on unhealthy nodes first": {
			in(volume(held), nodes(three[0], three[1], newNode("c", "1", suspect)), primary, replica("b"), replica("c")),
			[]string{"Delete c: ReplicaSurplus"}},
		"those that are not attached first": {
			in(volume(held), three, primary, replica("b"), objects.NewAttachment("c", apiv1.RoleReplica, 0, attaching)),
			[]string{"Delete c: ReplicaSurplus"}},
		"one that waits on a healthy node counts": {in(volume(held), three, primary, waiting), nil},
		"a replica does not stand for the primary (law 8)": {
			in(volume(held, twoReplicas), three, objects.NewAttachment("a", apiv1.RolePrimary, 2, attaching), replica("b")), nil},
		"a volume without a disk gets none": {in(volume(held, noDisk), three, primary), nil},
		"a volume that is being deleted has none": {in(volume(held, deleting), three, primary, replica("b")),
			[]string{"Delete b: DiskDeleting"}},
		"a disk that changes only while no VM has it gets none": {in(volume(released(time.Minute), changesAlone), three), nil},
		"a disk for whose change a pod waits gets none": {in(volume(released(time.Minute), changedAgo(9*time.Second)), three),
			nil},
		"a while after its change it gets one": {in(volume(released(time.Minute), changedAgo(10*time.Second)), three),
			[]string{"Create a: ReplicaPlaced"}},
		"a disk that could not be changed gets one": {in(volume(released(time.Minute), changedAgo(time.Second),
			func(v *apiv1.AzVolume) {
				v.Status.Conditions[len(v.Status.Conditions)-1].Status = metav1.ConditionFalse
			}), three), []string{"Create a: ReplicaPlaced"}},
		"a disk whose change waits for its release gets one": {in(volume(held, changesAlone), three, primary),
			[]string{"Create b: ReplicaPlaced"}},
		"no replica comes to a node where a process may use the volume": {
			in(volume(held), nodes(three[0], newNode("b", "1", usedByNoPod), three[2]), primary),
			[]string{"Create c: ReplicaPlaced"}},
		"a volume whose last owner is not on record": {in(volume(released(time.Minute), objects.NeverOwned), three),
			[]string{"Create a: ReplicaPlaced"}},
		"a PersistentVolume that is bound keeps them": {
			with(in(volume(released(time.Minute)), three, replica("b")), placement.Input{PersistentVolume: boundPV}), nil},
		"the clean-up is due at its instant": {in(volume(released(5*time.Minute)), three, replica("b")),
			[]string{"Delete b: ReplicasExpired"}},
		"a zone-redundant disk spreads away from its replicas, too": {
			in(volume(held, zoneRedundant, twoReplicas), nodes(three[0], newNode("b", "2"), newNode("c", "2"), newNode("d", "3")),
				primary, replica("b")), []string{"Create d: ReplicaPlaced"}},
		"a node whose taint only advises against it comes last": {
			with(in(volume(held), nodes(three[0], newNode("b", "1", discouraged), three[2]), primary),
				placement.Input{Pods: []placement.PodView{{Pod: &corev1.Pod{}}}}), []string{"Create c: ReplicaPlaced"}},
		"and before a node that has no slot for the pod's other volume": {
			with(in(volume(held), nodes(three[0], newNode("b", "1", slots(1)), roomy), primary),
				placement.Input{Pods: []placement.PodView{{Pod: &corev1.Pod{}, Volumes: []string{"other"}}}}),
			[]string{"Create c: ReplicaPlaced"}},
		"an unknown number of slots is plenty": {
			with(in(volume(held), nodes(three[0], newNode("b", "1", slots(-1)), three[2]), primary),
				placement.Input{Pods: []placement.PodView{{Pod: &corev1.Pod{}, Volumes: []string{"other"}}}}),
			[]string{"Create b: ReplicaPlaced"}},
		"after the release one more may stay": {in(volume(released(time.Minute)), three, replica("a"), replica("b")), nil},
		"until the clean-up": {in(volume(released(6*time.Minute)), three, replica("a"), replica("b")),
			[]string{"Delete a: ReplicasExpired", "Delete b: ReplicasExpired"}},
		"a PersistentVolume that is released is cleaned up at once": {
			with(in(volume(released(time.Second)), three, replica("b")), placement.Input{PersistentVolume: releasedPV}),
			[]string{"Delete b: VolumeReleased"}},
		"but not while there is a primary": {
			with(in(volume(held), three, primary, replica("b")), placement.Input{PersistentVolume: releasedPV}), nil},
		"the node of a new primary is not cut before it is promoted": {
			in(volume(objects.Owned("b", 3, apiv1.OwnershipHeld)), three, replica("a"), replica("b")), nil},
		"a volume that never had a primary has none": {in(volume(), three), nil},
		"none are wanted for a volume of several nodes": {
			in(volume(func(v *apiv1.AzVolume) { v.Spec.Access = apiv1.AccessMultiNode; v.Spec.MaxMountReplicaCount = 0 }),
				three, primary), nil},
		"one on a lost node is replaced": {
			in(volume(held), nodes(three[0], newNode("b", "1", lost), three[2]), primary, replica("b")),
			[]string{"Create c: ReplicaPlaced"}},
		"one on a node that is gone is replaced at once": {in(volume(held), three, primary, replica("x")),
			[]string{"Delete x: ReplicaNodeLost", "Create b: ReplicaPlaced"}},
		"one on a suspect node stays": {
			in(volume(held), nodes(three[0], newNode("b", "1", suspect), three[2]), primary, replica("b")), nil},
		"one that waits on a suspect node is made elsewhere": {in(volume(held), suspectB, primary, waiting),
			[]string{"Create c: ReplicaPlaced"}},
		"and gives up the share that it may have": {in(volume(held, twoShares), suspectB, primary, waiting),
			[]string{"Delete b: ReplicaFailed"}},
		"but stays where no other node can take one": {in(volume(held, twoShares), suspectB[:2], primary, waiting), nil},
		"one that failed is made elsewhere": {
			in(volume(held), three, primary, objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentFailed)),
			[]string{"Create c: ReplicaPlaced"}},
		"and deleted when another is there": {
			in(volume(held), three, primary, objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentFailed),
				replica("c")), []string{"Delete b: ReplicaFailed"}},
		"nodes that the pod selects count": {with(in(volume(held), three, primary), placement.Input{Pods: selects("c")}),
			[]string{"Create c: ReplicaPlaced"}},
		"one where the pod can never go is moved": {
			with(in(volume(held), three, primary, replica("b")),
				placement.Input{Pods: selects("c"), ClosedSince: map[string]time.Time{"b": objects.Ago(time.Minute).Time}}),
			[]string{"Create c: ReplicaPlaced"}},
		"other zones are out of reach": {in(volume(held), nodes(three[0], newNode("b", "2")), primary), nil},
		"a zone-redundant disk spreads": {in(volume(held, zoneRedundant), nodes(three[0], three[1], newNode("z", "2")), primary),
			[]string{"Create z: ReplicaPlaced"}},
		"the pod's other volumes attract": {
			with(in(volume(held), nodes(three[0], three[1], newNode("c", "1", holds("other"))), primary),
				placement.Input{Pods: []placement.PodView{{Pod: &corev1.Pod{}, Volumes: []string{"other"}}}}),
			[]string{"Create c: ReplicaPlaced"}},
		"the last slot is left to primaries (law 8)": {
			with(in(volume(held), nodes(three[0], newNode("b", "1", slots(1)), newNode("c", "1", slots(2))), primary),
				placement.Input{ReservedSlots: 1}), []string{"Create c: ReplicaPlaced"}},
		"cordoned and tainted nodes get none": {
			in(volume(held), nodes(three[0], newNode("b", "1", cordoned), newNode("c", "1", tainted)), primary), nil},
		"a taint that every pod tolerates is none": {
			with(in(volume(held), nodes(three[0], newNode("c", "1", tainted)), primary),
				placement.Input{Pods: []placement.PodView{tolerant(), tolerant()}}), []string{"Create c: ReplicaPlaced"}},
		"one of two pods does not tolerate it": {
			with(in(volume(held), nodes(three[0], newNode("c", "1", tainted)), primary),
				placement.Input{Pods: []placement.PodView{tolerant(), {Pod: &corev1.Pod{}}}}), nil},
		"shares that are on their way out are taken": {
			in(volume(held, func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 2 }), three, primary,
				objects.Deleted(replica("b"))), nil},
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

// TestWhenAPlaceIsSought is about the question whose answer decides whether the cluster is read.
func TestWhenAPlaceIsSought(t *testing.T) {
	t.Parallel()
	held := objects.Owned("a", 2, apiv1.OwnershipHeld)
	primary := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)
	three := nodes(newNode("a", "1"), newNode("b", "1"), newNode("c", "1"))
	fresh := []*apiv1.AzVolumeAttachment{primary, failedSince("b", 0), failedSince("c", 0)}
	for name, test := range map[string]struct {
		in   placement.Input
		want bool
	}{
		"a primary without a replica":                      {in(objects.NewVolume(held), three, primary), true},
		"its replica is there":                             {in(objects.NewVolume(held), three, primary, replicaOn("b")), false},
		"the primary is not attached":                      {in(objects.NewVolume(held), three), false},
		"two nodes have just failed":                       {in(objects.NewVolume(held), three, fresh...), false},
		"there is no disk":                                 {in(objects.NewVolume(held, noDisk), three, primary), false},
		"the disk changes only unattached, and has a user": {in(objects.NewVolume(held, changesAlone), three, primary), true},
	} {
		test.in.Now = objects.Now
		if got := placement.MissesReplicas(test.in); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func replicaOn(node string) *apiv1.AzVolumeAttachment {
	return objects.NewAttachment(node, apiv1.RoleReplica, 0, apiv1.AttachmentAttached)
}

func noDisk(v *apiv1.AzVolume)       { v.Status.DiskID = "" }
func changesAlone(v *apiv1.AzVolume) { v.Spec.CapacityBytes *= 2 }
func twoReplicas(v *apiv1.AzVolume)  { v.Spec.MaxMountReplicaCount = 2 }
func deleting(v *apiv1.AzVolume) {
	v.DeletionTimestamp, v.Spec.DeletionPolicy = objects.Ago(0), apiv1.DeletionDelete
}
func usedByNoPod(n *placement.NodeView) {
	n.Report = objects.Report(n.Node.Name, "vol")
	n.Report.Status.StagedVolumes[0].Published = true
}
func discouraged(n *placement.NodeView) {
	n.Node.Spec.Taints = []corev1.Taint{{Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule}}
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

// changedAgo is a volume whose disk was changed some time ago.
func changedAgo(ago time.Duration) func(*apiv1.AzVolume) {
	return func(v *apiv1.AzVolume) {
		v.Status.Conditions = append(v.Status.Conditions, metav1.Condition{Type: apiv1.VolumeConditionUpdated,
			Status: metav1.ConditionTrue, Reason: apiv1.ReasonDiskUpdated, LastTransitionTime: *objects.Ago(ago)})
	}
}
