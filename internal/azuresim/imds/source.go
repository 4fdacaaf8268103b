package imds

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Source knows the VM that is served.
type Source interface {
	// Instance returns the VM as it is now. It may block for a call over the network.
	Instance(ctx context.Context) (Instance, error)
}

// Instance is what the service knows about its VM.
type Instance struct {
	ResourceID     string // ARM ID, in the case that ARM spells it
	SubscriptionID string
	ResourceGroup  string
	Name           string
	VMID           string // the VM's unique ID
	ScaleSet       string // name of its scale set, or ""
	Size           string
	Location       string
	Zone           string // "1" to "3", or ""
	OSType         string
	ComputerName   string
	Tags           map[string]string
	OSDisk         Disk
	DataDisks      []Disk
	Identities     []Identity
}

// Disk is an entry of the VM's storage profile.
type Disk struct {
	LUN          int // of data disks only
	Name         string
	ResourceID   string
	Caching      string
	CreateOption string
	SizeGB       int64 // 0 if not known
	SKU          string
}

// Identity is a managed identity of the VM.
type Identity struct {
	ResourceID string // "" for the system-assigned one
	ClientID   string
	ObjectID   string
	TenantID   string
}

// Cached keeps the source's answer for a while, and serves it again while the source fails. What a
// VM is does not change because the front end is being restarted.
type Cached struct {
	Source Source
	Clock  clock.PassiveClock
	// Keep is how long an answer is fresh.
	Keep time.Duration
	// Failed is called with each failure for which an older answer was served. Nil ignores them.
	Failed func(error)

	mu      sync.Mutex
	known   bool
	last    Instance
	fetched time.Time
}

// Instance returns the source's answer, or the last one. It fails only if there never was one.
func (c *Cached) Instance(ctx context.Context) (Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known && c.Clock.Since(c.fetched) < c.Keep {
		return c.last, nil
	}
	instance, err := c.Source.Instance(ctx)
	switch {
	case err == nil:
		c.known, c.last = true, instance
	case !c.known:
		return Instance{}, err
	case c.Failed != nil:
		c.Failed(err)
	}
	c.fetched = c.Clock.Now()
	return c.last, nil
}
