package volume

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// describing is a cloud whose operations describe the disks that they have made.
type describing struct {
	*fake.Cloud
	change func(*provisioner.Disk)
}

type describingDisks struct {
	provisioner.Disks
	change func(*provisioner.Disk)
}

type described struct {
	provisioner.Operation
	disk provisioner.Disk
}

func (d described) Disk() (provisioner.Disk, bool) { return d.disk, true }

func (c describing) Disks() provisioner.Disks { return describingDisks{c.Cloud.Disks(), c.change} }

func (d describingDisks) Create(ctx context.Context, spec provisioner.DiskSpec) (provisioner.Operation, error) {
	op, err := d.Disks.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	disk := provisioner.Disk{
		ID:           spec.ID,
		UniqueID:     "described",
		SizeBytes:    spec.SizeBytes,
		Ready:        true,
		DiskSettings: spec.DiskSettings,
	}
	d.change(&disk)
	return described{op, disk}, nil
}

func TestADiskIsReadAfterItsCreationUnlessTheOperationDescribesIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*provisioner.Disk)
		reads  int
	}{
		"as expected":                          {func(*provisioner.Disk) {}, 0},
		"a disk that is still filled":          {func(d *provisioner.Disk) { d.Ready = false }, 1},
		"a disk without the tag of the volume": {func(d *provisioner.Disk) { d.Tags = nil }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud := fake.New(fake.Options{})
			v := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Name: "vol", UID: "uid"}, Spec: apiv1.AzVolumeSpec{
				Origin:        apiv1.OriginProvisioned,
				CapacityBytes: 8 << 30,
				Disk: apiv1.DiskParameters{
					SubscriptionID: "s",
					ResourceGroup:  "g",
					Name:           "vol",
					Location:       "eastus",
					MaxShares:      1,
					DiskSettings:   apiv1.DiskSettings{SKUName: "Premium_LRS"},
				},
			}}
			truth, err := diskWork{cloud: describing{cloud, test.change}}.create(v, "")(t.Context(),
				func(provisioner.Operation) {})
			if err != nil {
				t.Fatal(err)
			}
			if !truth.Made {
				t.Error("the disk is not known to have been created for this AzVolume")
			}
			if got := cloud.CallCount(fake.DisksGet); got != test.reads || truth.Disk == nil ||
				(truth.Disk.UniqueID == "described") != (test.reads == 0) {
				t.Errorf("got disk %+v after %d reads, want %d reads", truth.Disk, got, test.reads)
			}
		})
	}
}

func TestAChangeIsUncertainIfTheDiskCannotBeReadAfterIt(t *testing.T) {
	t.Parallel()
	cloud := fake.New(fake.Options{})
	const id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/vol"
	cloud.AddDisk(provisioner.Disk{
		ID:                id,
		Location:          "eastus",
		SizeBytes:         8 << 30,
		Ready:             true,
		CompletionPercent: 100,
		DiskSettings:      provisioner.DiskSettings{SKUName: "Premium_LRS"},
	})
	settings := apiv1.DiskSettings{SKUName: "Premium_LRS"}
	v := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "vol", UID: "uid"},
		Spec:       apiv1.AzVolumeSpec{CapacityBytes: 16 << 30, Disk: apiv1.DiskParameters{MaxShares: 1, DiskSettings: settings}},
		Status: apiv1.AzVolumeStatus{
			DiskID:    id,
			SizeBytes: 8 << 30,
			Applied:   &apiv1.AppliedSettings{DiskSettings: settings},
		},
	}
	api := fakeapi.With(v).Build()
	refused := provisioner.Errorf(provisioner.Unauthorized, "no role")
	change := diskWork{cloud: cloud, reader: api}.update(v, "", false)
	truth, err := change(t.Context(), func(provisioner.Operation) { cloud.FailNext(fake.DisksGet, 1, refused) })
	if !errors.Is(err, provisioner.Unauthorized) || !truth.Update.Uncertain {
		t.Fatalf("got %v and %+v", err, truth.Update)
	}
	truth, err = diskWork{cloud: cloud, reader: api}.update(v, "", true)(t.Context(), func(provisioner.Operation) {})
	if err != nil || truth.Disk.SizeBytes != 16<<30 {
		t.Fatalf("the next job: %v, %+v", err, truth)
	}
}

// An AzVolume that was restored from a backup into another cluster has an older spec, and
// production uses the disk.
func TestADiskThatAnotherClusterUsesIsNotChanged(t *testing.T) {
	t.Parallel()
	const vms = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/"
	const id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/vol"
	for name, test := range map[string]struct {
		vm        string
		confirmed bool
		changed   bool
	}{
		"a VM outside of the cluster has it": {vms + "production", false, false},
		"a node has it":                      {vms + "a", false, true},
		"no VM has it":                       {"", false, true},
		// A person took it from this cluster, which has not noticed.
		"a VM outside has it, and it is confirmed that this cluster uses it": {vms + "production", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud := fake.New(fake.Options{})
			cloud.AddDisk(provisioner.Disk{
				ID:                id,
				Location:          "eastus",
				SizeBytes:         8 << 30,
				MaxShares:         1,
				Ready:             true,
				CompletionPercent: 100,
				DiskSettings:      provisioner.DiskSettings{SKUName: "Premium_LRS"},
			})
			if test.vm != "" {
				cloud.AddVM(provisioner.Instance{ID: test.vm, DataDisks: []provisioner.Attachment{{DiskID: id}}})
			}
			settings := apiv1.DiskSettings{SKUName: "Premium_LRS"}
			v := &apiv1.AzVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "vol", UID: "uid"},
				Spec: apiv1.AzVolumeSpec{
					CapacityBytes: 16 << 30,
					Disk:          apiv1.DiskParameters{MaxShares: 1, DiskSettings: settings},
				},
				Status: apiv1.AzVolumeStatus{
					DiskID:    id,
					SizeBytes: 8 << 30,
					Applied:   &apiv1.AppliedSettings{DiskSettings: settings},
				},
			}
			if test.confirmed {
				v.Status.ConfirmedUID = v.UID
			}
			api := fakeapi.With(v, &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "a"},
				Spec:       corev1.NodeSpec{ProviderID: "azure://" + vms + "a"},
			}).
				WithIndex(&corev1.Node{}, cluster.NodeVM, cluster.NodeVMKeys).WithIndex(&apiv1.AzDriverNode{}, cluster.NodeVM,
				cluster.NodeVMKeys).
				WithIndex(&apiv1.AzVolumeAttachment{}, cluster.AttachmentVolume, cluster.AttachmentVolumeKeys).Build()
			_, err := diskWork{
				cloud:  cloud,
				reader: api,
				cache:  api,
			}.update(v, "", false)(t.Context(), func(provisioner.Operation) {})
			if errors.Is(err, provisioner.Conflict) == test.changed ||
				(cloud.State().Disks[0].SizeBytes == 16<<30) != test.changed {
				t.Errorf("got %v and a disk of %d bytes, want it changed: %t", err, cloud.State().Disks[0].SizeBytes,
					test.changed)
			}
		})
	}
}
