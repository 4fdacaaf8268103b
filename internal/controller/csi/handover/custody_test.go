package handover

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	cloudfake "github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

const vms = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/"

// clusterWithout has node a, which runs, and the given objects, in a cluster to which the VM
// production does not belong.
func clusterWithout(objects ...client.Object) client.WithWatch {
	scanned := metav1.NewMicroTime(time.Unix(1, 0))
	objects = append(objects,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{ProviderID: "azure://" + vms + "a"}},
		&apiv1.AzDriverNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"},
			Spec:       apiv1.AzDriverNodeSpec{VMID: vms + "a"},
			Status:     apiv1.AzDriverNodeStatus{MountsScannedTime: &scanned},
		})
	return fakeapi.With(objects...).
		WithIndex(&corev1.Node{}, cluster.NodeVM, cluster.NodeVMKeys).WithIndex(&apiv1.AzDriverNode{}, cluster.NodeVM,
		cluster.NodeVMKeys).
		WithIndex(&corev1.PersistentVolume{}, cluster.PersistentVolumeVolume, cluster.PersistentVolumeKeys("disk.csi.azure.com")).
		WithIndex(&apiv1.AzDriverNode{}, cluster.NodeVolume, func(client.Object) []string { return nil }).
		WithIndex(&apiv1.AzVolumeAttachment{}, "spec.volumeName",
			func(o client.Object) []string { return []string{o.(*apiv1.AzVolumeAttachment).Spec.VolumeName} }).Build()
}

// untilAttachment returns a context that ends when the client creates an attachment. A publish
// would wait for it, and nothing attaches disks here.
func untilAttachment(t *testing.T, api client.WithWatch) (context.Context, client.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, interceptor.NewClient(api,
		interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object,
			options ...client.CreateOption) error {
			err := c.Create(ctx, o, options...)
			if _, attachment := o.(*apiv1.AzVolumeAttachment); attachment {
				cancel()
			}
			return err
		}})
}

