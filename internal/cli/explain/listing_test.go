package explain_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func provisionedFor(name string) func(*apiv1.AzVolume) {
	return func(v *apiv1.AzVolume) { v.Spec.ClaimRef = objects.Claim(name) }
}

func conditioned(kind, reason string) func(*apiv1.AzVolume) {
	return func(v *apiv1.AzVolume) {
		v.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionFalse, Reason: reason}}
	}
}

func attachment(node string, role apiv1.Role, state apiv1.AttachmentState) *apiv1.AzVolumeAttachment {
	return objects.NewAttachment(node, role, 4, state)
}

func TestARowOfAVolume(t *testing.T) {
	t.Parallel()
	attached, replica, primary := apiv1.AttachmentAttached, apiv1.RoleReplica, apiv1.RolePrimary
	for name, test := range map[string]struct {
		volume      *apiv1.AzVolume
		attachments []*apiv1.AzVolumeAttachment
		want        string
	}{
		"a volume in use with a replica": {
			objects.NewVolume(provisionedFor("shop/data"), objects.Owned("a", 4, apiv1.OwnershipHeld), func(v *apiv1.AzVolume) {
				v.Status.Replicas = &apiv1.ReplicaCount{Ready: 1, Wanted: 1}
				v.Status.Fencing = apiv1.FencingForcedDetach
			}),
			objects.Attachments(attachment("a", primary, attached), attachment("b", replica, attached)),
			"shop|data|Created|a|1/1|b|" + string(apiv1.FencingForcedDetach),
		},
		"a volume whose primary is to release it": {
			objects.NewVolume(provisionedFor("shop/data"), objects.Owned("a", 4, apiv1.OwnershipReleasing)),
			objects.Attachments(attachment("a", primary, attached)), "shop|data|Created|a (Releasing)|0/1||"},
		"a replica that is not attached, and one that is deleted": {
			objects.NewVolume(provisionedFor("shop/data"), objects.Owned("", 4, apiv1.OwnershipReleased),
				conditioned(apiv1.VolumeConditionReplicasAttached, apiv1.ReasonReplicasMissing)),
			objects.Attachments(attachment("a", replica, apiv1.AttachmentAttaching),
				objects.Deleted(attachment("b", replica, attached))), "shop|data|Created (ReplicasMissing)||0/1||"},
		"a volume that a problem keeps on its node": {
			objects.NewVolume(provisionedFor("shop/data"), objects.Owned("a", 4, apiv1.OwnershipReleasing),
				conditioned(apiv1.VolumeConditionUsable, apiv1.ReasonDeviceHeld)),
			objects.Attachments(attachment("a", primary, attached)), "shop|data|Created (DeviceHeld)|a (Releasing)|0/1||"},
		"a volume that wants no replicas now": {
			objects.NewVolume(provisionedFor("shop/data"), objects.NeverOwned,
				func(v *apiv1.AzVolume) {
					v.Status.Conditions = []metav1.Condition{{Type: apiv1.VolumeConditionReplicasAttached,
						Status: metav1.ConditionTrue, Reason: apiv1.ReasonReplicasNotWanted}}
				}), nil,
			"shop|data|Created||0/1||"},
		"a raw block volume that two nodes use": {
			objects.NewVolume(provisionedFor("shop/data"), objects.NeverOwned,
				func(v *apiv1.AzVolume) { v.Spec.Access, v.Spec.MaxMountReplicaCount = apiv1.AccessMultiNode, 0 }),
			objects.Attachments(attachment("b", primary, attached), attachment("a", primary, attached)),
			"shop|data|Created|a,b|0/0||"},
		"a disk that was adopted, and that Azure refuses to change": {
			objects.NewVolume(objects.NeverOwned, conditioned(apiv1.VolumeConditionUpdated, apiv1.ReasonDiskUpdateRefused),
				func(v *apiv1.AzVolume) { v.Status.PersistentVolume = "pv" }), nil, "|pv|Created (DiskUpdateRefused)||0/1||"},
		"a volume that is being deleted": {
			objects.NewVolume(objects.NeverOwned,
				func(v *apiv1.AzVolume) {
					v.DeletionTimestamp, v.Spec.DeletionPolicy = objects.Ago(time.Second), apiv1.DeletionDelete
				}), nil,
			"|vol|Created (DiskDeleting)||0/1||"},
		"a volume whose AzVolume was deleted and is kept": {
			objects.NewVolume(objects.NeverOwned, func(v *apiv1.AzVolume) { v.DeletionTimestamp = objects.Ago(time.Second) }),
			nil, "|vol|Created (VolumeDeletionHeld)||0/1||"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows := explain.VolumeRows([]*apiv1.AzVolume{test.volume}, test.attachments, "")
			if len(rows) != 1 || len(rows[0].Cells()) != len(explain.VolumeColumns) {
				t.Fatalf("got %v, want one row with %d cells", rows, len(explain.VolumeColumns))
			}
			if got := strings.Join(rows[0].Cells(), "|"); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestVolumesAreListedByClaim(t *testing.T) {
	t.Parallel()
	var volumes []*apiv1.AzVolume
	for _, name := range []string{"shop/b", "bank/c", "", "shop/a"} {
		volumes = append(volumes, objects.NewVolume(provisionedFor(name)))
	}
	for namespace, want := range map[string][]string{
		"": {"/", "bank/c", "shop/a", "shop/b"}, "shop": {"shop/a", "shop/b"}, "x": nil,
	} {
		var got []string
		for _, row := range explain.VolumeRows(volumes, nil, namespace) {
			got = append(got, row.Namespace+"/"+row.Claim)
		}
		if !slices.Equal(got, want) {
			t.Errorf("namespace %q: got %q, want %q", namespace, got, want)
		}
	}
}

func TestARowOfANode(t *testing.T) {
	t.Parallel()
	judged := func(j nodehealth.Judgement) func(*apiv1.AzDriverNode) {
		return func(d *apiv1.AzDriverNode) { d.Status.Conditions = []metav1.Condition{nodehealth.Condition(j)} }
	}
	kubelet := func(status corev1.ConditionStatus) []*corev1.Node {
		return []*corev1.Node{{
			ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}},
		}}
	}
	healthy := judged(nodehealth.Judgement{State: nodehealth.Healthy})
	attached, replica, primary := apiv1.AttachmentAttached, apiv1.RoleReplica, apiv1.RolePrimary
	all := objects.Attachments(attachment("a", primary, attached), attachment("a", replica, attached),
		attachment("b", replica, attached))
	for name, test := range map[string]struct {
		change func(*apiv1.AzDriverNode)
		nodes  []*corev1.Node
		want   string
	}{
		"a healthy node": {healthy, kubelet(corev1.ConditionTrue), "a|eastus-1|Standard_D4s_v5|Ready|Healthy|1|1|5/7"},
		"a node that is lost": {judged(nodehealth.Judgement{State: nodehealth.Lost}), kubelet(corev1.ConditionUnknown),
			"a|eastus-1|Standard_D4s_v5|NotReady|Lost (NodeLost)|1|1|5/7"},
		"a node that reports and is not Ready": {healthy, kubelet(corev1.ConditionFalse),
			"a|eastus-1|Standard_D4s_v5|NotReady|Unknown (NodeNotReady)|1|1|5/7"},
		"a node whose Node is deleted": {healthy, []*corev1.Node{}, "a|eastus-1|Standard_D4s_v5|NoNode|Unknown (NodeGone)|1|1|5/7"},
		"a node that cannot be read":   {healthy, nil, "a|eastus-1|Standard_D4s_v5||Healthy|1|1|5/7"},
		"a node of an unknown capacity": {func(d *apiv1.AzDriverNode) { d.Status.Capacity = nil }, nil,
			"a|eastus-1|Standard_D4s_v5||Unknown|1|1|"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := objects.Report("a")
			d.Spec = apiv1.AzDriverNodeSpec{VMSize: "Standard_D4s_v5", Location: "eastus", Zone: "1"}
			d.Status.Capacity = &apiv1.NodeCapacity{MaxDataDisks: 8, ForeignDisks: 1, VMSize: "Standard_D4s_v5"}
			test.change(d)
			rows := explain.NodeRows([]*apiv1.AzDriverNode{d}, test.nodes, all)
			if len(rows) != 1 || len(rows[0].Cells()) != len(explain.NodeColumns) {
				t.Fatalf("got %v, want one row with %d cells", rows, len(explain.NodeColumns))
			}
			if got := strings.Join(rows[0].Cells(), "|"); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
