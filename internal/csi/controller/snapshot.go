package controller

import (
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

	"github.com/azuredisk-csi/azuredisk/internal/snapshotparams"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Tags by which the steps of a copy to another region are found again. Azure keeps them with the snapshot, so that any process can go on.
const (
	// tagCopyOf on a snapshot in the disk's own region is the name of the snapshot for the sake of which alone it was taken.
	tagCopyOf = "disk.csi.azure.com-copied-to"
	// tagSourceDisk on a snapshot in another region is the disk that it is of, as subscription/resourceGroup/name.
	tagSourceDisk = "disk.csi.azure.com-source-disk"
	// tagCutAt on a snapshot in another region is when the content was fixed; the copy itself is younger.
	tagCutAt = "disk.csi.azure.com-cut-at"
)

// wantedSnapshot is what a CreateSnapshot asks for.
type wantedSnapshot struct {
	source     volumehandle.Handle
	sourceID   string // as the caller spelled it
	target     volumehandle.Snapshot
	parameters snapshotparams.Parameters
	// usableFrom are the places from one of which the snapshot must be usable; none for any.
	usableFrom []place
}

// CreateSnapshot takes a snapshot of a disk. What there is, and how far it has come, is Azure's to tell: a repeated call goes on where any
// earlier one left off. It waits until the content is fixed, and not until it is copied: the answer says whether the snapshot is ready to use, and the
// caller asks again until it is.
func (s *Server) CreateSnapshot(ctx context.Context, request *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	w, err := s.wantedSnapshot(ctx, request)
	if w.target.Name == "" {
		return nil, statusOf(err) // neither this call nor another has made anything of it
	}
	unlock, lockErr := s.lock(snapshotKey(w.target))
	if lockErr != nil {
		return nil, lockErr
	}
	defer unlock()
	ctx, cancel := s.bound(ctx)
	defer cancel()
	var taken provisioner.Snapshot
	if err == nil {
		taken, err = s.takeSnapshot(ctx, w)
	}
	if err != nil {
		return nil, settle(ctx, err, func(ctx context.Context) (string, error) { return s.leftOfSnapshot(ctx, w) })
	}
	return &csi.CreateSnapshotResponse{Snapshot: w.response(taken)}, nil
}

func snapshotKey(h volumehandle.Snapshot) string { return "snapshot " + strings.ToLower(h.String()) }

// wantedSnapshot returns the target with every error, unless name or source say none. Of parameters that are not allowed it is the default one.
func (s *Server) wantedSnapshot(ctx context.Context, request *csi.CreateSnapshotRequest) (wantedSnapshot, error) {
	var w wantedSnapshot
	switch {
	case request.GetName() == "":
		return w, invalidArgument("name: missing")
	case request.GetSourceVolumeId() == "":
		return w, invalidArgument("source volume ID: missing")
	}
	var err, refused error
	w.parameters, refused = snapshotparams.Parse(request.GetParameters())
	if w.source, err = volumehandle.Parse(request.GetSourceVolumeId()); err != nil {
		if refused != nil {
			return w, refused
		}
		return w, grpcstatus.Error(codes.NotFound, err.Error())
	}
	w.sourceID = request.GetSourceVolumeId()
	w.target = volumehandle.Snapshot{
		SubscriptionID: first(w.parameters.SubscriptionID, w.source.SubscriptionID), ResourceGroup: first(w.parameters.ResourceGroup, w.source.ResourceGroup),
		Name: snapshotparams.NameSnapshot(request.GetName()),
	}
	if refused != nil {
		return w, refused
	}
	if len(w.parameters.WithoutEffect) > 0 {
		logr.FromContextOrDiscard(ctx).V(1).Info("parameters have no effect", "parameters", w.parameters.WithoutEffect)
	}
	// Preferences make no difference: a snapshot is usable in all of its region, and nowhere else.
	w.usableFrom, err = s.places(&csi.TopologyRequirement{Requisite: request.GetAccessibilityRequirements().GetRequisite()})
	return w, err
}

func (w wantedSnapshot) response(taken provisioner.Snapshot) *csi.Snapshot {
	return describeSnapshot(taken, w.target.String(), w.sourceID)
}

// describeSnapshot translates a snapshot. The caller says how the IDs are spelled.
func describeSnapshot(found provisioner.Snapshot, id, sourceID string) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId: id, SourceVolumeId: sourceID, SizeBytes: found.SizeBytes, CreationTime: timestamppb.New(cutAt(found)), ReadyToUse: found.Ready,
		GroupSnapshotId: found.Tags[tagGroup],
	}
}

