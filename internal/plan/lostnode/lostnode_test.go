package lostnode_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// held is a volume that node n holds; decided, proven and the like change it.
func held(name string, change ...func(*lostnode.Volume)) lostnode.Volume {
	v := objects.NewVolume(objects.Owned("n", 3, apiv1.OwnershipHeld))
	v.Name = name
	a := objects.NewAttachment("n", apiv1.RolePrimary, 3, apiv1.AttachmentAttached)
	a.Name, a.Spec.VolumeName = name+"-n", name
	f := lostnode.Volume{Volume: v, Attachment: a, InUse: true}
	for _, c := range change {
		c(&f)
	}
	return f
}

func isDecided(f *lostnode.Volume) {
	f.Volume.Status.Primary.State, f.Volume.Status.Primary.Cause = apiv1.OwnershipReleasing, apiv1.CauseNodeLost
}

func isPaused(f *lostnode.Volume) {
	f.Volume.Annotations = map[string]string{apiv1.AnnotationPaused: apiv1.PausedTrue}
}

func isReserved(f *lostnode.Volume) { f.Volume.Status.Fencing = apiv1.FencingPreemption }

func isUnpublished(f *lostnode.Volume) {
	f.Volume.Status.Primary.State, f.Volume.Status.Primary.Cause = apiv1.OwnershipReleasing, apiv1.CauseUnpublished
}

func hasProof(kind apiv1.ProofType) func(*lostnode.Volume) {
	return func(f *lostnode.Volume) { objects.Proved(f.Attachment, kind) }
}

func isMultiNode(f *lostnode.Volume) {
	f.Volume.Spec.Access, f.Volume.Status.Primary = apiv1.AccessMultiNode, nil
	f.Attachment.Spec.Epoch = ownership.MultiNodeEpoch
}

// isMarked is a multi-node volume whose fence was decided by a process that died before it could
// delete the attachment.
func isMarked(f *lostnode.Volume) {
	f.Attachment.Finalizers = []string{apiv1.FinalizerAttachment, apiv1.FinalizerFenced}
}

func isFencedAttachment(f *lostnode.Volume) {
	isMarked(f)
	objects.Deleted(f.Attachment)
}

// using is a pod of a StatefulSet on node n that uses volumes of ours.
func using(name string, volumes []string, change ...func(*lostnode.Pod)) lostnode.Pod {
	p := lostnode.Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns",
		Name:      name,
		UID:       types.UID(name),
	}}}
	ownedBy("StatefulSet")(&p)
	for _, v := range volumes {
		p.Volumes = append(p.Volumes, lostnode.PodVolume{Volume: v, Name: "claim ns/" + v})
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func ownedBy(kind string) func(*lostnode.Pod) {
	return func(p *lostnode.Pod) {
		p.Pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Controller: new(true)}}
	}
}

func refersTo(controller *bool) func(*lostnode.Pod) {
	return func(p *lostnode.Pod) { p.Pod.OwnerReferences[0].Controller = controller }
}

func unowned(p *lostnode.Pod)      { p.Pod.OwnerReferences = nil }
func beingDeleted(p *lostnode.Pod) { p.Pod.DeletionTimestamp = objects.Ago(time.Minute) }
func optsOut(p *lostnode.Pod) {
	p.Pod.Annotations = map[string]string{apiv1.AnnotationFailover: apiv1.FailoverDisabled}
}
func claimOptsOut(p *lostnode.Pod) {
	p.Volumes[0].OptOut = annotation.Failover.Switched(map[string]string{apiv1.AnnotationFailover: apiv1.FailoverDisabled})
}
func also(v lostnode.PodVolume) func(*lostnode.Pod) {
	return func(p *lostnode.Pod) { p.Volumes = append(p.Volumes, v) }
}

var (
	isLost    = nodehealth.Judgement{State: nodehealth.Lost}
	isDown    = nodehealth.Judgement{State: nodehealth.Down}
	isStopped = nodehealth.Judgement{State: nodehealth.Down, Stopped: true}
	isAlive   = nodehealth.Judgement{State: nodehealth.Healthy}
	isSilent  = nodehealth.Judgement{State: nodehealth.Suspect}
	isGuarded = nodehealth.Judgement{State: nodehealth.Lost, HeldBack: "too many", MassLoss: true}
)

