package snapshots

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/csi/controller/call"
	"github.com/azuredisk-csi/azuredisk/internal/csi/status"
	"github.com/azuredisk-csi/azuredisk/internal/paramtable"
	"github.com/azuredisk-csi/azuredisk/internal/snapshotparams"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Azure cuts one disk at a time, so the snapshots of a group are of one moment only if nothing
// writes to its volumes from the first cut to the last. The ownership proves that: no node holds it
// before the first cut, and none after the last, and no epoch has grown, which it does whenever a
// node acquires ownership. Volumes that are in use are therefore refused, as CSI requires of a
// driver that cannot promise the order of writes; a group of one volume needs no proof.
//
// After the proof the driver takes the seal: one more snapshot, of the first disk, whose ID is the
// group's. Members without a seal are from a call that was interrupted; the next call uses the
// members of the current epochs and takes the others again.

// Tags of a group's snapshots.
const (
	// tagGroup on a member is the group's ID.
	tagGroup = "disk.csi.azure.com-group"
	// tagEpoch on a member is the epoch of its volume when it was cut.
	tagEpoch = "disk.csi.azure.com-group-epoch"
	// tagSealOf on a seal identifies the disks of the group.
	tagSealOf = "disk.csi.azure.com-group-sources"
)

// GroupControllerGetCapabilities says that groups of snapshots can be taken.
func (s *Snapshotter) GroupControllerGetCapabilities(context.Context,
	*csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{{
		Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
			Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
		}},
	}}}, nil
}

// group is a requested group of snapshots.
type group struct {
	seal    volumehandle.Snapshot
	members []wantedSnapshot
	// sources is the same for the same disks in any order.
	sources string
}

// CreateVolumeGroupSnapshot takes snapshots of volumes that are not in use, which makes them of one
// moment.
func (s *Snapshotter) CreateVolumeGroupSnapshot(ctx context.Context,
	request *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	g, err := s.wantedGroup(ctx, request)
	if g.seal.Name == "" {
		return nil, status.From(err) // no call can have created anything for it
	}
	ctx, end, lockErr := s.Begin(ctx, snapshotKey(g.seal))
	if lockErr != nil {
		return nil, lockErr
	}
	defer end()
	var response *csi.VolumeGroupSnapshot
	if err == nil {
		response, err = s.takeGroup(ctx, g)
	}
	if err != nil {
		return nil, call.Settle(ctx, err, func(ctx context.Context) (string, error) { return s.leftOfGroup(ctx, g) })
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: response}, nil
}

