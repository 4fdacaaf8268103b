package explain_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// world has the volumes shop/a and bank/b on the healthy node a, and the lost node b.
func world() explain.Records {
	volume := func(claim string) *apiv1.AzVolume {
		return objects.NewVolume(provisionedFor(claim), objects.Owned("a", 1, apiv1.OwnershipHeld), func(v *apiv1.AzVolume) {
			v.Name = "vol-" + strings.ReplaceAll(claim, "/", "-")
		})
	}
	attachment := func(claim, node string, role apiv1.Role, state apiv1.AttachmentState) *apiv1.AzVolumeAttachment {
		a := objects.NewAttachment(node, role, 1, state)
		a.Spec.VolumeName = volume(claim).Name
		return a
	}
	node := func(name, zone string, state nodehealth.State) *apiv1.AzDriverNode {
		d := objects.Report(name)
		d.Spec = apiv1.AzDriverNodeSpec{Location: "eastus", Zone: zone}
		d.Status.Capacity = &apiv1.NodeCapacity{MaxDataDisks: 8}
		d.Status.Conditions = []metav1.Condition{nodehealth.Condition(nodehealth.Judgement{State: state})}
		return d
	}
	return explain.Records{
		Now:     objects.Now,
		Volumes: []*apiv1.AzVolume{volume("shop/a"), volume("bank/b")},
		Attachments: []*apiv1.AzVolumeAttachment{
			attachment("shop/a", "a", apiv1.RolePrimary, apiv1.AttachmentAttached),
			attachment("shop/a", "b", apiv1.RoleReplica, apiv1.AttachmentAttaching),
			attachment("bank/b", "a", apiv1.RolePrimary, apiv1.AttachmentAttached),
		},
		DriverNodes: []*apiv1.AzDriverNode{node("a", "1", nodehealth.Healthy), node("b", "2", nodehealth.Lost)},
		Pods: map[string][]*corev1.Pod{"shop/a": {{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart-0"},
			Spec:       corev1.PodSpec{NodeName: "a"},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		}}},
	}
}

// sketch is an overview in a few words.
func sketch(o explain.Overview) string {
	var words []string
	for _, z := range o.Zones {
		words = append(words, fmt.Sprintf("%s(%d,%d ill)", z.Name, z.NodeCount, z.Unhealthy))
		for _, n := range z.Nodes {
			words = append(words, n.Name)
			for _, d := range n.Disks {
				words = append(words, fmt.Sprintf("[%s %s %s]", d.Label, d.Role, d.State))
			}
		}
	}
	for _, v := range o.Volumes {
		words = append(words, v.Namespace+"/"+v.Claim)
		for _, p := range v.Pods {
			words = append(words, fmt.Sprintf("{%s %s on %s}", p.Name, p.Phase, p.Node))
		}
	}
	for _, m := range o.Moves {
		words = append(words, m.Label+" "+m.Says+";")
	}
	for _, a := range o.Attention {
		words = append(words, fmt.Sprintf("!%s %s", a.Subject, a.State))
	}
	return strings.Join(words, " ")
}

