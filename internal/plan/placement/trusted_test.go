package placement_test

import (
	"slices"
	"testing"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// Root on a node with a replica can read and write the disk.
func TestReplicasAreOnNodesOfOneLabel(t *testing.T) {
	t.Parallel()
	const key = "node-restriction.kubernetes.io/pool"
	in := func(pool string) func(*placement.NodeView) {
		return func(n *placement.NodeView) { n.Node.Labels[key] = pool }
	}
	shopA, otherB, shopC, noneD := newNode("a", "1", in("shop")), newNode("b", "1", in("other")), newNode("c", "1", in("shop")),
		newNode("d", "1")
	primary := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)
	replica := func(node string) *apiv1.AzVolumeAttachment {
		return objects.NewAttachment(node, apiv1.RoleReplica, 0, apiv1.AttachmentAttached)
	}
	held := objects.Owned("a", 2, apiv1.OwnershipHeld)
	released := func(v *apiv1.AzVolume) {
		v.Status.Primary = &apiv1.Ownership{Epoch: 2, State: apiv1.OwnershipReleased}
		v.Status.LastRelease = &apiv1.ReleaseRecord{NodeName: "a"}
		v.Status.LastReleasedTime = objects.Ago(time.Minute)
	}
	for name, test := range map[string]struct {
		volume      func(*apiv1.AzVolume)
		attachments []*apiv1.AzVolumeAttachment
		nodes       []placement.NodeView
		want        []string
	}{
		"a replica comes to a node with the value of the primary's": {held, objects.Attachments(primary),
			[]placement.NodeView{shopA, otherB, shopC, noneD}, []string{"Create c: ReplicaPlaced"}},
		"not to one with another value, or without the label": {held, objects.Attachments(primary),
			[]placement.NodeView{shopA, otherB, noneD}, nil},
		"nor if the primary's node has no label": {objects.Owned("d", 2, apiv1.OwnershipHeld),
			objects.Attachments(objects.NewAttachment("d", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)),
			[]placement.NodeView{shopA, otherB, noneD}, nil},
		"nor to others without it": {objects.Owned("d", 2, apiv1.OwnershipHeld),
			objects.Attachments(objects.NewAttachment("d", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)),
			[]placement.NodeView{noneD, newNode("e", "1"), newNode("f", "1", in(""))}, nil},
		"nor from an empty value to a node without the label": {held, objects.Attachments(primary),
			[]placement.NodeView{newNode("a", "1", in("")), noneD}, nil},
		"a volume that no node has used has none": {objects.NeverOwned, objects.Attachments(replica("b")),
			[]placement.NodeView{shopA, otherB}, []string{"Delete b: ReplicasNotWanted"}},
		"a replica on a node that lost the label is removed": {held, objects.Attachments(primary, replica("d"), replica("c")),
			[]placement.NodeView{shopA, noneD, shopC}, []string{"Delete d: ReplicaMisplaced"}},
		"after the release the last node decides": {released, objects.Attachments(replica("a"), replica("b")),
			[]placement.NodeView{shopA, otherB, shopC, noneD}, []string{"Delete b: ReplicaMisplaced"}},
		"while that node is gone, the replicas remain": {released, objects.Attachments(replica("b")),
			[]placement.NodeView{otherB, shopC, noneD}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := decided(placement.Next(placement.Input{
				Now:          objects.Now,
				Volume:       objects.NewVolume(test.volume),
				Attachments:  test.attachments,
				Nodes:        test.nodes,
				NodeLabel:    key,
				CleanUpDelay: 5 * time.Minute,
			}).Decisions)
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
