package csi

import (
	"context"
	"maps"
	"slices"

	"github.com/go-logr/logr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// ProtectReplicas write-protects the devices of this node's replicas. A volume that this node has
// released is protected already; this is for a disk that was attached since, also by a reboot. It
// asks instance metadata which disk is at the LUN of a writable device, and the API server for this
// node's role. It does not touch a disk that this node uses, and one that is not this driver's. If
// the node cannot read instance metadata, it does nothing.
func (s *Server) ProtectReplicas(ctx context.Context) {
	if s.options.DiskAt == nil {
		return
	}
	log := logr.FromContextOrDiscard(ctx)
	records, err := s.options.Records.List()
	if err != nil {
		log.Error(err, "cannot list the records of volumes")
		return
	}
	writable := s.options.Host.Devices().Writable(ctx)
	for _, lun := range slices.Sorted(maps.Keys(writable)) {
		device := writable[lun]
		if s.outside[device.Sequence] || s.recorded(ctx, records, device) {
			continue
		}
		if err := s.protectReplica(ctx, lun, device); err != nil {
			log.Info("a device that this node does not use is not write-protected yet", "device", device.Path, "lun", lun,
				"reason", err.Error())
		}
	}
}

// recorded reports whether a record of this boot names the disk or one of its partitions.
func (s *Server) recorded(ctx context.Context, records map[string]nodereport.Record, disk provisioner.Device) bool {
	for _, record := range records {
		if record.BootID == s.options.BootID && s.devices.Names(ctx, record, disk) {
			return true
		}
	}
	return false
}

func (s *Server) protectReplica(ctx context.Context, lun int32, device provisioner.Device) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	id, err := s.options.DiskAt(ctx, lun)
	if err != nil || id == "" {
		return err
	}
	disk, err := volumehandle.Parse(id)
	if err != nil {
		return err
	}
	// Without the lock: the questions take a read at the API server, during which the lock would refuse
	// a call of the kubelet.
	if volume, err := s.protectable(ctx, disk, lun, device); volume == nil {
		return err
	}
	unlock, locked := s.busy.TryLock(disk.VolumeName())
	if !locked {
		return nil // by a call, which decides
	}
	defer unlock()
	volume, err := s.protectable(ctx, disk, lun, device) // a call may have ended since
	if volume == nil {
		return err
	}
	found, release, err := s.devices.Replica(ctx, volume, lun)
	if err != nil {
		return err
	}
	defer release()
	return s.options.Host.Devices().SetReadOnly(ctx, found, true)
}

// protectable returns the volume of a disk if this node does not use it and has it as a replica; else
// nil.
func (s *Server) protectable(ctx context.Context, disk volumehandle.Handle, lun int32, device provisioner.Device) (
	*apiv1.AzVolume, error) {
	name := disk.VolumeName()
	if used, err := s.uses(ctx, name); err != nil || used {
		return nil, err
	}
	volume, own, err := s.replicaOf(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case volume == nil || !volumehandle.Of(volume.Spec.Disk).Same(disk):
		if device.Sequence != 0 {
			s.outside[device.Sequence] = true // a replica of it would be a new device
		}
		return nil, nil
	case own == nil || own.Spec.Role != apiv1.RoleReplica || own.Status.State != apiv1.AttachmentAttached ||
		own.Status.LUN == nil || *own.Status.LUN != lun || ownership.AttachedToAnotherVM(own, s.options.Instance.VMID):
		return nil, nil
	}
	return volume, nil
}

// uses reports whether a volume has a record of this boot, or an entry in the report: the V1 driver
// may have staged it.
func (s *Server) uses(ctx context.Context, volume string) (bool, error) {
	record, _, err := s.options.Records.Get(volume)
	if err != nil || record.BootID == s.options.BootID {
		return true, err
	}
	entries, err := s.options.Report.Entries(ctx)
	return slices.ContainsFunc(entries, func(e apiv1.StagedVolume) bool { return e.VolumeName == volume }), err
}
