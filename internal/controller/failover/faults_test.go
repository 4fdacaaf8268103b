package failover_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// TestLaw5KilledBeforeAnyWriteTheFailoverGoesOn kills the controller before its first write of a
// failover, then before its second, and so on until a failover needs no more writes. The VM is down
// at Azure, so that every kind of write happens.
func TestLaw5KilledBeforeAnyWriteTheFailoverGoesOn(t *testing.T) {
	t.Parallel()
	const most = 20
	for n := 1; ; n++ {
		if n > most {
			t.Fatalf("a failover needs more than %d writes", most)
		}
		survived := false
		t.Run(fmt.Sprintf("write %d", n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { survived = dieAtWrite(t, n) })
		})
		if survived {
			if n < 5 {
				t.Fatalf("a failover of %d writes was expected to need more", n-1)
			}
			return
		}
	}
}

// dieAtWrite reports whether the failover was over, and the node back, before the write came.
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
	l.Cloud.SetPower(controlplane.VMID(a), provisioner.PowerDeallocated)
	l.monitor.set(a, nodehealth.Down)
	await("unblocked", func() string {
		if l.podThere("web-0") || len(l.Node(a).Status.VolumesInUse) > 0 || !l.tainted(a, corev1.TaintNodeOutOfService) ||
			!l.tainted(a, apiv1.TaintNodeLost) {
			return fmt.Sprintf("ownership %+v, node %+v", *l.Volume("vol").Status.Primary, l.Node(a).Spec.Taints)
		}
		return ""
	})
	l.must(l.Unpublish(t.Context(), handle, a))
	l.must(l.Publish(t.Context(), handle, b))
	l.must(l.Stage("vol", b))
	l.back(a, await)
	if got := l.Volume("vol").Status.Primary; got.NodeName != b || got.Epoch != 2 {
		t.Fatalf("got ownership %+v", got)
	}
	t.Logf("died before write %d: %v", died, l.written())
	return died == 0
}

// TestAWriteThatIsRefusedForEver refuses one kind of write after the other, as a cluster does whose
// policies do not allow it. The pod moves if nothing of its safety depends on the write, and
// otherwise as soon as the write is allowed.
func TestAWriteThatIsRefusedForEver(t *testing.T) {
	t.Parallel()
	for i, test := range []struct {
		write  string
		needed bool
	}{
		{"patch *v1.Node", false},
		{"patch status of *v1.AzDriverNode", false},
		{"patch status of *v1.AzVolume", true},
		{"delete *v1.Pod", true},
		{"patch status of *v1.Node", true},
	} {
		t.Run(test.write, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, 0)
				_, a, _ := world(l, fmt.Sprintf("rw%d", i))
				l.refuseWrites(test.write)
				l.Cloud.SetPower(controlplane.VMID(a), provisioner.PowerDeallocated)
				l.monitor.set(a, nodehealth.Down)
				l.expectEvents("WriteRefused Node")
				if test.needed {
					if !l.podThere("web-0") && len(l.Node(a).Status.VolumesInUse) == 0 {
						t.Error("unblocked without a write that it needs")
					}
					l.refuseWrites("")
				}
				l.unblocked("web-0", a)
				if written := l.written(); !test.needed && slices.Contains(written, test.write) {
					t.Errorf("got the writes %v, want none of the refused", written)
				}
			})
		})
	}
}

func TestWhatMustBeLeftAloneKeepsItsVolumes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 0)
		a := "la-a"
		l.AddNode(a, "1", size)
		off := map[string]string{apiv1.AnnotationFailover: apiv1.FailoverDisabled}
		l.claim("nfs", "")
		for name, pod := range map[string]func(*corev1.Pod){
			"bare":        func(p *corev1.Pod) { p.OwnerReferences = nil },
			"daemon":      func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" },
			"opted":       func(p *corev1.Pod) { p.Annotations = off },
			"claim-opted": func(*corev1.Pod) {},
			"foreign": func(p *corev1.Pod) {
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
					Name: "nfs",
					VolumeSource: corev1.VolumeSource{
						PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "nfs"},
					},
				})
			},
			"free": func(*corev1.Pod) {},
		} {
			handle := l.Create(name, map[string]string{"skuName": "Premium_LRS"})
			l.claim(name, handle, func(c *corev1.PersistentVolumeClaim) {
				if name == "claim-opted" {
					c.Annotations = off
				}
			})
			l.StageOn(handle, name, a)
			l.pod(name, a, []string{name}, pod)
		}
		l.monitor.set(a, nodehealth.Lost)
		l.Eventually("the one that may go is gone", func() string {
			if l.podThere("free") {
				return fmt.Sprintf("it is there; ownership %+v", *l.Volume("free").Status.Primary)
			}
			return ""
		})
		for _, name := range []string{"bare", "daemon", "opted", "claim-opted", "foreign"} {
			if c := l.Volume(name).Status.Primary; !l.podThere(name) || c.State != apiv1.OwnershipHeld {
				t.Errorf("%s: pod there is %v, ownership %+v", name, l.podThere(name), *c)
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
		l.must(l.Client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: l.Namespace,
			Name:      "bare",
		}}, client.GracePeriodSeconds(3600)))
		l.Eventually("the pod that was being deleted is gone", func() string {
			if l.podThere("bare") {
				return "it is there"
			}
			return ""
		})
	})
}

