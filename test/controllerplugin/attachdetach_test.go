package controllerplugin

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// byPods is a controller plug-in of a driver whose CSIDriver says attachRequired: false. No test
// here calls for a publish.
func byPods(t *testing.T) *controlplane.ControlPlane {
	return controlplane.NewInMemory(t, controlplane.Options{PublishedByPods: true})
}

var managed = corev1.AzureManagedDisk

var names atomic.Int64

// freshName returns a name that no other object has.
func freshName(prefix string) string { return fmt.Sprintf("%s-%d", prefix, names.Add(1)) }

func TestAVolumeFollowsItsPodsWithoutVolumeAttachments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := byPods(t)
		p.AddNode("ad-a", "1", size)
		p.AddNode("ad-b", "1", size)
		vol := freshName("ad-vol")
		handle := p.Create(vol, replicated)
		first := bindPod(t, p, handle, "ad-a")
		p.AwaitStaged(vol, "ad-a")
		p.AwaitReplica(vol, "ad-b")
		eventually(t, p, "the pod is told", func() error { return told(t, p, first, apiv1.ReasonSuccessfulAttachVolume, "ad-a") })

		// A second pod contends for the volume, and waits.
		second := podOf(t, p, first, "ad-b")
		eventually(t, p, "the pod that waits is told why",
			func() error { return told(t, p, second, apiv1.ReasonFailedAttachVolume, "ad-a") })
		if c := p.Volume(vol).Status.Primary; c.NodeName != "ad-a" || c.Epoch != 1 {
			t.Fatalf("the volume was taken from a pod that uses it: %+v", c)
		}

		// The first pod ends, and its kubelet unmounts the volume: the move writes nothing to Azure.
		attaches, detaches := p.Cloud.CallCount(fake.AttachmentsAttach), p.Cloud.CallCount(fake.AttachmentsDetach)
		must(t, p.Client.Delete(t.Context(), first, client.GracePeriodSeconds(0)))
		p.Unstage(vol, "ad-a")
		p.AwaitStaged(vol, "ad-b")
		got := p.Cloud.CallCount(fake.AttachmentsAttach) + p.Cloud.CallCount(fake.AttachmentsDetach)
		if got != attaches+detaches {
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
	})
}

// Kubernetes asks for the deletion when the pod is gone, and does not wait for the release.
func TestADeletionWaitsForTheReleaseOfAVolumeThatFollowsItsPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := byPods(t)
		p.AddNode("dw-a", "1", size)
		vol := freshName("dw-vol")
		handle := p.Create(vol, map[string]string{"skuName": "Premium_LRS"})
		ns, name := p.NewNamespace(), freshName("p")
		pv := controlplane.NewPersistentVolume(name, handle, func(s *corev1.PersistentVolumeSpec) {
			s.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		})
		p.Bind(pv, ns, name)
		pod := controlplane.NewPod(ns, name, "dw-a", name)
		must(t, p.Client.Create(t.Context(), pod))
		p.AwaitStaged(vol, "dw-a")
		bound := pv.DeepCopy()
		pv.Status.Phase = corev1.VolumeReleased
		must(t, p.Client.Status().Patch(t.Context(), pv, client.MergeFrom(bound)))
		deleted := make(chan error, 1)
		go func() {
			_, err := p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
			deleted <- err
		}()
		must(t, p.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
		p.Unstage(vol, "dw-a")
		if err := <-deleted; err != nil {
			t.Errorf("the first call: %v", err)
		}
		if p.Volume(vol) != nil {
			t.Error("the AzVolume is still there")
		}
	})
}

func TestAVolumeThatTheDriverDoesNotKnowIsAdoptedForItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := byPods(t)
		p.AddNode("aa-a", "1", size)
		vol := freshName("aa-vol")
		p.Cloud.AddDisk(provisioner.Disk{
			ID:           controlplane.DiskID(vol),
			Location:     controlplane.Location,
			Zone:         "1",
			SizeBytes:    10 << 30,
			MaxShares:    1,
			DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
		})
		bindPod(t, p, controlplane.DiskID(vol), "aa-a")
		p.AwaitStaged(vol, "aa-a")
		if v := p.Volume(vol); v.Spec.Origin != apiv1.OriginAdopted {
			t.Errorf("origin %s", v.Spec.Origin)
		}
	})
}

