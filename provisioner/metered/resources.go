package metered

import (
	"context"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

type disks struct {
	next provisioner.Disks
	m    *meters
}

// Create implements provisioner.Disks.
func (d disks) Create(ctx context.Context, spec provisioner.DiskSpec) (provisioner.Operation, error) {
	return begin(d.m, "Disks.Create", func() (provisioner.Operation, error) { return d.next.Create(ctx, spec) })
}

// Get implements provisioner.Disks.
func (d disks) Get(ctx context.Context, id string) (provisioner.Disk, error) {
	return measure(d.m, "Disks.Get", func() (provisioner.Disk, error) { return d.next.Get(ctx, id) })
}

// List implements provisioner.Disks.
func (d disks) List(ctx context.Context, scope provisioner.Scope) ([]provisioner.Disk, error) {
	return measure(d.m, "Disks.List", func() ([]provisioner.Disk, error) { return d.next.List(ctx, scope) })
}

// Update implements provisioner.Disks.
func (d disks) Update(ctx context.Context, id string, change provisioner.DiskChange) (provisioner.Operation, error) {
	return begin(d.m, "Disks.Update", func() (provisioner.Operation, error) { return d.next.Update(ctx, id, change) })
}

// Delete implements provisioner.Disks.
func (d disks) Delete(ctx context.Context, id string) (provisioner.Operation, error) {
	return begin(d.m, "Disks.Delete", func() (provisioner.Operation, error) { return d.next.Delete(ctx, id) })
}

// Resume implements provisioner.Disks.
func (d disks) Resume(ctx context.Context, token string) (provisioner.Operation, error) {
	return begin(d.m, "Disks.Resume", func() (provisioner.Operation, error) { return d.next.Resume(ctx, token) })
}

type snapshots struct {
	next provisioner.Snapshots
	m    *meters
}

// Create implements provisioner.Snapshots.
func (s snapshots) Create(ctx context.Context, spec provisioner.SnapshotSpec) (provisioner.Operation, error) {
	return begin(s.m, "Snapshots.Create", func() (provisioner.Operation, error) { return s.next.Create(ctx, spec) })
}

// Get implements provisioner.Snapshots.
func (s snapshots) Get(ctx context.Context, id string) (provisioner.Snapshot, error) {
	return measure(s.m, "Snapshots.Get", func() (provisioner.Snapshot, error) { return s.next.Get(ctx, id) })
}

// List implements provisioner.Snapshots.
func (s snapshots) List(ctx context.Context, scope provisioner.Scope) ([]provisioner.Snapshot, error) {
	return measure(s.m, "Snapshots.List", func() ([]provisioner.Snapshot, error) { return s.next.List(ctx, scope) })
}

// Delete implements provisioner.Snapshots.
func (s snapshots) Delete(ctx context.Context, id string) (provisioner.Operation, error) {
	return begin(s.m, "Snapshots.Delete", func() (provisioner.Operation, error) { return s.next.Delete(ctx, id) })
}

type attachments struct {
	next provisioner.Attachments
	m    *meters
}

// Attach implements provisioner.Attachments.
func (a attachments) Attach(ctx context.Context, request provisioner.AttachRequest) (provisioner.Operation, error) {
	return begin(a.m, "Attachments.Attach", func() (provisioner.Operation, error) { return a.next.Attach(ctx, request) })
}

// Detach implements provisioner.Attachments.
func (a attachments) Detach(ctx context.Context, vmID, diskID string) (provisioner.Operation, error) {
	return begin(a.m, "Attachments.Detach", func() (provisioner.Operation, error) { return a.next.Detach(ctx, vmID, diskID) })
}

// ForceDetach implements provisioner.Attachments.
func (a attachments) ForceDetach(ctx context.Context, vmID, diskID string) (provisioner.Operation, error) {
	return begin(a.m, "Attachments.ForceDetach", func() (provisioner.Operation, error) { return a.next.ForceDetach(ctx, vmID, diskID) })
}

// List implements provisioner.Attachments.
func (a attachments) List(ctx context.Context, vmID string) ([]provisioner.Attachment, error) {
	return measure(a.m, "Attachments.List", func() ([]provisioner.Attachment, error) { return a.next.List(ctx, vmID) })
}

// Resume implements provisioner.Attachments.
func (a attachments) Resume(ctx context.Context, token string) (provisioner.Operation, error) {
	return begin(a.m, "Attachments.Resume", func() (provisioner.Operation, error) { return a.next.Resume(ctx, token) })
}

// Expect implements provisioner.Attachments.
func (a attachments) Expect(vmID, diskID string) (done func()) { return a.next.Expect(vmID, diskID) }

// Waiting implements provisioner.Attachments.
func (a attachments) Waiting(vmID, diskID string) provisioner.Waiting {
	return a.next.Waiting(vmID, diskID)
}

type instances struct {
	next provisioner.Instances
	m    *meters
}

// Get implements provisioner.Instances.
func (i instances) Get(ctx context.Context, vmID string) (provisioner.Instance, error) {
	return measure(i.m, "Instances.Get", func() (provisioner.Instance, error) { return i.next.Get(ctx, vmID) })
}

type skus struct {
	next provisioner.SKUs
	m    *meters
}

// VM implements provisioner.SKUs.
func (s skus) VM(ctx context.Context, location, vmSize string) (provisioner.VMLimits, error) {
	return measure(s.m, "SKUs.VM", func() (provisioner.VMLimits, error) { return s.next.VM(ctx, location, vmSize) })
}

// Quota implements provisioner.SKUs.
func (s skus) Quota(ctx context.Context, subscriptionID, location, skuName string) (provisioner.DiskQuota, error) {
	return measure(s.m, "SKUs.Quota", func() (provisioner.DiskQuota, error) { return s.next.Quota(ctx, subscriptionID, location, skuName) })
}

// Disk implements provisioner.SKUs.
func (s skus) Disk(ctx context.Context, location, skuName string, sizeBytes int64) (provisioner.DiskLimits, error) {
	return measure(s.m, "SKUs.Disk", func() (provisioner.DiskLimits, error) { return s.next.Disk(ctx, location, skuName, sizeBytes) })
}
