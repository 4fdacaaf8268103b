package handover_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/attachdetach"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// byPods is a controller plug-in of a driver whose CSIDriver says attachRequired: false. No test here calls for a publish.
func byPods(t *testing.T) *controlplane.ControlPlane {
	return controlplane.New(t, controlplane.Options{PublishedByPods: true})
}

// freshName is of a volume whose PersistentVolume is of this run: they belong to the whole API server.
func freshName(prefix string) string { return fmt.Sprintf("%s-%d", prefix, time.Now().UnixNano()) }

func eventuallyStaged(t *testing.T, p *controlplane.ControlPlane, volume, node string) {
	t.Helper()
	p.Eventually("staged on "+node, func() string {
		if err := p.Stage(volume, node); err != nil {
			return err.Error()
		}
		return ""
	})
}

func TestAVolumeFollowsItsPodsWithoutVolumeAttachments(t *testing.T) {
	p := byPods(t)
	p.AddNode("ad-a", "1", size)
	p.AddNode("ad-b", "1", size)
	vol := freshName("ad-vol")
	handle := p.Create(vol, replicated)
	first := bindPod(t, p, handle, "ad-a")
	eventuallyStaged(t, p, vol, "ad-a")
	awaitReplica(t, p, vol, "ad-b")
	eventually(t, p, "the pod is told", func() error { return told(t, p, first, attachdetach.ReasonAttached, "ad-a") })

	// A second pod contends for the volume, and waits.
	second := podOf(t, p, first, "ad-b")
	eventually(t, p, "the pod that waits is told why", func() error { return told(t, p, second, attachdetach.ReasonFailed, "ad-a") })
	if c := p.Volume(vol).Status.Primary; c.NodeName != "ad-a" || c.Epoch != 1 {
		t.Fatalf("the volume was taken from a pod that uses it: %+v", c)
	}

	// The first pod goes, and its kubelet lets go: the move writes nothing to Azure.
	attaches, detaches := p.Cloud.CallCount(fake.AttachmentsAttach), p.Cloud.CallCount(fake.AttachmentsDetach)
	must(t, p.Client.Delete(t.Context(), first, client.GracePeriodSeconds(0)))
	p.Unstage(vol, "ad-a")
	eventuallyStaged(t, p, vol, "ad-b")
	if got := p.Cloud.CallCount(fake.AttachmentsAttach) + p.Cloud.CallCount(fake.AttachmentsDetach); got != attaches+detaches {
		t.Errorf("%d calls to Azure on the path of the move", got-attaches-detaches)
	}
	if c := p.Volume(vol).Status.Primary; c.NodeName != "ad-b" || c.Epoch != 2 {
		t.Errorf("claim %+v", c)
	}

	// The last pod goes while the controller is away.
	p.Stop()
	must(t, p.Client.Delete(t.Context(), second, client.GracePeriodSeconds(0)))
	p.Unstage(vol, "ad-b")
	p.Start()
	p.Eventually("taken back", func() string {
		if c := p.Volume(vol).Status.Primary; c.State != apiv1.ClaimReleased {
			return fmt.Sprintf("claim %+v", *c)
		}
		return ""
	})
}

func TestAVolumeThatTheDriverDoesNotKnowIsAdoptedForItsPod(t *testing.T) {
	p := byPods(t)
	p.AddNode("aa-a", "1", size)
	vol := freshName("aa-vol")
	p.Cloud.AddDisk(provisioner.Disk{ID: controlplane.DiskID(vol), Location: controlplane.Location, Zone: "1", SKUName: "Premium_LRS", SizeBytes: 10 << 30, MaxShares: 1})
	bindPod(t, p, controlplane.DiskID(vol), "aa-a")
	eventuallyStaged(t, p, vol, "aa-a")
	if v := p.Volume(vol); v.Spec.Origin != apiv1.OriginAdopted {
		t.Errorf("origin %s", v.Spec.Origin)
	}
}

func TestAPublishThatIsRefusedIsToldToThePodAndTriedAgain(t *testing.T) {
	p := byPods(t)
	p.AddNode("ar-a", "1", size)
	vol := freshName("ar-vol")
	handle := p.Create(vol, map[string]string{"skuName": "Premium_LRS"})
	refusal := errors.New("no free slot, says the test")
	p.Cloud.FailNext(fake.AttachmentsAttach, 1, provisioner.Errorf(provisioner.InsufficientCapacity, "%w", refusal))
	pod := bindPod(t, p, handle, "ar-a")
	eventually(t, p, "the pod is told", func() error { return told(t, p, pod, attachdetach.ReasonFailed, refusal.Error()) })
	eventuallyStaged(t, p, vol, "ar-a")
}

func eventually(t *testing.T, p *controlplane.ControlPlane, what string, check func() error) {
	t.Helper()
	p.Eventually(what, func() string {
		if err := check(); err != nil {
			return err.Error()
		}
		return ""
	})
}

// told returns an error unless there is an event on the pod with that reason, in whose note is the text.
func told(t *testing.T, p *controlplane.ControlPlane, pod *corev1.Pod, reason, text string) error {
	t.Helper()
	var list eventsv1.EventList
	must(t, apiserver.Client(t).List(t.Context(), &list, client.InNamespace(pod.Namespace)))
	for _, e := range list.Items {
		if e.Regarding.UID == pod.UID && e.Reason == reason && strings.Contains(e.Note, text) {
			return nil
		}
	}
	return fmt.Errorf("%d events, none with reason %s and %q", len(list.Items), reason, text)
}

// podOf makes another pod that uses the same claim, on a node.
func podOf(t *testing.T, p *controlplane.ControlPlane, like *corev1.Pod, node string) *corev1.Pod {
	t.Helper()
	pod := like.DeepCopy()
	pod.ObjectMeta.Name, pod.ResourceVersion, pod.UID = like.Name+"-"+node, "", ""
	pod.Spec.NodeName = node
	must(t, p.Client.Create(t.Context(), pod))
	return pod
}
