package azure

import (
	"context"
	"errors"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Provisioning states.
const (
	stateSucceeded = "Succeeded"
	stateCreating  = "Creating"
	stateUpdating  = "Updating"
	stateDeleting  = "Deleting"
	stateFailed    = "Failed"
)

type disks struct{ cloud *Cloud }

// diskView is a disk as it was read.
type diskView struct {
	provisioner.Disk
	state string
}

// readDisk reads a disk that must exist.
func (c *Cloud) readDisk(ctx context.Context, id string) (diskView, error) {
	r, err := c.parse(id, typeDisk)
	if err != nil {
		return diskView{}, err
	}
	got, err := r.disks.Get(ctx, r.ResourceGroupName, r.Name, nil)
	if err != nil {
		return diskView{}, translate(err, c.clock.Now(), "read disk %s", r.Name)
	}
	return viewOfDisk(&got.Disk), nil
}

// Get implements provisioner.Disks.
func (d disks) Get(ctx context.Context, id string) (provisioner.Disk, error) {
	seen, err := d.cloud.readDisk(ctx, id)
	return seen.Disk, err
}

// List implements provisioner.Disks.
func (d disks) List(ctx context.Context, scope provisioner.Scope) ([]provisioner.Disk, error) {
	in, err := d.cloud.in(scope.SubscriptionID)
	if err != nil {
		return nil, err
	}
	var all []provisioner.Disk
	for pager := in.disks.NewListByResourceGroupPager(scope.ResourceGroup, nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, translate(err, d.cloud.clock.Now(), "list disks of %s", scope.ResourceGroup)
		}
		for _, item := range page.Value {
			if item == nil {
				continue
			}
			all = append(all, viewOfDisk(item).Disk)
		}
	}
	return all, nil
}

// Create implements provisioner.Disks. The disk is read first, since a PUT would change one that exists.
func (d disks) Create(ctx context.Context, spec provisioner.DiskSpec) (provisioner.Operation, error) {
	r, err := d.cloud.parse(spec.ID, typeDisk)
	if err != nil {
		return nil, err
	}
	if spec.SizeBytes <= 0 || spec.SizeBytes%gib != 0 {
		return nil, provisioner.Errorf(provisioner.InvalidArgument, "size %d is not a positive multiple of 1 GiB", spec.SizeBytes)
	}
	found, err := d.cloud.readDisk(ctx, spec.ID)
	switch {
	case err == nil && found.state == stateDeleting:
		return nil, provisioner.Errorf(provisioner.Conflict, "disk %s is being deleted", r.Name)
	case err == nil && !fits(found.Disk, spec):
		return nil, provisioner.Errorf(provisioner.AlreadyExists, "disk %s exists and differs in size, SKU, shares, zone or source", r.Name)
	case err == nil && (found.state == stateCreating || found.state == stateUpdating):
		return d.cloud.observe(kindCreateDisk, spec.ID), nil
	case err == nil && found.state != stateFailed:
		return ended{}, nil
	case err != nil && !errors.Is(err, provisioner.NotFound):
		return nil, err
	}
	body := newDisk(spec)
	body.ExtendedLocation = d.cloud.extendedLocation()
	p, err := wrap(r.disks.BeginCreateOrUpdate(ctx, r.ResourceGroupName, r.Name, body, nil))
	op, err := d.cloud.begun(kindCreateDisk, spec.ID, p, err)
	return op, d.cloud.overQuota(ctx, r.SubscriptionID, spec, err)
}

func fits(d provisioner.Disk, spec provisioner.DiskSpec) bool {
	return d.SizeBytes == spec.SizeBytes && strings.EqualFold(d.SKUName, spec.SKUName) && d.MaxShares == max(spec.MaxShares, 1) &&
		d.Zone == spec.Zone && key(d.SourceID) == key(spec.SourceID)
}

// Delete implements provisioner.Disks. The disk is read first: Azure has been seen to delete a disk that was on its way to a VM.
func (d disks) Delete(ctx context.Context, id string) (provisioner.Operation, error) {
	r, err := d.cloud.parse(id, typeDisk)
	if err != nil {
		return nil, err
	}
	found, err := d.cloud.readDisk(ctx, id)
	switch {
	case errors.Is(err, provisioner.NotFound):
		return ended{}, nil
	case err != nil:
		return nil, err
	case len(found.AttachedTo) > 0:
		return nil, provisioner.Errorf(provisioner.FailedPrecondition, "disk %s is attached to %s", r.Name, strings.Join(found.AttachedTo, ", "))
	case found.state == stateDeleting:
		return d.cloud.observe(kindDeleteDisk, id), nil
	}
	p, err := wrap(r.disks.BeginDelete(ctx, r.ResourceGroupName, r.Name, nil))
	return d.cloud.begun(kindDeleteDisk, id, p, err)
}

// Resume implements provisioner.Disks. It takes the tokens of snapshots' operations, too.
func (d disks) Resume(ctx context.Context, text string) (provisioner.Operation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := parseToken(text, kindCreateDisk, kindUpdateDisk, kindDeleteDisk, kindCreateSnapshot, kindDeleteSnapshot)
	if err != nil {
		return nil, err
	}
	r, err := d.cloud.parse(t.ID, typeDisk, typeSnapshot)
	if err != nil {
		return nil, err
	}
	if t.SDK == "" {
		return d.cloud.observe(t.Kind, t.ID), nil
	}
	p, err := r.resume(ctx, t)
	if err != nil {
		return nil, provisioner.Errorf(provisioner.InvalidArgument, "resume: %w", err)
	}
	return resourceOperation{cloud: d.cloud, text: text, lro: d.cloud.follow(t.Kind, t.ID, p, true), id: t.ID}, nil
}

func (r resource) resume(ctx context.Context, t token) (poller, error) {
	group, name := r.ResourceGroupName, r.Name
	switch t.Kind {
	case kindCreateDisk:
		return wrap(r.disks.BeginCreateOrUpdate(ctx, group, name, armcompute.Disk{}, &armcompute.DisksClientBeginCreateOrUpdateOptions{ResumeToken: t.SDK}))
	case kindUpdateDisk:
		return wrap(r.disks.BeginUpdate(ctx, group, name, armcompute.DiskUpdate{}, &armcompute.DisksClientBeginUpdateOptions{ResumeToken: t.SDK}))
	case kindDeleteDisk:
		return wrap(r.disks.BeginDelete(ctx, group, name, &armcompute.DisksClientBeginDeleteOptions{ResumeToken: t.SDK}))
	case kindCreateSnapshot:
		return wrap(r.snapshots.BeginCreateOrUpdate(ctx, group, name, armcompute.Snapshot{}, &armcompute.SnapshotsClientBeginCreateOrUpdateOptions{ResumeToken: t.SDK}))
	default:
		return wrap(r.snapshots.BeginDelete(ctx, group, name, &armcompute.SnapshotsClientBeginDeleteOptions{ResumeToken: t.SDK}))
	}
}
