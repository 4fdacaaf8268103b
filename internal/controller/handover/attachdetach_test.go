package handover_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/attachdetach"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
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

	// The first pod ends, and its kubelet unmounts the volume: the move writes nothing to Azure.
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
	p.Eventually("unpublished", func() string {
		if c := p.Volume(vol).Status.Primary; c.State != apiv1.OwnershipReleased {
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

// A node whose path to the API server is all that it lost answers the driver's probe, so that the failover leaves it alone, and so it does where
// a user opted out. Its kubelet has not learned that the pod is being deleted.
func TestAPodThatIsToEndOnALostNodeKeepsItsVolumeUntilItIsGone(t *testing.T) {
	for name, gone := range map[string]func(*testing.T, *controlplane.ControlPlane, *corev1.Pod){
		"deleted by force": func(t *testing.T, p *controlplane.ControlPlane, pod *corev1.Pod) {
			must(t, p.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
		},
		"failed, as Kubernetes writes of pods of a node that is out of service": func(t *testing.T, p *controlplane.ControlPlane, pod *corev1.Pod) {
			before := pod.DeepCopy()
			pod.Status.Phase = corev1.PodFailed
			must(t, p.Client.Status().Patch(t.Context(), pod, client.MergeFrom(before)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, cached := watched(t, controlplane.Options{PublishedByPods: true, StaleAfter: time.Second})
			a, b := freshName("al-a"), freshName("al-b")
			p.AddNode(a, "1", size)
			p.AddNode(b, "1", size)
			p.Report(a, func(s *apiv1.AzDriverNodeStatus) { s.HeartbeatSeconds = 1 }) // and there will be no other
			vol := freshName("al-vol")
			first := bindPod(t, p, p.Create(vol, replicated), a)
			eventuallyStaged(t, p, vol, a)
			awaitReplica(t, p, vol, b)
			notReady(t, p, a)
			must(t, p.Client.Delete(t.Context(), first))
			second := podOf(t, p, first, b)
			eventually(t, p, "the controller knows it all", func() error {
				n := &corev1.Node{}
				if err := cached().Get(t.Context(), client.ObjectKey{Name: a}, n); err != nil || n.Status.Conditions[0].Status == corev1.ConditionTrue {
					return fmt.Errorf("the node is ready: %w", err)
				}
				if err := cached().Get(t.Context(), client.ObjectKeyFromObject(first), first); err != nil || first.DeletionTimestamp == nil {
					return fmt.Errorf("the first pod is not to end: %w", err)
				}
				return cached().Get(t.Context(), client.ObjectKeyFromObject(second), second)
			})
			hasActed(t, p, b)
			if c := p.Volume(vol).Status.Primary; c.NodeName != a || c.Epoch != 1 || c.State != apiv1.OwnershipHeld {
				t.Fatalf("the volume was taken from a pod that may be writing to it: %+v", c)
			}
			gone(t, p, first)
			eventuallyStaged(t, p, vol, b)
			if proof := p.Volume(vol).Status.LastRelease.Proof; proof.Kind == apiv1.ProofUnstaged {
				t.Errorf("proof %+v of a node that said nothing", proof)
			}
		})
	}
}

// The driver serves disks that pods name themselves, since Kubernetes does not any more.
func TestADiskThatAPodNamesItselfFollowsThePod(t *testing.T) {
	p := byPods(t)
	p.AddNode("an-a", "1", size)
	p.AddNode("an-b", "1", size)
	vol := freshName("an-vol")
	p.Cloud.AddDisk(provisioner.Disk{ID: controlplane.DiskID(vol), Location: controlplane.Location, Zone: "1", SKUName: "Premium_LRS", SizeBytes: 10 << 30, MaxShares: 1})
	managed := corev1.AzureManagedDisk
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: apiserver.Namespace(t), Name: "p"}, Spec: corev1.PodSpec{
		NodeName: "an-a", AutomountServiceAccountToken: ptr.To(false), Containers: []corev1.Container{{Name: "c", Image: "i"}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{
			DiskName: vol, DataDiskURI: controlplane.DiskID(vol), Kind: &managed,
		}}}},
	}}
	must(t, p.Client.Create(t.Context(), pod))
	eventuallyStaged(t, p, vol, "an-a")
	eventually(t, p, "the pod is told", func() error { return told(t, p, pod, attachdetach.ReasonAttached, "an-a") })

	// The node is started again. Before its kubelet mounts the volume again, nothing is mounted there.
	p.Unstage(vol, "an-a")
	hasActed(t, p, "an-b")
	if c := p.Volume(vol).Status.Primary; c.NodeName != "an-a" || c.Epoch != 1 || c.State != apiv1.OwnershipHeld {
		t.Fatalf("the volume was taken from the pod that uses it: %+v", c)
	}

	second := podOf(t, p, pod, "an-b")
	must(t, p.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	eventuallyStaged(t, p, vol, "an-b")
	must(t, p.Client.Delete(t.Context(), second, client.GracePeriodSeconds(0)))
}

// A report names what is staged. That it stands for what it does not name as well is the news here.
func TestAVolumeIsUnpublishedAsSoonAsItsNodeHasScannedItsMounts(t *testing.T) {
	p, cached := watched(t, controlplane.Options{PublishedByPods: true})
	p.AddNode("as-a", "1", size)
	p.AddNode("as-b", "1", size)
	vol := freshName("as-vol")
	pod := bindPod(t, p, p.Create(vol, map[string]string{"skuName": "Premium_LRS"}), "as-a")
	eventually(t, p, "published", func() error {
		if a := p.Attachment(vol, "as-a"); a == nil || a.Status.State != apiv1.AttachmentAttached {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	// The object of the node was re-created, and its plug-in has not filled it in yet.
	p.Report("as-a", func(s *apiv1.AzDriverNodeStatus) { s.MountsScannedTime = nil })
	eventually(t, p, "the controller knows", func() error {
		d := &apiv1.AzDriverNode{}
		if err := cached().Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: "as-a"}, d); err != nil || d.Status.MountsScannedTime != nil {
			return fmt.Errorf("scanned at %v: %w", d.Status.MountsScannedTime, err)
		}
		return nil
	})
	must(t, p.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	eventually(t, p, "the pod is gone for the controller", func() error {
		return absent(cached().Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{}))
	})
	hasActed(t, p, "as-b")
	if c := p.Volume(vol).Status.Primary; c.NodeName != "as-a" || c.State != apiv1.OwnershipHeld {
		t.Fatalf("the volume was unpublished although the node has not scanned its mounts: %+v", c)
	}
	p.Report("as-a", func(s *apiv1.AzDriverNodeStatus) { now := metav1.NowMicro(); s.MountsScannedTime = &now })
	eventually(t, p, "unpublished", func() error {
		if c := p.Volume(vol).Status.Primary; c.State != apiv1.OwnershipReleased {
			return fmt.Errorf("claim %+v", *c)
		}
		return nil
	})
}

// An unpublish was begun, and its process died. Meanwhile a pod wants the volume there again.
func TestAnUnpublishOfASharedVolumeCompletesBeforeItIsPublishedAgain(t *testing.T) {
	p := byPods(t)
	p.AddNode("ac-a", "1", size)
	p.AddNode("ac-b", "1", size)
	vol := freshName("ac-vol")
	request := controlplane.CreateRequest(vol, map[string]string{"skuName": "Premium_LRS", "maxShares": "2"})
	request.VolumeCapabilities = []*csi.VolumeCapability{controlplane.Shared()}
	created, err := p.CSI.CreateVolume(t.Context(), request)
	must(t, err)
	first := bindShared(t, p, created.GetVolume().GetVolumeId(), "ac-a")
	podOf(t, p, first, "ac-b")
	attached := func(node string, not types.UID) func() error {
		return func() error {
			if a := p.Attachment(vol, node); a == nil || a.Status.State != apiv1.AttachmentAttached || a.DeletionTimestamp != nil || a.UID == not {
				return fmt.Errorf("%+v", a)
			}
			return nil
		}
	}
	eventually(t, p, "published to one", attached("ac-a", ""))
	eventually(t, p, "published to the other", attached("ac-b", ""))
	p.Report("ac-a", func(s *apiv1.AzDriverNodeStatus) {
		s.StagedVolumes = []apiv1.StagedVolume{{VolumeName: p.VolumeName(vol), Epoch: ownership.MultiNodeEpoch, Phase: apiv1.PhaseStaged}}
	})
	before := p.Attachment(vol, "ac-a")
	must(t, p.Client.Delete(t.Context(), before))
	p.Unstage(vol, "ac-a")
	eventually(t, p, "published again", attached("ac-a", before.UID))
	if a := p.Attachment(vol, "ac-b"); a == nil || a.DeletionTimestamp != nil {
		t.Errorf("the other node lost it: %+v", a)
	}
}

// watched is a controller plug-in whose cache the test sees.
func watched(t *testing.T, options controlplane.Options) (p *controlplane.ControlPlane, cached func() client.Client) {
	var c client.Client
	options.With = func(_ context.Context, mgr ctrl.Manager, _ provisioner.Cloud, _ string) error {
		c = mgr.GetClient()
		return nil
	}
	return controlplane.New(t, options), func() client.Client { return c }
}

// hasActed returns when whatever the controller does about earlier events has long begun: a volume has been published and used since.
func hasActed(t *testing.T, p *controlplane.ControlPlane, node string) {
	t.Helper()
	marker := freshName("marker")
	bindPod(t, p, p.Create(marker, map[string]string{"skuName": "Premium_LRS"}), node)
	eventuallyStaged(t, p, marker, node)
}

func notReady(t *testing.T, p *controlplane.ControlPlane, node string) {
	t.Helper()
	n := &corev1.Node{}
	must(t, p.Client.Get(t.Context(), client.ObjectKey{Name: node}, n))
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.Now()}}
	must(t, p.Client.Status().Update(t.Context(), n))
}

// absent returns an error unless err says that an object is not there.
func absent(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("it is there: %w", err)
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

// bindShared is bindPod for a raw block volume of several nodes.
func bindShared(t *testing.T, p *controlplane.ControlPlane, handle, node string) *corev1.Pod {
	t.Helper()
	ns, name := apiserver.Namespace(t), freshName("shared")
	bindClaim(t, p, newPersistentVolume(name, handle, func(s *corev1.PersistentVolumeSpec) {
		s.AccessModes, s.VolumeMode = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, ptr.To(corev1.PersistentVolumeBlock)
	}), ns, name)
	pod := newPodWith(ns, name, node)
	pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
	must(t, p.Client.Create(t.Context(), pod))
	return pod
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