// A tenant names the disk of another namespace in a pod, while that namespace's pod is gone for a
// moment.
func TestADiskOfAnotherNamespaceIsNotTakenByAPodThatNamesIt(t *testing.T) {
	for name, options := range map[string]controlplane.Options{
		"without VolumeAttachments": {PublishedByPods: true}, "with VolumeAttachments": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := controlplane.NewInMemory(t, options)
				node, other := freshName("id-a"), freshName("id-b")
				p.AddNode(node, "1", size)
				p.AddNode(other, "1", size)
				vol := freshName("id-vol")
				handle := p.Create(vol, map[string]string{"skuName": "Premium_LRS", "cachingMode": "ReadOnly"})
				shop, thieves := p.NewNamespace(), p.NewNamespace()
				p.Bind(controlplane.NewPersistentVolume(vol, handle, func(s *corev1.PersistentVolumeSpec) {
					s.CSI.VolumeAttributes = map[string]string{"cachingMode": "ReadOnly"}
				}), shop, "data")
				thief := controlplane.NewPod(thieves, "thief", node)
				thief.Spec.Volumes = []corev1.Volume{{Name: "loot", VolumeSource: corev1.VolumeSource{
					AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: vol, DataDiskURI: handle, Kind: &managed},
				}}}
				must(t, p.Client.Create(t.Context(), thief))
				synctest.Wait() // until the cache has the objects
				publish := func(node string, attributes map[string]string) error {
					if options.PublishedByPods {
						return nil // the reconciler calls
					}
					return p.PublishWith(t.Context(), handle, node, controlplane.Mounted(), attributes)
				}
				if !options.PublishedByPods {
					err := publish(node, map[string]string{"cachingMode": "ReadWrite"})
					if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), shop+"/data") {
						t.Errorf("publish for the thief: got %v, want FailedPrecondition with the claim", err)
					}
				}
				eventually(t, p, "the thief is told",
					func() error { return told(t, p, thief, apiv1.ReasonFailedAttachVolume, shop+"/data") })
				must(t, p.Client.Create(t.Context(), controlplane.NewPod(shop, "owner", other, "data")))
				must(t, publish(other, map[string]string{"cachingMode": "ReadOnly"}))
				p.AwaitStaged(vol, other)
				if v := p.Volume(vol); v.Spec.Disk.CachingMode != "ReadOnly" || v.Status.Primary.Epoch != 1 {
					t.Errorf("got caching mode %s, epoch %d, want ReadOnly, 1", v.Spec.Disk.CachingMode, v.Status.Primary.Epoch)
				}
				// What no pod is there for any more must not change the disk either.
				must(t, p.Client.Delete(t.Context(), thief, client.GracePeriodSeconds(0)))
				must(t, publish(other, map[string]string{"cachingMode": "ReadWrite"}))
				if v := p.Volume(vol); v.Spec.Disk.CachingMode != "ReadOnly" {
					t.Errorf("got caching mode %s, want that of the PersistentVolume", v.Spec.Disk.CachingMode)
				}
			})
		})
	}
}

// A user who may create pods can name any number of disks that do not exist. They cost Azure one read each, and not one for
// each retry, and other volumes do not wait for them.
func TestDisksThatDoNotExistAreReadOnceEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods, volumes = 10, 30
		p := byPods(t)
		node := freshName("none")
		p.AddNode(node, "1", size)
		tenant := p.NewNamespace()
		named := []*corev1.Pod{}
		for i := range pods {
			pod := controlplane.NewPod(tenant, fmt.Sprintf("p-%d", i), node)
			for j := range volumes {
				disk := fmt.Sprintf("none-%d-%d", i, j)
				pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: disk, VolumeSource: corev1.VolumeSource{
					AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: disk, DataDiskURI: controlplane.DiskID(disk),
						Kind: &managed},
				}})
			}
			must(t, p.Client.Create(t.Context(), pod))
			named = append(named, pod)
		}
		for _, pod := range named {
			eventually(t, p, "the pod is told", func() error { return told(t, p, pod, apiv1.ReasonFailedAttachVolume, "none-") })
		}
		eventually(t, p, "each disk is read", func() error {
			if got := p.Cloud.CallCount(fake.DisksGet); got < pods*volumes {
				return fmt.Errorf("%d reads", got)
			}
			return nil
		})
		// A new pod of the same name has the controller try each volume again, as a retry does.
		for _, pod := range named {
			must(t, p.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
			again := pod.DeepCopy()
			again.ResourceVersion, again.UID = "", ""
			must(t, p.Client.Create(t.Context(), again))
		}
		hasActed(t, p, node)
		if got := p.Cloud.CallCount(fake.DisksGet); got > pods*volumes+5 {
			t.Errorf("got %d reads of disks, want %d and a few of the volume that exists", got, pods*volumes)
		}
	})
}

