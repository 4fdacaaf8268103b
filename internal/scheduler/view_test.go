package scheduler

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

// startView fills a View from an API server that holds the objects.
func startView(t testing.TB, config *rest.Config) *observation {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	seen, err := observe(ctx, config, &View{Namespace: apiv1.DefaultNamespace, DriverName: driver})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- seen.start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	expect.Eventually(t, "the caches are full", seen.isFull)
	return seen
}

func TestVolumesOfAPod(t *testing.T) {
	t.Parallel()
	deleting := azva("data", "node-c", apiv1.RoleReplica, apiv1.AttachmentAttached)
	deleting.DeletionTimestamp, deleting.Finalizers = ptr.To(metav1.NewTime(epoch)), []string{apiv1.FinalizerAttachment}
	nameless := azva("data", "node-x", apiv1.RoleReplica, apiv1.AttachmentAttached)
	nameless.Name, nameless.Spec.NodeName = "nameless", ""
	ephemeral := claim("web-0-scratch", "pv-scratch", "ours")
	ephemeral.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1",
		Kind:       "Pod",
		Name:       "web-0",
		UID:        "pod-uid",
		Controller: ptr.To(true),
	}}
	inTree := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-old"}}
	inTree.Spec.AzureDisk = &corev1.AzureDiskVolumeSource{DataDiskURI: diskURI("Old")}

	redundant := class("redundant", driver)
	redundant.Parameters = map[string]string{"skuName": "Premium_ZRS"}

	twin := strings.Replace(diskURI("data"), "/resourceGroups/", "/resourceGroups/another-", 1)

	_, config := startAPI(t,
		claim("data", "pv-data", "ours"), volume("pv-data", driver, diskURI("Data")),
		claim("twin", "pv-twin", "ours"), volume("pv-twin", driver, twin),
		claim("logs", "pv-logs", "ours"), volume("pv-logs", driver, diskURI("logs")),
		claim("other-driver", "pv-other-driver", "theirs"), volume("pv-other-driver", "file.csi.azure.com", "x#y"),
		claim("waiting", "", "ours"), claim("waiting-other-driver", "", "theirs"), claim("lost", "pv-gone", "ours"),
		claim("local", "pv-local", ""), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-local"}},
		claim("old", "pv-old", "ours"), inTree,
		ephemeral, volume("pv-scratch", driver, diskURI("scratch")),
		claim("web-0-stolen", "pv-data", "ours"),
		claim("no-handle", "pv-no-handle", "ours"), volume("pv-no-handle", driver, ""),
		class("ours", driver), class("theirs", "file.csi.azure.com"), redundant,
		claim("zonal", "pv-zonal", "ours"), inZones(volume("pv-zonal", driver, diskURI("zonal")), "eastus-2"),
		claim("everywhere", "pv-everywhere", "ours"),
		inZones(volume("pv-everywhere", driver, diskURI("everywhere")), "eastus-1", "eastus-2", ""),
		from(claim("clone", "", "ours"), "PersistentVolumeClaim", "zonal"),
		from(claim("redundant-clone", "", "redundant"), "PersistentVolumeClaim", "zonal"),
		from(claim("clone-of-redundant", "", "ours"), "PersistentVolumeClaim", "everywhere"),
		from(claim("clone-of-waiting", "", "ours"), "PersistentVolumeClaim", "waiting"),
		from(claim("restored", "", "ours"), "VolumeSnapshot", "zonal"),
		azva("data", "node-a", apiv1.RolePrimary, apiv1.AttachmentAttached),
		azva("data", "node-b", apiv1.RoleReplica, apiv1.AttachmentAttached),
		azva("data", "node-d", apiv1.RoleReplica, apiv1.AttachmentAttaching),
		azva("data", "node-e", apiv1.RoleReplica, apiv1.AttachmentFailed),
		azva("data", "node-f", apiv1.RoleReplica, apiv1.AttachmentDetaching),
		azva("data", "node-g", apiv1.RoleReplica, "SomethingNew"),
		azva("logs", "node-b", apiv1.RoleReplica, apiv1.AttachmentAttached),
		deleting, nameless,
	)
	view := startView(t, config)

	ephemeralPod := pod()
	ephemeralPod.Spec.Volumes = []corev1.Volume{
		{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		{Name: "stolen", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
	}
	inline := pod()
	inline.Spec.Volumes = []corev1.Volume{{
		Name:         "v",
		VolumeSource: corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{DataDiskURI: diskURI("data")}},
	}}

	data := map[string]DiskState{
		"node-a": primary, "node-b": Replica, "node-c": absent, "node-d": Attaching,
		"node-e": absent, "node-f": absent, "node-g": absent, "": Replica,
	}
	logs := map[string]DiskState{"node-b": Replica}
	cases := map[string]struct {
		pod  *corev1.Pod
		want []Volume
	}{
		"a pod without volumes": {pod(), nil},
		"a claim with a primary, replicas and failures": {pod("data"),
			[]Volume{{Name: volumeName(diskURI("data")), Nodes: data}}},
		"another disk of the name, in another resource group": {pod("twin"),
			[]Volume{{Name: volumeName(twin), Nodes: map[string]DiskState{}}}},
		"all of the volumes count": {pod("data", "logs"),
			[]Volume{{Name: volumeName(diskURI("data")), Nodes: data}, {Name: volumeName(diskURI("logs")), Nodes: logs}}},
		"a claim that is mounted twice counts once": {pod("logs", "logs"),
			[]Volume{{Name: volumeName(diskURI("logs")), Nodes: logs}}},
		"a volume of another driver does not count": {pod("other-driver", "logs"),
			[]Volume{{Name: volumeName(diskURI("logs")), Nodes: logs}}},
		"a claim that waits for its first consumer": {pod("waiting"), []Volume{{}}},
		"a claim that waits for another driver":     {pod("waiting-other-driver"), nil},
		"a clone of a disk in a zone":               {pod("clone"), []Volume{{Zone: "eastus-2"}}},
		"a zone-redundant clone of it":              {pod("redundant-clone"), []Volume{{SKU: "Premium_ZRS"}}},
		"a clone of a zone-redundant disk":          {pod("clone-of-redundant"), []Volume{{}}},
		"a clone of a claim that is not bound":      {pod("clone-of-waiting"), []Volume{{}}},
		"a copy of a snapshot":                      {pod("restored"), []Volume{{}}},
		"a claim that does not exist":               {pod("missing"), nil},
		"a claim whose volume does not exist":       {pod("lost"), nil},
		"a volume that is no CSI volume":            {pod("local"), nil},
		"a volume of the former in-tree plug-in": {pod("old"),
			[]Volume{{Name: volumeName(diskURI("old")), Nodes: map[string]DiskState{}}}},
		"an inline volume of the former in-tree plug-in": {inline, []Volume{{Name: volumeName(diskURI("data")), Nodes: data}}},
		"an ephemeral claim, and one not made for the pod": {ephemeralPod,
			[]Volume{{Name: volumeName(diskURI("scratch")), Nodes: map[string]DiskState{}}}},
		"a volume without a handle is a volume without a disk": {pod("no-handle"), []Volume{{}}},
		"a pod of another namespace does not see these claims": {
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other"}, Spec: pod("data").Spec}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := view.Volumes(t.Context(), c.pod); err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %v, %v\nwant %v", got, err, c.want)
			}
		})
	}
}