// aNode makes the input of a lost node whose volumes are all in use.
func aNode(v nodehealth.Judgement, volumes []lostnode.Volume, pods ...lostnode.Pod) lostnode.Input {
	in := lostnode.Input{
		NodeName:          "n",
		Health:            v,
		Heard:             true,
		OutOfServiceTaint: true,
		Volumes:           volumes,
		Pods:              pods,
		Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}},
		DriverNode: &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
	}
	return in
}

func with(in lostnode.Input, change ...func(*lostnode.Input)) lostnode.Input {
	for _, c := range change {
		c(&in)
	}
	return in
}

func isNotInUse(f *lostnode.Volume)   { f.InUse = false }
func notHeard(in *lostnode.Input)     { in.Heard = false }
func unresponsive(in *lostnode.Input) { in.Unresponsive = true }
func nodeOptsOut(in *lostnode.Input) {
	in.Node.Annotations = map[string]string{apiv1.AnnotationFailover: apiv1.FailoverDisabled}
}
func notReady(in *lostnode.Input) { in.Node.Status.Conditions[0].Status = corev1.ConditionUnknown }
func hasTaint(key string) func(*lostnode.Input) {
	return func(in *lostnode.Input) {
		in.Node.Spec.Taints = append(in.Node.Spec.Taints, corev1.Taint{Key: key})
	}
}
func hasOurTaint(in *lostnode.Input) {
	in.Node.Spec.Taints = append(in.Node.Spec.Taints, corev1.Taint{
		Key:   corev1.TaintNodeOutOfService,
		Value: lostnode.OutOfServiceValue,
	})
}
func oursIsRecorded(in *lostnode.Input) {
	in.DriverNode.Status.Conditions = []metav1.Condition{{Type: apiv1.NodeConditionInService, Status: metav1.ConditionFalse}}
}

