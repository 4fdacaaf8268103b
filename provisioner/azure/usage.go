package azure

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	// usageAge is how long the counters of a region are used, and usageRetry how long a failure to read them.
	usageAge   = time.Minute
	usageRetry = 10 * time.Second
)

// counters are the names under which Azure counts the disks of a SKU, and their sizes in GiB together where they are limited, too.
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

// usageCache keeps the counters of regions for a minute, so that many who ask cost Azure one call.
type usageCache struct {
	cloud *Cloud

	mu      sync.Mutex
	regions map[string]*usage // by subscription and region
}

// usage is what is left of the counters of a region.
type usage struct {
	reading chan struct{}    // holds a token while nobody reads
	read    time.Time        // when the last reading began
	left    map[string]int64 // by counter in lower case
	err     error
}

// Quota implements provisioner.SKUs. A counter that Azure does not name in a region limits nothing.
func (s *skuCache) Quota(ctx context.Context, subscriptionID, location, skuName string) (provisioner.DiskQuota, error) {
	names, ok := countersOf[strings.ToLower(skuName)]
	if !ok {
		return provisioner.DiskQuota{}, provisioner.Errorf(provisioner.NotFound, "there is no quota for disk SKU %q", skuName)
	}
	if subscriptionID == "" {
		subscriptionID = s.cloud.subscription
	}
	left, err := s.usages.left(ctx, subscriptionID, normalLocation(location), s.cloud.clock.Now().Add(-usageAge))
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

// left returns what is left of the counters of a region, by a reading that began at a time or later. Those who come while they are read wait for that reading.
func (u *usageCache) left(ctx context.Context, subscription, location string, since time.Time) (map[string]int64, error) {
	r := u.entry(strings.ToLower(subscription) + "/" + location)
	select {
	case <-r.reading:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { r.reading <- struct{}{} }()
	began := u.cloud.clock.Now()
	if r.err != nil && began.Sub(r.read) < usageRetry {
		return nil, r.err
	}
	if r.err == nil && !r.read.IsZero() && !r.read.Before(since) {
		return r.left, nil
	}
	left, err := u.list(ctx, subscription, location)
	if err != nil && ctx.Err() != nil {
		return nil, err // whoever asked has left; that says nothing of Azure
	}
	r.read, r.left, r.err = began, left, err
	return left, err
}

func (u *usageCache) entry(key string) *usage {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.regions == nil {
		u.regions = map[string]*usage{}
	}
	r, ok := u.regions[key]
	if !ok {
		r = &usage{reading: make(chan struct{}, 1)}
		r.reading <- struct{}{}
		u.regions[key] = r
	}
	return r
}

func (u *usageCache) list(ctx context.Context, subscription, location string) (map[string]int64, error) {
	in, err := u.cloud.in(subscription)
	if err != nil {
		return nil, err
	}
	left := map[string]int64{}
	for pager := in.usages.NewListPager(location, nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, translate(err, u.cloud.clock.Now(), "list the quotas of %s", location)
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
	return strings.ToLower(value(item.Name.Value)), max(0, *item.Limit-int64(value(item.CurrentValue))), true
}

// overQuota makes a refusal to create a disk InsufficientCapacity where the quota does not hold the disk. Azure's code for that is also
// its code for sources that are not ready, so the counters are read once more.
func (c *Cloud) overQuota(ctx context.Context, subscription string, spec provisioner.DiskSpec, refused error) error {
	var e *provisioner.Error
	if !errors.As(refused, &e) || e.Kind != provisioner.FailedPrecondition || e.Code != "OperationNotAllowed" {
		return refused
	}
	left, err := c.skus.usages.left(ctx, subscription, normalLocation(spec.Location), c.clock.Now())
	if err != nil {
		return refused // as good a word as there is
	}
	q := countersOf[strings.ToLower(spec.SKUName)].quota(left)
	if q.Disks == 0 || (q.SizeBytes != provisioner.Unlimited && q.SizeBytes < spec.SizeBytes) {
		return &provisioner.Error{Kind: provisioner.InsufficientCapacity, Code: e.Code, Message: e.Message, Err: refused}
	}
	return refused
}
