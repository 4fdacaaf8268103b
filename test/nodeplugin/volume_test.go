package nodeplugin

import (
	"context"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

const (
	volumeID = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg/providers/Microsoft.Compute/disks/pvc-1"
	lun      = int32(5)
)

// volume is the name of the AzVolume of volumeID.
var volume = apiv1.VolumeName("00000000-0000-0000-0000-000000000001", "rg", "pvc-1")

// publish does what ControllerPublishVolume does: the ownership, and the attachment, which Azure
// has accepted.
func (m *machine) publish(epoch int64, maxShares int32) (*apiv1.AzVolume, *apiv1.AzVolumeAttachment) {
	m.t.Helper()
	ctx := m.t.Context()
	v := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: volume},
		Spec: apiv1.AzVolumeSpec{
			Origin:        apiv1.OriginProvisioned,
			Access:        apiv1.AccessSingleNode,
			CapacityBytes: 1 << 30,
			ClaimRef:      &apiv1.ClaimReference{Namespace: "shop", Name: "data"},
			Disk: apiv1.DiskParameters{
				SubscriptionID: "00000000-0000-0000-0000-000000000001",
				ResourceGroup:  "rg",
				Name:           "pvc-1",
				MaxShares:      maxShares,
				CachingMode:    "None",
				DiskSettings:   apiv1.DiskSettings{SKUName: "Premium_LRS"},
			},
		},
	}
	a := &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: apiv1.AttachmentName(volume, m.name)},
		Spec: apiv1.AzVolumeAttachmentSpec{
			VolumeName: volume,
			NodeName:   m.name,
			Role:       apiv1.RolePrimary,
			Epoch:      epoch,
		},
	}
	if err := m.api.Create(ctx, v); err != nil {
		m.t.Fatal(err)
	}
	if err := m.api.Create(ctx, a); err != nil {
		m.t.Fatal(err)
	}
	v.Status = apiv1.AzVolumeStatus{
		State:     apiv1.VolumeCreated,
		DiskID:    volumeID,
		SizeBytes: 64 * hosttest.MiB,
		Primary: &apiv1.Ownership{
			NodeName: m.name,
			Epoch:    epoch,
			State:    apiv1.OwnershipHeld,
		},
	}
	a.Status.State = apiv1.AttachmentAttaching
	if err := m.api.Status().Update(ctx, v); err != nil {
		m.t.Fatal(err)
	}
	if err := m.api.Status().Update(ctx, a); err != nil {
		m.t.Fatal(err)
	}
	return v, a
}

func (m *machine) stagingPath() string {
	return filepath.Join(m.dir, "plugins/kubernetes.io/csi", driverName, "0123", "globalmount")
}

func (m *machine) stage(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := m.csi().NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId:          volumeID,
		StagingTargetPath: m.stagingPath(),
		VolumeCapability:  capability(),
	}, grpc.WaitForReady(true))
	return err
}

func (m *machine) unstage(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := m.csi().NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{
		VolumeId:          volumeID,
		StagingTargetPath: m.stagingPath(),
	}, grpc.WaitForReady(true))
	return err
}

func capability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}