// The disk of a backup is shared, so that Azure would attach it to a second VM while another
// cluster's pod writes to it.
func TestNoNodeAcquiresADiskThatAVMOutsideOfTheClusterHas(t *testing.T) {
	t.Parallel()
	const production = vms + "production"
	former := &apiv1.Ownership{Epoch: 3, State: apiv1.OwnershipReleased}
	released := metav1.NewTime(time.Unix(-3600, 0)) // an hour before the publish
	justNow := metav1.NewTime(time.Unix(-1, 0))
	for name, test := range map[string]struct {
		owner      *apiv1.Ownership
		edit       func(v *apiv1.AzVolume)
		attachment func(v *apiv1.AzVolume) *apiv1.AzVolumeAttachment
		adopted    bool
		at         string // the VM that has the disk
		refused    bool
		asked      int
		exclusive  bool
		confirmed  bool
	}{
		"the disk is adopted":                               {adopted: true, at: production, refused: true},
		"the disk is adopted, and no VM has it":             {adopted: true, exclusive: true},
		"the disk is adopted, and a node of V1 has it":      {adopted: true, at: vms + "a", exclusive: true},
		"the AzVolume was restored without its status":      {at: production, refused: true, asked: 1},
		"the AzVolume was restored, and no VM has the disk": {asked: 1, exclusive: true},
		"the AzVolume was restored with its status": {owner: former, edit: func(v *apiv1.AzVolume) {
			v.Status.ConfirmedUID = "of-the-former-object"
		}, at: production, refused: true, asked: 1},
		"its attachments were restored": {attachment: func(v *apiv1.AzVolume) *apiv1.AzVolumeAttachment {
			return attachmentOf(v, "production", 7)
		}, at: production, refused: true, asked: 1},
		"its attachments were restored with their status": {attachment: func(v *apiv1.AzVolume) *apiv1.AzVolumeAttachment {
			a := attachmentOf(v, "production", 7)
			a.UID, a.Status.VMID, a.Status.UID = "copy", production, "original"
			return a
		}, at: production, refused: true, asked: 1},
		"the VM is a node's that was deleted": {attachment: func(v *apiv1.AzVolume) *apiv1.AzVolumeAttachment {
			a := attachmentOf(v, "deleted", 1)
			a.UID, a.Status.VMID, a.Status.UID = "uid", production, "uid"
			a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofDetached, Epoch: 1}
			return a
		}, at: production, asked: 1, exclusive: true},
		"this cluster uses the disk": {owner: former, edit: func(v *apiv1.AzVolume) { v.Status.ConfirmedUID = v.UID },
			at: production, confirmed: true},
		"this cluster used the disk, which was attached nowhere for an hour": {owner: former, edit: func(v *apiv1.AzVolume) {
			v.Status.ConfirmedUID, v.Status.LastReleasedTime = v.UID, &released
		}, at: production, refused: true, asked: 1},
		"the same, and the disk is reserved when it is used": {owner: former, edit: func(v *apiv1.AzVolume) {
			v.Status.ConfirmedUID, v.Status.LastReleasedTime, v.Status.Fencing = v.UID, &released, apiv1.FencingPreemption
		}, at: production, confirmed: true},
		// The cluster was down. A person detached the disk, and the fence of now finds that.
		"the owner was lost, and Azure has proved its release just now": {owner: former, edit: func(v *apiv1.AzVolume) {
			v.Status.ConfirmedUID, v.Status.LastReleasedTime = v.UID, &justNow
			v.Status.LastRelease = &apiv1.ReleaseRecord{Proof: apiv1.ReleaseProof{Type: apiv1.ProofVMDown, Epoch: 3}}
		}, at: production, refused: true, asked: 1},
		"the same, and the disk is back": {owner: former, edit: func(v *apiv1.AzVolume) {
			v.Status.ConfirmedUID, v.Status.LastReleasedTime = v.UID, &justNow
			v.Status.LastRelease = &apiv1.ReleaseRecord{Proof: apiv1.ReleaseProof{Type: apiv1.ProofDetached, Epoch: 3}}
		}, asked: 1, exclusive: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, handle := volumeOf(t, test.owner)
			v.UID, v.Spec.MaxMountReplicaCount = "present", 1
			if test.edit != nil {
				test.edit(v)
			}
			objects := []client.Object{v}
			if test.attachment != nil {
				objects = append(objects, test.attachment(v))
			}
			if test.adopted {
				objects = nil
			}
			api := clusterWithout(objects...)
			cloud := cloudfake.New(cloudfake.Options{})
			cloud.AddDisk(provisioner.Disk{
				ID:           handle.String(),
				Location:     "eastus",
				SizeBytes:    10 << 30,
				MaxShares:    2,
				Ready:        true,
				DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
			})
			if test.at != "" {
				cloud.AddVM(provisioner.Instance{ID: test.at, DataDisks: []provisioner.Attachment{{DiskID: handle.String()}}})
			}
			ctx, store := untilAttachment(t, api)
			err := publisherOf(t, store, cloud.Disks()).publish(ctx, handle, &csi.ControllerPublishVolumeRequest{
				VolumeId:      handle.String(),
				NodeId:        "a",
				VolumeContext: map[string]string{},
				VolumeCapability: &csi.VolumeCapability{
					AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
					AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
				},
			})
			now := &apiv1.AzVolume{}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(v), now); err != nil {
				t.Fatal(err)
			}
			if test.refused {
				if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), production) ||
					!strings.Contains(err.Error(), "az vm disk detach") {
					t.Errorf("got %v, want FailedPrecondition with the VM and what to do", err)
				}
				if o := now.Status.Primary; o != nil && o.State != apiv1.OwnershipReleased {
					t.Errorf("got ownership %+v, want no owner", *o)
				}
			} else if o := now.Status.Primary; o == nil || o.NodeName != "a" || o.Exclusive != test.exclusive {
				t.Errorf("got %v and ownership %+v, want node a's with exclusive: %t", err, o, test.exclusive)
			}
			if test.attachment != nil {
				a := test.attachment(v)
				if err := api.Get(t.Context(), client.ObjectKeyFromObject(a), a); err != nil || a.DeletionTimestamp != nil {
					t.Errorf("got error %v, deleted %v; want the restored attachment left alone", err, a.DeletionTimestamp)
				}
			}
			if asked := cloud.CallCount(cloudfake.DisksGet); !test.adopted && asked != test.asked {
				t.Errorf("Azure was asked %d times, want %d", asked, test.asked)
			}
			if !test.refused && (now.Status.ConfirmedUID != "") != test.confirmed {
				t.Errorf("got confirmed UID %q, want one: %t", now.Status.ConfirmedUID, test.confirmed)
			}
		})
	}
}

