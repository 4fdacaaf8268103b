package handover_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// cordon does what kubectl cordon and Kubernetes do, as if it had been some time ago.
func cordon(t *testing.T, p *controlplane.ControlPlane, name string, since time.Duration) {
	t.Helper()
	node := &corev1.Node{}
	must(t, p.Client.Get(t.Context(), client.ObjectKey{Name: name}, node))
	added := metav1.NewTime(time.Now().Add(-since))
	node.Spec.Unschedulable = true
	node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &added}}
	must(t, p.Client.Update(t.Context(), node))
}

func TestReplicaOfADrainedNodeIsReplacedAndNotByAPlannedMove(t *testing.T) {
	for name, shares := range map[string]string{"make before break": "3", "without a share to spare": "2"} {
		t.Run(name, func(t *testing.T) {
			p := controlplane.New(t, controlplane.Options{})
			nodes := []string{"dr-a" + shares, "dr-b" + shares, "dr-c" + shares}
			for _, n := range nodes {
				p.AddNode(n, "1", size)
			}
			handle := p.Create("vol", map[string]string{"skuName": "Premium_LRS", "maxShares": shares, "maxMountReplicaCount": "1"})
			stageOn(t, p, handle, "vol", nodes[0])
			awaitReplica(t, p, "vol", nodes[1])
			calls := p.Cloud.CallCount(fake.AttachmentsAttach) + p.Cloud.CallCount(fake.AttachmentsDetach)
			cordon(t, p, nodes[1], 57*time.Second)
			cordoned := time.Now()
			p.Eventually("the replica moves", attachedTo(p, "vol", nodes[0], nodes[2]))
			if after := time.Since(cordoned); after < 2*time.Second {
				t.Fatalf("the replica moved %s after the cordon, before the grace was over", after)
			}
			if got := p.Cloud.CallCount(fake.AttachmentsAttach) + p.Cloud.CallCount(fake.AttachmentsDetach) - calls; got != 2 {
				t.Fatalf("%d calls to Azure for one replica", got)
			}
			awaitReplica(t, p, "vol", nodes[2])
		})
	}
}

// removeByForce removes an attachment as a user does who removes the finalizer, before a reconciler can put it back.
func removeByForce(t *testing.T, p *controlplane.ControlPlane, volume, node string) {
	t.Helper()
	p.Eventually("removed by force", func() string {
		a := p.Attachment(volume, node)
		a.Finalizers = nil
		if err := p.Client.Update(t.Context(), a); err != nil {
			return err.Error()
		}
		if err := p.Client.Delete(t.Context(), a, client.Preconditions{UID: &a.UID, ResourceVersion: &a.ResourceVersion}); err != nil {
			return err.Error()
		}
		return ""
	})
}

func TestObjectThatIsRemovedByForceIsRecreatedWhileTheProcessRuns(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{})
	for _, n := range []string{"fo-a", "fo-b"} {
		p.AddNode(n, "1", size)
	}
	handle := p.Create("vol", replicated)
	stageOn(t, p, handle, "vol", "fo-a")
	awaitReplica(t, p, "vol", "fo-b")
	p.AddNode("fo-c", "1", "Standard_D16s_v5") // a better place, so that what is right must come from Azure
	for _, node := range []string{"fo-a", "fo-b"} {
		removeByForce(t, p, "vol", node)
	}
	p.Eventually("the objects say again what is attached", func() string {
		attached := 0
		for _, a := range p.Attachments("vol") {
			if a.Status.State != apiv1.AttachmentAttached || a.DeletionTimestamp != nil {
				return fmt.Sprintf("%s is %s", a.Name, a.Status.State)
			}
			attached++
		}
		if a := p.Attachment("vol", "fo-a"); a == nil || a.Spec.Role != apiv1.RolePrimary || a.Spec.Epoch != 1 {
			return fmt.Sprintf("the primary is %+v", a)
		}
		if to := p.AttachedTo("vol"); attached != 2 || len(to) != 2 {
			return fmt.Sprintf("%d objects; attached to %v", attached, to)
		}
		return ""
	})
}

