package fake

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

type snapshots struct{ p *platform }

// Create implements provisioner.Snapshots.
func (s snapshots) Create(ctx context.Context, spec provisioner.SnapshotSpec) (provisioner.Operation, error) {
	return s.p.call(ctx, SnapshotsCreate, spec.ID, func(plan effect) (*operation, error) {
		return s.p.createSnapshot(spec, plan)
	})
}

func (p *platform) createSnapshot(spec provisioner.SnapshotSpec, plan effect) (*operation, error) {
	r, err := parseKind(spec.ID, kindSnapshot)
	if err != nil {
		return nil, err
	}
	if _, err := parseKind(spec.SourceID, kindDisk); err != nil {
		return nil, err
	}
	if !p.groupExists(r.group) {
		return nil, provisioner.Errorf(provisioner.NotFound, "resource group %q does not exist", r.group)
	}
	if found, ok := p.snapshots[key(spec.ID)]; ok {
		switch {
		case found.deleting:
			return nil, provisioner.Errorf(provisioner.Conflict, "snapshot %s is being deleted", found.ID)
		case !strings.EqualFold(found.SourceID, spec.SourceID):
			return nil, provisioner.Errorf(provisioner.AlreadyExists, "snapshot %s exists and is of %s", found.ID, found.SourceID)
		case found.op != nil:
			return found.op, nil
		}
		return p.ended(), nil
	}
	from, ok := p.sourceOf(spec.SourceID)
	switch {
	case !ok:
		return nil, noDisk(spec.SourceID)
	case !from.ready:
		return nil, provisioner.Errorf(provisioner.Conflict, "disk %s is not ready", spec.SourceID)
	}
	made := &snapshot{Snapshot: provisioner.Snapshot{
		ID: spec.ID, SourceID: spec.SourceID, Location: spec.Location, SizeBytes: from.sizeBytes,
		Created: p.options.Clock.Now(), Tags: maps.Clone(spec.Tags),
	}}
	p.snapshots[key(spec.ID)] = made
	op := p.begin(p.options.Latency.CreateSnapshot, plan,
		func() error { made.Ready, made.op = true, nil; return nil },
		func() { delete(p.snapshots, key(spec.ID)) })
	if !op.ended {
		made.op = op
	}
	return op, nil
}

// Get implements provisioner.Snapshots.
func (s snapshots) Get(ctx context.Context, id string) (provisioner.Snapshot, error) {
	if _, err := s.p.enter(ctx, SnapshotsGet, id, ""); err != nil {
		return provisioner.Snapshot{}, s.p.leave(SnapshotsGet, id, "", err)
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.now()
	if _, err := parseKind(id, kindSnapshot); err != nil {
		return provisioner.Snapshot{}, s.p.logLocked(SnapshotsGet, id, "", err)
	}
	found, ok := s.p.snapshots[key(id)]
	if !ok {
		return provisioner.Snapshot{}, s.p.logLocked(SnapshotsGet, id, "", provisioner.Errorf(provisioner.NotFound, "snapshot %s does not exist", id))
	}
	return found.seen(), s.p.logLocked(SnapshotsGet, id, "", nil)
}

func (s *snapshot) seen() provisioner.Snapshot {
	seen := s.Snapshot
	seen.Tags = maps.Clone(s.Tags)
	return seen
}

// List implements provisioner.Snapshots.
func (s snapshots) List(ctx context.Context, scope provisioner.Scope) ([]provisioner.Snapshot, error) {
	if _, err := s.p.enter(ctx, SnapshotsList, scope.ResourceGroup, ""); err != nil {
		return nil, s.p.leave(SnapshotsList, scope.ResourceGroup, "", err)
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.now()
	if !s.p.groupExists(scope.ResourceGroup) {
		err := provisioner.Errorf(provisioner.NotFound, "resource group %q does not exist", scope.ResourceGroup)
		return nil, s.p.logLocked(SnapshotsList, scope.ResourceGroup, "", err)
	}
	var all []provisioner.Snapshot
	for _, id := range slices.Sorted(maps.Keys(s.p.snapshots)) {
		if within(id, scope) {
			all = append(all, s.p.snapshots[id].seen())
		}
	}
	return all, s.p.logLocked(SnapshotsList, scope.ResourceGroup, "", nil)
}

// Delete implements provisioner.Snapshots.
func (s snapshots) Delete(ctx context.Context, id string) (provisioner.Operation, error) {
	return s.p.call(ctx, SnapshotsDelete, id, func(plan effect) (*operation, error) {
		if _, err := parseKind(id, kindSnapshot); err != nil {
			return nil, err
		}
		found, ok := s.p.snapshots[key(id)]
		switch {
		case !ok:
			return s.p.ended(), nil
		case found.deleting:
			return found.op, nil
		case found.op != nil:
			return nil, provisioner.Errorf(provisioner.Conflict, "another operation on snapshot %s is in flight", id)
		}
		found.deleting = true
		op := s.p.begin(s.p.options.Latency.DeleteSnapshot, plan,
			func() error { delete(s.p.snapshots, key(id)); return nil },
			func() { found.deleting, found.op = false, nil })
		if !op.ended {
			found.op = op
		}
		return op, nil
	})
}