func TestANodeOfSeveralGetsNoDiskThatAVMOutsideOfTheClusterHas(t *testing.T) {
	t.Parallel()
	confirmed := func(v *apiv1.AzVolume) { v.Status.ConfirmedUID = v.UID }
	onB := func(copied bool) func(v *apiv1.AzVolume) *apiv1.AzVolumeAttachment {
		return func(v *apiv1.AzVolume) *apiv1.AzVolumeAttachment {
			a := attachmentOf(v, "b", 1)
			a.UID, a.Status.VMID, a.Status.UID = "present", vms+"b", "present"
			if copied {
				a.Status.UID = "former"
			}
			return a
		}
	}
	for name, test := range map[string]struct {
		edit       func(v *apiv1.AzVolume)
		attachment func(v *apiv1.AzVolume) *apiv1.AzVolumeAttachment
		at         []string // the VMs that have the disk
		refused    bool
	}{
		"the AzVolume was restored":              {at: []string{vms + "production"}, refused: true},
		"the same, and no other VM has the disk": {at: []string{vms + "a"}},
		"its attachments were restored with it":  {attachment: onB(true), at: []string{vms + "b"}, refused: true},
		"this cluster used the disk, and has it attached nowhere now": {edit: confirmed, at: []string{vms + "production"},
			refused: true},
		"this cluster uses the disk": {edit: confirmed, attachment: onB(false), at: []string{vms + "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, handle := volumeOf(t, nil)
			v.UID, v.Spec.Access = "present", apiv1.AccessMultiNode
			if test.edit != nil {
				test.edit(v)
			}
			objects := []client.Object{v}
			if test.attachment != nil {
				objects = append(objects, test.attachment(v))
			}
			cloud := cloudfake.New(cloudfake.Options{})
			cloud.AddDisk(provisioner.Disk{ID: handle.String(), MaxShares: 3, Ready: true})
			for _, vm := range test.at {
				cloud.AddVM(provisioner.Instance{ID: vm, DataDisks: []provisioner.Attachment{{DiskID: handle.String()}}})
			}
			api := clusterWithout(objects...)
			ctx, store := untilAttachment(t, api)
			err := publisherOf(t, store, cloud.Disks()).publish(ctx, handle, &csi.ControllerPublishVolumeRequest{
				VolumeId:      handle.String(),
				NodeId:        "a",
				VolumeContext: map[string]string{},
				VolumeCapability: &csi.VolumeCapability{
					AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
					AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
				},
			})
			made := api.Get(t.Context(), client.ObjectKey{
				Namespace: "ns",
				Name:      apiv1.AttachmentName(v.Name, "a"),
			}, &apiv1.AzVolumeAttachment{}) == nil
			if refused := status.Code(err) == codes.FailedPrecondition; refused != test.refused || made == test.refused {
				t.Errorf("got %v, and an attachment: %t; want it refused: %t", err, made, test.refused)
			}
		})
	}
}

// A fence of an owner that has been lost for days writes its proof now, and the disk may have been
// taken from it long before.
func TestAReleaseThatAzureProvedEndsWhatWasConfirmed(t *testing.T) {
	t.Parallel()
	for kind, confirmed := range map[apiv1.ProofType]bool{
		apiv1.ProofUnstaged: true, apiv1.ProofPreempted: true, apiv1.ProofDetached: false, apiv1.ProofVMDown: false,
	} {
		v, _ := volumeOf(t, &apiv1.Ownership{NodeName: "a", Epoch: 3, State: apiv1.OwnershipReleasing})
		v.UID, v.Status.ConfirmedUID = "present", "present"
		api := clusterWithout(v)
		expect.Must(t, api.Get(t.Context(), client.ObjectKeyFromObject(v), v))
		s := publisherOf(t, api, cloudfake.New(cloudfake.Options{}).Disks())
		expect.Must(t, s.writeOwnership(t.Context(), v, ownership.CompleteRelease(*v.Status.Primary, time.Unix(0, 0)),
			&apiv1.ReleaseRecord{NodeName: "a", Proof: apiv1.ReleaseProof{Type: kind, Epoch: 3}}))
		if (v.Status.ConfirmedUID != "") != confirmed {
			t.Errorf("a release by the proof %s leaves the confirmed UID %q, want one: %t", kind, v.Status.ConfirmedUID, confirmed)
		}
	}
}
