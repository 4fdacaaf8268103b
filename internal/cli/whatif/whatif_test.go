package whatif_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/cli/whatif"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

const driverName = "disk.csi.azure.com"

// town is a cluster of four nodes: a and b in zone 1, c and d in zone 2. The pod cart-0 on node a
// uses one volume, with a replica on node b.
type town struct{ whatif.Facts }

func newTown(change ...func(*town)) *town {
	w := &town{whatif.Facts{
		Now: objects.Now, Subject: explain.Subject{Kind: explain.KindNode, Name: "a"}, Gone: []string{"a"},
		DriverName: driverName,
		Controller: &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Args: []string{"--failover-enabled=true", "--failover-mass-loss-threshold=45"}}},
		}}}},
	}}
	for name, zone := range map[string]string{"a": "1", "b": "1", "c": "2", "d": "2"} {
		w.node(name, zone)
	}
	slices.SortFunc(w.Nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	w.pod("cart-0", "a", "data")
	w.volume("data", "a", "b")
	for _, c := range change {
		c(w)
	}
	return w
}

func (w *town) node(name, zone string) {
	w.Nodes = append(w.Nodes, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelTopologyZone: "eastus-" + zone, corev1.LabelHostname: name,
		}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("10"),
		}},
	})
	d := objects.Report(name)
	d.Spec.Zone, d.Spec.Location, d.Spec.VMSize = zone, "eastus", "size"
	d.Status.Capacity = &apiv1.NodeCapacity{MaxDataDisks: 4, VMSize: "size"}
	d.Status.Conditions = []metav1.Condition{{Type: apiv1.NodeConditionPluginReady, Status: metav1.ConditionTrue}}
	meta.SetStatusCondition(&d.Status.Conditions, nodehealth.Condition(nodehealth.Judgement{State: nodehealth.Healthy}))
	w.DriverNodes = append(w.DriverNodes, d)
}

func (w *town) pod(name, node string, claims ...string) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(name),
			OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "cart", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		}}},
	}
	for _, claim := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	w.Pods = append(w.Pods, p)
}

// volume adds a volume of zone 1, with its claim, its primary and its replicas.
func (w *town) volume(name, primary string, replicas ...string) {
	w.Claims = append(w.Claims, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name},
	})
	w.PersistentVolumes = append(w.PersistentVolumes, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driverName, VolumeHandle: "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/g/providers/Microsoft.Compute/disks/" + name,
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"eastus-1"},
				}},
			}}}},
		},
	})
	az := apiv1.VolumeName("00000000-0000-0000-0000-000000000001", "g", name)
	w.Volumes = append(w.Volumes, objects.NewVolume(objects.Owned(primary, 1, apiv1.OwnershipHeld), func(v *apiv1.AzVolume) {
		v.Name, v.Spec.Disk.Name, v.Spec.ClaimRef = az, name, objects.Claim("shop/"+name)
		v.Status.Fencing = apiv1.FencingPreemption
	}))
	for i, node := range append([]string{primary}, replicas...) {
		role := apiv1.RoleReplica
		if i == 0 {
			role = apiv1.RolePrimary
		}
		a := objects.NewAttachment(node, role, 1, apiv1.AttachmentAttached)
		a.Name, a.Spec.VolumeName = apiv1.AttachmentName(az, node), az
		w.Attachments = append(w.Attachments, a)
	}
}

func (w *town) of(name string) *corev1.Node {
	return w.Nodes[slices.IndexFunc(w.Nodes, func(n *corev1.Node) bool { return n.Name == name })]
}

func (w *town) report(name string) *apiv1.AzDriverNode {
	return w.DriverNodes[slices.IndexFunc(w.DriverNodes, func(d *apiv1.AzDriverNode) bool { return d.Name == name })]
}

// anywhere makes a disk zone-redundant.
func (w *town) anywhere(i int) {
	w.PersistentVolumes[i].Spec.NodeAffinity = nil
	w.Volumes[i].Spec.Disk.SKUName = "Premium_ZRS"
}

// pending has the volume wait for a release to grow.
func pending(w *town) {
	w.Volumes[0].Status.Conditions = []metav1.Condition{{
		Type: apiv1.VolumeConditionUpdated, Status: metav1.ConditionFalse, Reason: apiv1.ReasonDiskUpdatePending,
		Message: "it grows to 2Gi", ObservedGeneration: w.Volumes[0].Generation,
	}}
}

func lose(names ...string) func(*town) { return func(w *town) { w.Gone = names } }

