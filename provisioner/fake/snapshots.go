package fake

import (
	"context"
	"maps"
	"strings"
	"time"

	"k8s.io/utils/clock"

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
	if _, err := parseKind(spec.SourceID, kindDisk, kindSnapshot); err != nil {
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
	if !ok {
		return nil, provisioner.Errorf(provisioner.NotFound, "source %s does not exist", spec.SourceID)
	}
	if err := from.canBecome(spec); err != nil {
		return nil, err
	}
	made := &snapshot{
		Snapshot: provisioner.Snapshot{
			ID:          spec.ID,
			SourceID:    spec.SourceID,
			Location:    spec.Location,
			SizeBytes:   from.sizeBytes,
			Incremental: spec.Incremental,
			Created:     p.options.Clock.Now(),
			Tags:        maps.Clone(spec.Tags),
		},
		spec:  spec,
		clock: p.options.Clock,
	}
	p.snapshots[key(spec.ID)] = made
	op := p.begin(p.options.Latency.CreateSnapshot, plan, func() error {
		made.Cut, made.op = true, nil
		if from.snapshot || provisioned(from.skuName) {
			made.copy = p.beginCopy()
		}
		return nil
	}, func() { delete(p.snapshots, key(spec.ID)) })
	if !op.ended {
		made.op = op
	}
	return op, nil
}

// canBecome says what speaks against a snapshot of the source.
func (from source) canBecome(spec provisioner.SnapshotSpec) error {
	elsewhere := from.location != "" && !strings.EqualFold(from.location, spec.Location)
	instant := spec.InstantAccessMinutes
	switch {
	case from.snapshot && from.instant:
		return provisioner.Errorf(provisioner.Conflict, "source %s is not complete and cannot be copied yet", spec.SourceID)
	case !from.ready:
		return provisioner.Errorf(provisioner.Conflict, "source %s is not ready", spec.SourceID)
	case from.snapshot && !(from.incremental && spec.Incremental):
		return provisioner.Errorf(provisioner.InvalidArgument, "a copy is an incremental snapshot of an incremental snapshot")
	case !from.snapshot && elsewhere:
		return provisioner.Errorf(provisioner.InvalidArgument, "disk %s is in %s: its snapshot cannot be in %s", spec.SourceID,
			from.location, spec.Location)
	case !spec.Incremental && provisioned(from.skuName):
		return provisioner.Errorf(provisioner.InvalidArgument, "snapshots of a disk of SKU %s must be incremental", from.skuName)
	case instant != 0 && (instant < 60 || instant > 300 || from.snapshot || !provisioned(from.skuName)):
		return provisioner.Errorf(provisioner.InvalidArgument, "instant access for %d minutes is not possible", instant)
	}
	return nil
}

func provisioned(skuName string) bool { return skuName == "UltraSSD_LRS" || skuName == "PremiumV2_LRS" }

// backgroundCopy is a copy that goes on after the operation that began it. The zero value is
// complete.
type backgroundCopy struct {
	clock clock.PassiveClock
	began time.Time
	takes time.Duration
}

func (p *platform) beginCopy() backgroundCopy {
	return backgroundCopy{
		clock: p.options.Clock,
		began: p.options.Clock.Now(),
		takes: p.options.Latency.BackgroundCopy,
	}
}

func (c backgroundCopy) percent() float64 {
	if c.takes == 0 {
		return 100
	}
	return min(100*float64(c.clock.Since(c.began))/float64(c.takes), 100)
}

// FailCopy makes the background copy of a snapshot fail permanently. It does nothing if there is no
// such snapshot.
func (c *Cloud) FailCopy(id, reason string) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if s, ok := c.p.snapshots[key(id)]; ok {
		s.CopyFailure = reason
	}
}

// FinishCopies ends all background copies.
func (c *Cloud) FinishCopies() {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	for _, s := range c.p.snapshots {
		s.copy = backgroundCopy{}
	}
	for _, d := range c.p.disks {
		d.copy = backgroundCopy{}
	}
}

// SnapshotSpec returns what a snapshot was made with.
func (c *Cloud) SnapshotSpec(id string) (provisioner.SnapshotSpec, bool) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	s, ok := c.p.snapshots[key(id)]
	if !ok {
		return provisioner.SnapshotSpec{}, false
	}
	return s.spec, true
}

// Get implements provisioner.Snapshots.
func (s snapshots) Get(ctx context.Context, id string) (provisioner.Snapshot, error) {
	return read(ctx, s.p, SnapshotsGet, id, func() (provisioner.Snapshot, error) {
		if _, err := parseKind(id, kindSnapshot); err != nil {
			return provisioner.Snapshot{}, err
		}
		found, ok := s.p.snapshots[key(id)]
		if !ok {
			return provisioner.Snapshot{}, provisioner.Errorf(provisioner.NotFound, "snapshot %s does not exist", id)
		}
		return found.seen(), nil
	})
}

func (s *snapshot) seen() provisioner.Snapshot {
	seen := s.Snapshot
	seen.Tags = maps.Clone(s.Tags)
	seen.Cut = s.Cut && !s.deleting
	seen.CompletionPercent = s.copy.percent()
	seen.Ready = seen.Cut && s.CopyFailure == "" && (seen.CompletionPercent >= 100 || s.instant())
	return seen
}

// instant reports whether disks can be made from the snapshot before it is complete.
func (s *snapshot) instant() bool {
	until := s.Created.Add(time.Duration(s.spec.InstantAccessMinutes) * time.Minute)
	return s.spec.InstantAccessMinutes > 0 && s.clock.Now().Before(until)
}

// List implements provisioner.Snapshots.
func (s snapshots) List(ctx context.Context, scope provisioner.Scope) ([]provisioner.Snapshot, error) {
	return list(ctx, s.p, SnapshotsList, s.p.snapshots, scope)
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
