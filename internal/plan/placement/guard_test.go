package placement_test

import (
	"testing"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// TestTheReplicaThatGuardsAgainstAFencedNodeIsKept has node a, whose reservation node x has taken,
// and which has the disk attached.
func TestTheReplicaThatGuardsAgainstAFencedNodeIsKept(t *testing.T) {
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
	}{
		"no pod could start for longer than the clean-up delay": {volume: expired},
		"there is one replica too many":                         {volume: held, others: others, x: cordoned},
		"its node is lost":                                      {volume: held, others: others, x: lost},
		"its node is gone":                                      {volume: held, others: others, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := objects.NewAttachment("x", apiv1.RoleReplica, 0, apiv1.AttachmentAttached)
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
			removed := func(fenced ...*apiv1.AzVolumeAttachment) (bool, []placement.Guard) {
				in.Attachments = append(append(fenced, test.others...), x)
				step := placement.Next(in)
				for _, d := range step.Decisions {
					if d.Verb == placement.Delete && d.Node == "x" {
						return true, step.Guards
					}
				}
				return false, step.Guards
			}
			if is, kept := removed(); !is || len(kept) != 0 {
				t.Fatalf("got removed %t, kept %v while no node is guarded against; want it removed", is, kept)
			}
			fenced := objects.Proved(objects.Deleted(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentDetaching)),
				apiv1.ProofPreempted)
			fenced.Status.Proof.Preemption = &apiv1.Preemption{NodeName: "x"}
			if is, kept := removed(fenced); is || len(kept) != 1 || kept[0] != (placement.Guard{Node: "x", For: "a"}) {
				t.Errorf("got removed %t, kept %v; want x kept for a", is, kept)
			}
		})
	}
}

func TestTheReplicasThatGuardAreNamedInTheirOrder(t *testing.T) {
	t.Parallel()
	fenced := objects.Proved(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentDetaching), apiv1.ProofPreempted)
	step := placement.Next(placement.Input{
		Now:         objects.Now,
		Volume:      objects.NewVolume(objects.NeverOwned),
		Attachments: objects.Attachments(fenced, replicaOn("x"), replicaOn("y")),
		Nodes:       nodes(newNode("x", "1")), // the other one is deleted first
	})
	if len(step.Guards) != 2 || step.Guards[0].Node != "x" || len(step.Decisions) != 0 {
		t.Errorf("got guards %v and decisions %v, want x and y kept", step.Guards, step.Decisions)
	}
}
