package snapshots

import (
	"context"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/snapshotparams"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/v1metrics"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// A snapshot in another region than its disk takes three steps, and each may take hours. What
// exists decides which one is next:
//
//	nothing                     ─▶ take the local snapshot "local_<name>" in the disk's region
//	local, being filled         ─▶ not ready
//	local, complete             ─▶ begin the copy to the other region
//	local and copy, being filled ─▶ not ready
//	local and complete copy     ─▶ delete the local one
//	complete copy               ─▶ ready

const localPrefix = "local_"

// local is the snapshot in the disk's own region.
func (w wantedSnapshot) local() volumehandle.Snapshot { return localOf(w.target) }

func localOf(target volumehandle.Snapshot) volumehandle.Snapshot {
	target.Name = snapshotparams.NameSnapshot(localPrefix + target.Name)
	return target
}

// sourceDisk is the value of tagSourceDisk, which Azure limits to 256 characters.
func (w wantedSnapshot) sourceDisk() string {
	return w.source.SubscriptionID + "/" + w.source.ResourceGroup + "/" + w.source.DiskName
}

// madeCopy reports whether a snapshot was copied from one of the wanted source. The V1 driver
// leaves no tag, but the source has the name of the local snapshot.
func (w wantedSnapshot) madeCopy(found provisioner.Snapshot) bool {
	if of := found.Tags[tagSourceDisk]; of != "" {
		return strings.EqualFold(of, w.sourceDisk())
	}
	return strings.EqualFold(found.SourceID, w.local().String())
}

// madeLocal reports whether a snapshot was taken of the wanted source in order to be copied.
func (w wantedSnapshot) madeLocal(found provisioner.Snapshot) bool {
	return isLocalOf(found, w.target) && strings.EqualFold(found.SourceID, w.source.String())
}

func isLocalOf(found provisioner.Snapshot, target volumehandle.Snapshot) bool {
	return strings.EqualFold(found.Tags[tagCopyOf], target.Name)
}

// copyToRegion takes the next steps of a snapshot in another region. location is the disk's.
func (s *Snapshotter) copyToRegion(ctx context.Context, w wantedSnapshot, location string) (provisioner.Snapshot, error) {
	v1metrics.VariantOf(ctx, v1metrics.CrossRegion)
	found, err := s.read(ctx, w.target.String())
	switch {
	case err != nil:
		return found, err
	case found.ID == "":
		return s.beginCopy(ctx, w, location)
	case !w.madeCopy(found):
		return found, grpcstatus.Errorf(codes.AlreadyExists, "snapshot %s exists and is not a copy of a snapshot of disk %s",
			w.target, w.source)
	case found.CopyFailure != "":
		if err := s.removeSnapshot(ctx, w.target.String()); err != nil {
			return found, err
		}
		return found, provisioner.Errorf(provisioner.Unavailable,
			"the copy of snapshot %s to %s has failed, and the next call starts it again: %s", w.target.Name, found.Location,
			found.CopyFailure)
	case !found.Cut:
		// Its creation is in progress, or has failed and is repeated.
		if found, err = s.ensureSnapshot(ctx, w.copySpec(found.SourceID, cutAt(found))); err != nil {
			return found, err
		}
	}
	return found, s.dropIfCopied(ctx, w, found)
}

func (s *Snapshotter) beginCopy(ctx context.Context, w wantedSnapshot, location string) (provisioner.Snapshot, error) {
	spec := w.spec(localOf(w.target), w.source.String(), location)
	spec.Tags[tagCopyOf] = w.target.Name
	local, err := s.ensureSnapshot(ctx, spec)
	if err != nil {
		return local, err
	}
	if !isLocalOf(local, w.target) {
		return local, grpcstatus.Errorf(codes.AlreadyExists, "snapshot %s exists and was not taken for a copy to %s", spec.ID,
			w.parameters.Location)
	}
	if !local.Ready || local.CompletionPercent < 100 {
		local.Ready = false
		return local, nil
	}
	logr.FromContextOrDiscard(ctx).Info("copying a snapshot to another region", "snapshot", w.target.Name, "from", location, "to",
		w.parameters.Location)
	begun, err := s.ensureSnapshot(ctx, w.copySpec(spec.ID, local.Created))
	if err != nil {
		return begun, err
	}
	return begun, s.dropIfCopied(ctx, w, begun)
}

func (w wantedSnapshot) copySpec(localID string, cut time.Time) provisioner.SnapshotSpec {
	spec := w.spec(w.target, localID, w.parameters.Location)
	spec.Tags[tagSourceDisk], spec.Tags[tagCutAt] = w.sourceDisk(), cut.UTC().Format(time.RFC3339Nano)
	return spec
}

// dropIfCopied deletes the local snapshot if its copy is complete. An error keeps the snapshot from
// being reported as ready, so that the caller calls again.
func (s *Snapshotter) dropIfCopied(ctx context.Context, w wantedSnapshot, copied provisioner.Snapshot) error {
	if !copied.Ready {
		return nil
	}
	return s.dropLocal(ctx, w.target)
}

// dropLocal deletes the snapshot that was taken to be copied to target, if there is one. It does
// not touch another snapshot of that name.
func (s *Snapshotter) dropLocal(ctx context.Context, target volumehandle.Snapshot) error {
	local := localOf(target).String()
	found, err := s.read(ctx, local)
	if err != nil || !isLocalOf(found, target) {
		return err
	}
	return s.removeSnapshot(ctx, local)
}
