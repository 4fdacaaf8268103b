package snapshots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/topology"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/snapshotparams"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Tags by which the steps of a copy to another region are found again. Azure keeps them with the
// snapshot, so that any process can continue.
const (
	// tagCopyOf on a snapshot in the disk's own region is the name of the snapshot that it was
	// taken to be copied to.
	tagCopyOf = "disk.csi.azure.com-copied-to"
	// tagSourceDisk on a snapshot in another region is its source disk, as
	// subscription/resourceGroup/name.
	tagSourceDisk = "disk.csi.azure.com-source-disk"
	// tagCutAt on a snapshot in another region is when the content was fixed, which was before the
	// copy.
	tagCutAt = "disk.csi.azure.com-cut-at"
)

// wantedSnapshot is what a CreateSnapshot asks for.
type wantedSnapshot struct {
	source     volumehandle.Handle
	sourceID   string // as the caller spelled it
	target     volumehandle.Snapshot
	parameters snapshotparams.Parameters
	// usableFrom lists places; the snapshot must be usable from one of them. None means any.
	usableFrom []topology.Place
}

// CreateSnapshot takes a snapshot of a disk. It reads from Azure which steps are complete: a
// repeated call continues after the last step of an earlier one. It waits until the content is
// fixed, and not until it is copied: the answer reports whether the snapshot is ready to use, and
// the caller repeats the call until it is.
func (s *Snapshotter) CreateSnapshot(ctx context.Context, request *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse,
	error) {
	w, err := s.wantedSnapshot(ctx, request)
	if w.target.Name == "" {
		return nil, status.From(err) // no call can have created anything for it
	}
	ctx, end, lockErr := s.Begin(ctx, snapshotKey(w.target))
	if lockErr != nil {
		return nil, lockErr
	}
	defer end()
	var taken provisioner.Snapshot
	if err == nil {
		taken, err = s.takeSnapshot(ctx, w)
	}
	if err != nil {
		return nil, call.Settle(ctx, err, func(ctx context.Context) (string, error) { return s.leftOfSnapshot(ctx, w) })
	}
	return &csi.CreateSnapshotResponse{Snapshot: describeSnapshot(taken, w.target.String(), w.sourceID)}, nil
}

func snapshotKey(h volumehandle.Snapshot) string { return "snapshot " + strings.ToLower(h.String()) }

// wantedSnapshot returns the target with every error, unless name or source say none. If the
// parameters are not allowed, the target is the default one.
func (s *Snapshotter) wantedSnapshot(ctx context.Context, request *csi.CreateSnapshotRequest) (wantedSnapshot, error) {
	var w wantedSnapshot
	switch {
	case request.GetName() == "":
		return w, call.InvalidArgument("name: missing")
	case request.GetSourceVolumeId() == "":
		return w, call.InvalidArgument("source volume ID: missing")
	}
	var err, refused error
	w.parameters, refused = snapshotparams.Parse(request.GetParameters())
	refused = cmp.Or(refused, w.parameters.AddTags(s.ExtraTags))
	if w.source, err = volumehandle.Parse(request.GetSourceVolumeId()); err != nil {
		if refused != nil {
			return w, refused
		}
		return w, grpcstatus.Error(codes.NotFound, err.Error())
	}
	w.sourceID = request.GetSourceVolumeId()
	w.target = volumehandle.Snapshot{
		SubscriptionID: cmp.Or(w.parameters.SubscriptionID, w.source.SubscriptionID),
		ResourceGroup:  cmp.Or(w.parameters.ResourceGroup, w.source.ResourceGroup),
		Name:           snapshotparams.NameSnapshot(request.GetName()),
	}
	if refused != nil {
		return w, refused
	}
	if len(w.parameters.WithoutEffect) > 0 {
		logr.FromContextOrDiscard(ctx).V(1).Info("parameters have no effect", "parameters", w.parameters.WithoutEffect)
	}
	// Preferences make no difference: a snapshot is usable in its whole region, and in no other.
	w.usableFrom, err = s.Topology.Places(
		&csi.TopologyRequirement{Requisite: request.GetAccessibilityRequirements().GetRequisite()})
	return w, err
}