// wantedGroup returns the members with every error, as far as the request names them.
func (s *Snapshotter) wantedGroup(ctx context.Context, request *csi.CreateVolumeGroupSnapshotRequest) (group, error) {
	var g group
	switch {
	case request.GetName() == "":
		return g, call.InvalidArgument("name: missing")
	case len(request.GetSourceVolumeIds()) == 0:
		return g, call.InvalidArgument("source volume IDs: missing")
	}
	var sources []string
	var refused error
	for _, id := range request.GetSourceVolumeIds() {
		w, err := s.wantedSnapshot(ctx, &csi.CreateSnapshotRequest{
			Name:           request.GetName(),
			SourceVolumeId: id,
			Parameters:     request.GetParameters(),
		})
		if w.target.Name == "" {
			return g, err
		}
		if refused == nil {
			refused = err
		}
		source := strings.ToLower(w.source.String())
		if slices.Contains(sources, source) {
			return g, call.InvalidArgument("source volume IDs: %s is named twice", id)
		}
		if len(sources) == 0 {
			g.seal = w.target
		}
		w.target.Name = snapshotparams.NameSnapshot(g.seal.Name + "-" + digest(source)[:8])
		sources, g.members = append(sources, source), append(g.members, w)
	}
	slices.Sort(sources)
	g.sources = digest(strings.Join(sources, "\n"))
	if n := paramtable.Characters(g.seal.String()); n > paramtable.LongestTagValue && refused == nil {
		refused = call.InvalidArgument(
			"name %q: the ID of the group snapshot would have %d characters; allowed: %d, because its members have it as a tag",
			request.GetName(), n, paramtable.LongestTagValue)
	}
	return g, refused
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (s *Snapshotter) takeGroup(ctx context.Context, g group) (*csi.VolumeGroupSnapshot, error) {
	seal, err := s.read(ctx, g.seal.String())
	switch {
	case err != nil:
		return nil, err
	case seal.ID != "" && seal.Tags[tagSealOf] != g.sources:
		return nil, grpcstatus.Errorf(codes.AlreadyExists,
			"take the group snapshot: snapshot %s exists, and is not of a group of these volumes", g.seal)
	case seal.ID != "":
		return s.sealedGroup(ctx, g, seal)
	}
	epochs, err := s.epochsAtRest(ctx, g)
	if err != nil {
		return nil, err
	}
	for i, w := range g.members {
		if err := s.takeMember(ctx, g, w, epochs[i]); err != nil {
			return nil, s.undo(ctx, g, err)
		}
	}
	after, err := s.epochsAtRest(ctx, g)
	if err != nil {
		return nil, s.undo(ctx, g, err)
	}
	if !slices.Equal(epochs, after) {
		return nil, s.undo(ctx, g, grpcstatus.Error(codes.Aborted,
			"take the group snapshot: a node used a volume of the group while the snapshots were taken"))
	}
	spec := g.members[0].spec(g.seal, g.members[0].source.String(), "")
	disk, err := s.Disks.Get(ctx, spec.SourceID)
	if err != nil {
		return nil, fmt.Errorf("read disk: %w", err)
	}
	spec.Location, spec.Tags[tagSealOf] = disk.Location, g.sources
	if seal, err = s.ensureSnapshot(ctx, spec); err != nil {
		return nil, err
	}
	return s.sealedGroup(ctx, g, seal)
}

// epochsAtRest returns the epochs of the group's volumes, and an error if one is in use. A group of
// one volume may be in use.
func (s *Snapshotter) epochsAtRest(ctx context.Context, g group) ([]int64, error) {
	epochs := make([]int64, len(g.members))
	if len(g.members) == 1 {
		return epochs, nil
	}
	for i, w := range g.members {
		v, err := s.Volume(ctx, w.source)
		switch {
		case err != nil:
			return nil, err
		case v == nil:
			return nil, grpcstatus.Errorf(codes.FailedPrecondition,
				"volume %s has no AzVolume, so that the driver does not know whether a node writes to it; publish it once with this driver", w.source)
		case v.Spec.Access == apiv1.AccessMultiNode:
			return nil, grpcstatus.Errorf(codes.FailedPrecondition,
				"volume %s is a multi-node volume: Azure cannot take snapshots of it and of others at one moment; take its snapshot alone", v.Name)
		case v.Status.Primary != nil && v.Status.Primary.State != apiv1.OwnershipReleased:
			return nil, grpcstatus.Errorf(codes.FailedPrecondition,
				"volume %s is in use on node %s: Azure cannot take snapshots of several disks at one moment, so no node may use the volumes of a group; stop the pods that use it", v.Name, v.Status.Primary.NodeName)
		}
		epochs[i] = cluster.EpochOf(v)
	}
	return epochs, nil
}

// takeMember takes the snapshot of one volume under an epoch, unless it exists. One of an earlier
// epoch is from an attempt that failed.
func (s *Snapshotter) takeMember(ctx context.Context, g group, w wantedSnapshot, epoch int64) error {
	disk, err := s.Disks.Get(ctx, w.source.String())
	if errors.Is(err, provisioner.NotFound) {
		return grpcstatus.Errorf(codes.NotFound, "there is no disk %s", w.source)
	}
	if err != nil {
		return fmt.Errorf("read disk: %w", err)
	}
	if err := w.parameters.Check(disk); err != nil {
		return err
	}
	if w.parameters.InAnotherRegion(disk) {
		return call.InvalidArgument("parameter location: value %q is not allowed; allowed for a group: the region of its disks, %s", w.parameters.Location, disk.Location)
	}
	spec := w.spec(w.target, w.source.String(), disk.Location)
	spec.Tags[tagGroup], spec.Tags[tagEpoch] = g.seal.String(), strconv.FormatInt(epoch, 10)
	found, err := s.read(ctx, spec.ID)
	switch {
	case err != nil:
		return err
	case found.ID == "":
	case !strings.EqualFold(found.Tags[tagGroup], g.seal.String()):
		return grpcstatus.Errorf(codes.AlreadyExists, "snapshot %s exists and is not of this group", spec.ID)
	case found.Tags[tagEpoch] != spec.Tags[tagEpoch]:
		if err := s.removeSnapshot(ctx, spec.ID); err != nil {
			return err
		}
	}
	_, err = s.ensureSnapshot(ctx, spec)
	return err
}

// undoTimeout limits the removal of the members of a group that failed.
const undoTimeout = 30 * time.Second

// undo removes the members of a group without a seal and returns the failure. If the same call may
// still succeed, they stay for it.
func (s *Snapshotter) undo(ctx context.Context, g group, failure error) error {
	retried := []provisioner.Kind{provisioner.Conflict, provisioner.RateLimited, provisioner.Unavailable}
	if ctx.Err() != nil || slices.Contains(retried, provisioner.KindOf(failure)) {
		return failure
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	for _, w := range g.members {
		found, err := s.read(ctx, w.target.String())
		if strings.EqualFold(found.Tags[tagGroup], g.seal.String()) {
			err = s.removeSnapshot(ctx, w.target.String())
		}
		if err != nil && !errors.Is(err, provisioner.NotFound) {
			return errors.Join(failure, err)
		}
	}
	return failure
}

// sealedGroup reads the members of a group that is complete.
func (s *Snapshotter) sealedGroup(ctx context.Context, g group, seal provisioner.Snapshot) (*csi.VolumeGroupSnapshot, error) {
	response := &csi.VolumeGroupSnapshot{
		GroupSnapshotId: g.seal.String(),
		CreationTime:    timestamppb.New(seal.Created),
		ReadyToUse:      true,
	}
	for _, w := range g.members {
		found, err := s.read(ctx, w.target.String())
		if err != nil {
			return nil, err
		}
		if found.ID == "" {
			return nil, grpcstatus.Errorf(codes.FailedPrecondition,
				"read the group snapshot: its snapshot %s was deleted: delete the group", w.target)
		}
		response.Snapshots = append(response.Snapshots, describeSnapshot(found, w.target.String(), w.sourceID))
		response.ReadyToUse = response.ReadyToUse && found.Ready
	}
	return response, nil
}

// GetVolumeGroupSnapshot reads a group that is complete.
func (s *Snapshotter) GetVolumeGroupSnapshot(ctx context.Context,
	request *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	if request.GetGroupSnapshotId() == "" {
		return nil, call.InvalidArgument("group snapshot ID: missing")
	}
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	handle, err := volumehandle.ParseSnapshot(request.GetGroupSnapshotId())
	if err != nil {
		return nil, grpcstatus.Error(codes.NotFound, err.Error())
	}
	seal, err := s.read(ctx, handle.String())
	if err != nil {
		return nil, status.From(err)
	}
	if seal.Tags[tagSealOf] == "" {
		return nil, grpcstatus.Errorf(codes.NotFound, "there is no group snapshot %s", handle)
	}
	members, err := s.membersOf(ctx, handle, request.GetSnapshotIds())
	if err != nil {
		return nil, status.From(err)
	}
	response := &csi.VolumeGroupSnapshot{
		GroupSnapshotId: request.GetGroupSnapshotId(),
		CreationTime:    timestamppb.New(seal.Created),
		ReadyToUse:      true,
	}
	for _, found := range members {
		response.Snapshots = append(response.Snapshots, describeSnapshot(found, found.ID, sourceOf(found)))
		response.ReadyToUse = response.ReadyToUse && found.Ready
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: response}, nil
}

// membersOf returns the snapshots of a group in the order of their IDs. If the caller names them,
// it must name all.
func (s *Snapshotter) membersOf(ctx context.Context, handle volumehandle.Snapshot, ids []string) ([]provisioner.Snapshot, error) {
	all, err := s.Snapshots.List(ctx, provisioner.Scope{
		SubscriptionID: handle.SubscriptionID,
		ResourceGroup:  handle.ResourceGroup,
	})
	if err != nil && !errors.Is(err, provisioner.NotFound) {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	// A member may be in the resource group of its disk.
	for _, id := range ids {
		if listed := slices.ContainsFunc(all, func(f provisioner.Snapshot) bool { return strings.EqualFold(f.ID, id) }); listed {
			continue
		}
		found, err := s.Snapshots.Get(ctx, id)
		if err == nil {
			all = append(all, found)
		} else if !errors.Is(err, provisioner.NotFound) && !errors.Is(err, provisioner.InvalidArgument) {
			return nil, fmt.Errorf("read snapshot: %w", err)
		}
	}
	members := slices.DeleteFunc(all, func(f provisioner.Snapshot) bool {
		return !strings.EqualFold(f.Tags[tagGroup],
			handle.String())
	})
	for _, found := range members {
		if len(ids) > 0 && !slices.ContainsFunc(ids, func(id string) bool { return strings.EqualFold(id, found.ID) }) {
			return nil, call.InvalidArgument("snapshot IDs: %s is in the group and not in the request", found.ID)
		}
	}
	slices.SortFunc(members, func(a, b provisioner.Snapshot) int { return strings.Compare(snapshotOrder(a), snapshotOrder(b)) })
	return members, nil
}

// DeleteVolumeGroupSnapshot deletes the seal first, so that a group without all its members does
// not count as a group.
func (s *Snapshotter) DeleteVolumeGroupSnapshot(ctx context.Context,
	request *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	if request.GetGroupSnapshotId() == "" {
		return nil, call.InvalidArgument("group snapshot ID: missing")
	}
	handle, err := volumehandle.ParseSnapshot(request.GetGroupSnapshotId())
	if err != nil {
		return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{},
		s.Do(ctx, snapshotKey(handle), func(ctx context.Context) error {
			return s.deleteGroup(ctx, handle,
				request.GetSnapshotIds())
		})
}

func (s *Snapshotter) deleteGroup(ctx context.Context, handle volumehandle.Snapshot, ids []string) error {
	members, err := s.membersOf(ctx, handle, ids)
	if err != nil {
		return err
	}
	seal, err := s.read(ctx, handle.String())
	if err != nil || seal.ID != "" && seal.Tags[tagSealOf] == "" {
		return err // nil for an ordinary snapshot of that name
	}
	if seal.ID != "" {
		members = slices.Insert(members, 0, seal)
	}
	for _, found := range members {
		if err := s.removeSnapshot(ctx, found.ID); err != nil {
			return err
		}
	}
	return nil
}

// leftOfGroup names what exists of a group: its seal, or a member.
func (s *Snapshotter) leftOfGroup(ctx context.Context, g group) (string, error) {
	ids := []string{g.seal.String()}
	for _, w := range g.members {
		ids = append(ids, w.target.String())
	}
	return s.left(ctx, ids, func(found provisioner.Snapshot) bool {
		return found.Tags[tagSealOf] == g.sources || strings.EqualFold(found.Tags[tagGroup], g.seal.String())
	})
}
