package csi

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
)

// ClearInterval is how often to call EndUnfinished, EndReservations and ProtectReplicas, which read
// a directory of the node's own disk, and its devices.
const ClearInterval = time.Minute

// eachRest calls do for each record with leftovers, ordered by volume. It skips volumes with a
// running call, and logs pending where do fails.
func (s *Server) eachRest(ctx context.Context, has func(nodereport.Record) bool, pending string,
	do func(context.Context, nodereport.Record) error) {
	log := logr.FromContextOrDiscard(ctx)
	records, err := s.options.Records.List()
	if err != nil {
		log.Error(err, "cannot list the records of volumes")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(records)) {
		if !has(records[name]) {
			continue
		}
		if err := s.endRest(ctx, name, has, do); err != nil {
			log.Info(pending, "volumeName", name, "reason", err.Error())
		}
	}
}

func (s *Server) endRest(ctx context.Context, volume string, has func(nodereport.Record) bool,
	do func(context.Context, nodereport.Record) error) error {
	unlock, err := s.lock(volume)
	if err != nil {
		return err
	}
	defer unlock()
	record, _, err := s.options.Records.Get(volume) // a call may have ended since the records were listed
	if !has(record) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	return do(ctx, record)
}
