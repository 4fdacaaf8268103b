package attachment

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// A person may have taken the disk from this cluster, or two clusters attach it at the same time.
func TestADiskThatAnotherClusterAttachesTooIsNotAttached(t *testing.T) {
	t.Parallel()
	const ours, theirs = compute + "virtualMachines/a", compute + "virtualMachines/production"
	confirmed := func(v *apiv1.AzVolume) { v.Status.ConfirmedUID = v.UID }
	forOne := func(v *apiv1.AzVolume) { v.Status.ConfirmedUID, v.Spec.Disk.MaxShares = v.UID, 1 }
	several := func(v *apiv1.AzVolume) { v.Spec.Access, v.Status.Primary = apiv1.AccessMultiNode, nil }
	for name, test := range map[string]struct {
		edit    func(v *apiv1.AzVolume)
		other   string
		refused bool
		asked   int
	}{
		"another cluster's VM has it":                      {confirmed, theirs, true, 1},
		"a node of this cluster has it":                    {confirmed, compute + "virtualMachines/b", false, 1},
		"no other VM has it":                               {confirmed, "", false, 1},
		"nothing confirms that this cluster uses the disk": {nil, theirs, true, 2},
		"a volume of several nodes":                        {several, theirs, true, 2},
		"a disk for one VM":                                {forOne, "", false, 0},
		"a disk for one VM that is not confirmed":          {func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 1 }, "", false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := compute + "disks/pvc-0"
			cloud := fake.New(fake.Options{})
			cloud.AddDisk(provisioner.Disk{ID: disk, MaxShares: 3})
			for _, vm := range []string{ours, test.other} {
				if vm != "" {
					cloud.AddVM(provisioner.Instance{
						ID:        vm,
						Size:      "Standard_M128s",
						DataDisks: []provisioner.Attachment{{DiskID: disk}},
					})
				}
			}
			v := &apiv1.AzVolume{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v", UID: "v"},
				Spec:       apiv1.AzVolumeSpec{Disk: apiv1.DiskParameters{MaxShares: 3}},
				Status: apiv1.AzVolumeStatus{
					DiskID: disk, Primary: &apiv1.Ownership{NodeName: "a", Epoch: 1, State: apiv1.OwnershipHeld},
				},
			}
			if test.edit != nil {
				test.edit(v)
			}
			a := &apiv1.AzVolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v-a", UID: "a"},
				Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: "v", NodeName: "a", Role: apiv1.RolePrimary},
				Status:     apiv1.AzVolumeAttachmentStatus{VMID: ours, UID: "a"},
			}
			api := fakeapi.With(v, a, &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "b"},
				Spec:       corev1.NodeSpec{ProviderID: "azure://" + compute + "virtualMachines/b"},
			}).
				WithIndex(&corev1.Node{}, cluster.NodeVM, cluster.NodeVMKeys).WithIndex(&apiv1.AzDriverNode{}, cluster.NodeVM,
				cluster.NodeVMKeys).
				WithIndex(&apiv1.AzVolumeAttachment{}, cluster.AttachmentVolume, cluster.AttachmentVolumeKeys).Build()
			r := &Reconciler{Options: Options{Client: api, Reader: api, Cloud: cloud}}
			attached := func(context.Context, func(provisioner.Operation)) (operation.Truth, error) {
				return operation.Truth{Attached: true, LUN: 3}, nil
			}
			truth, err := r.withCustody(attaching.Input{Attachment: a, Volume: v}, ours, attached)(t.Context(), nil)
			if test.refused != errors.Is(err, provisioner.FailedPrecondition) ||
				(truth.OtherClusterVM == theirs) != test.refused ||
				truth.Exclusive != (!test.refused && test.asked > 0) {
				t.Errorf("got %+v, %v; want it refused: %t", truth, err, test.refused)
			}
			now := &apiv1.AzVolume{}
			expect.Must(t, api.Get(t.Context(), client.ObjectKeyFromObject(v), now))
			if test.refused && now.Status.ConfirmedUID != "" {
				t.Error("it is still confirmed that this cluster uses the disk")
			}
			if asked := cloud.CallCount(fake.DisksGet); asked != test.asked {
				t.Errorf("Azure was asked %d times, want %d", asked, test.asked)
			}
		})
	}
}
