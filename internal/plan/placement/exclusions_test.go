package placement_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func TestAVolumeWithoutAPlaceForAReplicaSaysWhyForEachNode(t *testing.T) {
	t.Parallel()
	held := objects.Owned("a", 2, apiv1.OwnershipHeld)
	primary := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)
	home := newNode("a", "1")
	full := func(name string) placement.NodeView { return newNode(name, "1", slots(0)) }
	picky := placement.PodView{Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "db-0"},
		Spec:       corev1.PodSpec{NodeSelector: map[string]string{"disktype": "none"}},
	}}
	for name, test := range map[string]struct {
		in   placement.Input
		want string
	}{
		"nodes with different reasons": {
			placement.Input{
				Attachments:   objects.Attachments(primary),
				ReservedSlots: 1,
				Nodes: []placement.NodeView{home, newNode("d", "1", slots(1)), newNode("c", "2"),
					newNode("b", "1", slots(0)), newNode("e", "1", suspect)},
			},
			"no node can take another replica: b, d: no free slot beyond the reserve; c: the disk cannot be attached in the node's zone; e: the node is Suspect"},
		"five nodes, and one that Azure services": {
			placement.Input{Attachments: objects.Attachments(primary),
				Nodes: []placement.NodeView{home, full("b"), full("c"), full("d"), full("e"), full("f"),
					newNode("g", "1", disturbed)}},
			"no node can take another replica: g: Azure has announced maintenance of the VM; " +
				"b, c, d, e, f: no free slot beyond the reserve"},
		"a node that is cordoned and has a replica": {
			placement.Input{Attachments: objects.Attachments(primary, replicaOn("b")),
				Nodes: []placement.NodeView{home, newNode("b", "1", cordonedFor(time.Hour))}},
			"no node can take another replica: b: pods cannot run there, and its replica stays until another one is attached"},
		"a node without the label that a lost node lacks as well": {
			placement.Input{Attachments: objects.Attachments(primary), NodeLabel: "pool",
				Nodes: []placement.NodeView{home, newNode("b", "1", lost)}},
			"no node can take another replica: b: the node is Lost"},
		"a pod that selects none": {
			placement.Input{Attachments: objects.Attachments(primary), Nodes: []placement.NodeView{home, newNode("b", "1")},
				Pods: []placement.PodView{picky}},
			"no node can take another replica: b: the selectors of pod db-0 or of its volumes exclude the node"},
		"a node to which the disk could not be attached": {
			placement.Input{Attachments: objects.Attachments(primary, failedSince("b", time.Hour)),
				Nodes: []placement.NodeView{home, newNode("b", "1")}},
			"no node can take another replica: b: the disk could not be attached there"},
		"a node that the attach has found full": {
			placement.Input{Attachments: objects.Attachments(primary, because(failedSince("b", time.Hour), apiv1.ReasonNoDiskSlot,
				"node b has 15 of 16 data disks, and 1 are reserved for primaries", "")),
				Nodes: []placement.NodeView{home, newNode("b", "1")}},
			"no node can take another replica: b: NoDiskSlot, node b has 15 of 16 data disks, and 1 are reserved for primaries"},
		"a node to which Azure refuses to attach the disk": {
			placement.Input{Attachments: objects.Attachments(primary, because(failedSince("b", time.Hour),
				apiv1.ReasonDiskAttachFailed, "correlation ID 1", "OperationNotAllowed")),
				Nodes: []placement.NodeView{home, newNode("b", "1")}},
			"no node can take another replica: b: Azure does not attach the disk there (OperationNotAllowed)"},
		"a pause after two nodes to which the disk could not be attached": {
			placement.Input{Attachments: objects.Attachments(primary, failedSince("c", time.Second),
				failedSince("b", time.Second)), Nodes: []placement.NodeView{home, newNode("b", "1"), newNode("c", "1")}},
			"no node can take another replica: b, c: the disk could not be attached there"},
		"a disk whose shares are all taken": {
			placement.Input{Attachments: objects.Attachments(primary,
				objects.Deleted(objects.NewAttachment("x", apiv1.RoleReplica, 0, apiv1.AttachmentDetaching)),
				objects.Deleted(objects.NewAttachment("y", apiv1.RoleReplica, 0, apiv1.AttachmentDetaching))),
				Nodes: []placement.NodeView{home, newNode("b", "1")}},
			"no node can take another replica: b: the disk has no free share"},
		"a cluster of one node": {placement.Input{Attachments: objects.Attachments(primary), Nodes: []placement.NodeView{home}},
			"no node can take another replica: there is no further node"},
		"a place that was found": {
			placement.Input{Attachments: objects.Attachments(primary),
				Nodes: []placement.NodeView{home, newNode("b", "1"), newNode("c", "2")}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.in.Now, test.in.Volume = objects.Now, objects.NewVolume(held,
				func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 3 })
			if got := placement.Next(test.in).Why; got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// because gives an attachment that failed the reason of its condition, and the code of Azure's error.
func because(a *apiv1.AzVolumeAttachment, reason, message, code string) *apiv1.AzVolumeAttachment {
	a.Status.Error = &apiv1.Error{Message: message, Code: code}
	a.Status.Conditions = []metav1.Condition{{
		Type: apiv1.AttachmentConditionAttached, Status: metav1.ConditionFalse, Reason: reason, Message: message,
	}}
	return a
}

func TestWhyNoNodeTakesAReplicaIsBoundedAndAlwaysTheSame(t *testing.T) {
	t.Parallel()
	in := placement.Input{
		Now:         objects.Now,
		Volume:      objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld)),
		Attachments: objects.Attachments(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)),
	}
	for i := range 3000 {
		change := []func(*placement.NodeView){suspect, lost, slots(0), tainted}[i%4]
		in.Nodes = append(in.Nodes, newNode(fmt.Sprintf("aks-nodepool%04d", i), "1", change))
	}
	first := placement.Next(in).Why
	if len(first) > 1024 || !strings.Contains(first, "aks-nodepool0000") || !strings.Contains(first, "and others") {
		t.Errorf("got %d bytes, %q; want at most 1024 that name the first nodes", len(first), first)
	}
	random := rand.New(rand.NewPCG(1, 1))
	random.Shuffle(len(in.Nodes), func(i, j int) { in.Nodes[i], in.Nodes[j] = in.Nodes[j], in.Nodes[i] })
	in.Nodes = append(in.Nodes, newNode("z", "1", lost))
	if got := placement.Next(in).Why; got != first {
		t.Errorf("got %q for the same nodes in another order and one more, want %q", got, first)
	}
}
