package controller

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

// disksAge is how long the disks of a resource group, as Azure listed them, are used: the attacher asks for all volumes every minute.
const disksAge = 5 * time.Minute

// diskCache has the disks of resource groups, as Azure listed them. It spares Azure repetition, and nothing that is written rests on it.
type diskCache struct {
	disks provisioner.Disks
	clock clock.PassiveClock

	mu     sync.Mutex
	groups map[string]*diskGroup
}

// diskGroup is the list of one resource group.
type diskGroup struct {
	reading chan struct{} // holds a token while nobody reads
	read    time.Time
	found   map[string]provisioner.Disk // by resource ID in lower case
}

func newDiskCache(disks provisioner.Disks, c clock.PassiveClock) *diskCache {
	return &diskCache{disks: disks, clock: c, groups: map[string]*diskGroup{}}
}

// group returns the disks of a handle's resource group by their IDs in lower case. A group that does not exist has none.
// Those who come while they are read wait for that reading.
func (c *diskCache) group(ctx context.Context, h volumehandle.Handle) (map[string]provisioner.Disk, error) {
	scope := provisioner.Scope{SubscriptionID: strings.ToLower(h.SubscriptionID), ResourceGroup: strings.ToLower(h.ResourceGroup)}
	g := c.entry(scope.SubscriptionID + "/" + scope.ResourceGroup)
	select {
	case <-g.reading:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { g.reading <- struct{}{} }()
	if !g.read.IsZero() && c.clock.Since(g.read) < disksAge {
		return g.found, nil
	}
	began := c.clock.Now()
	list, err := c.disks.List(ctx, scope)
	if err != nil && !errors.Is(err, provisioner.NotFound) {
		return nil, err
	}
	found := make(map[string]provisioner.Disk, len(list))
	for _, d := range list {
		found[strings.ToLower(d.ID)] = d
	}
	g.read, g.found = began, found
	return found, nil
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
