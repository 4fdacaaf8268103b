package attachment

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// Two clusters asked Azure at the same time, before either had attached the disk.
func TestADiskThatAnotherClusterAttachesTooIsNotAttached(t *testing.T) {
	t.Parallel()
	const ours, theirs = compute + "virtualMachines/a", compute + "virtualMachines/production"
	several := func(v *apiv1.AzVolume) { v.Spec.Access, v.Status.Primary = apiv1.AccessMultiNode, nil }
	for name, test := range map[string]struct {
		edit    func(v *apiv1.AzVolume)
		other   string
		refused bool
		asked   int
	}{
		"another cluster's VM has it":   {nil, theirs, true, 1},
		"a node of this cluster has it": {nil, compute + "virtualMachines/b", false, 1},
		"no other VM has it":            {nil, "", false, 1},
		"it is confirmed that this cluster uses the disk": {func(v *apiv1.AzVolume) { v.Status.ConfirmedUID = v.UID }, theirs,
			false, 0},
		"a volume of several nodes": {several, theirs, true, 1},
		"Azure was not asked before the ownership": {func(v *apiv1.AzVolume) { v.Status.Primary.Exclusive = false },
			theirs, false, 0},
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
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "ns",
					Name:      "v",
					UID:       "v",
				},
				Status: apiv1.AzVolumeStatus{
					DiskURI: disk, Primary: &apiv1.Ownership{
						NodeName:  "a",
						Epoch:     1,
						State:     apiv1.OwnershipHeld,
						Exclusive: true,
					},
				},
			}
			if test.edit != nil {
				test.edit(v)
			}
			a := &apiv1.AzVolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "ns",
					Name:      "v-a",
					UID:       "a",
				},
				Spec:   apiv1.AzVolumeAttachmentSpec{VolumeName: "v", NodeName: "a"},
				Status: apiv1.AzVolumeAttachmentStatus{VMID: ours, UID: "a"},
			}
			api := fakeapi.With(a, &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "b"},
				Spec:       corev1.NodeSpec{ProviderID: "azure://" + compute + "virtualMachines/b"},
			}).
				WithIndex(&corev1.Node{}, cluster.NodeVM, cluster.NodeVMKeys).WithIndex(&apiv1.AzDriverNode{}, cluster.NodeVM,
				cluster.NodeVMKeys).
				WithIndex(&apiv1.AzVolumeAttachment{}, cluster.AttachmentVolume, cluster.AttachmentVolumeKeys).Build()
			r := &Reconciler{Options: Options{
				Client: api,
				Reader: api,
				Cloud:  cloud,
			}}
			attached := func(context.Context, func(provisioner.Operation)) (operation.Truth, error) {
				return operation.Truth{Attached: true, LUN: 3}, nil
			}
			truth, err := r.alone(attaching.Input{Attachment: a, Volume: v}, attached)(t.Context(), nil)
			if test.refused != errors.Is(err, provisioner.FailedPrecondition) || truth.Attached == test.refused {
				t.Errorf("got %+v, %v; want it refused: %t", truth, err, test.refused)
			}
			if asked := cloud.CallCount(fake.DisksGet); asked != test.asked {
				t.Errorf("Azure was asked %d times, want %d", asked, test.asked)
			}
		})
	}
}