// seenVolumes are the volumes of a pod, as a view has them.
func seenVolumes(t *testing.T, o *observation, p *corev1.Pod) []Volume {
	t.Helper()
	volumes, err := o.Volumes(t.Context(), p)
	expect.Must(t, err)
	return volumes
}

func reachable(status metav1.ConditionStatus) func(*apiv1.AzDriverNode) {
	return func(n *apiv1.AzDriverNode) {
		n.Status.Conditions = append(n.Status.Conditions, metav1.Condition{
			Type:    apiv1.NodeConditionReachable,
			Status:  status,
			Reason:  apiv1.ReasonNodeLost,
			Message: "no answer",
		})
	}
}

// mountable is the view's judgement of one node.
func mountable(t *testing.T, v *View, node string) (h Feasibility) {
	t.Helper()
	expect.Must(t, v.Nodes(t.Context(), nil, func(nodes Nodes) { h = nodes.Mountable(node) }))
	return h
}

func TestHealthOfANode(t *testing.T) {
	t.Parallel()
	notReady := node("not-ready")
	ready := &notReady.Status.Conditions[0]
	ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "MountsNotScanned", "the mounts are being read"
	stub, config := startAPI(t, node("good"), notReady,
		node("unreported", func(n *apiv1.AzDriverNode) { n.Status = apiv1.AzDriverNodeStatus{} }),
		node("lost", reachable(metav1.ConditionFalse)), node("unsure", reachable(metav1.ConditionUnknown)),
		node("back", reachable(metav1.ConditionTrue)))
	view := startView(t, config)
	cases := map[string]Fault{
		"lost": faultLost, "unsure": faultNone, "back": faultNone,
		"good": faultNone, "not-ready": faultNotReady, "unreported": faultNotReady,
		"unknown": faultNoPlugin,
	}
	for name, want := range cases {
		h := mountable(t, view.View, name)
		if h.Fault != want || (h.Message == "") != h.feasible() {
			t.Errorf("%s: %+v, want fault %q and a message that explains it", name, h, want)
		}
	}

	faultOf := func(name string) Fault { return mountable(t, view.View, name).Fault }
	stub.remove(node("good"))
	expect.Eventually(t, "a deleted node has no plug-in", func() bool { return faultOf("good") == faultNoPlugin })
}

