package sku

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/client"
)

const (
	// usageAge is how long the counters of a region are used, and usageRetry how long a failure to read them.
	usageAge   = time.Minute
	usageRetry = 10 * time.Second
)

// counters are the names of Azure's counters for the disks of a SKU, and for the sum of their sizes in GiB where that is limited too.
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

// usageCache keeps the counters of regions for a minute, so that many questions cost one call.
type usageCache struct {
	options Options

	mu      sync.Mutex
	regions map[string]*usage // by subscription and region
}

// usage is what is left of the counters of a region.
type usage struct {
	reading chan struct{}    // holds a token unless the counters are being read; callers wait for it
	read    time.Time        // when the last reading began
	left    map[string]int64 // by counter in lower case
	err     error
}

// Quota implements provisioner.SKUs. A counter that Azure does not name in a region limits nothing.
func (c *Catalog) Quota(ctx context.Context, subscriptionID, location, skuName string) (provisioner.DiskQuota, error) {
	names, ok := countersOf[strings.ToLower(skuName)]
	if !ok {
		return provisioner.DiskQuota{}, provisioner.Errorf(provisioner.NotFound, "there is no quota for disk SKU %q", skuName)
	}
	if subscriptionID == "" {
		subscriptionID = c.SubscriptionID
	}
	left, err := c.usages.left(ctx, subscriptionID, client.NormalLocation(location), c.Clock.Now().Add(-usageAge))
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

// left returns what is left of the counters of a region, by a reading that began at a time or later. Callers wait for a reading in flight.
func (u *usageCache) left(ctx context.Context, subscription, location string, since time.Time) (map[string]int64, error) {
	r := u.entry(strings.ToLower(subscription) + "/" + location)
	select {
	case <-r.reading:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { r.reading <- struct{}{} }()
	began := u.options.Clock.Now()
	if r.err != nil && began.Sub(r.read) < usageRetry {
		return nil, r.err
	}
	if r.err == nil && !r.read.IsZero() && !r.read.Before(since) {
		return r.left, nil
	}
	left, err := u.list(ctx, subscription, location)
	if err != nil && ctx.Err() != nil {
		return nil, err // the caller has left, which says nothing about Azure
	}
	r.read, r.left, r.err = began, left, err
	return left, err
}

func (u *usageCache) entry(key string) *usage {
	u.mu.Lock()
	defer u.mu.Unlock()
	r, ok := u.regions[key]
	if !ok {
		r = &usage{reading: make(chan struct{}, 1)}
		r.reading <- struct{}{}
		u.regions[key] = r
	}
	return r
}

func (u *usageCache) list(ctx context.Context, subscription, location string) (map[string]int64, error) {
	in, err := u.options.Client.In(subscription)
	if err != nil {
		return nil, err
	}
	left := map[string]int64{}
	for pager := in.Usages.NewListPager(location, nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, u.options.Client.Translate(err, "list the quotas of %s", location)
		}
		for _, item := range page.Value {
			if name, n, ok := counterOf(item); ok {
				left[name] = n
			}
		}
	}
	return left, nil
}

// counterOf returns a counter's name in lower case and what is left of it; ok is false for one without a limit.
func counterOf(item *armcompute.Usage) (name string, left int64, ok bool) {
	if item == nil || item.Name == nil || item.Limit == nil || *item.Limit < 0 {
		return "", 0, false
	}
	return strings.ToLower(client.Value(item.Name.Value)), max(0, *item.Limit-int64(client.Value(item.CurrentValue))), true
}

// OverQuota makes the refusal to create a disk InsufficientCapacity if the quota has no room for the disk. Azure uses the same code for a source that is not
// ready, so the counters are read again.
func (c *Catalog) OverQuota(ctx context.Context, subscription string, spec provisioner.DiskSpec, refused error) error {
	var e *provisioner.Error
	if !errors.As(refused, &e) || e.Kind != provisioner.FailedPrecondition || e.Code != "OperationNotAllowed" {
		return refused
	}
	left, err := c.usages.left(ctx, subscription, client.NormalLocation(spec.Location), c.Clock.Now())
	if err != nil {
		return refused
	}
	q := countersOf[strings.ToLower(spec.SKUName)].quota(left)
	if q.Disks == 0 || (q.SizeBytes != provisioner.Unlimited && q.SizeBytes < spec.SizeBytes) {
		return &provisioner.Error{Kind: provisioner.InsufficientCapacity, Code: e.Code, Message: e.Message, Err: refused}
	}
	return refused
}