func TestReplicaThatGaveWayMovesElsewhereAndDoesNotReturn(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{ReservedSlots: 1})
	p.AddNode("el-a", "1", size)
	p.AddNode("el-b", "1", "Standard_D2s_v3") // four slots
	first := p.Create("first", replicated)
	stageOn(t, p, first, "first", "el-a")
	awaitReplica(t, p, "first", "el-b")
	for i := range 4 {
		name := fmt.Sprintf("other-%d", i)
		stageOn(t, p, p.Create(name, map[string]string{"skuName": "Premium_LRS"}), name, "el-b")
	}
	p.Eventually("the replica is gone", attachedTo(p, "first", "el-a"))
	p.AddNode("el-c", "1", size)
	awaitReplica(t, p, "first", "el-c")
	if a := p.Attachment("first", "el-b"); a != nil {
		t.Fatalf("got the replica again: %+v", a)
	}
}

func TestDiskThatNoNodeCanAttachIsNotTriedEverywhere(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{})
	p.AddNode("ev-a", "1", size)
	for i := range 8 {
		p.AddNode(fmt.Sprintf("ev-n%d", i), "1", size)
		p.Cloud.Inject(fake.Fault{Method: fake.AttachmentsAttach, ID: controlplane.VMID(fmt.Sprintf("ev-n%d", i)), Err: provisioner.Errorf(provisioner.Unavailable, "the disk is ill")})
	}
	handle := p.Create("vol", replicated)
	stageOn(t, p, handle, "vol", "ev-a")
	start := time.Now()
	p.Eventually("three nodes are tried", func() string {
		if n := len(p.Attachments("vol")); n < 4 {
			return fmt.Sprint(n)
		}
		return ""
	})
	if after := time.Since(start); after < 3*time.Second {
		t.Fatalf("the third node was tried %s after the first", after)
	}
	if n := len(p.Attachments("vol")); n != 4 {
		t.Fatalf("%d attachments", n)
	}
}

// use makes a pod that uses a volume, with the PersistentVolume and the claim between them.
func use(t *testing.T, p *controlplane.ControlPlane, namespace, volume, node string, change func(*corev1.Pod)) {
	t.Helper()
	bindClaim(t, p, newPersistentVolume(namespace+"-"+volume, controlplane.DiskID(volume)), namespace, volume)
	pod := newPodWith(namespace, volume, node)
	change(pod)
	must(t, p.Client.Create(t.Context(), pod))
}

func TestReplicaIsPlacedWhereThePodCouldRun(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{})
	for _, n := range []string{"af-a", "af-b", "af-c", "af-d"} {
		p.AddNode(n, "1", size)
	}
	neighbours := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.Namespace + "-neighbours", Labels: map[string]string{"loud": "yes"}}}
	must(t, p.Client.Create(t.Context(), neighbours))
	apart := func(app string, selector *metav1.LabelSelector) *corev1.Affinity {
		return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, TopologyKey: corev1.LabelHostname, NamespaceSelector: selector,
		}}}}
	}
	// The one on b keeps the database off; the one on c is kept off by it, across namespaces; so d it is.
	recluse := newPod(p.Namespace, "recluse", "af-b")
	recluse.Spec.Affinity = apart("af-vol", nil)
	must(t, p.Client.Create(t.Context(), recluse))
	must(t, p.Client.Create(t.Context(), newPod(neighbours.Name, "noise", "af-c")))
	handle := p.Create("af-vol", replicated)
	use(t, p, p.Namespace, "af-vol", "af-a", func(pod *corev1.Pod) {
		pod.Spec.Affinity = apart("noise", &metav1.LabelSelector{MatchLabels: map[string]string{"loud": "yes"}})
	})
	stageOn(t, p, handle, "af-vol", "af-a")
	awaitReplica(t, p, "af-vol", "af-d")
	if n := len(p.Attachments("af-vol")); n != 2 {
		t.Fatalf("%d attachments", n)
	}
}
