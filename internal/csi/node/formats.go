package node

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// ClearInterval is how often to call ClearFormats, which reads a directory of the node's own disk.
const ClearInterval = time.Minute

// ClearFormats clears the rests of interrupted formats. Normally a call of the kubelet does so, but the kubelet
// unstages only a volume that it knows it may have staged. After a restart of the kubelet or the node, it does not know
// a volume whose NodeStageVolume never returned; if the pod was deleted, it does not call again. The report would name
// that volume for ever, and no other node could use it.
func (s *Server) ClearFormats(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx)
	records, err := s.options.Records.List()
	if err != nil {
		log.Error(err, "cannot list the interrupted formats")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(records)) {
		if records[name].Formatting == nil {
			continue
		}
		if err := s.clearFormat(ctx, name); err != nil {
			log.Info("the rest of an interrupted format is not cleared yet", "volumeName", name, "reason", err.Error())
		}
	}
}

// clearFormat undoes a NodeStageVolume that was interrupted while it made a filesystem, unless a call for the volume is
// running.
func (s *Server) clearFormat(ctx context.Context, volume string) error {
	unlock, err := s.lock(volume)
	if err != nil {
		return err
	}
	defer unlock()
	record, recorded, err := s.options.Records.Get(volume) // a call may have ended since the records were listed
	if err != nil || !recorded || record.Formatting == nil {
		return err
	}
	disk, err := volumehandle.Parse(record.VolumeID)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	return s.undoStage(ctx, disk, record.StagingPath, nil)
}