// GetSnapshot reads one snapshot, whoever made it.
func (s *Server) GetSnapshot(ctx context.Context, request *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	if request.GetSnapshotId() == "" {
		return nil, invalidArgument("snapshot ID: missing")
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	found, err := s.snapshotByID(ctx, &csi.ListSnapshotsRequest{SnapshotId: request.GetSnapshotId()})
	if err != nil {
		return nil, statusOf(err)
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

func (s *Server) takeSnapshot(ctx context.Context, w wantedSnapshot) (provisioner.Snapshot, error) {
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
	if err := w.checkUsable(first(w.parameters.Location, disk.Location)); err != nil {
		return provisioner.Snapshot{}, err
	}
	if w.parameters.Abroad(disk) {
		return s.copyAbroad(ctx, w, disk.Location)
	}
	return s.ensureSnapshot(ctx, w.spec(w.target, w.source.String(), disk.Location))
}

// checkUsable says whether a snapshot in a region is usable from one of the places that were asked for. A place outside of
// the zones does not tell its region, and is taken to be the cluster's own.
func (w wantedSnapshot) checkUsable(location string) error {
	if len(w.usableFrom) == 0 || slices.ContainsFunc(w.usableFrom, func(p place) bool { return p.location == "" || strings.EqualFold(p.location, location) }) {
		return nil
	}
	return grpcstatus.Errorf(codes.ResourceExhausted, "a snapshot in region %s is not usable from %s", location, locations(w.usableFrom))
}

// takenBefore answers a repeated call whose disk has gone since: what was cut from it is still there, and is brought to its end.
func (s *Server) takenBefore(ctx context.Context, w wantedSnapshot) (provisioner.Snapshot, error) {
	for _, id := range []string{w.target.String(), w.local().String()} {
		found, err := s.Snapshots.Get(ctx, id)
		switch {
		case errors.Is(err, provisioner.NotFound):
			continue
		case err != nil:
			return provisioner.Snapshot{}, fmt.Errorf("read snapshot: %w", err)
		case strings.EqualFold(found.SourceID, w.source.String()) && id == w.target.String():
			return found, nil
		case w.madeCopy(found) || w.madeLocal(found):
			return s.copyAbroad(ctx, w, found.Location)
		}
	}
	return provisioner.Snapshot{}, grpcstatus.Errorf(codes.NotFound, "there is no disk %s", w.source)
}

// spec describes the snapshot of a source with the parameters that were asked for.
func (w wantedSnapshot) spec(target volumehandle.Snapshot, sourceID, location string) provisioner.SnapshotSpec {
	p := w.parameters
	return provisioner.SnapshotSpec{
		ID: target.String(), SourceID: sourceID, Location: location, Incremental: !p.Full, NetworkAccessPolicy: p.NetworkAccessPolicy,
		PublicNetworkAccess: p.PublicNetworkAccess, DiskAccessID: p.DiskAccessID, DataAccessAuthMode: p.DataAccessAuthMode,
		InstantAccessMinutes: p.InstantAccessMinutes, Tags: maps.Clone(p.Tags),
	}
}

// ensureSnapshot takes a snapshot, or joins whoever is doing so, waits until its content is fixed and reads it.
func (s *Server) ensureSnapshot(ctx context.Context, spec provisioner.SnapshotSpec) (provisioner.Snapshot, error) {
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

// DeleteSnapshot deletes a snapshot, and what its copy to this region may have left in the disk's own. What is not there, or cannot
// be a snapshot, is deleted already.
func (s *Server) DeleteSnapshot(ctx context.Context, request *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if request.GetSnapshotId() == "" {
		return nil, invalidArgument("snapshot ID: missing")
	}
	handle, ok := s.snapshotHandle(request.GetSnapshotId())
	if !ok {
		return &csi.DeleteSnapshotResponse{}, nil
	}
	unlock, err := s.lock(snapshotKey(handle))
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if err := s.deleteSnapshot(ctx, handle); err != nil {
		return nil, statusOf(err)
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

// snapshotHandle reads a snapshot ID. A bare name is a snapshot of the cluster's resource group, as the V1 driver has it.
func (s *Server) snapshotHandle(id string) (volumehandle.Snapshot, bool) {
	handle, err := volumehandle.ParseSnapshot(id)
	if err == nil {
		return handle, true
	}
	if snapshotparams.NameSnapshot(id) != id {
		return volumehandle.Snapshot{}, false
	}
	return volumehandle.Snapshot{SubscriptionID: s.SubscriptionID, ResourceGroup: s.ResourceGroup, Name: id}, true
}

// deleteSnapshot deletes the snapshot first: Azure does not delete a snapshot that is being copied, and once the copy is gone nothing but its
// name tells of the other, which is looked for as long as that may be there.
func (s *Server) deleteSnapshot(ctx context.Context, handle volumehandle.Snapshot) error {
	found, err := s.Snapshots.Get(ctx, handle.String())
	switch {
	case errors.Is(err, provisioner.NotFound):
	case err != nil:
		return fmt.Errorf("read snapshot: %w", err)
	case found.Tags[tagGroup] != "" || found.Tags[tagSealOf] != "":
		return invalidArgument("snapshot %s is part of a group and is deleted with it", handle)
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

func (s *Server) removeSnapshot(ctx context.Context, id string) error {
	op, err := s.Snapshots.Delete(ctx, id)
	if err != nil {
		return fmt.Errorf("delete snapshot: %w", err)
	}
	if err := op.Wait(ctx); err != nil {
		return fmt.Errorf("delete snapshot: %w", err)
	}
	return nil
}
