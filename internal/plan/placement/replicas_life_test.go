package placement_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func cordonedFor(d time.Duration) func(*placement.NodeView) {
	return func(n *placement.NodeView) {
		n.Node.Spec.Unschedulable = true
		n.Node.Spec.Taints = []corev1.Taint{{
			Key:       corev1.TaintNodeUnschedulable,
			Effect:    corev1.TaintEffectNoSchedule,
			TimeAdded: objects.Ago(d),
		}}
	}
}

func taintedFor(d time.Duration, key string, effect corev1.TaintEffect) func(*placement.NodeView) {
	return func(n *placement.NodeView) {
		n.Node.Spec.Taints = []corev1.Taint{{Key: key, Effect: effect, TimeAdded: objects.Ago(d)}}
	}
}

// failedSince is a replica that was made and has failed since.
func failedSince(node string, made time.Duration) *apiv1.AzVolumeAttachment {
	a := objects.NewAttachment(node, apiv1.RoleReplica, 0, apiv1.AttachmentFailed)
	a.CreationTimestamp = *objects.Ago(made)
	a.Status.Error = &apiv1.Error{Reason: "Unavailable", FailureTime: *objects.Ago(time.Second)}
	return a
}

func TestReplicaLife(t *testing.T) {
	t.Parallel()
	held := objects.Owned("a", 2, apiv1.OwnershipHeld)
	tight := func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 2 }
	primary := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)
	replica := func(node string, state apiv1.AttachmentState) *apiv1.AzVolumeAttachment {
		return objects.NewAttachment(node, apiv1.RoleReplica, 0, state)
	}
	noRoom := failedSince("c", time.Minute)
	noRoom.Status.Error.Reason = string(provisioner.InsufficientCapacity)
	attached, attaching := apiv1.AttachmentAttached, apiv1.AttachmentAttaching
	three := []placement.NodeView{newNode("a", "1"), newNode("b", "1"), newNode("c", "1")}
	withB := func(change ...func(*placement.NodeView)) []placement.NodeView {
		return []placement.NodeView{three[0], newNode("b", "1", change...), three[2]}
	}
	releasedFor := func(d time.Duration) func(*apiv1.AzVolume) {
		return func(v *apiv1.AzVolume) {
			v.Status.Primary = &apiv1.Ownership{Epoch: 2, State: apiv1.OwnershipReleased}
			v.Status.LastReleasedTime = objects.Ago(d)
		}
	}
	type want struct {
		decisions []string
		in        time.Duration
		short     bool
	}
	volume := objects.NewVolume
	const noSchedule = corev1.TaintEffectNoSchedule
	placedOnC := []string{"Create c: ReplicaPlaced"}
	tenShares := func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 10 }
	taintedToo := func(key string) func(*placement.NodeView) {
		return func(n *placement.NodeView) {
			n.Node.Spec.Taints = append(n.Node.Spec.Taints, corev1.Taint{Key: key, Effect: noSchedule})
		}
	}
	for name, test := range map[string]struct {
		in   placement.Input
		want want
	}{

		"a cordon of seconds, as a planned move makes, costs nothing": {
			in(volume(held), withB(cordonedFor(20*time.Second)), primary, replica("b", attached)), want{in: 40 * time.Second}},
		"a cordon whose time is not known yet is waited for": {in(volume(held), withB(cordoned), primary, replica("b", attached)),
			want{in: time.Minute}},
		"after the grace, another replica is made first": {
			in(volume(held), withB(cordonedFor(time.Minute)), primary, replica("b", attached)),
			want{decisions: []string{"Create c: ReplicaPlaced"}}},
		"while that is being attached, the old one stays": {
			in(volume(held), withB(cordonedFor(time.Minute)), primary, replica("b", attached), replica("c", attaching)), want{}},
		"the replaced replica is deleted when the new one is attached": {
			in(volume(held), withB(cordonedFor(time.Minute)), primary, replica("b", attached), replica("c", attached)),
			want{decisions: []string{"Delete b: ReplicaDrained"}}},
		"without a share to spare it makes room first": {
			in(volume(held, tight), withB(cordonedFor(time.Minute)), primary, replica("b", attached)),
			want{decisions: []string{"Delete b: ReplicaDrained"}, short: true}},
		"and only once": {
			in(volume(held, tight, func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 3 }), withB(cordonedFor(time.Minute)),
				primary, replica("b", attached), objects.Deleted(replica("x", attached))), want{short: true}},
		"with no other node it stays where it is": {
			in(volume(held), withB(cordonedFor(time.Hour))[:2], primary, replica("b", attached)), want{short: true}},
		"a replica on a lost node stays until another one is attached": {
			in(volume(held), withB(lost), primary, replica("b", attached), replica("c", attaching)), want{}},
		"a replica on a lost node is deleted when another one is attached": {
			in(volume(held), withB(lost), primary, replica("b", attached), replica("c", attached)),
			want{decisions: []string{"Delete b: ReplicaNodeLost"}}},
		"a replica on a lost node gives up the share that another one needs": {
			in(volume(held, tight), withB(lost), primary, replica("b", attached)),
			want{decisions: []string{"Delete b: ReplicaNodeLost"}, short: true}},
		"a replica on a lost node stays where no other node can take it": {
			in(volume(held, tight), withB(lost)[:2], primary, replica("b", attached)), want{short: true}},
		"a replica on a lost node gives up the share that a failed one needs": {
			in(volume(held, tight), withB(lost), primary, replica("b", attached), noRoom),
			want{decisions: []string{"Delete b: ReplicaNodeLost"}, short: true}},
		"a replica on a lost node does not go for one that failed for another reason": {
			in(volume(held, tight), withB(lost), primary, replica("b", attached), failedSince("c", time.Minute)),
			want{short: true}},
		"a replica on a lost node is deleted like all others when none is wanted any more": {
			in(volume(releasedFor(2*time.Hour)), withB(lost), replica("b", attached)),
			want{decisions: []string{"Delete b: ReplicasExpired"}}},
		"a replica that failed on a lost node is deleted": {
			in(volume(held), withB(lost)[:2], primary, replica("b", apiv1.AttachmentFailed)),
			want{decisions: []string{"Delete b: ReplicaNodeLost"}, short: true}},
		"of a lost node and a drained one, the replica on the lost node gives up its share": {
			in(volume(held), nodes(three[0], newNode("b", "1", cordonedFor(time.Hour)), three[2], newNode("d", "1", lost)),
				primary, replica("b", attached), replica("d", attached)),
			want{decisions: []string{"Delete d: ReplicaNodeLost"}, short: true}},
		"a drained node keeps its replica during a hand-over": {
			in(volume(objects.Owned("a", 2, apiv1.OwnershipReleasing)), withB(cordonedFor(time.Hour)), primary,
				replica("b", attached)), want{}},
		"and right after it": {
			in(volume(releasedFor(3*time.Second)), withB(cordonedFor(time.Hour)), replica("a", attached),
				replica("b", attached)), want{in: 7 * time.Second}},
		"pods that tolerate the cordon keep the replica": {
			with(in(volume(held), withB(cordonedFor(time.Hour)), primary, replica("b", attached)), placement.Input{
				Pods: []placement.PodView{{Pod: &corev1.Pod{Spec: corev1.PodSpec{
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}}}}}),
			want{}},
		"a taint that drains counts like a cordon": {
			in(volume(held), withB(taintedFor(time.Hour, "maintenance", corev1.TaintEffectNoExecute)), primary,
				replica("b", attached)), want{decisions: []string{"Create c: ReplicaPlaced"}}},
		"the taints of an ill node do not: it may be well again in a minute": {
			in(volume(held), withB(taintedFor(time.Hour, corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)), primary,
				replica("b", attached)), want{}},
		"so is a node that Karpenter removes": {
			in(volume(held), withB(taintedFor(0, "karpenter.sh/disrupted", noSchedule)), primary, replica("b", attached)),
			want{decisions: placedOnC}},
		"also if another taint follows": {
			in(volume(held), withB(taintedFor(0, "karpenter.sh/disrupted", noSchedule),
				taintedToo("maintenance")), primary, replica("b", attached)), want{decisions: placedOnC}},
		"a taint that only advises keeps the replica": {
			in(volume(held), withB(taintedFor(time.Hour, "maintenance", corev1.TaintEffectPreferNoSchedule)), primary,
				replica("b", attached)), want{}},
		"a taint that was renewed counts from the time when it was seen first": {
			with(in(volume(held), withB(cordonedFor(time.Second)), primary, replica("b", attached)),
				placement.Input{ClosedSince: map[string]time.Time{"b": objects.Ago(time.Minute).Time}}),
			want{decisions: placedOnC}},
		"one that failed without an error on record takes no share": {
			in(volume(held, tight), withB(lost), primary, replica("b", attached), replica("c", apiv1.AttachmentFailed)),
			want{short: true}},
		"one that failed is deleted like all others when none is wanted": {
			in(volume(releasedFor(2*time.Hour)), three, replica("c", apiv1.AttachmentFailed)),
			want{decisions: []string{"Delete c: ReplicasExpired"}}},
		"nothing is short while enough are being attached": {
			in(volume(held), append(slices.Clone(three), newNode("d", "1")), primary, replica("d", attaching),
				failedSince("b", time.Second), failedSince("c", time.Second)), want{}},
		"where no other node is left, the one that failed first stays": {
			in(volume(held, tenShares), append(slices.Clone(three), newNode("d", "1"), newNode("e", "1")), primary,
				failedSince("b", time.Hour), failedSince("c", time.Hour), failedSince("d", time.Hour),
				failedSince("e", time.Hour)), want{short: true}},
		"a node that the autoscaler removes is drained at once": {
			in(volume(held), withB(taintedFor(0, "ToBeDeletedByClusterAutoscaler", corev1.TaintEffectNoSchedule)), primary,
				replica("b", attached)), want{decisions: []string{"Create c: ReplicaPlaced"}}},
		"a node that is ill keeps its replica, and is looked at again: it may be back from a reboot": {
			in(volume(held), withB(suspect), primary, replica("b", attached)), want{in: 30 * time.Second}},
		"a replica that is on its way does not cut another": {
			in(volume(held), three, primary, replica("b", attaching), replica("c", attaching)), want{}},
		"the one that arrives first cuts it": {in(volume(held), three, primary, replica("b", attaching), replica("c", attached)),
			want{decisions: []string{"Delete b: ReplicaSurplus"}}},
		"one that failed stays, and its node is avoided, until another is attached": {
			in(volume(held), three, primary, failedSince("b", time.Second), replica("c", attaching)), want{}},
		"a third node is not tried at once": {
			in(volume(held), append(slices.Clone(three), newNode("d", "1")), primary, failedSince("b", time.Minute),
				failedSince("c", 2*time.Second)), want{in: 3 * time.Second, short: true}},
		"but soon": {
			in(volume(held), append(slices.Clone(three), newNode("d", "1")), primary, failedSince("b", time.Minute),
				failedSince("c", 6*time.Second)), want{decisions: []string{"Create d: ReplicaPlaced"}}},
		"a disk that no node can attach is not tried everywhere": {
			in(volume(held, func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 10 }),
				append(slices.Clone(three), newNode("d", "1"), newNode("e", "1"), newNode("f", "1")), primary,
				failedSince("b", 9*time.Minute), failedSince("c", 8*time.Minute), failedSince("d", 7*time.Minute),
				failedSince("e", 4*time.Minute)), want{in: time.Minute, short: true}},
		"after a long time the node that failed first has its turn again": {
			in(volume(held, func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 10 }),
				append(slices.Clone(three), newNode("d", "1"), newNode("e", "1"), newNode("f", "1")), primary,
				failedSince("b", 19*time.Minute), failedSince("c", 8*time.Minute), failedSince("d", 7*time.Minute),
				failedSince("e", 6*time.Minute)),
			want{decisions: []string{"Create f: ReplicaPlaced", "Delete b: ReplicaFailed"}}},
		"law 8: no replica is created during a hand-over": {
			in(volume(objects.Owned("a", 2, apiv1.OwnershipReleasing)), three, primary), want{}},
		"law 8: nor right after, for the next primary may stand behind it": {in(volume(releasedFor(3*time.Second)), three),
			want{in: 7 * time.Second}},
		"law 8: no replica is created again where primaries wait for a slot": {
			in(volume(held), withB(func(n *placement.NodeView) { n.Crowded = true })[:2], primary), want{short: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.in.Now, test.in.CleanUpDelay, test.in.DrainGrace = objects.Now, time.Hour, time.Minute
			step := placement.Next(test.in)
			if got := decided(step.Decisions); !slices.Equal(got, test.want.decisions) || step.Short != test.want.short ||
				step.ChangesIn != test.want.in {
				t.Fatalf("got %q, short %t, in %s; want %+v", got, step.Short, step.ChangesIn, test.want)
			}
			creates := slices.ContainsFunc(step.Decisions, func(d placement.Decision) bool { return d.Verb == placement.Create })
			if creates && !placement.MissesReplicas(test.in) {
				t.Fatal("a place was found, and none was to be looked for")
			}
		})
	}
}

