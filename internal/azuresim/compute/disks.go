package compute

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/skus"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// DiskInput is a PUT or PATCH of a disk; nil means that the caller did not say.
type DiskInput struct {
	Location     *string
	Zones        []string
	Tags         map[string]string
	SKU          *string
	SizeGB       *int64
	MaxShares    *int
	Tier         *string
	Bursting     *bool
	IOPS         *int64
	MBps         *int64
	IOPSReadOnly *int64
	MBpsReadOnly *int64
	Frequent     *bool // optimizedForFrequentAttach
	Source       *SourceInput
	Other        Properties
}

// SourceInput is creationData.
type SourceInput struct {
	Option     string
	ResourceID string
	// InstantMinutes is how long a snapshot of a provisioned disk is usable before its background
	// copy has ended; nil for not.
	InstantMinutes *int64
	Other          Properties
}

// Accepted is a write that was accepted: the resource as it is shown now, and the operation in
// flight.
type Accepted[T any] struct {
	Resource *T
	Op       *operations.Operation
	Created  bool
}

func diskLane(id ID) string { return "disk " + id.Key() }

// PutDisk makes a disk or updates it.
func (c *Cloud) PutDisk(id ID, in DiskInput) (Accepted[DiskView], error) {
	return change(c, func(tx *store.Tx) (Accepted[DiskView], error) {
		if err := c.acceptsWrite(tx, id); err != nil {
			return Accepted[DiskView]{}, err
		}
		d, err := diskTable.Get(tx, id.Key())
		if err != nil {
			return Accepted[DiskView]{}, err
		}
		if d != nil && d.Provisioning != Failed {
			if in.Source != nil && in.Source.Option != "" && !strings.EqualFold(in.Source.Option, d.Source.Option) {
				return Accepted[DiskView]{},
					armerror.New(409, "PropertyChangeNotAllowed",
						"Changing property 'creationData.createOption' is not allowed.").WithTarget("creationData.createOption")
			}
			return c.updateDisk(tx, d, in)
		}
		if d != nil && len(d.Claims) > 0 {
			// The update of a VM that asked for the disk has not ended yet.
			return Accepted[DiskView]{}, armerror.NotAllowed("Disk %s is being attached to VM %s.", d.ID.Name, d.Claims[0].VM)
		}
		return c.createDisk(tx, id, in)
	})
}

// PatchDisk updates a disk.
func (c *Cloud) PatchDisk(id ID, in DiskInput) (Accepted[DiskView], error) {
	return change(c, func(tx *store.Tx) (Accepted[DiskView], error) {
		if err := c.acceptsWrite(tx, id); err != nil {
			return Accepted[DiskView]{}, err
		}
		d, err := get(tx, diskTable, id)
		if err != nil {
			return Accepted[DiskView]{}, err
		}
		return c.updateDisk(tx, d, in)
	})
}

// acceptsWrite refuses writes to a missing group and to a disk or snapshot with an operation under
// way.
func (c *Cloud) acceptsWrite(tx *store.Tx, id ID) error {
	if err := openGroup(tx, id.Subscription, id.Group); err != nil {
		return err
	}
	return c.laneFree(tx, diskLane(id))
}

func (c *Cloud) createDisk(tx *store.Tx, id ID, in DiskInput) (Accepted[DiskView], error) {
	var none Accepted[DiskView]
	if in.Location == nil || *in.Location == "" {
		return none, armerror.BadRequest("LocationRequired", "The location property is required for this definition.")
	}
	if in.Source == nil || in.Source.Option == "" {
		return none, missing("disk.creationData.createOption")
	}
	d := &Disk{
		ID:           id,
		UID:          uuid.NewString(),
		Location:     skus.NormalizeLocation(*in.Location),
		Zones:        in.Zones,
		Created:      c.Clock.Now().UTC(),
		Provisioning: Creating,
		Spec:         DiskSpec{SKU: skus.StandardLRS, MaxShares: 1},
	}
	wanted := merged(d.Spec, in)
	sourceGB, err := c.resolveSource(tx, d, wanted.SKU, in.Source)
	if err != nil {
		return none, err
	}
	d.Spec = wanted
	if err := d.Spec.sizeFrom(sourceGB); err != nil {
		return none, err
	}
	defaultPerformance(&d.Spec)
	if err := checkDisk(d); err != nil {
		return none, err
	}
	if err := checkLinks(tx, d.Spec.Other); err != nil {
		return none, err
	}
	if err := checkQuota(tx, d, nil); err != nil {
		return none, err
	}
	if d.Spec.Bursting {
		d.BurstingOn = d.Created
	}
	if err := diskTable.Put(tx, id.Key(), d); err != nil {
		return none, err
	}
	step := latency.DiskCreate
	if d.Spec.SKU == skus.UltraSSDLRS {
		step = latency.UltraDiskCreate
	}
	op, err := c.enqueue(tx, job{
		kind:     opDiskCreate,
		lane:     diskLane(id),
		target:   id,
		location: d.Location,
		duration: c.Latency.Draw(step),
	})
	return Accepted[DiskView]{c.diskView(d, nil), op, true}, err
}

