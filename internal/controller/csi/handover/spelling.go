package handover

import (
	"context"
	"crypto/sha256"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=get

// neededBy returns the VolumeAttachment for which the node still needs the disk, "" if there
// is none. Two PersistentVolumes whose handles spell one disk in two ways have two
// VolumeAttachments on a node, and one ownership. The unpublish of the first one releases nothing:
// Kubernetes would not publish for the second one again. id is the handle of the unpublish. A
// VolumeAttachment that is being deleted has an unpublish of its own to come.
func (s *Publisher) neededBy(ctx context.Context, id string, handle volumehandle.Handle, node string) (string, error) {
	if !s.ByVolumeAttachments {
		return "", nil
	}
	pvs, err := cluster.PersistentVolumes(ctx, s.Client, handle.VolumeName())
	if err != nil {
		return "", err
	}
	for _, pv := range pvs {
		source := pv.Spec.CSI
		if source.VolumeHandle == id {
			continue
		}
		if other, err := volumehandle.Parse(source.VolumeHandle); err != nil || !other.Same(handle) {
			continue
		}
		key := client.ObjectKey{Name: volumeAttachmentName(source.VolumeHandle, source.Driver, node)}
		a, err := kube.Find[storagev1.VolumeAttachment](ctx, s.Reader, key)
		if err != nil {
			return "", err
		}
		if a != nil && a.DeletionTimestamp == nil {
			return a.Name, nil
		}
	}
	return "", nil
}

// volumeAttachmentName is the name that Kubernetes gives to a VolumeAttachment. Source:
// getAttachmentName of the CSI plug-in.
func volumeAttachmentName(volumeHandle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(volumeHandle+driver+node)))
}
