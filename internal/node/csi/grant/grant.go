// Package grant reads at the API server whether this node may use a volume, and waits until it may
// (law 2). The decision itself is ownership.MayStage.
package grant

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/usage"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Reader reads for one node.
type Reader struct {
	// NodeName and VMID say which node and which VM this is.
	NodeName, VMID string
	// Client reads at the API server, never through a cache: MayStage needs the current objects.
	Client client.WithWatch
	// Namespace of the custom resources.
	Namespace string
	Report    *nodereport.Reporter
	// AwaitPublish makes Look wait for the publish.
	AwaitPublish bool
	// Clock sets the intervals at which the node reads again while it waits for an attachment.
	Clock clock.WithTicker
}

// Lookup is Read or Look: it returns the volume of a disk and this node's attachment, which is nil
// if there is none.
type Lookup func(ctx context.Context, disk volumehandle.Handle) (*apiv1.AzVolume, *apiv1.AzVolumeAttachment, error)

// Read reads the volume of a disk and this node's attachment at the API server. Errors: NotFound if
// the volume does not exist, nodereport.ErrOtherDisk if it is another disk's.
func (r *Reader) Read(ctx context.Context, disk volumehandle.Handle) (*apiv1.AzVolume, *apiv1.AzVolumeAttachment, error) {
	name := disk.VolumeName()
	volume, err := kube.Find[apiv1.AzVolume](ctx, r.Client, client.ObjectKey{Namespace: r.Namespace, Name: name})
	if err != nil {
		return nil, nil, err
	}
	if volume == nil {
		return nil, nil, provisioner.Errorf(provisioner.NotFound, "volume %s does not exist", name)
	}
	if err := checkVolume(volume, disk); err != nil {
		return nil, nil, err
	}
	r.Report.Observe(volume)
	attachment, err := r.Attachment(ctx, name, r.NodeName)
	if err != nil {
		return nil, nil, err
	}
	return volume, attachment, nil
}

// checkVolume refuses an AzVolume of another disk.
func checkVolume(volume *apiv1.AzVolume, disk volumehandle.Handle) error {
	if is := volumehandle.Of(volume.Spec.Disk); !is.Same(disk) {
		return provisioner.Errorf(provisioner.FailedPrecondition,
			"refusing to use AzVolume %s for disk %s: it describes disk %s; if it was created manually, delete it: %w",
			volume.Name, disk, is, nodereport.ErrOtherDisk)
	}
	return nil
}

// Attachment reads a node's attachment of a volume at the API server. It returns nil if there is
// none.
func (r *Reader) Attachment(ctx context.Context, volume, node string) (*apiv1.AzVolumeAttachment, error) {
	return kube.Find[apiv1.AzVolumeAttachment](ctx, r.Client, client.ObjectKey{
		Namespace: r.Namespace,
		Name:      apiv1.AttachmentName(volume, node),
	})
}

// MayStage decides whether this node may use a volume.
func (r *Reader) MayStage(volume *apiv1.AzVolume, attachment *apiv1.AzVolumeAttachment) ownership.StageDecision {
	return ownership.MayStage(r.NodeName, r.VMID, volume, attachment)
}

// Lasting reads the ownership at the API server and says why the record is not valid any more, or
// "": its epoch has ended, or the report does not say that the volume is staged under that epoch,
// for example after a kill.
func (r *Reader) Lasting(ctx context.Context, record nodereport.Record) (attachment *apiv1.AzVolumeAttachment, why string,
	err error) {
	disk, err := usage.ParseID(record.VolumeID)
	if err != nil {
		return nil, "", fmt.Errorf("read record of volume %s: %w", record.VolumeName, err)
	}
	volume, attachment, err := r.Read(ctx, disk)
	if errors.Is(err, provisioner.NotFound) {
		return nil, err.Error(), nil
	}
	if err != nil {
		return nil, "", err
	}
	if why := ownership.EpochOver(r.NodeName, r.VMID, record.Epoch, volume, attachment); why != "" {
		return nil, fmt.Sprintf("it was staged under epoch %d, which is over: %s", record.Epoch, why), nil
	}
	entries, err := r.Report.Entries(ctx)
	if err != nil {
		return nil, "", err
	}
	for _, entry := range entries {
		if entry.VolumeName == record.VolumeName && entry.Epoch == record.Epoch && entry.Phase == apiv1.PhaseStaged {
			return attachment, "", nil
		}
	}
	return nil, fmt.Sprintf("the report does not name it as staged under epoch %d", record.Epoch), nil
}