// sizeFrom gives a disk the size of its source, unless the caller has given it one.
func (s *DiskSpec) sizeFrom(sourceGB int64) error {
	switch {
	case s.SizeGB == 0 && sourceGB == 0:
		return missing("disk.diskSizeGB")
	case s.SizeGB == 0:
		s.SizeGB = sourceGB
	case s.SizeGB < sourceGB:
		return armerror.InvalidParameter("disk.diskSizeGB",
			"The disk size %d GB must not be less than the size %d GB of its source.", s.SizeGB, sourceGB)
	}
	return nil
}

// merged is the specification with the caller's properties merged into it.
func merged(s DiskSpec, in DiskInput) DiskSpec {
	set(&s.SizeGB, in.SizeGB)
	set(&s.MaxShares, in.MaxShares)
	set(&s.Tier, in.Tier)
	set(&s.Bursting, in.Bursting)
	set(&s.IOPS, in.IOPS)
	set(&s.MBps, in.MBps)
	set(&s.IOPSReadOnly, in.IOPSReadOnly)
	set(&s.MBpsReadOnly, in.MBpsReadOnly)
	if in.SKU != nil {
		s.SKU = *in.SKU
		if sku, ok := skus.DiskByName(s.SKU); ok {
			s.SKU = sku.Name
		}
	}
	if in.Frequent != nil {
		s.OptimizedForFrequentAttach = in.Frequent
	}
	if in.Tags != nil {
		s.Tags = in.Tags
	}
	s.Other = overlaid(s.Other, in.Other)
	if policy, set := in.Other["networkAccessPolicy"]; set && string(policy) != `"AllowPrivate"` &&
		in.Other["diskAccessId"] == nil {
		delete(s.Other, "diskAccessId") // it ends with the policy that needs it
	}
	return s
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

func overlaid(base, over Properties) Properties {
	if len(over) == 0 {
		return base
	}
	out := Properties{}
	maps.Copy(out, base)
	for name, value := range over {
		if out[name] = value; string(value) == "null" {
			delete(out, name)
		}
	}
	return out
}

func (c *Cloud) updateDisk(tx *store.Tx, d *Disk, in DiskInput) (Accepted[DiskView], error) {
	var none Accepted[DiskView]
	if in.Location != nil && skus.NormalizeLocation(*in.Location) != d.Location {
		return none, armerror.New(409, "InvalidResourceLocation",
			"The resource '%s' already exists in location '%s'. A resource with the same name cannot be created in location '%s'.",
			d.ID.Name, d.Location, *in.Location)
	}
	if in.Zones != nil && !slices.Equal(in.Zones, d.Zones) {
		return none, armerror.BadRequest("BadRequest",
			"Availability zone must not be changed on existing resource '%s'. Existing zones: '%s', new zones: '%s'.",
			d.ID.Name, strings.Join(d.Zones, ","), strings.Join(in.Zones, ","))
	}
	held, views, err := c.holders(tx, d)
	if err != nil {
		return none, err
	}
	c.diskView(d, views).forgetShown(&in)
	want := *d
	want.Spec = merged(d.Spec, in)
	leaveBehind(d.Spec, &want.Spec, in)
	defaultPerformance(&want.Spec)
	if err := checkDiskChange(d, want.Spec, held, c.Clock.Now()); err != nil {
		return none, err
	}
	if err := checkDisk(&want); err != nil {
		return none, err
	}
	if err := checkLinks(tx, want.Spec.Other); err != nil {
		return none, err
	}
	if err := checkQuota(tx, &want, &d.Spec); err != nil {
		return none, err
	}
	d.Provisioning = Updating
	if err := diskTable.Put(tx, d.ID.Key(), d); err != nil {
		return none, err
	}
	op, err := c.enqueue(tx, job{
		kind:     opDiskUpdate,
		lane:     diskLane(d.ID),
		target:   d.ID,
		location: d.Location,
		duration: c.Latency.Draw(latency.DiskUpdate),
		payload:  want.Spec,
	})
	return Accepted[DiskView]{c.diskView(d, views), op, false}, err
}

// DeleteDisk deletes a disk that is attached to no VM. A disk that is being attached can be
// deleted. op is nil if there is no such disk; a disk that is being deleted returns the operation
// under way.
func (c *Cloud) DeleteDisk(id ID) (op *operations.Operation, err error) {
	return change(c, func(tx *store.Tx) (*operations.Operation, error) {
		d, err := diskTable.Get(tx, id.Key())
		if err != nil || d == nil {
			return nil, err
		}
		if d.Provisioning == Deleting {
			return c.runningDelete(tx, id)
		}
		if err := c.laneFree(tx, diskLane(id)); err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(d.Claims, func(c Claim) bool { return c.Attached }); i >= 0 {
			return nil, armerror.NotAllowed("Disk %s is attached to VM %s.", d.ID.Name, d.Claims[i].VM)
		}
		if err := c.notASource(tx, d.UID); err != nil {
			return nil, err
		}
		d.Provisioning = Deleting
		if err := diskTable.Put(tx, id.Key(), d); err != nil {
			return nil, err
		}
		return c.enqueue(tx, job{
			kind:     opDiskDelete,
			lane:     diskLane(id),
			target:   d.ID,
			location: d.Location,
			duration: c.Latency.Draw(latency.DiskDelete),
		})
	})
}

func (c *Cloud) runningDelete(tx *store.Tx, id ID) (*operations.Operation, error) {
	ops, err := c.engine.Lane(tx, diskLane(id))
	if err != nil || len(ops) == 0 {
		return nil, err
	}
	return ops[0], nil
}
