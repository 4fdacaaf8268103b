package csi

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/problem"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// EndUnfinished ends what calls of the kubelet have begun and no running call continues, and
// unstages the volumes that the kubelet has left staged. Normally the kubelet calls again until a
// call succeeds. After its restart it knows only the volumes that have a directory of a pod: if the
// pod was deleted, it does not call again. The report would name the volume for ever, and no other
// node could use it.
//
// It decides under the volume's lock, so that it ends nothing that a call has announced and still
// works on. A kubelet that does call again finds the volume unstaged, as after its own call.
func (s *Server) EndUnfinished(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx)
	err := s.options.Report.EnsureScanned(ctx)
	var entries []apiv1.StagedVolume
	if err == nil {
		entries, err = s.options.Report.Entries(ctx)
	}
	if err != nil {
		log.Error(err, "cannot read the report for calls that were not ended")
		return
	}
	for _, entry := range entries {
		if err := s.endUnfinished(ctx, entry.VolumeName); err != nil {
			log.Info("a call that was begun is not ended yet", "volumeName", entry.VolumeName, "phase", entry.Phase, "reason",
				err.Error())
		}
	}
}

func (s *Server) endUnfinished(ctx context.Context, volume string) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	// Without the lock: the question may take a read at the API server, during which the lock would
	// refuse a call of the kubelet.
	if left, err := s.leftOf(ctx, volume); err != nil || left == nil {
		return err
	}
	unlock, locked := s.busy.TryLock(volume)
	if !locked {
		return nil // by a call, which ends it
	}
	defer unlock()
	left, err := s.leftOf(ctx, volume) // a call may have ended or begun since
	switch {
	case err != nil || left == nil:
		return err
	case !left.recorded:
		err = s.forgetAnnounced(ctx, left.entry)
	case left.record.Formatting != nil:
		err = s.undoRecorded(ctx, left.record)
	default:
		return s.unstageRecorded(ctx, left.record)
	}
	s.note(volume, problem.Staging, true, err)
	return err
}

// leftover is a volume that must be unstaged without a call of the kubelet.
type leftover struct {
	entry    apiv1.StagedVolume
	record   nodereport.Record
	recorded bool
}

// leftOf returns what is left of a volume; nil if a call of the kubelet decides about it.
func (s *Server) leftOf(ctx context.Context, volume string) (*leftover, error) {
	entries, err := s.options.Report.Entries(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(entries, func(e apiv1.StagedVolume) bool { return e.VolumeName == volume })
	if i < 0 {
		return nil, nil
	}
	left := &leftover{entry: entries[i]}
	if left.record, left.recorded, err = s.options.Records.Get(volume); err != nil {
		return nil, err
	}
	if unfinished(left.entry, left.record) {
		return left, nil
	}
	if asked, err := s.leftStaged(ctx, left.record); !asked {
		return nil, err
	}
	return left, nil
}

// unfinished reports whether a volume must be unstaged although the kubelet has not called for it,
// or has not called again: its unstage was begun, its format was interrupted, or its stage has
// never succeeded. An entry has no device before the first success. Afterwards the kubelet holds
// the volume as staged, and its next call decides, or the release of the ownership (leftStaged).
func unfinished(entry apiv1.StagedVolume, record nodereport.Record) bool {
	return entry.Phase == apiv1.PhaseUnstaging || record.Formatting != nil || entry.Phase == apiv1.PhaseStaging &&
		entry.Device == ""
}

// leftStaged reports whether a volume must be unstaged that the kubelet held as staged: no pod of
// this node uses it, and the controller waits for its release (ownership.LeftStaged). It reads at
// the API server only if no pod uses the volume. A kubelet that publishes the volume nevertheless
// has it staged in place.
func (s *Server) leftStaged(ctx context.Context, record nodereport.Record) (bool, error) {
	if record.VolumeID == "" {
		return false, nil // staged by the V1 driver
	}
	mounts, err := s.options.Host.Mounts().List(ctx)
	if err != nil {
		return false, fmt.Errorf("list mounts: %w", err)
	}
	if slices.ContainsFunc(mounts, func(m provisioner.MountPoint) bool {
		return m.Source == record.Device && !record.StagedAt(m.Target)
	}) {
		return false, nil
	}
	disk, err := volumehandle.Parse(record.VolumeID)
	if err != nil {
		return false, fmt.Errorf("read record of volume %s: %w", record.VolumeName, err)
	}
	volume, attachment, err := s.grants.Read(ctx, disk)
	if err != nil {
		return false, err
	}
	return ownership.LeftStaged(s.options.NodeName, record.Epoch, volume, attachment, s.options.Clock.Now()), nil
}

// forgetAnnounced removes the entry of a volume that was announced, and on whose device nothing was
// done.
func (s *Server) forgetAnnounced(ctx context.Context, entry apiv1.StagedVolume) error {
	mount, mounted, err := s.devices.MountAt(ctx, entry.StagingPath)
	switch {
	case err != nil:
		return err
	case mounted:
		return provisioner.Errorf(provisioner.Conflict,
			"cannot end the staging of volume %s: it has no record, and %s is mounted at %s", entry.VolumeName, mount.Source,
			mount.Target)
	}
	return s.forget(ctx, entry.VolumeName, nodereport.Record{}, false)
}

func (s *Server) undoRecorded(ctx context.Context, record nodereport.Record) error {
	disk, err := volumehandle.Parse(record.VolumeID)
	if err != nil {
		return fmt.Errorf("read record of volume %s: %w", record.VolumeName, err)
	}
	return s.undoStage(ctx, disk, record.StagingPath, nil)
}

func (s *Server) unstageRecorded(ctx context.Context, record nodereport.Record) error {
	disk, err := volumehandle.Parse(record.VolumeID)
	if err != nil {
		return fmt.Errorf("read record of volume %s: %w", record.VolumeName, err)
	}
	for _, path := range record.Paths() {
		if err := s.unstage(ctx, disk, path); err != nil {
			return err
		}
	}
	logr.FromContextOrDiscard(ctx).Info("ended a call that the kubelet did not repeat",
		"volumeName", record.VolumeName, "epoch", record.Epoch)
	return nil
}
