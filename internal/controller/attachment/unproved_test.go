package attachment

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/work"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// published are the objects of a volume that has just been published to a node.
func published() []client.Object {
	disk := apiv1.DiskParameters{SubscriptionID: "s", ResourceGroup: "g", Name: "pvc-0", MaxShares: 1}
	scanned := metav1.NowMicro()
	return []client.Object{
		&apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: desertedVolume},
			Spec: apiv1.AzVolumeSpec{Access: apiv1.AccessSingleNode, Disk: disk},
			Status: apiv1.AzVolumeStatus{State: apiv1.VolumeCreated, DiskID: compute + "disks/pvc-0",
				Primary: &apiv1.Ownership{NodeName: desertedNode, Epoch: 1, State: apiv1.OwnershipHeld}}},
		&apiv1.AzVolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: apiv1.AttachmentName(desertedVolume, desertedNode),
				Finalizers: []string{apiv1.FinalizerAttachment}},
			Spec: apiv1.AzVolumeAttachmentSpec{VolumeName: desertedVolume, NodeName: desertedNode, Role: apiv1.RolePrimary,
				Epoch: 1}},
		&apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: desertedNode},
			Spec: apiv1.AzDriverNodeSpec{VMID: lostVM}, Status: apiv1.AzDriverNodeStatus{MountsScannedTime: &scanned}},
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: desertedNode},
			Spec:       corev1.NodeSpec{ProviderID: "azure://" + lostVM},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		},
	}
}

// The operation failed, the VM listed the disk, and the attachment was Attached for ever.
func TestADiskThatTheVMOnlyListsIsDetachedAndAttachedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const disk = compute + "disks/pvc-0"
		cloud := fake.New(fake.Options{GoalState: true, Latency: fake.Latency{Attach: time.Second, Detach: time.Second}})
		cloud.AddDisk(provisioner.Disk{ID: disk})
		cloud.AddVM(provisioner.Instance{ID: lostVM, Size: "Standard_D2s_v3"})
		cloud.Inject(fake.Fault{
			Method: fake.AttachmentsAttach, Times: 1,
			OperationErr: provisioner.Errorf(provisioner.Unavailable, "the host did not attach the disk"),
		})
		api := serving(published())
		r, err := New(Options{
			Client: api,
			Reader: api,
			Cloud:  cloud,
			Jobs:   work.New(t.Context(), clock.RealClock{}, 1),
			Clock:  clock.RealClock{},
			Nodes:  cluster.NewNodes(api, "ns", clock.RealClock{}, healthy{}),
			Events: events.NewFakeRecorder(100),
		})
		expect.Must(t, err)
		key := client.ObjectKey{Namespace: "ns", Name: apiv1.AttachmentName(desertedVolume, desertedNode)}
		a := &apiv1.AzVolumeAttachment{}
		for range 60 {
			_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
			expect.Must(t, err)
			expect.Must(t, api.Get(t.Context(), key, a))
			if a.Status.State == apiv1.AttachmentAttached {
				break
			}
			time.Sleep(500 * time.Millisecond)
		}
		attaches, detaches := cloud.CallCount(fake.AttachmentsAttach), cloud.CallCount(fake.AttachmentsDetach)
		if a.Status.State != apiv1.AttachmentAttached || cloud.OnlyListed(lostVM, disk) || attaches != 2 || detaches != 1 {
			t.Errorf("got %s after %d attaches and %d detaches, and a VM that only lists the disk: %t; want Attached after 2 and 1, and the disk at the VM",
				a.Status.State, attaches, detaches, cloud.OnlyListed(lostVM, disk))
		}
	})
}