// The last replica was detached from a lost node two seconds before the node recovered, and no
// other node could have it.
func TestAReplicaOnALostNodeGoesOnlyForAnother(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		in := placement.Input{
			Now:          objects.Now,
			CleanUpDelay: time.Hour,
			DrainGrace:   time.Minute,
			Volume: objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld), func(v *apiv1.AzVolume) {
				v.Spec.MaxMountReplicaCount = rapid.Int32Range(1, 3).Draw(rt, "replicas wanted")
				v.Spec.Disk.MaxShares = v.Spec.MaxMountReplicaCount + rapid.Int32Range(1, 3).Draw(rt, "further shares")
			}),
			Attachments: objects.Attachments(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)),
			Nodes:       []placement.NodeView{newNode("a", "1")},
		}
		wanted, free, usable, shares := int(in.Volume.Spec.MaxMountReplicaCount), 0, 0, int(in.Volume.Spec.Disk.MaxShares)-1
		for _, name := range []string{"b", "c", "d", "e"} {
			health := rapid.SampledFrom([]nodehealth.State{nodehealth.Healthy, nodehealth.Suspect, nodehealth.Lost}).Draw(rt,
				"health of "+name)
			in.Nodes = append(in.Nodes, newNode(name, "1", func(n *placement.NodeView) { n.Health = health }))
			if shares > 0 && rapid.Bool().Draw(rt, "replica on "+name) {
				shares--
				in.Attachments = append(in.Attachments,
					objects.NewAttachment(name, apiv1.RoleReplica, 0, apiv1.AttachmentAttached))
				if health != nodehealth.Lost {
					usable++
				}
			} else if health == nodehealth.Healthy {
				free++
			}
		}
		deletes := 0
		for _, d := range placement.Next(in).Decisions {
			if d.Verb == placement.Delete && d.Reason == apiv1.ReasonReplicaNodeLost {
				deletes++
			}
		}
		if needed := min(wanted-usable, free) - shares; deletes > 0 && usable < wanted && deletes > needed {
			rt.Errorf("got %d replicas on lost nodes deleted, want at most %d: %d of %d are usable, %d nodes and %d shares are free",
				deletes, needed, usable, wanted, free, shares)
		}
	})
}

