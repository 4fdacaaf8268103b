package azure

import (
	"context"
	"errors"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

type snapshots struct{ cloud *Cloud }

type snapshotView struct {
	provisioner.Snapshot
	state string
}

func (c *Cloud) readSnapshot(ctx context.Context, id string) (snapshotView, error) {
	r, err := c.parse(id, typeSnapshot)
	if err != nil {
		return snapshotView{}, err
	}
	got, err := r.snapshots.Get(ctx, r.ResourceGroupName, r.Name, nil)
	if err != nil {
		return snapshotView{}, translate(err, c.clock.Now(), "read snapshot %s", r.Name)
	}
	return viewOfSnapshot(&got.Snapshot), nil
}

// viewOfSnapshot translates a snapshot from Azure's words.
func viewOfSnapshot(s *armcompute.Snapshot) snapshotView {
	seen := snapshotView{Snapshot: provisioner.Snapshot{ID: value(s.ID), Location: value(s.Location), Tags: values(s.Tags)}}
	p := s.Properties
	if p == nil {
		return seen
	}
	seen.state, seen.Created = value(p.ProvisioningState), value(p.TimeCreated)
	seen.SizeBytes = int64(value(p.DiskSizeGB)) * gib
	if p.DiskSizeBytes != nil {
		seen.SizeBytes = *p.DiskSizeBytes
	}
	if p.CreationData != nil {
		seen.SourceID = value(p.CreationData.SourceResourceID)
	}
	seen.Incremental, seen.CompletionPercent = value(p.Incremental), 100
	if p.CompletionPercent != nil {
		seen.CompletionPercent = float64(*p.CompletionPercent)
	}
	if e := p.CopyCompletionError; e != nil {
		seen.CopyFailure = string(value(e.ErrorCode)) + ": " + value(e.ErrorMessage)
	}
	seen.Cut = seen.state == stateSucceeded // one that is being made is shown as being updated
	seen.Ready = seen.Cut && seen.CopyFailure == "" && (seen.CompletionPercent >= 100 || instant(p.SnapshotAccessState))
	return seen
}

// instant says that disks can be made from a snapshot whose background copy goes on.
func instant(state *armcompute.SnapshotAccessState) bool {
	return state != nil && (*state == armcompute.SnapshotAccessStateInstantAccess || *state == armcompute.SnapshotAccessStateAvailableWithInstantAccess)
}

// Get implements provisioner.Snapshots.
func (s snapshots) Get(ctx context.Context, id string) (provisioner.Snapshot, error) {
	seen, err := s.cloud.readSnapshot(ctx, id)
	return seen.Snapshot, err
}

// List implements provisioner.Snapshots.
func (s snapshots) List(ctx context.Context, scope provisioner.Scope) ([]provisioner.Snapshot, error) {
	in, err := s.cloud.in(scope.SubscriptionID)
	if err != nil {
		return nil, err
	}
	var all []provisioner.Snapshot
	for pager := in.snapshots.NewListByResourceGroupPager(scope.ResourceGroup, nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, translate(err, s.cloud.clock.Now(), "list snapshots of %s", scope.ResourceGroup)
		}
		for _, item := range page.Value {
			if item == nil {
				continue
			}
			all = append(all, viewOfSnapshot(item).Snapshot)
		}
	}
	return all, nil
}

// Create implements provisioner.Snapshots.
func (s snapshots) Create(ctx context.Context, spec provisioner.SnapshotSpec) (provisioner.Operation, error) {
	r, err := s.cloud.parse(spec.ID, typeSnapshot)
	if err != nil {
		return nil, err
	}
	source, err := s.cloud.parse(spec.SourceID, typeDisk, typeSnapshot)
	if err != nil {
		return nil, err
	}
	found, err := s.cloud.readSnapshot(ctx, spec.ID)
	switch {
	case err == nil && found.state == stateDeleting:
		return nil, provisioner.Errorf(provisioner.Conflict, "snapshot %s is being deleted", r.Name)
	case err == nil && key(found.SourceID) != key(spec.SourceID):
		return nil, provisioner.Errorf(provisioner.AlreadyExists, "snapshot %s exists and is of %s", r.Name, found.SourceID)
	case err == nil && (found.state == stateCreating || found.state == stateUpdating):
		return s.cloud.observe(kindCreateSnapshot, spec.ID), nil
	case err == nil && found.state != stateFailed:
		return ended{}, nil
	case err != nil && !errors.Is(err, provisioner.NotFound):
		return nil, err
	}
	body := newSnapshot(spec)
	if strings.EqualFold(source.ResourceType.String(), typeSnapshot) {
		option := armcompute.DiskCreateOptionCopyStart
		body.Properties.CreationData.CreateOption = &option
	}
	body.ExtendedLocation = s.cloud.extendedLocation()
	p, err := wrap(r.snapshots.BeginCreateOrUpdate(ctx, r.ResourceGroupName, r.Name, body, nil))
	return s.cloud.begun(kindCreateSnapshot, spec.ID, p, err)
}

// newSnapshot translates a snapshot of a disk that is to be made into Azure's words.
func newSnapshot(spec provisioner.SnapshotSpec) armcompute.Snapshot {
	option := armcompute.DiskCreateOptionCopy
	return armcompute.Snapshot{
		Location: &spec.Location, Tags: pointers(spec.Tags),
		Properties: &armcompute.SnapshotProperties{
			CreationData: &armcompute.CreationData{
				CreateOption: &option, SourceResourceID: &spec.SourceID, InstantAccessDurationMinutes: positive(spec.InstantAccessMinutes),
			},
			Incremental:         &spec.Incremental,
			DiskAccessID:        optional(spec.DiskAccessID),
			NetworkAccessPolicy: optional(armcompute.NetworkAccessPolicy(spec.NetworkAccessPolicy)),
			PublicNetworkAccess: optional(armcompute.PublicNetworkAccess(spec.PublicNetworkAccess)),
			DataAccessAuthMode:  optional(armcompute.DataAccessAuthMode(spec.DataAccessAuthMode)),
		},
	}
}

// positive is a pointer to n, or nil unless it is above 0.
func positive(n int64) *int64 {
	if n <= 0 {
		return nil
	}
	return &n
}

// Delete implements provisioner.Snapshots.
func (s snapshots) Delete(ctx context.Context, id string) (provisioner.Operation, error) {
	r, err := s.cloud.parse(id, typeSnapshot)
	if err != nil {
		return nil, err
	}
	p, err := wrap(r.snapshots.BeginDelete(ctx, r.ResourceGroupName, r.Name, nil))
	op, err := s.cloud.begun(kindDeleteSnapshot, id, p, err)
	if errors.Is(err, provisioner.NotFound) {
		return ended{}, nil
	}
	return op, err
}
