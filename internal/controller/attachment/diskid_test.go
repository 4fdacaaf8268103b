package attachment

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

// Azure does not list a disk at a VM to which it is attaching it. By its ID the disk can be
// detached nevertheless; by its name it was not found, and stayed attached.
func TestTheDiskIsKnownWithoutItsAzVolume(t *testing.T) {
	t.Parallel()
	const id = compute + "disks/pvc-0"
	volume := &apiv1.AzVolume{Spec: apiv1.AzVolumeSpec{Disk: apiv1.DiskParameters{
		SubscriptionID: "s",
		ResourceGroup:  "g",
		Name:           "pvc-0",
	}}}
	recorded := volume.DeepCopy()
	recorded.Status.DiskID = id
	for name, test := range map[string]struct {
		volume *apiv1.AzVolume
		pv     bool
		want   string
	}{
		"an AzVolume":                           {recorded, true, id},
		"an AzVolume that has lost its status":  {volume, false, id},
		"a PersistentVolume and no AzVolume":    {nil, true, id},
		"neither AzVolume nor PersistentVolume": {nil, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDeserted(t)
			if !test.pv {
				expect.Must(t, d.cache.Delete(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}))
			}
			a := &apiv1.AzVolumeAttachment{}
			expect.Must(t, d.cache.Get(t.Context(), client.ObjectKey{
				Namespace: "ns",
				Name:      apiv1.AttachmentName(desertedVolume, desertedNode),
			}, a))
			got, err := d.diskID(t.Context(), attaching.Input{Attachment: a, Volume: test.volume})
			if err != nil || got != test.want {
				t.Errorf("got disk %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

// An attachment that is deleted may have lost its status while Azure had the disk attached. Without
// the AzDriverNode nothing else found the disk at the VM.
func TestTheVMOfADeletedAttachmentIsKnownWithoutItsAzDriverNode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		deleted, driverNode bool
		providerID, want    string
	}{
		"an AzDriverNode":                   {true, true, "", lostVM},
		"no AzDriverNode, and a providerID": {true, false, "azure://" + lostVM, lostVM},
		"neither":                           {true, false, "", ""},
		"a providerID, for a disk that is to be there": {false, false, "azure://" + lostVM, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDeserted(t)
			node, report, a := &corev1.Node{}, &apiv1.AzDriverNode{}, &apiv1.AzVolumeAttachment{}
			expect.Must(t, d.cache.Get(t.Context(), client.ObjectKey{Name: desertedNode}, node))
			node.Spec.ProviderID = test.providerID
			expect.Must(t, d.cache.Update(t.Context(), node))
			report.Namespace, report.Name = "ns", desertedNode
			if !test.driverNode {
				expect.Must(t, d.cache.Delete(t.Context(), report))
			}
			expect.Must(t, d.cache.Get(t.Context(), client.ObjectKey{
				Namespace: "ns",
				Name:      apiv1.AttachmentName(desertedVolume, desertedNode),
			}, a))
			if a.Status = (apiv1.AzVolumeAttachmentStatus{}); test.deleted {
				a.DeletionTimestamp = new(longAgo())
			}
			in, err := d.observe(t.Context(), a)
			if err != nil || in.VMID != test.want {
				t.Errorf("got VM %q, %v; want %q", in.VMID, err, test.want)
			}
		})
	}
}
