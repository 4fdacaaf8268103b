package controllerplugin

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
)

// says has the node plug-in of a node name a VM.
func says(t *testing.T, p *controlplane.ControlPlane, node, vmID string) {
	t.Helper()
	d := &apiv1.AzDriverNode{}
	must(t, p.Client.Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: node}, d))
	before := d.DeepCopy()
	d.Spec.VMID = vmID
	must(t, p.Client.Patch(t.Context(), d, client.MergeFrom(before)))
}

func refusedAs(t *testing.T, p *controlplane.ControlPlane, node, reason string) {
	t.Helper()
	p.Eventually("the VM of "+node+" is refused as "+reason, func() string {
		d := &apiv1.AzDriverNode{}
		must(t, p.Client.Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: node}, d))
		c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionVMKnown)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reason {
			return "the condition is " + strings.TrimSpace(reasonOf(c))
		}
		return ""
	})
}

func reasonOf(c *metav1.Condition) string {
	if c == nil {
		return "absent"
	}
	return string(c.Status) + " " + c.Reason + " " + c.Message
}

// Law 7: a node names the VM of another one, gets nothing for it, and the other one keeps its disk
// when the liar is drained and deleted.
func TestLaw7ANodeThatNamesTheVMOfAnotherGetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		victim, liar := freshName("vi-victim"), freshName("vi-liar")
		p.AddNode(victim, "1", size)
		p.AddNode(liar, "1", size)
		says(t, p, liar, strings.ToUpper(controlplane.VMID(victim)))
		refusedAs(t, p, liar, apiv1.ReasonVMContradictsProviderID)
		handle := p.Create("vol", replicated)
		p.StageOn(handle, "vol", victim)
		if err := p.Publish(shortly(t, 5*time.Second), p.Create("own", replicated), liar); err == nil ||
			!strings.Contains(err.Error(), "providerID") {
			t.Errorf("got %v for a publish to the node that lies, want a refusal that names the providerID", err)
		}
		p.Eventually("no replica finds a place", func() string {
			c := meta.FindStatusCondition(p.Volume("vol").Status.Conditions, apiv1.VolumeConditionReplicasAttached)
			if c == nil || c.Reason != apiv1.ReasonReplicasMissing || c.Message == "" || len(p.Attachments("vol")) != 1 {
				return reasonOf(c)
			}
			return ""
		})
		must(t, p.Client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: liar}}))
		p.Eventually("the liar's AzDriverNode is gone", func() string {
			return present(p.Client.Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: liar}, &apiv1.AzDriverNode{}))
		})
		if to := p.AttachedTo("vol"); !slices.Equal(to, []string{victim}) {
			t.Errorf("the disk is attached to %q, want %q alone", to, victim)
		}
	})
}

func present(err error) string {
	if err == nil {
		return "it is there"
	}
	return ""
}

// A node that had a replica names the VM of the primary's node from then on. Its attachment keeps
// the VM that was established.
func TestLaw7ANodeThatBeginsToLieLosesItsOwnDisksAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		victim, liar := freshName("vb-victim"), freshName("vb-liar")
		p.AddNode(victim, "1", size)
		p.AddNode(liar, "1", size)
		handle := p.Create("vol", replicated)
		p.StageOn(handle, "vol", victim)
		p.AwaitReplica("vol", liar)
		says(t, p, liar, controlplane.VMID(victim))
		refusedAs(t, p, liar, apiv1.ReasonVMContradictsProviderID)
		must(t, p.Client.Delete(t.Context(), p.Attachment("vol", liar)))
		p.Eventually("the disk is off the liar", attachedTo(p, "vol", victim))
		says(t, p, liar, controlplane.VMID(liar))
		p.AwaitReplica("vol", liar)
	})
}

// An attachment names the VM of another node, as one from before the VM of its node was established
// may. Neither its end nor a fence takes the disk from there.
func TestADiskIsNotDetachedForAnAttachmentThatNamesTheVMOfAnother(t *testing.T) {
	for name, epoch := range map[string]int64{"a replica": 0, "a primary without an ownership": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := controlplane.NewInMemory(t, controlplane.Options{})
				victim, other := freshName("vd-victim"), freshName("vd-other")
				p.AddNode(victim, "1", size)
				handle := p.Create("vol", replicated)
				p.StageOn(handle, "vol", victim)
				role := apiv1.RoleReplica
				if epoch > 0 {
					role = apiv1.RolePrimary
				}
				a := &apiv1.AzVolumeAttachment{
					ObjectMeta: metav1.ObjectMeta{
						Namespace:  p.Namespace,
						Name:       apiv1.AttachmentName("vol", other),
						Finalizers: []string{apiv1.FinalizerAttachment},
					},
					Spec: apiv1.AzVolumeAttachmentSpec{
						VolumeName: "vol",
						NodeName:   other,
						Role:       role,
						Epoch:      epoch,
					},
				}
				p.Stop()
				must(t, p.Client.Create(t.Context(), a))
				a.Status = apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttached, VMID: controlplane.VMID(victim)}
				must(t, p.Client.Status().Update(t.Context(), a))
				must(t, p.Client.Delete(t.Context(), a))
				p.Start()
				p.Eventually("the attachment is gone", func() string {
					if p.Attachment("vol", other) != nil {
						return "it is there"
					}
					return ""
				})
				if to := p.AttachedTo("vol"); !slices.Equal(to, []string{victim}) {
					t.Errorf("the disk is attached to %q, want %q alone", to, victim)
				}
			})
		})
	}
}