func TestWhatHappensToThePodsOfANode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		town    *town
		want    string
		outcome cause.Outcome
	}{
		"a replica is attached": {newTown(), "cart-0 b Warm 5", cause.Healthy},
		"the disk is zone-redundant, and the replica in the other zone": {newTown(func(w *town) {
			w.anywhere(0)
			w.Attachments[1].Spec.NodeName = "c"
		}), "cart-0 c Warm 5", cause.Healthy},
		"no replica": {newTown(func(w *town) { w.Attachments = w.Attachments[:1] }), "cart-0 b Cold 30 no replica there of claim data",
			cause.Waits},
		"a replica that is on its way": {newTown(func(w *town) { w.Attachments[1].Status.State = apiv1.AttachmentAttaching }),
			"cart-0 b Cold 30 no replica there of claim data", cause.Waits},
		"a replica, and no reservation": {newTown(func(w *town) { w.Volumes[0].Status.Fencing = apiv1.FencingForcedDetach }),
			"cart-0 b Warm 20 Azure has to detach the lost node from claim data", cause.Healthy},
		"several nodes are as good": {newTown(func(w *town) { w.anywhere(0); w.Attachments = w.Attachments[:1] }),
			"cart-0 b c d Cold 30 no replica there of claim data", cause.Waits},
		"two volumes, and a replica of one": {newTown(func(w *town) {
			w.volume("logs", "a")
			w.Pods = nil
			w.pod("cart-0", "a", "data", "logs")
		}), "cart-0 b Cold 30 no replica there of claim logs", cause.Waits},
		"the node with the replica is lost, too": {newTown(lose("a", "b"), func(w *town) {
			w.anywhere(0)
			w.node("e", "3") // two of five are fewer than the guard's threshold
		}), "cart-0 c d e Cold 30 no replica there of claim data", cause.Waits},
		"the zone is lost": {newTown(lose("a", "b"), func(w *town) { w.node("e", "3") }),
			"cart-0 Stuck WrongZone no node is left that its volumes can be attached to", cause.NeedsAction},
		"so many nodes that the guard holds the failover back": {newTown(lose("a", "b", "c")),
			"cart-0 Stuck FencingHeldBack 3 of 4 nodes seem lost at once", cause.NeedsAction},
		"VMs that are down are not counted": {newTown(lose("a", "b"), func(w *town) {
			w.node("e", "3")
			down := nodehealth.Condition(nodehealth.Judgement{State: nodehealth.Down})
			meta.SetStatusCondition(&w.report("c").Status.Conditions, down)
		}), "cart-0 Stuck FencingHeldBack 2 of 4 nodes seem lost at once", cause.NeedsAction},
		"nodes that are held back already are": {newTown(func(w *town) {
			for _, name := range []string{"c", "d"} {
				meta.SetStatusCondition(&w.report(name).Status.Conditions, nodehealth.Condition(nodehealth.Judgement{
					State: nodehealth.Lost, MassLoss: true, HeldBack: "too many"}))
			}
		}), "cart-0 Stuck FencingHeldBack 3 of 4 nodes seem lost at once", cause.NeedsAction},
		"failover is switched off": {newTown(func(w *town) {
			w.Controller.Spec.Template.Spec.Containers[0].Args = []string{"--failover-enabled=false"}
		}), "cart-0 Stuck FailoverDisabled failover is switched off", cause.NeedsAction},
		"the pod opted out": {newTown(func(w *town) {
			w.Pods[0].Annotations = map[string]string{apiv1.AnnotationFailover: apiv1.FailoverDisabled}
		}), "cart-0 Stuck OptedOut it has the annotation", cause.NeedsAction},
		"a pod without a controller": {newTown(func(w *town) { w.Pods[0].OwnerReferences = nil }),
			"cart-0 Stuck NoOwner no controller would re-create it", cause.NeedsAction},
		"no node has a slot": {newTown(func(w *town) {
			w.Attachments = w.Attachments[:1]
			w.report("b").Status.Capacity.ForeignDisks = 4
		}), "cart-0 Stuck NoNodeWithSlot b: no room for the pod's data disks",
			cause.NeedsAction},
		"the other node has no processor left": {newTown(func(w *town) {
			w.of("b").Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("500m")
		}), "cart-0 Stuck Unschedulable c, d: the selectors of pod cart-0 or of its volumes exclude the node; b: too little cpu is free", cause.NeedsAction},
		"the other node is cordoned": {newTown(func(w *town) { w.of("b").Spec.Unschedulable = true }),
			"cart-0 Stuck Unschedulable b: pod cart-0 does not tolerate the node's taints", cause.NeedsAction},
		"the node plug-in of the other node is not ready": {newTown(func(w *town) {
			w.report("b").Status.Conditions[0].Status = metav1.ConditionFalse
		}), "cart-0 Stuck Unschedulable b: the node plug-in of disk.csi.azure.com is not ready", cause.NeedsAction},
		"a process on the node with the replica outlived its pod": {newTown(func(w *town) {
			w.anywhere(0)
			w.report("b").Status.StagedVolumes = []apiv1.StagedVolume{
				{VolumeName: w.Volumes[0].Name, Phase: apiv1.PhaseStaged, Published: true},
			}
		}), "cart-0 c d Cold 30 no replica there of claim data", cause.Waits},
		"a process on the only other node outlived its pod": {newTown(func(w *town) {
			w.report("b").Status.StagedVolumes = []apiv1.StagedVolume{
				{VolumeName: w.Volumes[0].Name, Phase: apiv1.PhaseStaged, Published: true},
			}
		}), "cart-0 Stuck ProcessLeftBehind b: on node b a process that outlived its pod may still use volume", cause.NeedsAction},
		"the second pod finds no slot any more": {newTown(func(w *town) {
			w.pod("cart-1", "a", "more")
			w.volume("more", "a")
			w.report("b").Status.Capacity.MaxDataDisks = 1
		}), "cart-0 b Warm 5\ncart-1 Stuck NoNodeWithSlot", cause.NeedsAction},
		"kube-scheduler does not know of replicas": {newTown(func(w *town) { w.Unsteered = true; w.anywhere(0) }),
			"cart-0 b c d Cold 30 no replica there of claim data", cause.Waits},
		"a pod without a volume of the driver": {newTown(func(w *town) { w.Pods = nil; w.pod("web", "a") }), "", cause.Healthy},
		"a drain, to a replica":                {newTown(func(w *town) { w.Drained = true }), "cart-0 b Warm 2", cause.Healthy},
		"a drain, without a replica": {newTown(func(w *town) { w.Drained = true; w.Attachments = w.Attachments[:1] }),
			"cart-0 b Cold 30 no replica there of claim data", cause.Waits},
		"a drain, and a growth that waits for it": {newTown(pending, func(w *town) { w.Drained = true }),
			"cart-0 b Cold 30 the disk of claim data is changed first: it grows to 2Gi", cause.Waits},
		"a node loss, and a growth that waits": {newTown(pending), "cart-0 b Warm 5", cause.Healthy},
		"a drain, and a pod without a controller": {newTown(func(w *town) { w.Drained = true; w.Pods[0].OwnerReferences = nil }),
			"cart-0 Stuck NoOwner no controller would create it again", cause.NeedsAction},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := whatif.Answer(test.town.Facts)
			var rows []string
			for _, r := range report.Pods {
				fields := append([]string{r.Pod, r.To}, r.Or...)
				fields = append(fields, r.Result)
				if r.Seconds > 0 {
					fields = append(fields, fmt.Sprint(r.Seconds))
				}
				rows = append(rows, strings.Join(strings.Fields(strings.Join(append(fields, string(r.Cause), r.Why), " ")), " "))
				if r.Result == whatif.Stuck && r.Next == "" {
					t.Errorf("%s: got nothing to do, want what helps", r.Pod)
				}
			}
			got := strings.Join(rows, "\n")
			for i, want := range strings.Split(test.want, "\n") {
				if len(rows) > i && !strings.HasPrefix(rows[i], want) || len(rows) <= i && want != "" {
					t.Errorf("got:\n%s\nwant:\n%s", got, test.want)
				}
			}
			if report.Outcome != test.outcome {
				t.Errorf("got the outcome %s, want %s", report.Outcome, test.outcome)
			}
			text := report.Text()
			if !strings.Contains(text, "If node a is "+strings.ToLower(string(report.Assumed))) || len(rows) > 0 && !strings.Contains(text, "cart-0") {
				t.Errorf("got the text:\n%s\nwant the assumption and the pods", text)
			}
		})
	}
}

