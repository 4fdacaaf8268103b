package drivernode_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// says has the node name a VM.
func (w *world) says(vmID string) {
	w.t.Helper()
	d := &apiv1.AzDriverNode{}
	w.must(w.api.Get(w.t.Context(), w.request().NamespacedName, d))
	d.Spec.VMID = vmID
	w.must(w.api.Update(w.t.Context(), d))
}

func (w *world) vmKnown() *metav1.Condition {
	w.t.Helper()
	d := &apiv1.AzDriverNode{}
	w.must(w.api.Get(w.t.Context(), w.request().NamespacedName, d))
	return meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionVMKnown)
}

// Without a providerID the VM of two nodes that name it is neither's. Azure is not asked in the
// name of either, and no attachment is made for the disks there.
func TestAVMThatTwoNodesNameIsNeithers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reconcile()
	w.volume("vol")
	w.attach(disk("vol"))
	w.scan()
	rival := w.node + "-rival"
	w.make(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: rival}})
	w.make(&apiv1.AzDriverNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: rival},
		Spec:       apiv1.AzDriverNodeSpec{VMID: w.vm()},
	})
	w.clock.Step(5 * time.Minute)
	asked := w.cloud.CallCount(fake.AttachmentsList)
	w.reconcile()
	if c := w.vmKnown(); c == nil || c.Status != metav1.ConditionFalse || c.Reason != apiv1.ReasonVMNamedTwice {
		t.Errorf("got condition %+v, want False for the reason %s", c, apiv1.ReasonVMNamedTwice)
	}
	if n := w.cloud.CallCount(fake.AttachmentsList) - asked; n != 0 || w.has("vol") != nil {
		t.Errorf("got %d looks at Azure and attachment %+v, want none", n, w.has("vol"))
	}
	w.must(w.api.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: rival}}))
	expect.Eventually(t, "the cache has the VM of the node", func() bool {
		w.reconcile()
		c := w.vmKnown()
		return c.Status == metav1.ConditionTrue && w.has("vol") != nil
	})
}

// Law 9: a node that names a new VM with every write does not use up what Azure allows the driver.
func TestANodeThatChangesItsVMIsLookedUpAtAPace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reconcile()
	asked := w.cloud.CallCount(fake.AttachmentsList)
	for _, suffix := range []string{"-1", "-2", "-3"} {
		w.cloud.AddVM(provisioner.Instance{ID: w.vm() + suffix, Size: size})
		w.says(w.vm() + suffix)
		w.reconcile()
	}
	if n := w.cloud.CallCount(fake.AttachmentsList) - asked; n != 0 {
		t.Errorf("got %d looks at once, want none within half a minute of the last", n)
	}
	w.clock.Step(30 * time.Second)
	w.reconcile()
	if n := w.cloud.CallCount(fake.AttachmentsList) - asked; n != 1 {
		t.Errorf("got %d looks half a minute later, want 1", n)
	}
}