// A node whose path to the API server is all that it lost answers the driver's probe, so that the
// failover leaves it alone, and so it does where a user opted out. Its kubelet has not learned that
// the pod is being deleted.
func TestAPodThatIsToEndOnALostNodeKeepsItsVolumeUntilItIsGone(t *testing.T) {
	for name, gone := range map[string]func(*testing.T, *controlplane.ControlPlane, *corev1.Pod){
		"deleted by force": func(t *testing.T, p *controlplane.ControlPlane, pod *corev1.Pod) {
			must(t, p.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
		},
		"failed, as Kubernetes writes of pods of a node that is out of service": func(t *testing.T, p *controlplane.ControlPlane,
			pod *corev1.Pod) {
			before := pod.DeepCopy()
			pod.Status.Phase = corev1.PodFailed
			must(t, p.Client.Status().Patch(t.Context(), pod, client.MergeFrom(before)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, cached := watched(t, controlplane.Options{PublishedByPods: true, StaleAfter: time.Second})
				a, b := freshName("al-a"), freshName("al-b")
				p.AddNode(a, "1", size)
				p.AddNode(b, "1", size)
				p.Report(a, func(s *apiv1.AzDriverNodeStatus) { s.HeartbeatPeriodSeconds = 1 }) // and there will be no other
				vol := freshName("al-vol")
				first := bindPod(t, p, p.Create(vol, replicated), a)
				p.AwaitStaged(vol, a)
				p.AwaitReplica(vol, b)
				notReady(t, p, a)
				must(t, p.Client.Delete(t.Context(), first))
				second := podOf(t, p, first, b)
				eventually(t, p, "the controller knows it all", func() error {
					n := &corev1.Node{}
					if err := cached().Get(t.Context(), client.ObjectKey{Name: a}, n); err != nil ||
						n.Status.Conditions[0].Status == corev1.ConditionTrue {
						return fmt.Errorf("the node is ready: %w", err)
					}
					if err := cached().Get(t.Context(), client.ObjectKeyFromObject(first), first); err != nil ||
						first.DeletionTimestamp == nil {
						return fmt.Errorf("the first pod is not to end: %w", err)
					}
					return cached().Get(t.Context(), client.ObjectKeyFromObject(second), second)
				})
				hasActed(t, p, b)
				if c := p.Volume(vol).Status.Primary; c.NodeName != a || c.Epoch != 1 || c.State != apiv1.OwnershipHeld {
					t.Fatalf("the volume was taken from a pod that may be writing to it: %+v", c)
				}
				gone(t, p, first)
				p.AwaitStaged(vol, b)
				if proof := p.Volume(vol).Status.LastRelease.Proof; proof.Type == apiv1.ProofUnstaged {
					t.Errorf("proof %+v of a node that said nothing", proof)
				}
			})
		})
	}
}

// watched is a controller plug-in whose cache the test sees.
func watched(t *testing.T, options controlplane.Options) (p *controlplane.ControlPlane, cached func() client.Client) {
	var c client.Client
	options.With = func(_ context.Context, mgr ctrl.Manager, _ provisioner.Cloud, _ string) error {
		c = mgr.GetClient()
		return nil
	}
	return controlplane.NewInMemory(t, options), func() client.Client { return c }
}

// hasActed returns when whatever the controller does about earlier events has long begun: a volume
// has been published and used since.
func hasActed(t *testing.T, p *controlplane.ControlPlane, node string) {
	t.Helper()
	marker := freshName("marker")
	bindPod(t, p, p.Create(marker, map[string]string{"skuName": "Premium_LRS"}), node)
	p.AwaitStaged(marker, node)
}

func notReady(t *testing.T, p *controlplane.ControlPlane, node string) {
	t.Helper()
	n := p.Node(node)
	n.Status.Conditions = []corev1.NodeCondition{{
		Type:               corev1.NodeReady,
		Status:             corev1.ConditionUnknown,
		LastTransitionTime: metav1.Now(),
	}}
	must(t, p.Client.Status().Update(t.Context(), n))
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

// told returns an error unless there is an event on the pod with that reason, in whose note is the
// text.
func told(t *testing.T, p *controlplane.ControlPlane, pod *corev1.Pod, reason, text string) error {
	t.Helper()
	var list corev1.EventList
	must(t, p.Client.List(t.Context(), &list, client.InNamespace(pod.Namespace)))
	for _, e := range list.Items {
		if e.InvolvedObject.UID == pod.UID && e.Reason == reason && strings.Contains(e.Message, text) {
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