func TestPrimariesWithoutRoomAreKnown(t *testing.T) {
	t.Parallel()
	waiting := objects.NewAttachment("a", apiv1.RolePrimary, 1, apiv1.AttachmentPending)
	waiting.Status.Conditions = []metav1.Condition{{
		Type:   apiv1.AttachmentConditionAttached,
		Status: metav1.ConditionFalse,
		Reason: apiv1.ReasonWaitingForDiskSlot,
	}}
	if !attaching.WaitsForSlot(waiting) {
		t.Fatal("one that waits for room is not known")
	}
	waiting.Spec.Role = apiv1.RoleReplica
	if attaching.WaitsForSlot(waiting) {
		t.Fatal("a replica that waits for room keeps others off")
	}
}

// A pod that came to the node of a replica, and that must not be beside a pod of the volume, closes the node.
func TestAPodThatRepelsThePodOfAVolumeClosesTheNodeOfAReplica(t *testing.T) {
	t.Parallel()
	there, otherKey := farFrom(term("db", corev1.LabelHostname)), farFrom(term("db", "rack"))
	inOthers := term("db", corev1.LabelHostname)
	inOthers.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
	for name, test := range map[string]struct {
		user, beside *corev1.Pod
		want         []string
	}{
		"a rule of the pod": {newPod("db-0", "a", called("db"), there),
			newPod("db-1", "b", called("db")), []string{"b"}},
		"a rule of the other pod": {newPod("db-0", "a", called("db")), newPod("web", "b", there), []string{"b"}},
		"no rule":                 {newPod("db-0", "a", called("db")), newPod("db-1", "b", called("db")), nil},
		"a rule about others": {newPod("db-0", "a", called("db"), there),
			newPod("web", "b", called("web")), nil},
		"a preference": {newPod("db-0", "a", called("db"), ratherFarFrom(term("db", corev1.LabelHostname))),
			newPod("db-1", "b", called("db")), nil},
		"a domain that the node has not": {newPod("db-0", "a", called("db"), otherKey),
			newPod("db-1", "b", called("db")), nil},
		"a rule about labels of namespaces": {newPod("db-0", "a", called("db"), farFrom(inOthers)),
			newPod("db-1", "b", inNamespace("x"), called("db")), nil},
		"a pod that ends": {newPod("db-0", "a", called("db"), there),
			newPod("db-1", "b", called("db"), terminating), nil},
		"a pod of the volume, which moves": {newPod("db-0", "a", called("db"), there),
			newPod("db-0", "b", called("db"), there), nil},
		"a pod of the same name elsewhere": {newPod("db-0", "a", called("db")),
			newPod("db-0", "b", inNamespace("x"), there), nil},
		"a rule about all pods of a namespace": {newPod("db-0", "a", called("db"), there),
			newPod("db-1", "b", inNamespace("x"), called("db")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := placement.Input{
				Now: objects.Now, CleanUpDelay: time.Hour, DrainGrace: time.Minute,
				Volume: objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld)),
				Attachments: objects.Attachments(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached),
					objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentAttached)),
				Nodes:       []placement.NodeView{newNode("a", "1"), newNode("b", "1"), newNode("c", "1")},
				Pods:        []placement.PodView{{Pod: test.user}},
				Beside:      map[string][]*corev1.Pod{"b": {test.beside}},
				ClosedSince: map[string]time.Time{"b": objects.Ago(time.Minute).Time},
			}
			for i := range in.Nodes {
				n := in.Nodes[i].Node
				n.Labels = map[string]string{corev1.LabelHostname: n.Name}
				in.Cluster.Nodes = append(in.Cluster.Nodes, n)
			}
			if got := placement.Closed(in); !slices.Equal(got, test.want) {
				t.Errorf("got the closed nodes %q, want %q", got, test.want)
			}
			if got := placement.Next(in).Closed; !slices.Equal(got, test.want) {
				t.Errorf("got replicas on the closed nodes %q, want %q", got, test.want)
			}
			if got := placement.MissesReplicas(in); got != (len(test.want) > 0) {
				t.Errorf("got a search for a place %t, want %t", got, len(test.want) > 0)
			}
		})
	}
}

