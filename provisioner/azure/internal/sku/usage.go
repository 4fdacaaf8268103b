package sku

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/client"
)

const (
	// usageAge is how long the counters of a region are used, and usageRetry how long a failure to
	// read them.
	usageAge   = time.Minute
	usageRetry = 10 * time.Second
)

// counters are the names of Azure's counters for the disks of a SKU, and for the sum of their sizes
// in GiB where that is limited too.
type counters struct{ disks, gib string }

var countersOf = map[string]counters{
	"standard_lrs":    {disks: "StandardDiskCount"},
	"standardssd_lrs": {disks: "StandardSSDDiskCount"},
	"standardssd_zrs": {disks: "StandardSSDZRSDiskCount"},
	"premium_lrs":     {disks: "PremiumDiskCount"},
	"premium_zrs":     {disks: "PremiumZRSDiskCount"},
	"premiumv2_lrs":   {disks: "PremiumV2DiskCount", gib: "PremiumV2DiskSizeInGB"},
	"ultrassd_lrs":    {disks: "UltraSSDDiskCount", gib: "UltraSSDDiskSizeInGB"},
}

// Quota implements provisioner.SKUs. A counter that Azure does not name in a region limits nothing.
func (c *Catalog) Quota(ctx context.Context, subscriptionID, location, skuName string) (provisioner.DiskQuota, error) {
	names, ok := countersOf[strings.ToLower(skuName)]
	if !ok {
		return provisioner.DiskQuota{}, provisioner.Errorf(provisioner.NotFound, "there is no quota for disk SKU %q", skuName)
	}
	if subscriptionID == "" {
		subscriptionID = c.client.SubscriptionID
	}
	left, err := c.leftOf(ctx, subscriptionID, location, c.client.Clock.Now().Add(-usageAge))
	if err != nil {
		return provisioner.DiskQuota{}, err
	}
	return names.quota(left), nil
}

func (n counters) quota(left map[string]int64) provisioner.DiskQuota {
	q := provisioner.DiskQuota{Disks: provisioner.Unlimited, SizeBytes: provisioner.Unlimited}
	if disks, ok := left[strings.ToLower(n.disks)]; ok {
		q.Disks = disks
	}
	if sizes, ok := left[strings.ToLower(n.gib)]; ok && n.gib != "" {
		q.SizeBytes = min(sizes, 1<<32) * gib
	}
	return q
}

// leftOf returns the remaining counters of a region, from a read that began at a time or later.
func (c *Catalog) leftOf(ctx context.Context, subscription, location string, since time.Time) (map[string]int64, error) {
	location = client.NormalLocation(location)
	now := c.client.Clock.Now
	valid := func(a *answer[map[string]int64]) bool {
		if a.err != nil {
			return now().Sub(a.at) < usageRetry
		}
		return !a.at.Before(since)
	}
	return c.left.get(ctx, strings.ToLower(subscription)+"/"+location, now, valid, func() (map[string]int64, error) {
		return c.listUsage(ctx, subscription, location)
	})
}

func (c *Catalog) listUsage(ctx context.Context, subscription, location string) (map[string]int64, error) {
	in, err := c.client.In(subscription)
	if err != nil {
		return nil, err
	}
	left := map[string]int64{}
	err = client.Each(ctx, in.Usages.NewListPager(location, nil),
		func(page armcompute.UsageClientListResponse) []*armcompute.Usage { return page.Value },
		func(item *armcompute.Usage) {
			if name, n, ok := counterOf(item); ok {
				left[name] = n
			}
		})
	return left, c.client.Translate(err, "list the quotas of %s", location)
}

// counterOf returns a counter's name in lower case and its remainder; ok is false if the counter
// has no limit.
func counterOf(item *armcompute.Usage) (name string, left int64, ok bool) {
	if item.Name == nil || item.Limit == nil || *item.Limit < 0 {
		return "", 0, false
	}
	return strings.ToLower(client.Value(item.Name.Value)), max(0, *item.Limit-int64(client.Value(item.CurrentValue))), true
}

// OverQuota makes the refusal to create a disk InsufficientCapacity if the quota has no room for
// the disk. Azure uses the same code for a source that is not ready, so the counters are read
// again.
func (c *Catalog) OverQuota(ctx context.Context, subscription string, spec provisioner.DiskSpec, refused error) error {
	var e *provisioner.Error
	if !errors.As(refused, &e) || e.Kind != provisioner.FailedPrecondition || e.Code != "OperationNotAllowed" {
		return refused
	}
	left, err := c.leftOf(ctx, subscription, spec.Location, c.client.Clock.Now())
	if err != nil {
		return refused
	}
	q := countersOf[strings.ToLower(spec.SKUName)].quota(left)
	if q.Disks == 0 || (q.SizeBytes != provisioner.Unlimited && q.SizeBytes < spec.SizeBytes) {
		return &provisioner.Error{
			Kind:    provisioner.InsufficientCapacity,
			Code:    e.Code,
			Message: e.Message,
			Err:     refused,
		}
	}
	return refused
}
