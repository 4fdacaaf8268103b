package fake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

type disks struct{ p *platform }

// Create implements provisioner.Disks.
func (d disks) Create(ctx context.Context, spec provisioner.DiskSpec) (provisioner.Operation, error) {
	return d.p.call(ctx, DisksCreate, spec.ID, func(plan effect) (*operation, error) {
		return d.p.createDisk(spec, plan)
	})
}

func (p *platform) createDisk(spec provisioner.DiskSpec, plan effect) (*operation, error) {
	r, err := parseKind(spec.ID, kindDisk)
	if err != nil {
		return nil, err
	}
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	if !p.groupExists(r.group) {
		return nil, provisioner.Errorf(provisioner.NotFound, "resource group %q does not exist", r.group)
	}
	if found, ok := p.disks[key(spec.ID)]; ok {
		return p.createAgain(found, spec)
	}
	if err := p.checkSource(spec); err != nil {
		return nil, err
	}
	if err := p.checkQuota(spec); err != nil {
		return nil, err
	}
	p.serial++
	made := &disk{Disk: provisioner.Disk{
		ID:                    spec.ID,
		UniqueID:              fmt.Sprintf("fake-disk-%d", p.serial),
		Location:              spec.Location,
		Zone:                  spec.Zone,
		SizeBytes:             spec.SizeBytes,
		MaxShares:             spec.MaxShares,
		SourceID:              spec.SourceID,
		DiskSettings:          spec.DiskSettings,
		ImmutableDiskSettings: spec.ImmutableDiskSettings,
	}}
	made.Tags, made.RemovedTags = maps.Clone(spec.Tags), nil
	p.disks[key(spec.ID)] = made
	op := p.begin(p.options.Latency.CreateDisk, plan,
		func() error {
			made.Ready, made.op = true, nil
			if from, ok := p.sourceOf(spec.SourceID); ok && from.snapshot && provisioned(spec.SKUName) {
				made.copy = p.beginCopy()
			}
			return nil
		},
		func() { delete(p.disks, key(spec.ID)) })
	if !op.ended {
		made.op = op
	}
	return op, nil
}

// createAgain answers the creation of a disk that exists.
func (p *platform) createAgain(found *disk, spec provisioner.DiskSpec) (*operation, error) {
	switch {
	case found.deleting:
		return nil, provisioner.Errorf(provisioner.Conflict, "disk %s is being deleted", found.ID)
	case found.SizeBytes != spec.SizeBytes || found.SKUName != spec.SKUName || found.MaxShares != spec.MaxShares ||
		found.Zone != spec.Zone || !strings.EqualFold(found.SourceID, spec.SourceID):
		return nil, provisioner.Errorf(provisioner.AlreadyExists, "disk %s exists and differs", found.ID)
	case found.op != nil:
		return found.op, nil
	}
	return p.ended(), nil
}

func (p *platform) checkSource(spec provisioner.DiskSpec) error {
	if spec.SourceID == "" {
		return nil
	}
	if _, err := parseKind(spec.SourceID, kindDisk, kindSnapshot); err != nil {
		return err
	}
	source, ok := p.sourceOf(spec.SourceID)
	switch {
	case !ok:
		return provisioner.Errorf(provisioner.NotFound, "source %s does not exist", spec.SourceID)
	case !source.ready:
		return provisioner.Errorf(provisioner.Conflict, "source %s is not ready", spec.SourceID)
	case spec.SizeBytes < source.sizeBytes:
		return provisioner.Errorf(provisioner.InvalidArgument, "size %d is smaller than the source's %d", spec.SizeBytes,
			source.sizeBytes)
	}
	return nil
}

// source is a disk or snapshot that something is made from.
type source struct {
	ready             bool
	sizeBytes         int64
	location, skuName string
	// snapshot, and what is known of one; instant says that it is ready before it is complete.
	snapshot, incremental, instant bool
}

func (p *platform) sourceOf(id string) (source, bool) {
	if d, ok := p.disks[key(id)]; ok {
		return source{
			ready:     d.Ready && !d.deleting && d.copy.percent() >= 100,
			sizeBytes: d.SizeBytes,
			location:  d.Location,
			skuName:   d.SKUName,
		}, true
	}
	if s, ok := p.snapshots[key(id)]; ok {
		seen := s.seen()
		return source{
			ready:       seen.Ready,
			sizeBytes:   s.SizeBytes,
			location:    s.Location,
			snapshot:    true,
			incremental: s.Incremental,
			instant:     seen.Ready && seen.CompletionPercent < 100,
		}, true
	}
	return source{}, false
}

// Get implements provisioner.Disks.
func (d disks) Get(ctx context.Context, id string) (provisioner.Disk, error) {
	return read(ctx, d.p, DisksGet, id, func() (provisioner.Disk, error) {
		if _, err := parseKind(id, kindDisk); err != nil {
			return provisioner.Disk{}, err
		}
		found, ok := d.p.disks[key(id)]
		if !ok {
			return provisioner.Disk{}, noDisk(id)
		}
		return found.seen(), nil
	})
}

func noDisk(id string) error {
	return provisioner.Errorf(provisioner.NotFound, "disk %s does not exist", id)
}

func (d *disk) seen() provisioner.Disk {
	seen := d.Disk
	seen.Tags, seen.AttachedTo = maps.Clone(d.Tags), slices.Clone(d.AttachedTo)
	seen.CompletionPercent = min(d.copy.percent(), d.conversion.percent())
	seen.Ready = d.Ready && d.op == nil && d.copy.percent() >= 100
	return seen
}

// List implements provisioner.Disks.
func (d disks) List(ctx context.Context, scope provisioner.Scope) ([]provisioner.Disk, error) {
	return list(ctx, d.p, DisksList, d.p.disks, scope)
}

// Update implements provisioner.Disks.
func (d disks) Update(ctx context.Context, id string, change provisioner.DiskChange) (provisioner.Operation, error) {
	return d.p.call(ctx, DisksUpdate, id, func(plan effect) (*operation, error) {
		return d.p.updateDisk(id, change, plan)
	})
}

// Delete implements provisioner.Disks.
func (d disks) Delete(ctx context.Context, id string) (provisioner.Operation, error) {
	return d.p.call(ctx, DisksDelete, id, func(plan effect) (*operation, error) {
		return d.p.deleteDisk(id, plan)
	})
}

func (p *platform) deleteDisk(id string, plan effect) (*operation, error) {
	if _, err := parseKind(id, kindDisk); err != nil {
		return nil, err
	}
	found, ok := p.disks[key(id)]
	switch {
	case !ok:
		return p.ended(), nil
	case found.deleting:
		return found.op, nil
	case found.op != nil:
		return nil, provisioner.Errorf(provisioner.Conflict, "another operation on disk %s is in flight", id)
	case len(found.AttachedTo) > 0: // as at Azure, a disk that is being attached can be deleted
		return nil, provisioner.Errorf(provisioner.FailedPrecondition, "disk %s is attached to %s", id,
			strings.Join(found.AttachedTo, ", "))
	}
	found.deleting = true
	op := p.begin(p.options.Latency.DeleteDisk, plan,
		func() error { delete(p.disks, key(id)); return nil },
		func() { found.deleting, found.op = false, nil })
	if !op.ended {
		found.op = op
	}
	return op, nil
}

// Resume implements provisioner.Disks.
func (d disks) Resume(ctx context.Context, token string) (provisioner.Operation, error) {
	return d.p.resume(ctx, DisksResume, token)
}
