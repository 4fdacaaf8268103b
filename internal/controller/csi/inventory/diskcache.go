package inventory

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// disksAge is how long the disks of a resource group, as Azure listed them, are used: the attacher
// asks for all volumes every minute.
const disksAge = 5 * time.Minute

// mostLookedFor limits how many disks that are not in a list one call reads one by one.
const mostLookedFor = 10

// diskCache has the disks of resource groups, as Azure listed them. It saves calls of Azure. No
// write depends on it.
type diskCache struct {
	disks provisioner.Disks
	clock clock.PassiveClock

	mu     sync.Mutex
	groups map[string]*diskGroup
}

// diskGroup is the list of one resource group.
type diskGroup struct {
	reading chan struct{} // holds a token while no call reads
	read    time.Time
	found   map[string]provisioner.Disk // by resource ID in lower case
}

func newDiskCache(disks provisioner.Disks, c clock.PassiveClock) *diskCache {
	return &diskCache{
		disks:  disks,
		clock:  c,
		groups: map[string]*diskGroup{},
	}
}

// group returns the disks of a handle's resource group by their IDs in lower case.
func (c *diskCache) group(ctx context.Context, h volumehandle.Handle) (map[string]provisioner.Disk, error) {
	found, _, err := c.list(ctx, h)
	return found, err
}

// gone reports whether a disk which existed at the time since does not exist at Azure: it is not in
// a list that was read later, and a read of the disk itself does not find it. left is how many
// disks the call may still read in that way; gone decrements it.
func (c *diskCache) gone(ctx context.Context, h volumehandle.Handle, since time.Time, left *int) (bool, error) {
	found, at, err := c.list(ctx, h)
	if err != nil {
		return false, err
	}
	if _, ok := found[strings.ToLower(h.String())]; ok || at.Before(since) || *left == 0 {
		return false, nil
	}
	*left--
	if _, err = c.disks.Get(ctx, h.String()); errors.Is(err, provisioner.NotFound) {
		return true, nil
	}
	return false, err
}

// list returns the disks of a handle's resource group, and when they were read. A group that does
// not exist has none. Callers that come during a read wait for its result.
func (c *diskCache) list(ctx context.Context, h volumehandle.Handle) (map[string]provisioner.Disk, time.Time, error) {
	scope := provisioner.Scope{SubscriptionID: strings.ToLower(h.SubscriptionID), ResourceGroup: strings.ToLower(h.ResourceGroup)}
	g := c.entry(scope.SubscriptionID + "/" + scope.ResourceGroup)
	select {
	case <-g.reading:
	case <-ctx.Done():
		return nil, time.Time{}, ctx.Err()
	}
	defer func() { g.reading <- struct{}{} }()
	if !g.read.IsZero() && c.clock.Since(g.read) < disksAge {
		return g.found, g.read, nil
	}
	began := c.clock.Now()
	list, err := c.disks.List(ctx, scope)
	if err != nil && !errors.Is(err, provisioner.NotFound) {
		return nil, time.Time{}, err
	}
	found := make(map[string]provisioner.Disk, len(list))
	for _, d := range list {
		found[strings.ToLower(d.ID)] = d
	}
	g.read, g.found = began, found
	return found, began, nil
}

func (c *diskCache) entry(key string) *diskGroup {
	c.mu.Lock()
	defer c.mu.Unlock()
	g, ok := c.groups[key]
	if !ok {
		g = &diskGroup{reading: make(chan struct{}, 1)}
		g.reading <- struct{}{}
		c.groups[key] = g
	}
	return g
}
