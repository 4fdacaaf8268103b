package attachment

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// TestTheNodeThatGuardsAgainstAnotherKeepsTheDisk has node c, from which the node of the attachment
// took the reservation, and an attachment that is deleted after the node released the volume.
func TestTheNodeThatGuardsAgainstAnotherKeepsTheDisk(t *testing.T) {
	t.Parallel()
	fenced := func() *apiv1.AzVolumeAttachment {
		return &apiv1.AzVolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: apiv1.AttachmentName(desertedVolume, "c")},
			Spec: apiv1.AzVolumeAttachmentSpec{
				VolumeName: desertedVolume,
				NodeName:   "c",
				Role:       apiv1.RolePrimary,
				Epoch:      1,
			},
			Status: apiv1.AzVolumeAttachmentStatus{
				State: apiv1.AttachmentDetaching,
				VMID:  lostVM + "-c",
				Proof: &apiv1.ReleaseProof{
					Type:       apiv1.ProofPreempted,
					Epoch:      1,
					Preemption: &apiv1.Preemption{NodeName: desertedNode},
				},
			},
		}
	}
	asked := func(c client.Client) {
		lost := fenced()
		lost.Status.Proof = nil
		expect.Must(t, c.Create(t.Context(), lost))
		report := &apiv1.AzDriverNode{}
		expect.Must(t, c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: desertedNode}, report))
		report.Spec.Requests = &apiv1.NodeRequests{Fences: []apiv1.FenceRequest{
			{VolumeName: desertedVolume, NodeName: "c", Epoch: 1},
		}}
		expect.Must(t, c.Update(t.Context(), report))
	}
	for name, test := range map[string]struct {
		add     func(client.Client)
		inCache bool
		begins  bool
	}{
		"no node is guarded against": {add: func(client.Client) {}, begins: true},
		"the cache knows it": {
			add: func(c client.Client) { expect.Must(t, c.Create(t.Context(), fenced())) }, inCache: true},
		"only the API server knows it": {add: func(c client.Client) {
			expect.Must(t,
				c.Create(t.Context(), fenced()))
		}},
		"the node was asked to take the reservation, and the cache knows it": {add: asked, inCache: true},
		"the node was asked, and only the API server knows it":               {add: asked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDeserted(t)
			key := client.ObjectKey{Namespace: "ns", Name: apiv1.AttachmentName(desertedVolume, desertedNode)}
			for i, c := range []client.Client{d.cache, d.api} {
				a := &apiv1.AzVolumeAttachment{}
				expect.Must(t, c.Get(t.Context(), key, a))
				a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofUnstaged, Epoch: 1, ProvenTime: longAgo()}
				expect.Must(t, c.Status().Update(t.Context(), a))
				expect.Must(t, c.Delete(t.Context(), a))
				if i == 1 || test.inCache {
					test.add(c)
				}
			}
			for range 2 {
				_, err := d.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
				expect.Must(t, err)
			}
			a := &apiv1.AzVolumeAttachment{}
			err := d.cache.Get(t.Context(), key, a)
			if begun := apierrors.IsNotFound(err) || d.Jobs.Job(a).Work == operation.WorkDetach; begun != test.begins {
				t.Errorf("got a detach begun %t, want %t", begun, test.begins)
			}
			c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached)
			if test.inCache && (c == nil || c.Reason != apiv1.ReasonGuardsFencedNode) {
				t.Errorf("got condition %+v, want the reason GuardsFencedNode", c)
			}
		})
	}
}

func TestAFenceThatDetachesNothingReadsTheVM(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		power provisioner.PowerState
		want  operation.Truth
	}{
		"it runs":           {provisioner.PowerRunning, operation.Truth{Epoch: 2, Attached: true, OnlyRead: true}},
		"it is deallocated": {provisioner.PowerDeallocated, operation.Truth{Epoch: 2, Attached: true, OnlyRead: true}},
		"it is gone":        {"", operation.Truth{Epoch: 2, Attached: true, VMGone: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud := fake.New(fake.Options{})
			disk := provisioner.Attachment{DiskID: compute + "disks/pvc-0"}
			if test.power != "" {
				cloud.AddDisk(provisioner.Disk{ID: disk.DiskID, MaxShares: 2})
				cloud.AddVM(provisioner.Instance{
					ID:        lostVM,
					Power:     test.power,
					DataDisks: []provisioner.Attachment{disk},
				})
				cloud.SetPower(lostVM, test.power)
			}
			truth, err := newDiskWork(cloud).readVM(lostVM, 2)(t.Context(), nil)
			expect.Must(t, err)
			if truth != test.want {
				t.Errorf("got %+v, want %+v", truth, test.want)
			}
		})
	}
}
