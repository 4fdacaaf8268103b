package placement_test

import (
	"slices"
	"testing"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func image(pool, version string) func(*placement.NodeView) {
	return func(n *placement.NodeView) {
		n.Node.Labels["kubernetes.azure.com/agentpool"] = pool
		n.Node.Labels["kubernetes.azure.com/node-image-version"] = "AKSUbuntu-2204gen2containerd-" + version
	}
}

// TestReplicasGoToNodesWithTheNewestImage: without a reason the first of the nodes by name is chosen.
func TestReplicasGoToNodesWithTheNewestImage(t *testing.T) {
	t.Parallel()
	const old, recent = "202609.30.0", "202610.05.0"
	for name, test := range map[string]struct {
		b, c func(*placement.NodeView)
		want string
	}{
		"the surge node of an upgrade":                {image("blue", old), image("blue", recent), "c"},
		"numbers are compared as numbers":             {image("blue", "202610.5.9"), image("blue", "202610.5.10"), "c"},
		"the first of two nodes with the same image":  {image("blue", recent), image("blue", recent), "b"},
		"another pool's image says nothing":           {image("blue", old), image("green", recent), "b"},
		"a node that does not say its image is older": {image("blue", ""), image("blue", recent), "c"},
		"nodes of another platform":                   {func(*placement.NodeView) {}, func(*placement.NodeView) {}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := placement.Input{
				Now:          objects.Now,
				Volume:       objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld)),
				Attachments:  objects.Attachments(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)),
				Nodes:        []placement.NodeView{newNode("a", "1"), newNode("b", "1", test.b), newNode("c", "1", test.c)},
				CleanUpDelay: 5 * time.Minute,
			}
			want := []string{"Create " + test.want + ": ReplicaPlaced"}
			if got := decided(placement.Next(in).Decisions); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
