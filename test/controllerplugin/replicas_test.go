package controllerplugin

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
)

func TestObjectThatIsRemovedByForceIsRecreatedWhileTheProcessRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		for _, n := range []string{"fo-a", "fo-b"} {
			p.AddNode(n, "1", size)
		}
		handle := p.Create("vol", replicated)
		p.StageOn(handle, "vol", "fo-a")
		p.AwaitReplica("vol", "fo-b")
		p.AddNode("fo-c", "1", "Standard_D16s_v5") // a better place, so that what is right must come from Azure
		for _, node := range []string{"fo-a", "fo-b"} {
			p.RemoveByForce("vol", node)
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
			to := slices.Sorted(slices.Values(p.AttachedTo("vol")))
			if attached != 2 || !slices.Equal(to, []string{"fo-a", "fo-b"}) {
				return fmt.Sprintf("%d objects; attached to %v", attached, to)
			}
			return ""
		})
	})
}

// use makes a pod that uses a volume, with the PersistentVolume and the claim between them.
func use(t *testing.T, p *controlplane.ControlPlane, namespace, volume, node string, change func(*corev1.Pod)) {
	t.Helper()
	p.Bind(controlplane.NewPersistentVolume(namespace+"-"+volume, controlplane.DiskID(volume)), namespace, volume)
	pod := controlplane.NewPod(namespace, volume, node, volume)
	change(pod)
	must(t, p.Client.Create(t.Context(), pod))
}

func TestReplicaIsPlacedWhereThePodCouldRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		for _, n := range []string{"af-a", "af-b", "af-c", "af-d"} {
			p.AddNode(n, "1", size)
		}
		neighbours := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:   p.Namespace + "-neighbours",
			Labels: map[string]string{"loud": "yes"},
		}}
		must(t, p.Client.Create(t.Context(), neighbours))
		apart := func(app string, selector *metav1.LabelSelector) *corev1.Affinity {
			return &corev1.Affinity{
				PodAntiAffinity: &corev1.PodAntiAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
						LabelSelector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
						TopologyKey:       corev1.LabelHostname,
						NamespaceSelector: selector,
					}},
				},
			}
		}
		// The one on b keeps the database off; the one on c is kept off by it, across namespaces; so d
		// it is.
		recluse := controlplane.NewPod(p.Namespace, "recluse", "af-b")
		recluse.Spec.Affinity = apart("af-vol", nil)
		must(t, p.Client.Create(t.Context(), recluse))
		must(t, p.Client.Create(t.Context(), controlplane.NewPod(neighbours.Name, "noise", "af-c")))
		handle := p.Create("af-vol", replicated)
		use(t, p, p.Namespace, "af-vol", "af-a", func(pod *corev1.Pod) {
			pod.Spec.Affinity = apart("noise", &metav1.LabelSelector{MatchLabels: map[string]string{"loud": "yes"}})
		})
		p.StageOn(handle, "af-vol", "af-a")
		p.AwaitReplica("af-vol", "af-d")
		if n := len(p.Attachments("af-vol")); n != 2 {
			t.Fatalf("%d attachments", n)
		}
	})
}