func TestTheOverviewOfASelection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		selected explain.Selection
		want     string
	}{
		"all": {explain.Selection{}, "eastus-1(1,0 ill) a [a Primary Attached] [b Primary Attached] " +
			"eastus-2(1,1 ill) b [a Replica Attaching] bank/b shop/a {cart-0 Running on a} " +
			"a is attached to node b as replica; !node b Lost"},
		"a namespace": {explain.Selection{Namespace: "bank"}, "eastus-1(1,0 ill) a [b Primary Attached] " +
			"eastus-2(1,1 ill) b bank/b !node b Lost"},
		"nothing": {explain.Selection{Name: "zz"}, "eastus-1(1,0 ill) eastus-2(1,1 ill) !node b Lost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := sketch(explain.NewOverview(world(), test.selected)); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestALargeClusterIsCounted(t *testing.T) {
	t.Parallel()
	r := explain.Records{Now: objects.Now}
	for i := range explain.VolumeLimit + 7 {
		r.Volumes = append(r.Volumes, objects.NewVolume(provisionedFor(fmt.Sprintf("shop/c%03d", i))))
		r.Volumes[i].Name = fmt.Sprintf("v%03d", i)
	}
	for i := range explain.NodeLimit + 5 {
		d := objects.Report(fmt.Sprintf("n%03d", i))
		d.Status.Conditions = []metav1.Condition{nodehealth.Condition(nodehealth.Judgement{State: nodehealth.Healthy})}
		r.DriverNodes = append(r.DriverNodes, d)
	}
	last := r.DriverNodes[len(r.DriverNodes)-1]
	last.Status.Conditions = []metav1.Condition{nodehealth.Condition(nodehealth.Judgement{State: nodehealth.Lost})}
	o := explain.NewOverview(r, explain.Selection{})
	if len(o.Volumes) != explain.VolumeLimit || o.VolumesOmitted != 7 || o.Namespaces[0].Volumes != explain.VolumeLimit+7 {
		t.Errorf("got %d volumes, %d omitted and %v", len(o.Volumes), o.VolumesOmitted, o.Namespaces)
	}
	z := o.Zones[0]
	if len(z.Nodes) != explain.NodeLimit || z.NodesOmitted != 5 || z.NodeCount != explain.NodeLimit+5 {
		t.Errorf("got %d nodes, %d omitted of %d", len(z.Nodes), z.NodesOmitted, z.NodeCount)
	}
	if !slices.ContainsFunc(z.Nodes, func(n explain.NodeOverview) bool { return n.Name == last.Name }) {
		t.Errorf("the lost node is not listed")
	}
}

func TestEventsOfFailoversAreGrouped(t *testing.T) {
	t.Parallel()
	var events []*corev1.Event
	for _, e := range []struct {
		node   string
		second int
		reason string
	}{
		{"a", 0, apiv1.ReasonFailoverStarted},
		{"b", 1, apiv1.ReasonFailoverStarted},
		{"a", 2, apiv1.ReasonFailoverProven},
		{"a", 30, apiv1.ReasonNodeBack},
		{"a", 31, apiv1.ReasonFailoverFalseAlarm},
		{"a", 40, apiv1.ReasonFailoverStarted},
		{"b", 900, apiv1.ReasonFailoverStarted}, // it was never back
	} {
		events = append(events, &corev1.Event{
			InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: e.node}, Reason: e.reason,
			FirstTimestamp: metav1.NewTime(objects.Now.Add(time.Duration(e.second) * time.Second)),
		})
	}
	var got []string
	for _, f := range explain.NewOverview(explain.Records{FailoverEvents: events}, explain.Selection{}).Failovers {
		got = append(got, fmt.Sprintf("%s %d", f.Node, len(f.Steps)))
	}
	if want := []string{"b 1", "a 1", "b 1", "a 4"}; !slices.Equal(got, want) {
		t.Errorf("got the failovers %q, want %q", got, want)
	}
}

func TestWithoutALeaderNothingIsHealthy(t *testing.T) {
	t.Parallel()
	lease := func(renewed time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("controller"), LeaseDurationSeconds: ptr.To(int32(15)),
			RenewTime: &metav1.MicroTime{Time: renewed},
		}}
	}
	for name, test := range map[string]struct {
		lease   *coordinationv1.Lease
		healthy bool
	}{
		"a leader":                  {lease(objects.Now), true},
		"a lease that was not read": {nil, true},
		"no leader":                 {lease(objects.Now.Add(-time.Hour)), false},
	} {
		r := world()
		r.Leader = test.lease
		o := explain.NewOverview(r, explain.Selection{})
		node, volume := o.Zones[0].Nodes[0], o.Volumes[0]
		if got := o.Leader == "" && node.Healthy && node.State == "Healthy" && o.Zones[0].Unhealthy == 0 &&
			!slices.Contains(volume.Reasons, "ControllerNotLeading"); got != test.healthy {
			t.Errorf("%s: got leader %q, node %+v, %d nodes that are not healthy, volume %+v; want healthy: %t", name, o.Leader, node,
				o.Zones[0].Unhealthy, volume.VolumeRow, test.healthy)
		}
		rows := explain.NodeRows(r.DriverNodes, nil, nil)
		explain.OutdateNodes(rows, r.Leader, r.Now)
		volumes := explain.VolumeRows(r.Volumes, nil, "")
		explain.OutdateVolumes(volumes, r.Leader, r.Now)
		if got := rows[0].State == "Healthy" && len(volumes[0].Reasons) == len(volume.Reasons); test.healthy && !got ||
			!test.healthy && (rows[0].State != "Unknown" || !slices.Contains(volumes[0].Reasons, "ControllerNotLeading")) {
			t.Errorf("%s: got node %+v and volume %+v, want healthy: %t", name, rows[0], volumes[0], test.healthy)
		}
	}
}
