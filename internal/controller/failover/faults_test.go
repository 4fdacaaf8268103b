package failover_test

import (
	"fmt"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// TestLaw5KilledBeforeAnyWriteTheFailoverGoesOn kills the controller before its first write of a failover, then before its second, and so on until
// a failover needs no more writes. The VM is down at Azure, so that every kind of write happens.
func TestLaw5KilledBeforeAnyWriteTheFailoverGoesOn(t *testing.T) {
	t.Parallel()
	const most = 20
	for n := 1; ; n++ {
		if n > most {
			t.Fatalf("a failover needs more than %d writes", most)
		}
		survived := false
		t.Run(fmt.Sprintf("write %d", n), func(t *testing.T) { survived = dieAtWrite(t, n) })
		if survived {
			if n < 5 {
				t.Fatalf("a failover of %d writes was expected to need more", n-1)
			}
			return
		}
	}
}

// dieAtWrite says whether the failover was over, and the node back, before the write came.
func dieAtWrite(t *testing.T, n int) bool {
	l := newLab(t, n)
	handle, a, b := world(l, fmt.Sprintf("kw%d", n))
	died := 0
	// await waits, and starts a new process where the old one has died.
	await := func(what string, check func() string) {
		t.Helper()
		l.Eventually(what, func() string {
			select {
			case <-l.dead:
				if died == 0 {
					died = len(l.written()) + 1
					l.Stop()
					l.dieAt = 0
					l.Start()
				}
			default:
			}
			return check()
		})
	}
	l.Cloud.SetPower(controlplane.VMID(a), provisioner.PowerStopped)
	l.monitor.set(a, plan.Down)
	await("unblocked", func() string {
		if l.podThere("web-0") || len(l.node(a).Status.VolumesInUse) > 0 || !l.tainted(a, corev1.TaintNodeOutOfService) || !l.tainted(a, apiv1.TaintNodeLost) {
			return fmt.Sprintf("claim %+v, node %+v", *l.Volume("vol").Status.Primary, l.node(a).Spec.Taints)
		}
		return ""
	})
	l.must(l.Unpublish(t.Context(), handle, a))
	l.must(l.Publish(t.Context(), handle, b))
	l.must(l.Stage("vol", b))
	l.back(a, await)
	if got := l.Volume("vol").Status.Primary; got.NodeName != b || got.Epoch != 2 {
		t.Fatalf("claim %+v", got)
	}
	t.Logf("died before write %d: %v", died, l.written())
	return died == 0
}

func TestFailoverIsCarriedThroughByAnotherProcessThoughTheNodeIsBack(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	handle, a, b := world(l, "cb")
	release := l.Cloud.HoldAll(fake.AttachmentsForceDetach)
	l.monitor.set(a, plan.NodeLost)
	l.Eventually("the forced detach has begun", func() string {
		if l.Cloud.CallCount(fake.AttachmentsForceDetach) == 0 {
			return "no"
		}
		return ""
	})
	l.Stop()
	release()
	l.monitor.verdicts[a] = plan.Verdict{State: plan.Alive}
	l.Start()
	l.unblocked("web-0", a)
	l.must(l.Unpublish(t.Context(), handle, a))
	l.must(l.Publish(t.Context(), handle, b))
	l.must(l.Stage("vol", b))
	l.back(a, l.Eventually)
}

func TestWhatMustBeLeftAloneKeepsItsVolumes(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	a := "la-a"
	l.AddNode(a, "1", size)
	off := map[string]string{apiv1.AnnotationFailover: apiv1.FailoverDisabled}
	l.claim("nfs", "")
	for name, pod := range map[string]func(*corev1.Pod){
		"bare":    func(p *corev1.Pod) { p.OwnerReferences = nil },
		"daemon":  func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" },
		"opted":   func(p *corev1.Pod) { p.Annotations = off },
		"claimed": func(*corev1.Pod) {},
		"foreign": func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "nfs", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "nfs"}}})
		},
		"free": func(*corev1.Pod) {},
	} {
		handle := l.Create(name, map[string]string{"skuName": "Premium_LRS"})
		l.claim(name, handle, func(c *corev1.PersistentVolumeClaim) {
			if name == "claimed" {
				c.Annotations = off
			}
		})
		l.stage(handle, name, a)
		l.pod(name, a, []string{name}, pod)
	}
	l.monitor.set(a, plan.NodeLost)
	l.Eventually("the one that may go is gone", func() string {
		if l.podThere("free") {
			return fmt.Sprintf("it is there; claim %+v", *l.Volume("free").Status.Primary)
		}
		return ""
	})
	for _, name := range []string{"bare", "daemon", "opted", "claimed", "foreign"} {
		if c := l.Volume(name).Status.Primary; !l.podThere(name) || c.State != apiv1.ClaimHeld {
			t.Errorf("%s: pod there is %v, claim %+v", name, l.podThere(name), *c)
		}
	}
	l.expectEvents("FailoverHeldBack Pod", "FailoverHeldBack PersistentVolumeClaim")
	l.expectMetrics(map[string]float64{
		"azuredisk_failover_held_back_total NoOwner": 1, "azuredisk_failover_held_back_total DaemonSet": 1,
		"azuredisk_failover_held_back_total OptedOut": 2, "azuredisk_failover_held_back_total ForeignVolume": 1,
	})
	if n := l.Cloud.CallCount(fake.AttachmentsForceDetach); n != 1 {
		t.Fatalf("%d forced detaches", n)
	}
	// A pod that hangs in its deletion needs no owner.
	l.must(l.Client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: "bare"}}, client.GracePeriodSeconds(3600)))
	l.Eventually("the pod that was being deleted is gone", func() string {
		if l.podThere("bare") {
			return "it is there"
		}
		return ""
	})
}

