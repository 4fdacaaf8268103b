package node

import (
	"context"

	"github.com/azuredisk-csi/azuredisk/internal/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// ClearFormats clears the rests of interrupted formats. Normally a call of the kubelet does so, but the kubelet
// unstages only a volume that it knows it may have staged. After a restart of the kubelet or the node, it does not know
// a volume whose NodeStageVolume never returned; if the pod was deleted, it does not call again. The report would name
// that volume for ever, and no other node could use it.
func (s *Server) ClearFormats(ctx context.Context) {
	interrupted := func(r nodereport.Record) bool { return r.Formatting != nil }
	s.eachRest(ctx, interrupted, "the rest of an interrupted format is not cleared yet", func(ctx context.Context, record nodereport.Record) error {
		disk, err := volumehandle.Parse(record.VolumeID)
		if err != nil {
			return err
		}
		return s.undoStage(ctx, disk, record.StagingPath, nil)
	})
}