// The controllers of Kubernetes' own kinds run in the control plane. An operator may be on the lost node.
func TestAnOperatorMayBeLostWithItsPods(t *testing.T) {
	t.Parallel()
	const note = "The pods of Cluster.postgresql.cnpg.io are created again by an operator"
	operated := func(w *town) {
		w.Pods[0].OwnerReferences[0].APIVersion, w.Pods[0].OwnerReferences[0].Kind = "postgresql.cnpg.io/v1", "Cluster"
	}
	drained := func(w *town) { w.Drained = true }
	set := func(w *town) { w.Pods[0].OwnerReferences[0].APIVersion = "apps/v1" }
	for name, test := range map[string]struct {
		town *town
		want bool
	}{
		"a pod of a custom resource":                {newTown(operated), true},
		"a pod of a custom resource in a drain":     {newTown(operated, drained), false},
		"a pod of a custom resource on another one": {newTown(operated, lose("b")), false},
		"a pod of a StatefulSet":                    {newTown(set), false},
	} {
		if got := strings.Contains(whatif.Answer(test.town.Facts).Text(), note); got != test.want {
			t.Errorf("%s: got the note %t, want %t", name, got, test.want)
		}
	}
}

// The facts are the caller's.
func TestAnAnswerDoesNotChangeItsFacts(t *testing.T) {
	t.Parallel()
	w := newTown()
	first := whatif.Answer(w.Facts)
	second := whatif.Answer(w.Facts)
	if len(w.Pods) != 1 || w.Pods[0].Spec.NodeName != "a" || first.Pods[0].To != second.Pods[0].To {
		t.Errorf("got %+v and then %+v, want the same answer again", first.Pods, second.Pods)
	}
}