func TestAReplicaWhoseNodeDoesNotAnswerARequestToFenceCountsLess(t *testing.T) {
	t.Parallel()
	asked := func(name string, results ...apiv1.FenceResult) *apiv1.AzDriverNode {
		return node(name, func(n *apiv1.AzDriverNode) {
			n.Spec.Requests = &apiv1.NodeRequests{Fences: []apiv1.FenceRequest{
				{VolumeName: volumeName(diskURI("data")), NodeName: "lost", Epoch: 3},
			}}
			n.Status.FenceResults = results
		})
	}
	objects := []client.Object{
		claim("data", "pv-data", "ours"), volume("pv-data", driver, diskURI("data")), claim("logs", "pv-logs", "ours"),
		volume("pv-logs", driver, diskURI("logs")),
		asked("unreported"), node("not-asked"),
		asked("answered", apiv1.FenceResult{
			VolumeName: volumeName(diskURI("data")),
			NodeName:   "lost",
			Epoch:      3,
			Key:        "0xad",
		}),
		asked("refused", apiv1.FenceResult{
			VolumeName: volumeName(diskURI("data")),
			NodeName:   "lost",
			Epoch:      3,
			Message:    "no reservations",
		}),
		asked("answered-before", apiv1.FenceResult{
			VolumeName: volumeName(diskURI("data")),
			NodeName:   "lost",
			Epoch:      2,
			Key:        "0xad",
		}),
		asked("uses-it"), azva("data", "uses-it", apiv1.RolePrimary, apiv1.AttachmentAttached),
	}
	for _, name := range []string{"unreported", "not-asked", "answered", "refused", "answered-before", "no-plug-in"} {
		objects = append(objects, azva("data", name, apiv1.RoleReplica, apiv1.AttachmentAttached))
	}
	objects = append(objects, azva("logs", "unreported", apiv1.RoleReplica, apiv1.AttachmentAttached))
	_, config := startAPI(t, objects...)
	volumes := seenVolumes(t, startView(t, config), pod("data", "logs"))
	want := []map[string]DiskState{
		{"unreported": Attaching, "not-asked": Replica, "answered": Replica, "refused": Replica,
			"answered-before": Attaching, "no-plug-in": Replica, "uses-it": primary},
		{"unreported": Replica}, // it was asked about another volume
	}
	for i, volume := range volumes {
		if !reflect.DeepEqual(volume.Nodes, want[i]) {
			t.Errorf("volume %d: got %v, want %v", i, volume.Nodes, want[i])
		}
	}
}

func TestAReplicaOnANodeThatAzureIsGoingToServiceCountsLess(t *testing.T) {
	t.Parallel()
	undisturbed := func(name string, status metav1.ConditionStatus) *apiv1.AzDriverNode {
		return node(name, func(n *apiv1.AzDriverNode) {
			meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{
				Type: apiv1.NodeConditionUndisturbed, Status: status, Reason: apiv1.ReasonMaintenanceAnnounced,
			})
		})
	}
	objects := []client.Object{
		claim("data", "pv-data", "ours"), volume("pv-data", driver, diskURI("data")),
		undisturbed("announced", metav1.ConditionFalse), undisturbed("over", metav1.ConditionTrue), node("stays"),
		undisturbed("uses-it", metav1.ConditionFalse), azva("data", "uses-it", apiv1.RolePrimary, apiv1.AttachmentAttached),
	}
	for _, name := range []string{"announced", "over", "stays"} {
		objects = append(objects, azva("data", name, apiv1.RoleReplica, apiv1.AttachmentAttached))
	}
	_, config := startAPI(t, objects...)
	want := map[string]DiskState{"announced": Attaching, "over": Replica, "stays": Replica, "uses-it": primary}
	if got := seenVolumes(t, startView(t, config), pod("data"))[0].Nodes; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A change may wait until the primary releases the volume.