// Programs that label and taint nodes remove and set them again when they restart. A taint of kubectl
// has no time.
func TestWhatKeepsPodsOffANodeDisplacesAReplicaAfterTheGrace(t *testing.T) {
	t.Parallel()
	selects := []placement.PodView{{Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "db-0"},
		Spec:       corev1.PodSpec{NodeSelector: map[string]string{"feature": "x"}},
	}}}
	labelled := func(n *placement.NodeView) { n.Node.Labels = map[string]string{"feature": "x"} }
	closed := map[string]struct {
		change func(*placement.NodeView)
		reason string
	}{
		"no label": {func(n *placement.NodeView) { n.Node.Labels = nil }, "ReplicaMisplaced"},
		"a taint without a time": {func(n *placement.NodeView) {
			n.Node.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		}, "ReplicaDrained"},
		"a cordon without a time": {cordoned, "ReplicaDrained"},
		"another zone":            {func(n *placement.NodeView) { n.Zone = "2" }, "ReplicaMisplaced"},
	}
	primary := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)
	replica := func(node string, state apiv1.AttachmentState) *apiv1.AzVolumeAttachment {
		return objects.NewAttachment(node, apiv1.RoleReplica, 0, state)
	}
	attached, attaching := apiv1.AttachmentAttached, apiv1.AttachmentAttaching
	for name, c := range closed {
		for when, test := range map[string]struct {
			all    []*apiv1.AzVolumeAttachment
			seen   time.Duration // negative for never
			others bool
			want   []string
			closed []string
			in     time.Duration
		}{
			"at first": {objects.Attachments(primary, replica("b", attached)), -1, true, nil, nil, time.Minute},
			"for 5 seconds": {objects.Attachments(primary, replica("b", attached)), 5 * time.Second, true, nil, nil,
				55 * time.Second},
			"for too long": {objects.Attachments(primary, replica("b", attached)),
				time.Minute, true, []string{"Create c: ReplicaPlaced"}, []string{"b"}, 0},
			"with a new one": {objects.Attachments(primary, replica("b", attached), replica("c", attaching)),
				time.Hour, true, nil, []string{"b"}, 0},
			"with a new one that is attached": {objects.Attachments(primary, replica("b", attached), replica("c", attached)),
				time.Hour, true, []string{"Delete b: " + c.reason}, []string{"b"}, 0},
			"with no other node": {objects.Attachments(primary, replica("b", attached)),
				time.Hour, false, nil, []string{"b"}, 0},
			"and not attached": {objects.Attachments(primary, failedSince("b", time.Second)),
				5 * time.Second, false, nil, nil, 55 * time.Second},
			"for too long and not attached": {objects.Attachments(primary, failedSince("b", time.Second)),
				time.Minute, false, []string{"Delete b: " + c.reason}, nil, 0},
		} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				in := placement.Input{
					Now: objects.Now, CleanUpDelay: time.Hour, DrainGrace: time.Minute, Attachments: test.all, Pods: selects,
					Volume: objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld)),
					Nodes:  []placement.NodeView{newNode("a", "1", labelled), newNode("b", "1", labelled, c.change)},
				}
				if test.others {
					in.Nodes = append(in.Nodes, newNode("c", "1", labelled))
				}
				if got := placement.Closed(in); !slices.Equal(got, []string{"b"}) {
					t.Errorf("got the closed nodes %q, want b", got)
				}
				if test.seen >= 0 {
					in.ClosedSince = map[string]time.Time{"b": objects.Ago(test.seen).Time}
				}
				step := placement.Next(in)
				if got := decided(step.Decisions); !slices.Equal(got, test.want) || !slices.Equal(step.Closed, test.closed) ||
					step.ChangesIn != test.in {
					t.Errorf("got %q, closed %q, in %s; want %q, %q, %s", got, step.Closed, step.ChangesIn, test.want,
						test.closed, test.in)
				}
			})
		}
	}
}
