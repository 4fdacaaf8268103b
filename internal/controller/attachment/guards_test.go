package attachment

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// A helper answers a request by its time. A request that is written again would have another time,
// and the answer to the first one would count no more.
func TestARequestToFenceKeepsItsTime(t *testing.T) {
	t.Parallel()
	api := fakeapi.With().WithObjects(&apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}}).Build()
	now := clocktesting.NewFakePassiveClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	r := &Reconciler{Options: Options{Client: api, Reader: api, Clock: now}}
	v := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "v"}}
	a := &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns"},
		Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: "v", NodeName: "a", Epoch: 1},
	}
	first := now.Now()
	for range 2 { // the cache does not show the request at the second time
		expect.Must(t, r.ask(t.Context(), v, a, "b"))
		now.SetTime(first.Add(time.Minute))
	}
	asked := &apiv1.AzDriverNode{}
	expect.Must(t, api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "b"}, asked))
	if got := asked.FenceRequests(); len(got) != 1 || !got[0].RequestTime.Time.Equal(first) {
		t.Errorf("got requests %+v, want one of %s", got, first)
	}
}

// Two nodes name one VM, as after a VM was given another node's name. A forced detach by the VM
// would take the disk from the node that uses it.
func TestADiskIsNotCutOffTheVMThatAnotherAttachmentNames(t *testing.T) {
	withLostVM(t, 1, func(t *testing.T, cloud *fake.Cloud, disks []string) {
		attachment := func(node string) apiv1.AzVolumeAttachment {
			return apiv1.AzVolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: apiv1.AttachmentName("v", node)},
				Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: "v", NodeName: node, Role: apiv1.RolePrimary, Epoch: 1},
				Status:     apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttached, VMID: lostVM},
			}
		}
		lost, other := attachment("a"), attachment("b")
		for name, test := range map[string]struct {
			sharedWith string
			all        []apiv1.AzVolumeAttachment
			detaches   int
		}{
			"another attachment names it": {other.Name, []apiv1.AzVolumeAttachment{lost, other}, 0},
			"only this one does":          {"", []apiv1.AzVolumeAttachment{lost}, 1},
		} {
			before := cloud.CallCount(fake.AttachmentsForceDetach)
			r := &Reconciler{Options: Options{Reader: shelf{attachments: test.all}}, disks: newDiskWork(cloud)}
			in := attaching.Input{Attachment: &lost, Volume: &apiv1.AzVolume{}, SharedWith: test.sharedWith}
			_, err := r.fence(in, disks[0], lostVM, "")(t.Context(), func(provisioner.Operation) {})
			if n := cloud.CallCount(fake.AttachmentsForceDetach) - before; n != test.detaches {
				t.Errorf("%s: got %d forced detaches (%v), want %d", name, n, err, test.detaches)
			}
		}
	})
}