// describeSnapshot translates a snapshot. The caller says how the IDs are spelled.
func describeSnapshot(found provisioner.Snapshot, id, sourceID string) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId:     id,
		SourceVolumeId: sourceID,
		SizeBytes:      found.SizeBytes,
		CreationTime:   timestamppb.New(cutAt(found)),
		ReadyToUse:     found.Ready,
	}
}

// GetSnapshot reads one snapshot, of any origin.
func (s *Snapshotter) GetSnapshot(ctx context.Context, request *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	if request.GetSnapshotId() == "" {
		return nil, call.InvalidArgument("snapshot ID: missing")
	}
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	found, err := s.snapshotByID(ctx, &csi.ListSnapshotsRequest{SnapshotId: request.GetSnapshotId()})
	if err != nil {
		return nil, status.From(err)
	}
	if len(found) == 0 {
		return nil, grpcstatus.Errorf(codes.NotFound, "there is no snapshot %s", request.GetSnapshotId())
	}
	return &csi.GetSnapshotResponse{Snapshot: describeSnapshot(found[0], request.GetSnapshotId(), sourceOf(found[0]))}, nil
}

// cutAt is when the content of a snapshot was fixed.
func cutAt(taken provisioner.Snapshot) time.Time {
	if at, err := time.Parse(time.RFC3339Nano, taken.Tags[tagCutAt]); err == nil {
		return at
	}
	return taken.Created
}

func (s *Snapshotter) takeSnapshot(ctx context.Context, w wantedSnapshot) (provisioner.Snapshot, error) {
	if err := s.Unpaused(ctx, w.source, "create snapshot "+w.target.Name); err != nil {
		return provisioner.Snapshot{}, err
	}
	disk, err := s.Disks.Get(ctx, w.source.String())
	if errors.Is(err, provisioner.NotFound) {
		return s.takenBefore(ctx, w)
	}
	if err != nil {
		return provisioner.Snapshot{}, fmt.Errorf("read disk: %w", err)
	}
	if err := w.parameters.Check(disk); err != nil {
		return provisioner.Snapshot{}, err
	}
	if err := w.checkUsable(cmp.Or(w.parameters.Location, disk.Location)); err != nil {
		return provisioner.Snapshot{}, err
	}
	if w.parameters.InAnotherRegion(disk) {
		return s.copyToRegion(ctx, w, disk.Location)
	}
	return s.ensureSnapshot(ctx, w.spec(w.target, w.source.String(), disk.Location))
}

// checkUsable reports whether a snapshot in a region is usable from one of the requested places. A
// place outside of the zones does not name its region, and any region is allowed for it.
func (w wantedSnapshot) checkUsable(location string) error {
	if len(w.usableFrom) == 0 || slices.ContainsFunc(w.usableFrom,
		func(p topology.Place) bool { return p.Location == "" || strings.EqualFold(p.Location, location) }) {
		return nil
	}
	return grpcstatus.Errorf(codes.ResourceExhausted, "a snapshot in region %s is not usable from %s", location,
		topology.Locations(w.usableFrom))
}

// takenBefore answers a repeated call whose disk was deleted in the meantime: the snapshot still
// exists, and its copy is completed.
func (s *Snapshotter) takenBefore(ctx context.Context, w wantedSnapshot) (provisioner.Snapshot, error) {
	for _, id := range []string{w.target.String(), w.local().String()} {
		found, err := s.read(ctx, id)
		switch {
		case err != nil:
			return found, err
		case strings.EqualFold(found.SourceID, w.source.String()) && id == w.target.String():
			return found, nil
		case w.madeCopy(found) || w.madeLocal(found):
			return s.copyToRegion(ctx, w, found.Location)
		}
	}
	return provisioner.Snapshot{}, grpcstatus.Errorf(codes.NotFound, "there is no disk %s", w.source)
}