func volumeNames(volumes []lostnode.Volume) string {
	list := make([]string, 0, len(volumes))
	for _, v := range volumes {
		list = append(list, v.Volume.Name)
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// told writes a step in a line.
func told(s lostnode.Step) string {
	var parts []string
	add := func(what, list string) {
		if list != "" {
			parts = append(parts, what+" "+list)
		}
	}
	add("fence", volumeNames(s.Fence))
	add("repair", volumeNames(s.Repair))
	for _, p := range s.LeftAlone {
		add("leave", fmt.Sprintf("%s:%s", p.Pod.Name, p.Reason))
	}
	add("quarantine", string(s.Quarantine))
	add("unresponsive", string(s.Unresponsive))
	add("out-of-service", string(s.OutOfService))
	for _, d := range s.Delete {
		if d.Force {
			add("force", d.Pod.Name)
		} else {
			add("delete", d.Pod.Name)
		}
	}
	add("prune", volumeNames(s.Prune))
	add("unblocked", volumeNames(s.Unblocked))
	return strings.Join(parts, "; ")
}

func volumes(list ...lostnode.Volume) []lostnode.Volume { return list }

// The events about pods that are left alone carry these messages.
func TestAPodThatIsLeftAloneIsToldWhatToDo(t *testing.T) {
	t.Parallel()
	guarded := nodehealth.Judgement{
		State:    nodehealth.Lost,
		HeldBack: "2 of 4 nodes seem lost at once, which is more than 45 %",
		MassLoss: true,
	}
	for name, test := range map[string]struct {
		in   lostnode.Input
		want []string
	}{
		"by the guard": {aNode(guarded, volumes(held("v")), using("p", []string{"v"})),
			[]string{"2 of 4 nodes", "more than 45 %", "az vm stop"}},
		"by an opt-out of the pod": {aNode(isLost, volumes(held("v")), using("p", []string{"v"}, optsOut)),
			[]string{apiv1.AnnotationFailover, "kubectl delete pod --force"}},
		"by an opt-out of a pod that mounts the volume twice": {
			aNode(isLost, volumes(held("v")), using("p", []string{"v", "v"}, optsOut)), []string{apiv1.AnnotationFailover}},
		"by an opt-out of the Node": {with(aNode(isLost, volumes(held("v")), using("p", []string{"v"})), nodeOptsOut),
			[]string{"its Node has", apiv1.AnnotationFailover, "kubectl delete pod --force"}},
		"by a pause": {aNode(isLost, volumes(held("v", isPaused)), using("p", []string{"v"})),
			[]string{"AzVolume v has", apiv1.AnnotationPaused, "only Azure can fence"}},
		"by an opt-out of the claim": {aNode(isLost, volumes(held("v")), using("p", []string{"v"}, claimOptsOut)),
			[]string{"claim ns/v", apiv1.AnnotationFailover, "kubectl delete pod --force"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left := lostnode.Next(test.in).LeftAlone
			if len(left) != 1 || !slices.Equal(left[0].Volumes, []string{"v"}) {
				t.Fatalf("got %+v, want pod p left alone with volume v", left)
			}
			for _, want := range test.want {
				if !strings.Contains(left[0].Message, want) {
					t.Errorf("got message %q, want %q in it", left[0].Message, want)
				}
			}
		})
	}
}

func TestFailover(t *testing.T) {
	t.Parallel()
	detached, vmDown := hasProof(apiv1.ProofDetached), hasProof(apiv1.ProofVMDown)
	otherDriver := lostnode.PodVolume{Name: "claim ns/nfs"}
	unrecorded := lostnode.PodVolume{Name: "claim ns/old", Volume: "old", Unrecorded: true}
	for name, test := range map[string]struct {
		in   lostnode.Input
		want string
	}{
		// Which volumes are fenced.
		"the volumes of a lost node are fenced, all at once": {aNode(isLost, volumes(held("v"), held("w")),
			using("p", []string{"v", "w"})), "fence v,w; quarantine Add"},
		"a volume without a pod is fenced as well": {aNode(isLost, volumes(held("v"))), "fence v; quarantine Add"},
		"a volume of several nodes is fenced as well": {aNode(isLost, volumes(held("v", isMultiNode)),
			using("p", []string{"v"})), "fence v; quarantine Add"},
		"a release that Kubernetes asked for becomes a fence": {aNode(isLost, volumes(held("v", isUnpublished)),
			using("p", []string{"v"})), "fence v; quarantine Add"},
		"a Node that opts out keeps its volumes, also one without a pod": {
			with(aNode(isLost, volumes(held("v"), held("w")), using("p", []string{"v"})), nodeOptsOut), "leave p:OptedOut"},
		"a Node that opts out keeps them also if its VM is down": {
			with(aNode(isDown, volumes(held("v")), using("p", []string{"v"})), nodeOptsOut), "leave p:OptedOut"},
		"a Node that opts out keeps no volume that was unpublished": {
			with(aNode(isLost, volumes(held("v", isUnpublished))), nodeOptsOut), "fence v; quarantine Add"},
		"a Node that opts out later does not revoke a decision": {
			with(aNode(isLost, volumes(held("v", isDecided)), using("p", []string{"v"})), nodeOptsOut), "quarantine Add"},
		"a volume that is paused is not fenced by a detach": {
			aNode(isLost, volumes(held("v", isPaused), held("w")), using("p", []string{"v"}), using("q", []string{"w"})),
			"fence w; leave p:VolumePaused; quarantine Add"},
		"a volume that is paused stays with its pod's other volumes": {
			aNode(isLost, volumes(held("v", isPaused), held("w")), using("p", []string{"v", "w"})), "leave p:VolumePaused"},
		"a volume of several nodes that is paused is not fenced": {
			aNode(isLost, volumes(held("v", isMultiNode, isPaused)), using("p", []string{"v"})), "leave p:VolumePaused"},
		"a volume that is paused is fenced by its reservation": {
			aNode(isLost, volumes(held("v", isPaused, isReserved)), using("p", []string{"v"})), "fence v; quarantine Add"},
		"a pause does not revoke a decision": {
			aNode(isLost, volumes(held("v", isPaused, isDecided)), using("p", []string{"v"})), "quarantine Add"},
		"a release that has its proof is not fenced": {aNode(isLost, volumes(held("v", isUnpublished, detached))), ""},
		"nothing is done to a node that is alive":    {aNode(isAlive, volumes(held("v")), using("p", []string{"v"})), ""},
		"nothing is done to a node that is silent":   {aNode(isSilent, volumes(held("v")), using("p", []string{"v"})), ""},
		"no fence begins while the guard holds back": {aNode(isGuarded, volumes(held("v")), using("p", []string{"v"})),
			"leave p:FencingHeldBack"},
		"the guard holds back no pod without a held volume": {aNode(isGuarded, volumes(held("v")), using("p", nil),
			using("q", []string{"elsewhere"})), ""},
		"the guard holds back no pod whose volume is proven": {aNode(isGuarded, volumes(held("v", isUnpublished, detached)),
			using("p", []string{"v"})), ""},
		"switching failover off is not the guard": {
			aNode(nodehealth.Judgement{State: nodehealth.Lost, HeldBack: "off"}, volumes(held("v")), using("p", []string{"v"})),
			""},
		"no fence begins on a node of unknown health": {aNode(nodehealth.Judgement{}, volumes(held("v")),
			using("p", []string{"v"})), ""},
		// Which pods are left alone.
		"a pod that opts out keeps its volume": {aNode(isLost, volumes(held("v")),
			using("p", []string{"v"}, optsOut)), "leave p:OptedOut"},
		"a claim that opts out keeps its volume": {aNode(isLost, volumes(held("v")),
			using("p", []string{"v"}, claimOptsOut)), "leave p:OptedOut"},
		"a pod that no controller would re-create keeps its volume": {aNode(isLost, volumes(held("v")),
			using("p", []string{"v"}, unowned)), "leave p:NoOwner"},
		"a static pod keeps its volume": {aNode(isLost, volumes(held("v")),
			using("p", []string{"v"}, ownedBy("Node"))), "leave p:NoOwner"},
		"a pod that its owner would re-create on the same node keeps its volume": {aNode(isLost, volumes(held("v")),
			using("p", []string{"v"}, ownedBy("DaemonSet"))), "leave p:DaemonSet"},
		"a pod that may write to another driver's volume keeps its volume": {aNode(isLost, volumes(held("v")),
			using("p", []string{"v"}, also(otherDriver))), "leave p:ForeignVolume"},
		"a pod with a volume that is not known keeps its volume": {
			aNode(isLost, volumes(held("v")),
				using("p", []string{"v"}, also(lostnode.PodVolume{Name: "claim ns/x", Unknown: true}))), "leave p:UnknownVolume"},
		"a pod that only reads another driver's volume is no exception": {
			aNode(isLost, volumes(held("v")),
				using("p", []string{"v"}, also(lostnode.PodVolume{Name: "claim ns/nfs", ReadOnly: true}))),
			"fence v; quarantine Add"},
		"a pod that is being deleted needs no owner": {aNode(isLost, volumes(held("v")),
			using("p", []string{"v"}, unowned, beingDeleted)), "fence v; quarantine Add"},
		"a pod with a volume that V1 published is not deleted": {aNode(isLost, nil,
			using("p", nil, also(unrecorded))), "leave p:ForeignVolume"},
		"a pod with a volume that V1 published is not deleted while it is being deleted": {aNode(isLost, nil,
			using("p", nil, also(unrecorded), beingDeleted)), "leave p:ForeignVolume"},
		"a pod with a volume that V1 published keeps its other volumes": {aNode(isLost, volumes(held("v")),
			using("p", []string{"v"}, also(unrecorded))), "leave p:ForeignVolume"},
		"a pod with a volume that V1 published is deleted on a VM that is down": {aNode(isDown, volumes(held("v")),
			using("p", nil, also(unrecorded)), using("q", []string{"v"})),
			"fence v; quarantine Add; out-of-service Add; force p"},
		"a pod with a volume that V1 published remains when the node is Ready again": {aNode(isAlive,
			volumes(held("v", isDecided, detached)), using("p", []string{"v"}, also(unrecorded))),
			"leave p:ForeignVolume; quarantine Add"},
		"a pod that is being deleted still must not write another driver's volume": {aNode(isLost, volumes(held("v")),
			using("p", []string{"v"}, beingDeleted, also(otherDriver))), "leave p:ForeignVolume"},
		"a pod that shares a volume with a pod that is left alone is left alone, and so on": {
			aNode(isLost, volumes(held("u"), held("v"), held("w"), held("x")), using("r", []string{"w"}),
				using("q", []string{"v", "w"}), using("p", []string{"u", "v"}, optsOut), using("s", []string{"x"})),
			"fence x; leave r:SharedVolume; leave q:SharedVolume; leave p:OptedOut; quarantine Add"},
		"a pod without volumes of this driver is left alone without a reason": {aNode(isLost, nil,
			using("p", nil, also(otherDriver))), ""},
		"on a VM that is down only opting out helps": {aNode(isDown,
			volumes(held("u"), held("v"), held("w")), using("p", []string{"u"}, unowned),
			using("q", []string{"v"}, also(otherDriver)), using("r", []string{"w"}, ownedBy("DaemonSet"))),
			"fence u,v,w; quarantine Add; out-of-service Add"},
		"on a VM that is down a pod that opts out keeps its volume": {aNode(isDown, volumes(held("v")),
			using("p", []string{"v"}, optsOut)), "leave p:OptedOut"},
		"a pod that opts out too late is left alone nevertheless": {aNode(isLost,
			volumes(held("v", isDecided, detached)), using("p", []string{"v"}, optsOut)), "leave p:OptedOut; quarantine Add"},
		"a pod that opts out too late does not keep the volume for other pods": {
			aNode(isLost, volumes(held("v", isDecided, detached)), using("p", []string{"v"}, optsOut), using("q", []string{"v"})),
			"leave p:OptedOut; quarantine Add; force q"},
		"a pod that opts out does not keep a volume that the node does not hold": {
			aNode(isLost, nil, using("p", []string{"v"}, optsOut), using("q", []string{"v"})),
			"leave p:OptedOut; quarantine Add; force q"},
		"a pod that opts out is no news on a node that is alive": {aNode(isAlive, volumes(held("v")),
			using("p", []string{"v"}, optsOut)), ""},
		"a pod that opts out is not held back by the guard": {aNode(isGuarded, volumes(held("v")),
			using("p", []string{"v"}, optsOut)), ""},
		"an owner that is not the controller would not re-create a pod": {aNode(isLost, volumes(held("v"), held("w")),
			using("p", []string{"v"}, refersTo(nil)), using("q", []string{"w"}, refersTo(new(false)))),
			"leave p:NoOwner; leave q:NoOwner"},
		// What follows the proof.
		"no pod is deleted before the proof": {aNode(isLost, volumes(held("v", isDecided)), using("p", []string{"v"})),
			"quarantine Add"},
		"a proof of a former epoch is none": {aNode(isLost, volumes(held("v", isDecided, func(f *lostnode.Volume) {
			f.Attachment.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofUnstaged, Epoch: 2}
		})), using("p", []string{"v"})), "quarantine Add"},
		"a pod is deleted by force when all of its volumes are proven": {aNode(isLost,
			volumes(held("v", isDecided, detached), held("w", isDecided, detached)), using("p", []string{"v", "w"})),
			"quarantine Add; force p"},
		"a pod waits for the last of its volumes": {aNode(isLost,
			volumes(held("v", isDecided, detached), held("w", isDecided)), using("p", []string{"v", "w"})), "quarantine Add"},
		"a pod whose volume only others hold is deleted from a lost node": {aNode(isLost, nil,
			using("p", []string{"v"})), "quarantine Add; force p"},
		"a pod whose volume only others hold stays on a node that is alive": {aNode(isAlive, nil, using("p", []string{"v"})), ""},
		"a pod that hangs in its deletion is deleted by force": {aNode(isLost,
			volumes(held("v", isDecided, detached)), using("p", []string{"v"}, beingDeleted)), "quarantine Add; force p"},
		"a volume is pruned when no pod uses it any more": {aNode(isLost,
			volumes(held("v", isDecided, detached), held("w", isDecided, detached)), using("p", []string{"w"})),
			"quarantine Add; force p; prune v"},
		"a volume that nothing uses and that is not listed is unblocked": {with(
			aNode(isLost, volumes(held("v", isDecided, detached, isNotInUse)))), "quarantine Add; unblocked v"},
		"the attachment of several nodes is the record of the decision": {aNode(isSilent,
			volumes(held("v", isMultiNode, isFencedAttachment, detached)), using("p", []string{"v"})), "quarantine Add; force p"},
		"an attachment of several nodes that is deleted for another reason is no fence": {aNode(isSilent,
			volumes(held("v", isMultiNode, detached, func(f *lostnode.Volume) { objects.Deleted(f.Attachment) })),
			using("p", []string{"v"})), ""},
		"an ownership without its attachment gets one, so that there can be a proof": {aNode(isLost,
			volumes(held("v", isDecided, func(f *lostnode.Volume) { f.Attachment = nil }))), "repair v; quarantine Add"},
		"a replica whose node holds the ownership is promoted": {aNode(isLost,
			volumes(held("v", isDecided, func(f *lostnode.Volume) { f.Attachment.Spec.Role = apiv1.RoleReplica }))),
			"repair v; quarantine Add"},
		"a primary of a former epoch is promoted": {aNode(isLost,
			volumes(held("v", isDecided, func(f *lostnode.Volume) { f.Attachment.Spec.Epoch = 2 }))), "repair v; quarantine Add"},
		"a replica with a proof of the epoch is not promoted": {aNode(isLost,
			volumes(held("v", isDecided, detached, func(f *lostnode.Volume) { f.Attachment.Spec.Role = apiv1.RoleReplica }))),
			"quarantine Add; prune v"},
		"a replica that is being deleted is not promoted": {aNode(isLost, volumes(held("v", isDecided, func(f *lostnode.Volume) {
			f.Attachment.Spec.Role = apiv1.RoleReplica
			objects.Deleted(f.Attachment)
		}))), "quarantine Add"},
		// What was decided is carried out.
		"a decided fence continues while the guard holds back": {aNode(isGuarded,
			volumes(held("v", isDecided, detached), held("w")), using("p", []string{"v"}), using("q", []string{"w"})),
			"leave q:FencingHeldBack; quarantine Add; force p"},
		"a decided fence continues although the node is Ready again": {aNode(isAlive,
			volumes(held("v", isDecided, detached)), using("p", []string{"v"})), "quarantine Add; force p"},
		"a volume is pruned although the node is Ready again": {aNode(isAlive,
			volumes(held("v", isDecided, detached))), "quarantine Add; prune v"},
		"a node that is Ready again ends a pod that lost some volumes": {aNode(isAlive,
			volumes(held("v", isDecided, detached), held("w")), using("p", []string{"v", "w"})), "quarantine Add; delete p"},
		"a node that is Ready again ends a pod once": {aNode(isAlive,
			volumes(held("v", isDecided, detached), held("w")), using("p", []string{"v", "w"}, beingDeleted)), "quarantine Add"},
		"an attachment of several nodes that was marked is deleted": {aNode(isLost,
			volumes(held("v", isMultiNode, isMarked)), using("p", []string{"v"})), "repair v; quarantine Add"},
		"a marked attachment is deleted while the guard holds back": {aNode(isGuarded,
			volumes(held("v", isMultiNode, isMarked)), using("p", []string{"v"})), "repair v; quarantine Add"},
		"a marked attachment is deleted although the node is Ready again": {aNode(isAlive,
			volumes(held("v", isMultiNode, isMarked)), using("p", []string{"v"})), "repair v; quarantine Add"},
		"a marked attachment with a proof is deleted before the volume is unblocked": {aNode(isAlive,
			volumes(held("v", isMultiNode, isMarked, detached))), "repair v; quarantine Add"},
		"a node that is Ready again ends no pod before the proof": {aNode(isAlive,
			volumes(held("v", isDecided), held("w")), using("p", []string{"v", "w"})), "quarantine Add"},
		// Taints.
		"a VM that is down is tainted": {aNode(isDown,
			volumes(held("v", isDecided, vmDown)), using("p", []string{"v"})), "quarantine Add; out-of-service Add; force p"},
		"a VM that is down is not tainted if that is switched off": {with(
			aNode(isDown, volumes(held("v", isDecided, vmDown))), func(in *lostnode.Input) { in.OutOfServiceTaint = false }),
			"quarantine Add; prune v"},
		"a VM that is down is not tainted while failover is switched off": {
			aNode(nodehealth.Judgement{State: nodehealth.Down, HeldBack: "off"}, volumes(held("v", isDecided, vmDown))),
			"quarantine Add; prune v"},
		"a VM that is down is not tainted if any pod opted out": {aNode(isDown,
			volumes(held("v")), using("p", []string{"v"}), using("q", nil, optsOut)), "fence v; quarantine Add"},
		"a VM that is down is not tainted without a volume of ours": {aNode(isDown, nil, using("p", nil)), ""},
		"a VM that is stopped is not tainted": {aNode(isStopped,
			volumes(held("v", isDecided, vmDown)), using("p", []string{"v"})), "quarantine Add; force p"},
		"a VM that is stopped is fenced": {aNode(isStopped,
			volumes(held("v")), using("p", []string{"v"})), "fence v; quarantine Add"},
		"a pod that also writes to another driver's volume is left alone if the VM is stopped": {aNode(isStopped,
			volumes(held("v")), using("p", []string{"v"}, also(lostnode.PodVolume{Name: "nfs"}))), "leave p:ForeignVolume"},
		"a pod that also writes to another driver's volume is moved if the VM is off": {aNode(isDown,
			volumes(held("v")), using("p", []string{"v"}, also(lostnode.PodVolume{Name: "nfs"}))),
			"fence v; quarantine Add; out-of-service Add"},
		"the proof of a volume does not say that the VM is off for every driver": {aNode(isLost,
			volumes(held("v", isDecided, vmDown))), "quarantine Add; prune v"},
		"a proof that the VM is down does not count after a sign of life": {aNode(isSilent,
			volumes(held("v", isDecided, vmDown))), "quarantine Add; prune v"},
		"a lost node is not tainted": {aNode(isLost, volumes(held("v", isDecided, detached))), "quarantine Add; prune v"},
		"taints that exist are not added": {with(
			aNode(isDown, volumes(held("v", isDecided, vmDown))), hasTaint(corev1.TaintNodeOutOfService),
			hasTaint(apiv1.TaintNodeLost)), "prune v"},
		"the driver's taints are removed when the node is Ready again": {with(aNode(isAlive, nil),
			hasTaint(corev1.TaintNodeOutOfService), hasTaint(apiv1.TaintNodeLost), oursIsRecorded),
			"quarantine Remove; out-of-service Remove"},
		"the driver's taints remain while the kubelet is not ready": {with(aNode(isAlive, nil),
			hasTaint(corev1.TaintNodeOutOfService), hasTaint(apiv1.TaintNodeLost), oursIsRecorded, notReady), ""},
		"the driver's taints remain while the node is silent": {with(aNode(isSilent, nil),
			hasTaint(corev1.TaintNodeOutOfService), hasTaint(apiv1.TaintNodeLost), oursIsRecorded), ""},
		"the driver's taints remain until this process has received a sign of life of the node": {with(aNode(isAlive, nil),
			hasTaint(corev1.TaintNodeOutOfService), hasTaint(apiv1.TaintNodeLost), oursIsRecorded, notHeard), ""},
		"a process without a sign of life of the node keeps new pods away": {with(
			aNode(isAlive, volumes(held("v", isDecided, detached)), using("p", []string{"v"})), notHeard),
			"quarantine Add; force p"},
		"a process without a sign of life of the node leaves a pod that lost some volumes alone": {with(
			aNode(isAlive, volumes(held("v", isDecided, detached), held("w")), using("p", []string{"v", "w"})), notHeard),
			"quarantine Add"},
		"a node that does not answer gets no new pods and keeps its volumes": {with(
			aNode(isAlive, volumes(held("v")), using("p", []string{"v"})), unresponsive), "unresponsive Add"},
		"a node that still does not answer remains so, whatever else is heard of it": {with(aNode(isAlive, nil),
			hasTaint(apiv1.TaintNodeUnresponsive), unresponsive), ""},
		"a node that has answered gets new pods when there is a sign of life": {with(aNode(isAlive, nil),
			hasTaint(apiv1.TaintNodeUnresponsive), notHeard), ""},
		"a node that answered and gives signs of life gets new pods": {with(aNode(isAlive, nil),
			hasTaint(apiv1.TaintNodeUnresponsive)), "unresponsive Remove"},
		"a taint without a record is removed by its value": {
			with(aNode(isAlive, nil), hasOurTaint), "out-of-service Remove"},
		"a taint without a record remains while the node is silent": {with(aNode(isSilent, nil), hasOurTaint), ""},
		"a taint of another component remains":                      {with(aNode(isAlive, nil), hasTaint(corev1.TaintNodeOutOfService)), ""},
		"a taint with another key and the driver's value remains": {with(aNode(isAlive, nil), hasOurTaint,
			func(in *lostnode.Input) { in.Node.Spec.Taints[0].Key = "example.com/maintenance" }), ""},
		"new pods are kept away until the last volume is unblocked": {with(
			aNode(isAlive, volumes(held("v", isDecided))), hasTaint(apiv1.TaintNodeLost)), ""},
		"without a Node there is nothing to taint or prune": {with(
			aNode(isDown, volumes(held("v", isDecided, vmDown, isNotInUse))), func(in *lostnode.Input) { in.Node = nil }),
			"unblocked v"},
		"a Node that is not one of this driver's is not tainted": {with(aNode(isAlive, nil),
			hasTaint(apiv1.TaintNodeLost), func(in *lostnode.Input) { in.DriverNode = nil }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := told(lostnode.Next(test.in)); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestAFailoverIsActiveWhileSomethingIsLeftToDo(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		in   lostnode.Input
		want bool
	}{
		"nothing is held":        {aNode(isLost, nil), false},
		"a fence begins":         {aNode(isLost, volumes(held("v"))), true},
		"a fence waits":          {aNode(isAlive, volumes(held("v", isDecided))), true},
		"a pod is to be deleted": {aNode(isLost, nil, using("p", []string{"v"})), true},
	} {
		if got := lostnode.Next(test.in).Active; got != test.want {
			t.Errorf("%s: got active %t, want %t", name, got, test.want)
		}
	}
}

func TestSchedulerPodsLeaveALostOrUnresponsiveNodeOnly(t *testing.T) {
	t.Parallel()
	pods := []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "scheduler"}}}
	for state, want := range map[nodehealth.State]int{
		nodehealth.Healthy: 0, nodehealth.Suspect: 0, nodehealth.Unknown: 0, nodehealth.Lost: 1, nodehealth.Down: 1,
	} {
		for _, unresponsive := range []bool{false, true} {
			in := lostnode.Input{
				NodeName:      "n",
				Health:        nodehealth.Judgement{State: state},
				SchedulerPods: pods,
				Unresponsive:  unresponsive,
			}
			if unresponsive {
				want = 1
			}
			if got := lostnode.Next(in); len(got.Unserve) != want || got.Active {
				t.Errorf("on a node that is %s, unresponsive %t: got %d pods to delete, active %t; want %d, and no failover of volumes",
					state, unresponsive, len(got.Unserve), got.Active, want)
			}
		}
	}
}

func TestAdvisesScheduler(t *testing.T) {
	t.Parallel()
	for which, c := range map[string]struct {
		labels map[string]string
		want   bool
	}{
		"of the chart's scheduler": {
			map[string]string{"app.kubernetes.io/name": "azuredisk", "app.kubernetes.io/component": "scheduler"}, true},
		"of the chart's controller": {
			map[string]string{"app.kubernetes.io/name": "azuredisk", "app.kubernetes.io/component": "controller"}, false},
		"of another scheduler": {
			map[string]string{"app.kubernetes.io/name": "other", "app.kubernetes.io/component": "scheduler"}, false},
		"without labels": {nil, false},
	} {
		if got := lostnode.AdvisesScheduler(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: c.labels}}); got != c.want {
			t.Errorf("a pod %s: got %t, want %t", which, got, c.want)
		}
	}
}
