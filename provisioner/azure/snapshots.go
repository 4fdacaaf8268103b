package azure

import (
	"context"
	"errors"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/client"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

type snapshots struct{ cloud *Cloud }

type snapshotView struct {
	provisioner.Snapshot
	state string
}

func (c *Cloud) readSnapshot(ctx context.Context, id string) (snapshotView, error) {
	r, err := c.api.Parse(id, client.TypeSnapshot)
	if err != nil {
		return snapshotView{}, err
	}
	got, err := r.Snapshots.Get(ctx, r.ResourceGroupName, r.Name, nil)
	if err != nil {
		return snapshotView{}, c.api.Translate(err, "read snapshot %s", r.Name)
	}
	if got.Properties == nil || operation.Key(client.Value(got.ID)) != operation.Key(id) {
		return snapshotView{}, incomplete("snapshot", r.Name)
	}
	return viewOfSnapshot(&got.Snapshot), nil
}

// viewOfSnapshot translates a snapshot from the SDK's model.
func viewOfSnapshot(s *armcompute.Snapshot) snapshotView {
	seen := snapshotView{Snapshot: provisioner.Snapshot{
		ID:       client.Value(s.ID),
		Location: client.Value(s.Location),
		Tags:     values(s.Tags),
	}}
	p := s.Properties
	if p == nil {
		return seen
	}
	seen.state, seen.Created = client.Value(p.ProvisioningState), client.Value(p.TimeCreated)
	seen.SizeBytes = int64(client.Value(p.DiskSizeGB)) * gib
	if p.DiskSizeBytes != nil {
		seen.SizeBytes = *p.DiskSizeBytes
	}
	if p.CreationData != nil {
		seen.SourceID = client.Value(p.CreationData.SourceResourceID)
	}
	seen.Incremental, seen.CompletionPercent = client.Value(p.Incremental), 100
	if p.CompletionPercent != nil {
		seen.CompletionPercent = float64(*p.CompletionPercent)
	}
	if e := p.CopyCompletionError; e != nil {
		seen.CopyFailure = string(client.Value(e.ErrorCode)) + ": " + client.Value(e.ErrorMessage)
	}
	seen.Cut = seen.state == operation.StateSucceeded // while it is being created, its state is Updating
	seen.Ready = seen.Cut && seen.CopyFailure == "" && (seen.CompletionPercent >= 100 || instant(p.SnapshotAccessState))
	return seen
}

// instant reports whether disks can be created from a snapshot whose background copy is not
// complete.
func instant(state *armcompute.SnapshotAccessState) bool {
	return state != nil && (*state == armcompute.SnapshotAccessStateInstantAccess ||
		*state == armcompute.SnapshotAccessStateAvailableWithInstantAccess)
}

// Get implements provisioner.Snapshots.
func (s snapshots) Get(ctx context.Context, id string) (provisioner.Snapshot, error) {
	seen, err := s.cloud.readSnapshot(ctx, id)
	return seen.Snapshot, err
}

// List implements provisioner.Snapshots.
func (s snapshots) List(ctx context.Context, scope provisioner.Scope) ([]provisioner.Snapshot, error) {
	in, err := s.cloud.api.In(scope.SubscriptionID)
	if err != nil {
		return nil, err
	}
	var all []provisioner.Snapshot
	err = client.Each(ctx, in.Snapshots.NewListByResourceGroupPager(scope.ResourceGroup, nil),
		func(page armcompute.SnapshotsClientListByResourceGroupResponse) []*armcompute.Snapshot {
			return page.Value
		},
		func(item *armcompute.Snapshot) { all = append(all, viewOfSnapshot(item).Snapshot) })
	return all, s.cloud.api.Translate(err, "list snapshots of %s", scope.ResourceGroup)
}

// Create implements provisioner.Snapshots.
func (s snapshots) Create(ctx context.Context, spec provisioner.SnapshotSpec) (provisioner.Operation, error) {
	r, err := s.cloud.api.Parse(spec.ID, client.TypeSnapshot)
	if err != nil {
		return nil, err
	}
	source, err := s.cloud.api.Parse(spec.SourceID, client.TypeDisk, client.TypeSnapshot)
	if err != nil {
		return nil, err
	}
	found, err := s.cloud.readSnapshot(ctx, spec.ID)
	switch {
	case err == nil && found.state == operation.StateDeleting:
		return nil, provisioner.Errorf(provisioner.Conflict, "create snapshot %s: a snapshot of that name is being deleted",
			r.Name)
	case err == nil && operation.Key(found.SourceID) != operation.Key(spec.SourceID):
		return nil, provisioner.Errorf(provisioner.AlreadyExists, "create snapshot %s: it exists and is a snapshot of %s", r.Name,
			found.SourceID)
	case err == nil && (found.state == operation.StateCreating || found.state == operation.StateUpdating):
		return s.cloud.observe(operation.CreateSnapshot, spec.ID), nil
	case err == nil && found.state != operation.StateFailed:
		return operation.Ended{}, nil
	case err != nil && !errors.Is(err, provisioner.NotFound):
		return nil, err
	}
	body := newSnapshot(spec)
	if source.Is(client.TypeSnapshot) {
		option := armcompute.DiskCreateOptionCopyStart
		body.Properties.CreationData.CreateOption = &option
	}
	body.ExtendedLocation = s.cloud.extendedLocation()
	p, err := client.Wrap(r.Snapshots.BeginCreateOrUpdate(ctx, r.ResourceGroupName, r.Name, body, nil))
	op, err := s.cloud.begun(operation.CreateSnapshot, spec.ID, p, err)
	return op, s.cloud.whereSourceIs(ctx, spec.SourceID, spec.Location, err)
}

// newSnapshot translates a snapshot to be created into the SDK's model.
func newSnapshot(spec provisioner.SnapshotSpec) armcompute.Snapshot {
	option := armcompute.DiskCreateOptionCopy
	return armcompute.Snapshot{
		Location: &spec.Location,
		Tags:     pointers(spec.Tags),
		Properties: &armcompute.SnapshotProperties{
			CreationData: &armcompute.CreationData{
				CreateOption:                 &option,
				SourceResourceID:             &spec.SourceID,
				InstantAccessDurationMinutes: positive(spec.InstantAccessMinutes),
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
	r, err := s.cloud.api.Parse(id, client.TypeSnapshot)
	if err != nil {
		return nil, err
	}
	p, err := client.Wrap(r.Snapshots.BeginDelete(ctx, r.ResourceGroupName, r.Name, nil))
	op, err := s.cloud.begun(operation.DeleteSnapshot, id, p, err)
	if errors.Is(err, provisioner.NotFound) {
		return operation.Ended{}, nil
	}
	return op, err
}