// spec describes the snapshot of a source with the requested parameters.
func (w wantedSnapshot) spec(target volumehandle.Snapshot, sourceID, location string) provisioner.SnapshotSpec {
	spec := w.parameters.SnapshotSpec
	spec.ID, spec.SourceID, spec.Location, spec.Tags = target.String(), sourceID, location, maps.Clone(spec.Tags)
	return spec
}

// ensureSnapshot takes a snapshot, or joins the call that takes it, waits until its content is
// fixed and reads it.
func (s *Snapshotter) ensureSnapshot(ctx context.Context, spec provisioner.SnapshotSpec) (provisioner.Snapshot, error) {
	op, err := s.Snapshots.Create(ctx, spec)
	if err != nil {
		return provisioner.Snapshot{}, fmt.Errorf("create snapshot: %w", err)
	}
	if err := op.Wait(ctx); err != nil {
		return provisioner.Snapshot{}, fmt.Errorf("create snapshot: %w", err)
	}
	taken, err := s.Snapshots.Get(ctx, spec.ID)
	if err != nil {
		return provisioner.Snapshot{}, fmt.Errorf("read snapshot: %w", err)
	}
	if !taken.Cut {
		return taken, provisioner.Errorf(provisioner.Conflict, "snapshot %s is being changed", spec.ID)
	}
	return taken, nil
}

// DeleteSnapshot deletes a snapshot, and the local snapshot that its copy from another region may
// have left there. A snapshot that does not exist, and an ID that cannot be a snapshot's, count as
// deleted.
func (s *Snapshotter) DeleteSnapshot(ctx context.Context, request *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse,
	error) {
	if request.GetSnapshotId() == "" {
		return nil, call.InvalidArgument("snapshot ID: missing")
	}
	handle, ok := snapshotparams.ParseID(request.GetSnapshotId(), s.SubscriptionID, s.ResourceGroup)
	if !ok {
		return &csi.DeleteSnapshotResponse{}, nil
	}
	return &csi.DeleteSnapshotResponse{},
		s.Do(ctx, snapshotKey(handle), func(ctx context.Context) error { return s.deleteSnapshot(ctx, handle) })
}

// deleteSnapshot deletes the snapshot first: Azure does not delete a snapshot that is being copied.
// When the copy is gone, only its name leads to the local snapshot; so that is looked for whenever
// the snapshot is not found.
func (s *Snapshotter) deleteSnapshot(ctx context.Context, handle volumehandle.Snapshot) error {
	found, err := s.read(ctx, handle.String())
	switch {
	case err != nil:
		return err
	case found.ID == "":
	default:
		if err := s.removeSnapshot(ctx, handle.String()); err != nil {
			return err
		}
		if found.Tags[tagSourceDisk] == "" {
			return nil // never a copy
		}
	}
	return s.dropLocal(ctx, handle)
}

func (s *Snapshotter) removeSnapshot(ctx context.Context, id string) error {
	op, err := s.Snapshots.Delete(ctx, id)
	if err != nil {
		return fmt.Errorf("delete snapshot: %w", err)
	}
	if err := op.Wait(ctx); err != nil {
		return fmt.Errorf("delete snapshot: %w", err)
	}
	return nil
}

// leftOfSnapshot names what exists of a snapshot: the snapshot, or the one in the disk's own region
// from which it will be copied.
func (s *Snapshotter) leftOfSnapshot(ctx context.Context, w wantedSnapshot) (string, error) {
	for _, id := range []string{w.target.String(), w.local().String()} {
		found, err := s.read(ctx, id)
		if err != nil {
			return "", err
		}
		if found.ID != "" && (strings.EqualFold(found.SourceID, w.source.String()) || w.madeCopy(found)) {
			return "snapshot " + id, nil
		}
	}
	return "", nil
}

// read returns a snapshot; one without an ID if there is none.
func (s *Snapshotter) read(ctx context.Context, id string) (provisioner.Snapshot, error) {
	found, err := s.Snapshots.Get(ctx, id)
	if errors.Is(err, provisioner.NotFound) {
		return provisioner.Snapshot{}, nil
	}
	if err != nil {
		return provisioner.Snapshot{}, fmt.Errorf("read snapshot: %w", err)
	}
	return found, nil
}
