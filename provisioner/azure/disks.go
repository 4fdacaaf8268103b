package azure

import (
	"context"
	"errors"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/batch"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/client"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

type disks struct{ cloud *Cloud }

// readDisk reads a disk that must exist.
func (c *Cloud) readDisk(ctx context.Context, id string) (batch.Disk, error) {
	r, err := c.api.Parse(id, client.TypeDisk)
	if err != nil {
		return batch.Disk{}, err
	}
	got, err := r.Disks.Get(ctx, r.ResourceGroupName, r.Name, nil)
	if err != nil {
		return batch.Disk{}, c.api.Translate(err, "read disk %s", r.Name)
	}
	if got.Properties == nil || operation.Key(client.Value(got.ID)) != operation.Key(id) {
		return batch.Disk{}, incomplete("disk", r.Name) // without properties it does not say that no VM has the disk
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
	in, err := d.cloud.api.In(scope.SubscriptionID)
	if err != nil {
		return nil, err
	}
	var all []provisioner.Disk
	err = client.Each(ctx, in.Disks.NewListByResourceGroupPager(scope.ResourceGroup, nil),
		func(page armcompute.DisksClientListByResourceGroupResponse) []*armcompute.Disk { return page.Value },
		func(item *armcompute.Disk) { all = append(all, viewOfDisk(item).Disk) })
	return all, d.cloud.api.Translate(err, "list disks of %s", scope.ResourceGroup)
}

// Create implements provisioner.Disks. The disk is read first, since a PUT would change one that
// exists.
func (d disks) Create(ctx context.Context, spec provisioner.DiskSpec) (provisioner.Operation, error) {
	r, err := d.cloud.api.Parse(spec.ID, client.TypeDisk)
	if err != nil {
		return nil, err
	}
	if spec.SizeBytes <= 0 || spec.SizeBytes%gib != 0 {
		return nil, provisioner.Errorf(provisioner.InvalidArgument,
			"create disk %s: the size is %d bytes; expected a positive multiple of 1 GiB", r.Name, spec.SizeBytes)
	}
	found, err := d.cloud.readDisk(ctx, spec.ID)
	switch {
	case err == nil && found.State == operation.StateDeleting:
		return nil, provisioner.Errorf(provisioner.Conflict, "create disk %s: a disk of that name is being deleted", r.Name)
	case err == nil && !fits(found.Disk, spec):
		return nil, provisioner.Errorf(provisioner.AlreadyExists,
			"create disk %s: it exists and differs in size, SKU, shares, zone or source", r.Name)
	case err == nil && (found.State == operation.StateCreating || found.State == operation.StateUpdating):
		return d.cloud.observe(operation.CreateDisk, spec.ID), nil
	case err == nil && found.State != operation.StateFailed:
		return operation.Ended{}, nil
	case err != nil && !errors.Is(err, provisioner.NotFound):
		return nil, err
	}
	body := newDisk(spec)
	body.ExtendedLocation = d.cloud.extendedLocation()
	p, err := client.Wrap(r.Disks.BeginCreateOrUpdate(ctx, r.ResourceGroupName, r.Name, body, nil))
	op, err := d.cloud.begun(operation.CreateDisk, spec.ID, p, err)
	err = d.cloud.whereSourceIs(ctx, spec.SourceID, spec.Location, err)
	return op, d.cloud.skus.OverQuota(ctx, r.SubscriptionID, spec, err)
}

func fits(d provisioner.Disk, spec provisioner.DiskSpec) bool {
	return d.SizeBytes == spec.SizeBytes && strings.EqualFold(d.SKUName, spec.SKUName) && d.MaxShares == max(spec.MaxShares, 1) &&
		d.Zone == spec.Zone && operation.Key(d.SourceID) == operation.Key(spec.SourceID)
}

// Delete implements provisioner.Disks. The disk is read first, because Azure has been seen to
// delete a disk that was being attached.
func (d disks) Delete(ctx context.Context, id string) (provisioner.Operation, error) {
	r, err := d.cloud.api.Parse(id, client.TypeDisk)
	if err != nil {
		return nil, err
	}
	found, err := d.cloud.readDisk(ctx, id)
	switch {
	case errors.Is(err, provisioner.NotFound):
		return operation.Ended{}, nil
	case err != nil:
		return nil, err
	case len(found.AttachedTo) > 0:
		return nil, provisioner.Errorf(provisioner.FailedPrecondition, "delete disk %s: it is attached to %s", r.Name,
			strings.Join(found.AttachedTo, ", "))
	case found.State == operation.StateDeleting:
		return d.cloud.observe(operation.DeleteDisk, id), nil
	}
	p, err := client.Wrap(r.Disks.BeginDelete(ctx, r.ResourceGroupName, r.Name, nil))
	return d.cloud.begun(operation.DeleteDisk, id, p, err)
}

// Resume implements provisioner.Disks. It takes the tokens of snapshots' operations, too.
func (d disks) Resume(ctx context.Context, text string) (provisioner.Operation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := operation.ParseToken(text, operation.CreateDisk, operation.UpdateDisk, operation.DeleteDisk,
		operation.CreateSnapshot, operation.DeleteSnapshot)
	if err != nil {
		return nil, err
	}
	r, err := d.cloud.api.Parse(t.ID, client.TypeDisk, client.TypeSnapshot)
	if err != nil {
		return nil, err
	}
	if t.SDK == "" {
		return d.cloud.observe(t.Kind, t.ID), nil
	}
	p, err := resume(ctx, r, t)
	if err != nil {
		return nil, provisioner.Errorf(provisioner.InvalidArgument, "resume the %s of %s: %w", t.Kind, t.ID, err)
	}
	return resourceOperation{
		cloud: d.cloud,
		text:  text,
		Operation: d.cloud.api.Follow(operation.Following{
			Kind:     t.Kind,
			Usual:    operation.Usual(t.Kind, 1),
			Resource: t.ID,
			Resumed:  true,
		}, p),
		id: t.ID,
	}, nil
}

func resume(ctx context.Context, r client.Resource, t operation.Token) (client.SDKPoller, error) {
	group, name := r.ResourceGroupName, r.Name
	switch t.Kind {
	case operation.CreateDisk:
		return client.Wrap(r.Disks.BeginCreateOrUpdate(ctx, group, name, armcompute.Disk{},
			&armcompute.DisksClientBeginCreateOrUpdateOptions{ResumeToken: t.SDK}))
	case operation.UpdateDisk:
		return client.Wrap(r.Disks.BeginUpdate(ctx, group, name, armcompute.DiskUpdate{},
			&armcompute.DisksClientBeginUpdateOptions{ResumeToken: t.SDK}))
	case operation.DeleteDisk:
		return client.Wrap(r.Disks.BeginDelete(ctx, group, name, &armcompute.DisksClientBeginDeleteOptions{ResumeToken: t.SDK}))
	case operation.CreateSnapshot:
		return client.Wrap(r.Snapshots.BeginCreateOrUpdate(ctx, group, name, armcompute.Snapshot{},
			&armcompute.SnapshotsClientBeginCreateOrUpdateOptions{ResumeToken: t.SDK}))
	default:
		return client.Wrap(r.Snapshots.BeginDelete(ctx, group, name,
			&armcompute.SnapshotsClientBeginDeleteOptions{ResumeToken: t.SDK}))
	}
}
