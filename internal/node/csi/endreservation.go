package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/fencing"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// leave ends this node's registration and the reservation. While the reservation is what keeps
// another node from writing, it must not end: the node keeps it with the fence-only key of the same
// epoch then, also after it has released the volume, until the disk is detached from the other node
// (endGuard). It lists the volume's attachments, for which the API server compares all of the
// cluster, unless the reservation is unfenced, as nearly always.
func (s *Server) leave(ctx context.Context, disk volumehandle.Handle, device string, own ownReservation) error {
	if own.unfenced {
		return s.reserver.Leave(ctx, device, own.key)
	}
	volume := disk.VolumeName()
	attachments, err := s.attachments(ctx, volume)
	if err != nil {
		return err
	}
	other := fencing.GuardsAgainst(attachments, s.options.NodeName)
	if other == "" {
		return s.reserver.Leave(ctx, device, own.key)
	}
	keep := own.key.FenceOnly()
	if err := s.options.Records.PutGuard(nodereport.Guard{VolumeName: volume, Key: keep.String()}); err != nil {
		return err
	}
	logr.FromContextOrDiscard(ctx).Info("the reservation is kept while the disk is being detached from a node that was fenced",
		"volumeName", volume, "nodeName", other, "key", keep.String())
	return s.reserver.Keep(ctx, device, own.key, keep)
}

// leaveRecorded ends the reservation of a volume that was unmounted and flushed. A device that is
// gone, fails or is another disk now takes no command, and the reservation remains: the next node
// that stages the volume pre-empts it. So does the reservation of a record from before a reboot.
func (s *Server) leaveRecorded(ctx context.Context, record nodereport.Record) error {
	if record.ReservationKey == "" || record.BootID != s.options.BootID {
		return nil
	}
	disk, err := volumehandle.Parse(record.VolumeID)
	if err != nil {
		return fmt.Errorf("read record of volume %s: %w", record.VolumeName, err)
	}
	own, err := s.key(disk, record.Epoch)
	if err != nil {
		return err
	}
	err = s.namesItsDisk(ctx, record)
	if err == nil {
		err = s.leave(ctx, disk, record.Device, ownReservation{key: own, unfenced: record.Unfenced})
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, provisioner.Unsupported), errors.Is(err, provisioner.NotFound),
		ctx.Err() == nil && s.devices.Answers(ctx, record.Device) != nil:
		logr.FromContextOrDiscard(ctx).Info("the reservation remains on the disk", "volumeName", record.VolumeName, "device",
			record.Device, "key", own.String(), "reason", err.Error())
		return nil
	default:
		return fmt.Errorf("unstage volume %s: %w", record.VolumeName, err)
	}
}

// namesItsDisk returns NotFound if the path of a record names another disk than the volume's: the
// volume's disk was detached, and a disk that was attached later got its path. The report says
// which filesystem the volume has. A volume that was never completely staged has nothing to be
// identified by.
func (s *Server) namesItsDisk(ctx context.Context, record nodereport.Record) error {
	entries, err := s.options.Report.Entries(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(entries, func(e apiv1.StagedVolume) bool { return e.VolumeName == record.VolumeName })
	if i < 0 || entries[i].Filesystem == nil {
		return nil
	}
	found, _, err := s.options.Host.Filesystems().Probe(ctx, record.Device)
	if err != nil {
		return fmt.Errorf("probe device: %w", err)
	}
	if found.UUID != entries[i].Filesystem.UUID {
		return provisioner.Errorf(provisioner.NotFound,
			"%s is another disk now: it carries the filesystem %q, and volume %s has %q",
			record.Device, found.UUID, record.VolumeName, entries[i].Filesystem.UUID)
	}
	return nil
}

// leaveUnrecorded ends the reservation of a volume that nothing on this node uses and that has no
// record: the plug-in was killed, or the node rebooted, before the reservation ended. If it cannot,
// the reservation remains: the next node that stages the volume pre-empts it.
func (s *Server) leaveUnrecorded(ctx context.Context, disk volumehandle.Handle) {
	ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	err := s.leaveAttached(ctx, disk.VolumeName(),
		func(attached volumehandle.Handle, own *apiv1.AzVolumeAttachment) (provisioner.ReservationKey, error) {
			if !attached.Same(disk) || own.Spec.Role != apiv1.RolePrimary {
				return 0, nil
			}
			return s.key(disk, own.Spec.Epoch)
		})
	if err != nil {
		logr.FromContextOrDiscard(ctx).Info("whether the disk has a reservation of this node is not known", "volumeName",
			disk.VolumeName(), "reason", err.Error())
	}
}

// leaveAttached ends a registration on a shared disk that is attached to this node, and whose
// device it has not recorded. It succeeds if the disk is not attached to this node. keyOf returns 0
// if there is nothing to end.
func (s *Server) leaveAttached(ctx context.Context, name string,
	keyOf func(volumehandle.Handle, *apiv1.AzVolumeAttachment) (provisioner.ReservationKey, error)) error {
	volume, own, err := s.replicaOf(ctx, name)
	if err != nil {
		return err
	}
	if volume == nil || volume.Shares() <= 1 || own == nil || own.Status.State != apiv1.AttachmentAttached ||
		own.Status.LUN == nil || ownership.AttachedToAnotherVM(own, s.options.Instance.VMID) {
		return nil
	}
	disk := volumehandle.Of(volume.Spec.Disk)
	key, err := keyOf(disk, own)
	if err != nil || key == 0 {
		return err
	}
	device, release, err := s.devices.Replica(ctx, volume, *own.Status.LUN)
	if err != nil {
		return err
	}
	defer release()
	if err := s.filesystems.Identify(ctx, volume, device.Path); err != nil {
		return err
	}
	if err := s.leave(ctx, disk, device.Path, ownReservation{key: key}); !errors.Is(err, provisioner.Unsupported) {
		return err
	}
	return nil
}

// replicaOf reads a volume and this node's attachment at the API server; each is nil if there is
// none.
func (s *Server) replicaOf(ctx context.Context, name string) (*apiv1.AzVolume, *apiv1.AzVolumeAttachment, error) {
	volume, err := kube.Find[apiv1.AzVolume](ctx, s.options.Client, client.ObjectKey{
		Namespace: s.options.Namespace,
		Name:      name,
	})
	if err != nil || volume == nil {
		return nil, nil, err
	}
	attachment, err := s.grants.Attachment(ctx, name, s.options.NodeName)
	return volume, attachment, err
}

// attachments lists the attachments of a volume at the API server.
func (s *Server) attachments(ctx context.Context, volume string) ([]*apiv1.AzVolumeAttachment, error) {
	var list apiv1.AzVolumeAttachmentList
	if err := s.options.Client.List(ctx, &list, client.InNamespace(s.options.Namespace),
		client.MatchingFields{"spec.volumeName": volume}); err != nil {
		return nil, fmt.Errorf("list the attachments of volume %s: %w", volume, err)
	}
	return kube.Pointers(list.Items), nil
}