func TestAReplicaIsBetterThanThePrimaryIfItsClaimAsksForAChange(t *testing.T) {
	t.Parallel()
	objects := []client.Object{azva("logs", "only", apiv1.RolePrimary, apiv1.AttachmentAttached)}
	for name, disk := range map[string]string{"larger": "data", "another-class": "data", "as-asked": "data", "alone": "logs",
		"without-a-replica-yet": "later", "infeasible": "data"} {
		c := claim(name, "pv-"+name, "ours")
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		c.Spec.Resources.Requests = c.Status.Capacity
		switch name {
		case "larger", "alone", "without-a-replica-yet":
			c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
		case "another-class", "infeasible":
			c.Spec.VolumeAttributesClassName = ptr.To("fast")
			if name == "infeasible" {
				c.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{
					Status: corev1.PersistentVolumeClaimModifyVolumeInfeasible,
				}
			}
		}
		objects = append(objects, c, volume("pv-"+name, driver, diskURI(disk)))
	}
	_, config := startAPI(t, append(objects, azva("data", "has-it", apiv1.RolePrimary, apiv1.AttachmentAttached),
		azva("data", "replica", apiv1.RoleReplica, apiv1.AttachmentAttached),
		azva("later", "has-it", apiv1.RolePrimary, apiv1.AttachmentAttached),
		azva("later", "replica", apiv1.RoleReplica, apiv1.AttachmentAttaching))...)
	view := startView(t, config)
	leaves := map[string]DiskState{"has-it": absent, "replica": Replica}
	for name, want := range map[string]map[string]DiskState{
		"larger": leaves, "another-class": leaves, "as-asked": {"has-it": primary, "replica": Replica},
		"infeasible":            {"has-it": primary, "replica": Replica},
		"alone":                 {"only": primary},
		"without-a-replica-yet": {"has-it": absent, "replica": Attaching},
	} {
		if got := seenVolumes(t, view, pod(name))[0].Nodes; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestAttachmentsThatChangeOrGoAreSeen(t *testing.T) {
	t.Parallel()
	replica := azva("data", "node-a", apiv1.RoleReplica, apiv1.AttachmentAttaching)
	stub, config := startAPI(t, claim("data", "pv", "ours"), volume("pv", driver, diskURI("data")), replica)
	view := startView(t, config)
	at := func() DiskState {
		return seenVolumes(t, view, pod("data"))[0].Nodes["node-a"]
	}
	for _, step := range []struct {
		next *apiv1.AzVolumeAttachment
		want DiskState
	}{
		{nil, Attaching},
		{azva("data", "node-a", apiv1.RoleReplica, apiv1.AttachmentAttached), Replica},
		{azva("data", "node-a", apiv1.RolePrimary, apiv1.AttachmentAttached), primary},
		{azva("data", "node-a", apiv1.RoleReplica, apiv1.AttachmentAttached), Replica},
	} {
		if step.next != nil {
			stub.put(step.next)
		}
		expect.Eventually(t, "the new presence is seen", func() bool { return at() == step.want })
	}
	stub.remove(replica)
	expect.Eventually(t, "the attachment is gone", func() bool { return at() == absent })
}

// publishedAt is a node that has the volume data mounted for a pod.
func publishedAt(name string) *apiv1.AzDriverNode {
	return node(name, func(n *apiv1.AzDriverNode) {
		n.Status.StagedVolumes = []apiv1.StagedVolume{
			{VolumeName: volumeName(diskURI("data")), Phase: apiv1.PhaseStaged, Published: true},
		}
	})
}

// on puts a pod on a node.
func on(node string, p *corev1.Pod) *corev1.Pod {
	p.Spec.NodeName = node
	return p
}

func TestANodeWhereAProcessOutlivedItsPodIsAvoided(t *testing.T) {
	t.Parallel()
	block, several := corev1.PersistentVolumeBlock, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	idle := publishedAt("node-a")
	idle.Status.StagedVolumes[0].Published = false
	ended := on("node-a", pod("data"))
	ended.Name, ended.Status.Phase = "job", corev1.PodFailed
	inline := on("node-a", pod())
	inline.Namespace, inline.Spec.Volumes = "other", []corev1.Volume{{VolumeSource: corev1.VolumeSource{
		AzureDisk: &corev1.AzureDiskVolumeSource{DataDiskURI: diskURI("data")},
	}}}
	bound := volume("pv-data", driver, diskURI("data"))
	bound.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data"}
	shared := bound.DeepCopy()
	shared.Spec.AccessModes, shared.Spec.VolumeMode = several, &block
	for name, c := range map[string]struct {
		volume *corev1.PersistentVolume
		node   *apiv1.AzDriverNode
		more   []client.Object
		fault  Fault
		score  int64
	}{
		"no pod is there": {bound, publishedAt("node-a"), nil, FaultLeftBehind, 0},
		"a pod that is there uses it": {
			bound, publishedAt("node-a"), []client.Object{on("node-a", pod("data"))}, faultNone, 10},
		"a pod that has ended is there":             {bound, publishedAt("node-a"), []client.Object{ended}, faultNone, 10},
		"a pod of another namespace names the disk": {bound, publishedAt("node-a"), []client.Object{inline}, faultNone, 10},
		"the pod is on another node": {bound, publishedAt("node-a"), []client.Object{on("node-b", pod("data"))},
			FaultLeftBehind, 0},
		"the pod there uses another volume": {bound, publishedAt("node-a"), []client.Object{on("node-a", pod("logs"))},
			FaultLeftBehind, 0},
		"the volume is staged after its pod has ended": {bound, idle, nil, faultNone, 10},
		"several nodes may write":                      {shared, publishedAt("node-a"), nil, faultNone, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := append([]client.Object{
				c.volume.DeepCopy(), c.node, claim("data", "pv-data", "ours"), node("node-b"),
				azva("data", "node-a", apiv1.RolePrimary, apiv1.AttachmentAttached),
				azva("data", "node-b", apiv1.RoleReplica, apiv1.AttachmentAttached),
			}, c.more...)
			_, config := startAPI(t, objects...)
			view := startView(t, config)
			volumes := seenVolumes(t, view, pod("data"))
			var passed []string
			var failed map[string]string
			scores := map[string]int64{}
			expect.Must(t, view.Nodes(t.Context(), volumes, func(nodes Nodes) {
				both := []string{"node-a", "node-b"}
				passed, failed, _ = Filter(slices.Clone(both), nodes)
				for _, s := range Prioritize(both, volumes, nodes) {
					scores[s.Host] = s.Score
				}
			}))
			fitness, err := judge(t.Context(), view, volumes)
			expect.Must(t, err)
			if fitness.Unfit["node-a"] != c.fault || fitness.Scores["node-a"] != c.score || scores["node-a"] != c.score {
				t.Errorf("node-a: got unfit for %v, scores %v and %v; want fault %q and score %d", fitness.Unfit, fitness.Scores,
					scores, c.fault, c.score)
			}
			if slices.Contains(passed, "node-a") != (c.fault == faultNone) || !slices.Contains(passed, "node-b") {
				t.Errorf("passed %v, failed %v; want fault %q at node-a and none at node-b", passed, failed, c.fault)
			}
		})
	}
}

func TestAProcessThatHasEndedDoesNotKeepPodsAway(t *testing.T) {
	t.Parallel()
	stub, config := startAPI(t, claim("data", "pv-data", "ours"), volume("pv-data", driver, diskURI("data")),
		publishedAt("node-a"))
	view := startView(t, config)
	avoided := func() bool { return len(demandOf(seenVolumes(t, view, pod("data"))).leftBehind) > 0 }
	if !avoided() {
		t.Error("the node is not avoided")
	}
	stub.remove(publishedAt("node-a"))
	expect.Eventually(t, "a node without a report is not avoided", func() bool { return !avoided() })
	expect.Eventually(t, "the table has no volume of the node", func() bool {
		return len(view.table.publishedAt(volumeName(diskURI("data")))) == 0
	})
}
