package placement_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// TestTheReplicaThatHoldsOffAFencedNodeIsKept has node a, whose reservation node x has taken, and
// which has the disk attached.
func TestTheReplicaThatHoldsOffAFencedNodeIsKept(t *testing.T) {
	t.Parallel()
	next := objects.NewAttachment("z", apiv1.RolePrimary, 3, apiv1.AttachmentAttached)
	others := objects.Attachments(next, objects.NewAttachment("y", apiv1.RoleReplica, 0, apiv1.AttachmentAttached))
	held := objects.Owned("z", 3, apiv1.OwnershipHeld)
	expired := func(v *apiv1.AzVolume) {
		v.Status.Primary = &apiv1.Ownership{Epoch: 2, State: apiv1.OwnershipReleased}
		v.Status.LastReleasedTime = objects.Ago(6 * time.Minute)
	}
	for name, test := range map[string]struct {
		volume func(*apiv1.AzVolume)
		others []*apiv1.AzVolumeAttachment
		x      func(*placement.NodeView)
		gone   bool
		state  apiv1.AttachmentState
		pod    bool
	}{
		"no pod could start for longer than the clean-up delay": {volume: expired},
		"the volume is being deleted": {volume: func(v *apiv1.AzVolume) {
			expired(
				v)
			v.DeletionTimestamp = objects.Ago(time.Second)
		}},
		"no replica is wanted any more": {
			volume: func(v *apiv1.AzVolume) { held(v); v.Spec.MaxMountReplicaCount = 0 },
			others: objects.Attachments(next),
		},
		"there is one replica too many": {
			volume: held,
			others: others,
			x:      func(n *placement.NodeView) { n.Node.Spec.Unschedulable = true },
		},
		"its node is drained": {volume: held, others: others, x: cordonedFor(time.Hour)},
		"its node is lost": {
			volume: held,
			others: others,
			x:      func(n *placement.NodeView) { n.Health = nodehealth.Lost },
		},
		"its node is gone":                      {volume: held, others: others, gone: true},
		"the pods cannot run on its node":       {volume: held, others: others, pod: true},
		"Azure could not attach the disk there": {volume: held, others: others, state: apiv1.AttachmentFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := objects.NewAttachment("x", apiv1.RoleReplica, 0, apiv1.AttachmentAttached)
			if test.state != "" {
				x.Status.State = test.state
			}
			in := placement.Input{
				Now:          objects.Now,
				Volume:       objects.NewVolume(test.volume),
				CleanUpDelay: 5 * time.Minute,
				DrainGrace:   time.Minute,
				Nodes:        []placement.NodeView{newNode("a", "1"), newNode("y", "1"), newNode("z", "1")},
			}
			if node := newNode("x", "1"); !test.gone {
				if test.x != nil {
					test.x(&node)
				}
				in.Nodes = append(in.Nodes, node)
			}
			if test.pod {
				in.Pods = []placement.PodView{{Pod: newPod("db", "z",
					func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "z"} })}}
				in.Volume.Spec.MaxMountReplicaCount = 0
			}
			removed := func(fenced ...*apiv1.AzVolumeAttachment) (bool, []placement.Kept) {
				in.Attachments = append(append(fenced, test.others...), x)
				step := placement.Next(in)
				for _, d := range step.Decisions {
					if d.Verb == placement.Delete && d.Node == "x" {
						return true, step.Kept
					}
				}
				return false, step.Kept
			}
			if is, kept := removed(); !is || len(kept) != 0 {
				t.Fatalf("got removed %t, kept %v while no node is held off; want it removed", is, kept)
			}
			lost := objects.Proved(objects.Deleted(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentDetaching)),
				apiv1.ProofPreempted)
			lost.Status.Proof.Preemption = &apiv1.Preemption{NodeName: "x"}
			if is, kept := removed(lost); is || len(kept) != 1 || kept[0] != (placement.Kept{Node: "x", For: "a"}) {
				t.Errorf("got removed %t, kept %v; want x kept for a", is, kept)
			}
		})
	}
}
