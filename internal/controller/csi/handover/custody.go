package handover

import (
	"context"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/refusal"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// custodyCheck finds out which cluster uses a volume's disk before a node acquires the ownership.
// The error is a FailedPrecondition if a VM outside of this cluster has the disk.
type custodyCheck func(
	ctx context.Context, v *apiv1.AzVolume, node string, attachments []*apiv1.AzVolumeAttachment, read diskRead,
) (ownership.Custody, error)

// diskRead reads a disk at Azure. It does so once, unless the read fails. It is for one goroutine.
type diskRead func() (provisioner.Disk, error)

func (s *Publisher) disk(ctx context.Context, v *apiv1.AzVolume) diskRead {
	var found provisioner.Disk
	var read bool
	return func() (provisioner.Disk, error) {
		if read {
			return found, nil
		}
		disk, err := s.Disk(ctx, volumehandle.Of(v.Spec.Disk))
		found, read = disk, err == nil
		return disk, err
	}
}

// checkCustody is the check of a volume that several nodes may use, before a node gets an
// attachment: the volume has no ownership that could be acquired.
func (s *Publisher) checkCustody(ctx context.Context, v *apiv1.AzVolume, node string) error {
	attachments, err := s.Attachments(ctx, s.Client, v.Name)
	if err == nil {
		_, err = s.custody(ctx, v, node, attachments, s.disk(ctx, v))
	}
	return err
}

// custody asks Azure if the AzVolume does not confirm that this cluster uses the disk. A planned
// move costs no call. Azure is asked again when the disk has been attached, because another cluster
// may do the same at the same time (internal/controller/attachment).
func (s *Publisher) custody(
	ctx context.Context, v *apiv1.AzVolume, node string, attachments []*apiv1.AzVolumeAttachment, read diskRead,
) (ownership.Custody, error) {
	known := ownership.CustodyOf(v, attachments, s.clock.Now())
	if known != ownership.CustodyUnknown {
		return known, nil
	}
	disk, err := read()
	if err != nil {
		return known, err
	}
	vm, err := cluster.OtherClusterVM(ctx, s.Client, s.Namespace, disk.AttachedTo, attachments)
	if err == nil && vm != "" {
		err = refusal.Errorf(apiv1.ReasonUsedOutsideCluster, "publish volume %s to node %s: %s",
			v.Name, node, ownership.OtherClusterUse(vm, v.Spec.Disk.Name))
	}
	return known, err
}
