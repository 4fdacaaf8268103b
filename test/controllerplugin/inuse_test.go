package controllerplugin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
)

// The kubelet says only with its periodic status that it is done with a volume; the node's report
// says it at once.
func TestKubernetesIsToldAtOnceThatANodeIsDoneWithAVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		p.AddNode("iu-a", "1", size)
		vol := freshName("iu-vol")
		handle := p.Create(vol, map[string]string{"skuName": "Premium_LRS"})
		pod := bindPod(t, p, handle, "iu-a")
		const foreign = corev1.UniqueVolumeName("kubernetes.io/csi/other.example.com^x")
		// A second PersistentVolume of the disk spells its handle in another way, and Kubernetes counts
		// it as another volume.
		respelled := strings.ToUpper(handle)
		second := bindPod(t, p, respelled, "iu-a")
		setInUse(t, p, "iu-a", controlplane.InUseName(handle), controlplane.InUseName(respelled), foreign)
		must(t, p.Publish(t.Context(), handle, "iu-a"))
		p.AwaitStaged(vol, "iu-a")
		p.Unstage(vol, "iu-a")
		// The pod is still to run there: the kubelet may be about to mount the volume once more.
		settled(t, p, "iu-a")
		if got := inUse(t, p, "iu-a"); len(got) != 3 {
			t.Fatalf("a volume that a pod is going to use was removed from %v", got)
		}
		must(t, p.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
		settled(t, p, "iu-a")
		if got := inUse(t, p, "iu-a"); len(got) != 3 {
			t.Fatalf("a volume that a pod of another PersistentVolume is going to use was removed from %v", got)
		}
		must(t, p.Client.Delete(t.Context(), second, client.GracePeriodSeconds(0)))
		p.Eventually("the volume is out of volumesInUse", func() string {
			if got := inUse(t, p, "iu-a"); !slices.Equal(got, []corev1.UniqueVolumeName{foreign}) {
				return fmt.Sprint(got)
			}
			return ""
		})
	})
}

// settled waits until the reconciler has seen a report that was written after this call: it looks
// at one node after the other events of that node.
func settled(t *testing.T, p *controlplane.ControlPlane, node string) {
	t.Helper()
	marker := p.Create(freshName("marker"), map[string]string{"skuName": "Premium_LRS"})
	must(t, p.Publish(t.Context(), marker, node))
	setInUse(t, p, node, append(inUse(t, p, node), controlplane.InUseName(marker))...)
	bound := bindPod(t, p, marker, node)
	must(t, p.Client.Delete(t.Context(), bound, client.GracePeriodSeconds(0)))
	p.Eventually("the reconciler has looked", func() string {
		if got := inUse(t, p, node); slices.Contains(got, controlplane.InUseName(marker)) {
			return fmt.Sprint(got)
		}
		return ""
	})
}

// bindPod makes a PersistentVolume, its claim and a pod on the node that uses it.
func bindPod(t *testing.T, p *controlplane.ControlPlane, handle, node string) *corev1.Pod {
	t.Helper()
	ns, name := p.NewNamespace(), freshName("p")
	p.Bind(controlplane.NewPersistentVolume(name, handle), ns, name)
	pod := controlplane.NewPod(ns, name, node, name)
	must(t, p.Client.Create(t.Context(), pod))
	return pod
}

func inUse(t *testing.T, p *controlplane.ControlPlane, node string) []corev1.UniqueVolumeName {
	t.Helper()
	n := p.Node(node)
	return n.Status.VolumesInUse
}

func setInUse(t *testing.T, p *controlplane.ControlPlane, node string, names ...corev1.UniqueVolumeName) {
	t.Helper()
	n := p.Node(node)
	before := n.DeepCopy()
	n.Status.VolumesInUse = names
	must(t, p.Client.Status().Patch(t.Context(), n, client.MergeFrom(before)))
}