// An opt-out concerns what the driver decides by itself. That a pod is deleted by force is a
// person's decision.
func TestAVolumeThatOptedOutMovesWhenItsPodIsDeletedByForce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 0)
		a := "oo-a"
		l.AddNode(a, "1", size)
		handle := l.Create("vol", replicated)
		l.claim("vol", handle, func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{apiv1.AnnotationFailover: apiv1.FailoverDisabled}
		})
		l.StageOn(handle, "vol", a)
		l.pod("web-0", a, []string{"vol"})
		l.monitor.set(a, nodehealth.Lost)
		l.expectNote("FailoverHeldBack", "Pod", "delete it by force")
		if c := l.Volume("vol").Status.Primary; c.State != apiv1.OwnershipHeld {
			t.Fatalf("got ownership %+v while the pod exists, want it held", *c)
		}
		l.must(l.Client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: l.Namespace,
			Name:      "web-0",
		}}, client.GracePeriodSeconds(0)))
		l.expectNote("FailoverStarted", "PersistentVolumeClaim", lostnode.OptOutEnds)
		l.must(l.Unpublish(t.Context(), handle, a))
		if proof := l.Volume("vol").Status.LastRelease.Proof; proof.Type != apiv1.ProofDetached {
			t.Errorf("got proof %+v, want %s", proof, apiv1.ProofDetached)
		}
	})
}

// sharedBy makes a volume that several nodes use, each with a pod.
func (l *lab) sharedBy(name string, nodes ...string) (handle string) {
	l.Helper()
	request := controlplane.CreateRequest(name, replicated)
	request.VolumeCapabilities = []*csi.VolumeCapability{controlplane.Shared()}
	response, err := l.CSI.CreateVolume(l.Context(), request)
	l.must(err)
	handle = response.GetVolume().GetVolumeId()
	l.claim(name, handle)
	for _, node := range nodes {
		_, err := l.CSI.ControllerPublishVolume(l.Context(), &csi.ControllerPublishVolumeRequest{
			VolumeId:         handle,
			NodeId:           node,
			VolumeCapability: controlplane.Shared(),
		})
		l.must(err)
		l.pod("on-"+node, node, []string{name})
		l.use(node, handle)
	}
	l.Eventually("attached to all", func() string {
		if got := l.AttachedTo(name); len(got) != len(nodes) {
			return fmt.Sprint(got)
		}
		return ""
	})
	return handle
}

// TestLaw5AMultiNodeFenceIsCarriedThroughFromItsFinalizerOn kills the controller at
// failover-between-finalizer-and-deletion. From then on no new decision may be taken.
func TestLaw5AMultiNodeFenceIsCarriedThroughFromItsFinalizerOn(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]nodehealth.Judgement{
		"the node is back":     {State: nodehealth.Healthy},
		"the guard holds back": {State: nodehealth.Lost, HeldBack: "too many", MassLoss: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, 2) // the first write puts the finalizer on
				a, b := l.Namespace+"-a", l.Namespace+"-b"
				l.AddNode(a, "1", size)
				l.AddNode(b, "1", size)
				l.sharedBy("vol", a, b)
				l.monitor.set(a, nodehealth.Lost)
				<-l.dead
				if at := l.Attachment("vol", a); at.DeletionTimestamp != nil || len(at.Finalizers) != 2 {
					t.Fatalf("not at the point in question: %+v", at.ObjectMeta)
				}
				l.Stop()
				l.dieAt, l.monitor.health[a] = 0, then
				l.Start()
				l.unblocked("on-"+a, a)
				l.leftOnly("vol", a, b)
			})
		})
	}
}

// leftOnly waits until nothing is left of a volume's attachment to node lost, and the disk is
// attached to node kept alone.
func (l *lab) leftOnly(volume, lost, kept string) {
	l.Helper()
	l.Eventually("taken from the lost node only", func() string {
		if at, got := l.Attachment(volume, lost), l.AttachedTo(volume); at != nil || len(got) != 1 || got[0] != kept {
			return fmt.Sprintf("attached to %v, attachment %+v", got, at)
		}
		return ""
	})
}

