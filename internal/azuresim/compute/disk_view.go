package compute

import (
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/skus"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// Disk states.
const (
	StateUnattached = "Unattached"
	StateAttached   = "Attached"
	StateReserved   = "Reserved"
	StateFrozen     = "Frozen"
)

// DiskView is a disk as a caller sees it.
type DiskView struct {
	Disk
	State             string   // Unattached, Attached, ...
	Owners            []string // VMs whose attach has succeeded, first the one in managedBy
	Tier              string   // the effective performance tier; only premium SSDs have one
	IOPS, MBps        int64    // that the disk provides: what was asked for, or what its tier gives
	CompletionPercent *float64 // of the background copy, if there is one
}

// holders returns what the rules and the view need of the VMs that hold d.
func (c *Cloud) holders(tx *store.Tx, d *Disk) (held []attachment, vms []*VM, err error) {
	for _, claim := range d.Claims {
		id, err := ParseID(claim.VM, "vm")
		if err != nil {
			return nil, nil, err
		}
		vm, err := vmTable.Get(tx, id.Key())
		if err != nil {
			return nil, nil, err
		}
		if vm == nil {
			continue
		}
		entry := vm.findDisk(d.ID)
		settled := entry != nil && (entry.State == DiskAttached || entry.State == DiskDetachFailed)
		caching := ""
		if entry != nil {
			caching = entry.Caching
		}
		held = append(held, attachment{
			vm:          vm.Name,
			caching:     caching,
			deallocated: vm.Power == PowerDeallocated,
			settled:     settled,
		})
		vms = append(vms, vm)
	}
	return held, vms, nil
}

// diskView renders the disk; holders are the VMs of its claims in any order.
func (c *Cloud) diskView(d *Disk, holders []*VM) *DiskView {
	v := &DiskView{Disk: *d, State: StateUnattached}
	deallocated, hibernated := map[string]bool{}, false
	for _, vm := range holders {
		deallocated[vm.ID.Key()] = vm.Power == PowerDeallocated
		hibernated = hibernated || vm.Hibernated
	}
	allDeallocated := true
	for _, claim := range d.Claims {
		if claim.Attached {
			v.Owners = append(v.Owners, claim.VM)
			id, _ := ParseID(claim.VM, "vm")
			allDeallocated = allDeallocated && deallocated[id.Key()]
		}
	}
	now := c.Clock.Now()
	switch {
	case len(v.Owners) > 0 && hibernated:
		v.State = StateFrozen
	case len(v.Owners) > 0 && allDeallocated:
		v.State = StateReserved
	case len(v.Owners) > 0:
		v.State = StateAttached
	}
	v.IOPS, v.MBps = d.Spec.IOPS, d.Spec.MBps
	if sku, ok := skus.DiskByName(d.Spec.SKU); ok && !sku.Provisioned {
		tier := sku.TierFor(d.Spec.SizeGB)
		if rank, ok := sku.TierByName(d.Spec.Tier); ok {
			tier = sku.Tiers[rank]
		}
		v.IOPS, v.MBps = tier.IOPS, tier.MBps
		if sku.ResourceTier == "Premium" {
			v.Tier = tier.Name
		}
	}
	v.CompletionPercent = completion(d.CopyStarted, d.CopyDone, now)
	return v
}

// forgetShown drops the performance that a caller read and sends back, where the size of the disk
// sets it.
func (v *DiskView) forgetShown(in *DiskInput) {
	same := func(n *int64, shown int64) bool { return n != nil && *n == shown }
	if v.Spec.IOPS == 0 && same(in.IOPS, v.IOPS) {
		in.IOPS = nil
	}
	if v.Spec.MBps == 0 && same(in.MBps, v.MBps) {
		in.MBps = nil
	}
}

// completion is how far a background copy is, nil if there is none.
func completion(started, done, now time.Time) *float64 {
	if done.IsZero() {
		return nil
	}
	percent := 100.0
	if now.Before(done) {
		percent = max(0, 100*float64(now.Sub(started))/float64(done.Sub(started)))
	}
	return &percent
}

// Disk returns a disk.
func (c *Cloud) Disk(id ID) (*DiskView, error) {
	return view(c, func(tx *store.Tx) (*DiskView, error) {
		d, err := get(tx, diskTable, id)
		if err != nil {
			return nil, err
		}
		_, vms, err := c.holders(tx, d)
		return c.diskView(d, vms), err
	})
}

// Page is part of a list. Next is what to give as after for the rest; it is empty at the end.
type Page[T any] struct {
	Items []*T
	Next  string
}

// Disks lists the disks of a resource group, or of the subscription if group is empty.
func (c *Cloud) Disks(subscription, group, after string, limit int) (Page[DiskView], error) {
	return view(c, func(tx *store.Tx) (Page[DiskView], error) {
		of := span{groupPrefix(subscription, group, KindDisk), after, limit}
		return page(tx, diskTable, of, func(d *Disk) (*DiskView, error) {
			_, vms, err := c.holders(tx, d)
			return c.diskView(d, vms), err
		})
	})
}

// span is the records of a page: up to limit of those whose key begins with prefix, from after on.
type span struct {
	prefix, after string
	limit         int
}

// page collects the records of a span; render returns nil for those to leave out.
func page[T, V any](tx *store.Tx, t store.Table[T], s span, render func(*T) (*V, error)) (Page[V], error) {
	p := Page[V]{Items: []*V{}}
	last := ""
	for r, err := range t.Scan(tx, s.prefix, s.after) {
		if err != nil {
			return p, err
		}
		v, err := render(r.Value)
		if err != nil {
			return p, err
		}
		if v == nil {
			continue
		}
		if len(p.Items) == s.limit {
			p.Next = last
			return p, nil
		}
		p.Items, last = append(p.Items, v), r.Key
	}
	return p, nil
}