func TestMultiNodeVolumeIsTakenFromTheLostNodeOnly(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	l.AddNode("mu-a", "1", size)
	l.AddNode("mu-b", "1", size)
	request := controlplane.CreateRequest("vol", replicated)
	request.VolumeCapabilities = []*csi.VolumeCapability{controlplane.Shared()}
	response, err := l.CSI.CreateVolume(t.Context(), request)
	l.must(err)
	handle := response.GetVolume().GetVolumeId()
	for _, node := range []string{"mu-a", "mu-b"} {
		_, err := l.CSI.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: handle, NodeId: node, VolumeCapability: controlplane.Shared()})
		l.must(err)
	}
	l.Eventually("attached to both", func() string {
		if got := l.AttachedTo("vol"); len(got) != 2 {
			return fmt.Sprint(got)
		}
		return ""
	})
	l.claim("vol", handle)
	l.pod("on-a", "mu-a", []string{"vol"})
	l.pod("on-b", "mu-b", []string{"vol"})
	l.use("mu-a", handle)
	l.monitor.set("mu-a", plan.NodeLost)
	l.unblocked("on-a", "mu-a")
	l.Eventually("detached from the lost node only", func() string {
		if got := l.AttachedTo("vol"); len(got) != 1 || got[0] != "mu-b" {
			return fmt.Sprint(got)
		}
		return ""
	})
	l.Eventually("the record of the decision is gone", func() string {
		if a := l.Attachment("vol", "mu-a"); a != nil {
			return fmt.Sprint(a.Finalizers)
		}
		return ""
	})
	if !l.podThere("on-b") {
		t.Fatal("the pod on the other node was deleted")
	}
	l.must(l.Unpublish(t.Context(), handle, "mu-a"))
}

func TestClaimWithoutAnAttachmentIsFencedAsWell(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	handle, a, b := world(l, "ca")
	l.Stop()
	// The process died in a publish between the claim and the promotion, and the object was lost besides.
	lost := l.Attachment("vol", a)
	lost.Finalizers = nil
	l.must(l.Client.Update(t.Context(), lost))
	l.must(l.Client.Delete(t.Context(), lost))
	l.monitor.verdicts[a] = plan.Verdict{State: plan.NodeLost}
	l.Start()
	l.unblocked("web-0", a)
	l.must(l.Unpublish(t.Context(), handle, a))
	expectCode(t, l.Publish(t.Context(), handle, b), codes.OK)
}