// No monitor watches the node when the last write of a former leader arrives.
func TestADecisionOfAFormerLeaderIsNoticedWhenItComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 0)
		l.AddNode("fl-a", "1", size)
		l.AddNode("fl-b", "1", size)
		l.sharedBy("vol", "fl-a", "fl-b")
		before := l.Attachment("vol", "fl-a")
		late := before.DeepCopy()
		late.Finalizers = append(late.Finalizers, apiv1.FinalizerFenced)
		l.must(l.Client.Patch(t.Context(), late, client.MergeFrom(before)))
		l.unblocked("on-fl-a", "fl-a")
		l.leftOnly("vol", "fl-a", "fl-b")
	})
}

// Two objects were lost one after the other: the attachment, and the AzDriverNode, which says which
// VM the node is. The attachment was re-created without a VM, and that must not count as the proof
// that there is no VM. A VM that has the disk may be another cluster's, so that a person detaches it.
func TestLaw3AVolumeLeavesANodeWithoutObjectsOnlyWithItsDisk(t *testing.T) {
	t.Parallel()
	for name, attached := range map[string]bool{"whose VM runs on": true, "whose VM has lost the disk": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, 0)
				handle, a, b := world(l, l.Namespace)
				l.Stop()
				lost := l.Attachment("vol", a)
				lost.Finalizers = nil
				l.must(l.Client.Update(t.Context(), lost))
				for _, gone := range []client.Object{
					lost, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a}}, &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{
						Namespace: l.Namespace,
						Name:      a,
					}},
				} {
					l.must(l.Client.Delete(t.Context(), gone))
				}
				if !attached {
					op, err := l.Cloud.Attachments().Detach(t.Context(), controlplane.VMID(a), l.DiskID("vol"))
					l.must(err)
					l.must(op.Wait(t.Context()))
				}
				l.Start()
				l.Eventually("the attachment is re-created, and its VM is unknown", func() string {
					if made := l.Attachment("vol", a); made == nil || made.Status.VMID != "" {
						return fmt.Sprintf("%+v", made)
					}
					return ""
				})
				done := make(chan error, 1)
				go func() { done <- l.Unpublish(t.Context(), handle, a) }()
				if attached {
					l.Eventually("the VM that has the disk is named", func() string {
						made := l.Attachment("vol", a)
						if c := meta.FindStatusCondition(made.Status.Conditions, apiv1.AttachmentConditionAttached); c == nil ||
							!strings.Contains(c.Message, controlplane.VMID(a)+", which is no node of this cluster") {
							return fmt.Sprintf("%+v", made)
						}
						return ""
					})
					if c := l.Volume("vol").Status.Primary; c.State != apiv1.OwnershipReleasing {
						t.Fatalf("law 3: the ownership is %+v while the disk is attached", *c)
					}
					if n := l.Cloud.CallCount(fake.AttachmentsForceDetach); n > 0 {
						t.Errorf("got %d forced detaches from a VM that may be another cluster's, want none", n)
					}
					op, err := l.Cloud.Attachments().Detach(t.Context(), controlplane.VMID(a), l.DiskID("vol"))
					l.must(err)
					l.must(op.Wait(t.Context()))
				}
				l.must(<-done)
				if got := l.AttachedTo("vol"); len(got) != 1 || got[0] != b {
					t.Errorf("attached to %v, want the replica on %s alone", got, b)
				}
				if r := l.Volume("vol").Status.LastRelease; r == nil || r.Proof.Type != apiv1.ProofDetached {
					t.Errorf("last release %+v", r)
				}
				l.must(l.Publish(t.Context(), handle, b))
			})
		})
	}
}

func TestAnotherProcessCompletesTheFailoverThoughTheNodeIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 0)
		handle, a, b := world(l, "cb")
		release := l.Cloud.HoldAll(fake.AttachmentsForceDetach)
		l.monitor.set(a, nodehealth.Lost)
		l.Eventually("the forced detach has begun", func() string {
			if l.Cloud.CallCount(fake.AttachmentsForceDetach) == 0 {
				return "no"
			}
			return ""
		})
		l.Stop()
		release()
		l.monitor.health[a] = nodehealth.Judgement{State: nodehealth.Healthy}
		l.Start()
		l.unblocked("web-0", a)
		l.must(l.Unpublish(t.Context(), handle, a))
		l.must(l.Publish(t.Context(), handle, b))
		l.must(l.Stage("vol", b))
		l.back(a, l.Eventually)
	})
}
