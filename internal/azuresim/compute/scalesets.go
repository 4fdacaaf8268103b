package compute

import (
	"strings"

	"github.com/google/uuid"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/skus"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

const maxCapacity = 1000

// ScaleSetInput is a PUT or PATCH of a scale set; nil means that the caller did not say.
type ScaleSetInput struct {
	Location   *string
	Zones      []string
	Tags       map[string]string
	SKU        *string
	Capacity   *int
	Mode       *string // Uniform or Flexible
	IfMatch    string
	TopLevel   Properties
	Properties Properties
}

func scaleSetOf(instance ID) ID {
	instance.Instance = ""
	return instance
}

// PutScaleSet makes a scale set or updates it. Its operation is done when the instances that its
// capacity asks for are there, and no others.
func (c *Cloud) PutScaleSet(id ID, in ScaleSetInput) (Accepted[ScaleSet], error) {
	return change(c, func(tx *store.Tx) (Accepted[ScaleSet], error) {
		var none Accepted[ScaleSet]
		if err := openGroup(tx, id.Subscription, id.Group); err != nil {
			return none, err
		}
		ss, err := scaleSetTable.Get(tx, id.Key())
		if err != nil {
			return none, err
		}
		created := ss == nil
		if created {
			if ss, err = c.newScaleSet(id, in); err != nil {
				return none, err
			}
		}
		op, err := c.reshape(tx, ss, in)
		return Accepted[ScaleSet]{ss, op, created}, err
	})
}

// PatchScaleSet updates a scale set.
func (c *Cloud) PatchScaleSet(id ID, in ScaleSetInput) (Accepted[ScaleSet], error) {
	return change(c, func(tx *store.Tx) (Accepted[ScaleSet], error) {
		ss, err := get(tx, scaleSetTable, id)
		if err != nil {
			return Accepted[ScaleSet]{}, err
		}
		op, err := c.reshape(tx, ss, in)
		return Accepted[ScaleSet]{ss, op, false}, err
	})
}

func (c *Cloud) newScaleSet(id ID, in ScaleSetInput) (*ScaleSet, error) {
	if in.Location == nil {
		return nil, armerror.BadRequest("LocationRequired", "The location property is required for this definition.")
	}
	location, ok := skus.LocationByName(*in.Location)
	if !ok {
		return nil, locationUnknown(*in.Location)
	}
	for _, z := range in.Zones {
		if !strings.Contains(strings.Join(location.Zones, ","), z) {
			return nil, armerror.BadRequest("InvalidAvailabilityZone",
				"The zone(s) '%s' for resource '%s' is not supported. The supported zones for location '%s' are '%s'.",
				z, id, location.Name, strings.Join(location.Zones, ","))
		}
	}
	if in.SKU == nil {
		return nil, missing("sku.name")
	}
	return &ScaleSet{
		ID:       id,
		Location: location.Name,
		Zones:    in.Zones,
		Created:  c.Clock.Now().UTC(),
		UniqueID: uuid.NewString(),
		Flexible: in.Mode != nil && strings.EqualFold(*in.Mode, "Flexible"),
	}, nil
}

// reshape lays the input over the scale set and accepts the operation.
func (c *Cloud) reshape(tx *store.Tx, ss *ScaleSet, in ScaleSetInput) (*operations.Operation, error) {
	if err := matchETag(ss.ETag(), in.IfMatch); err != nil {
		return nil, err
	}
	if err := c.laneFree(tx, scaleSetLane(ss.ID)); err != nil {
		return nil, err
	}
	if in.SKU != nil {
		size, ok := skus.SizeByName(*in.SKU)
		if !ok {
			return nil, unknownSize(*in.SKU)
		}
		ss.SKU = size.Name
	}
	if in.Capacity != nil {
		if *in.Capacity < 0 || *in.Capacity > maxCapacity {
			return nil, outOfRange("sku.capacity", int64(*in.Capacity), 0, maxCapacity)
		}
		ss.Capacity = *in.Capacity
	}
	if in.Mode != nil && strings.EqualFold(*in.Mode, "Flexible") != ss.Flexible {
		return nil, armerror.New(409, "PropertyChangeNotAllowed",
			"Changing property 'orchestrationMode' is not allowed.").WithTarget("orchestrationMode")
	}
	if in.Tags != nil {
		ss.Tags = in.Tags
	}
	ss.TopLevel, ss.Properties = overlaid(ss.TopLevel, in.TopLevel), overlaid(ss.Properties, in.Properties)
	if ss.Provisioning = Updating; ss.Revision == 0 {
		ss.Provisioning = Creating
	}
	ss.Revision++
	if err := c.shrink(tx, ss); err != nil {
		return nil, err
	}
	if err := c.grow(tx, ss); err != nil {
		return nil, err
	}
	if err := scaleSetTable.Put(tx, ss.ID.Key(), ss); err != nil {
		return nil, err
	}
	return c.enqueue(tx, job{
		kind:     opScaleSetPut,
		lane:     scaleSetLane(ss.ID),
		target:   ss.ID,
		location: ss.Location,
		duration: c.Latency.Draw(latency.ScaleSet),
	})
}

// ETag is the scale set's entity tag, without quotes.
func (ss *ScaleSet) ETag() string { return itoa(ss.Revision) }

func scaleSetLane(id ID) string { return "vmss " + id.Key() }

// ScaleSet returns a scale set.
func (c *Cloud) ScaleSet(id ID) (*ScaleSet, error) {
	return view(c, func(tx *store.Tx) (*ScaleSet, error) { return get(tx, scaleSetTable, id) })
}

// ScaleSets lists the scale sets of a resource group, or of the subscription if group is empty.
func (c *Cloud) ScaleSets(subscription, group, after string, limit int) (Page[ScaleSet], error) {
	return view(c, func(tx *store.Tx) (Page[ScaleSet], error) {
		return page(tx, scaleSetTable, span{groupPrefix(subscription, group, KindScaleSet), after, limit},
			func(ss *ScaleSet) (*ScaleSet, error) { return ss, nil })
	})
}

// DeleteScaleSet deletes a scale set with its instances. op is nil if there is no such scale set.
func (c *Cloud) DeleteScaleSet(id ID) (*operations.Operation, error) {
	return change(c, func(tx *store.Tx) (*operations.Operation, error) {
		ss, err := scaleSetTable.Get(tx, id.Key())
		if err != nil || ss == nil {
			return nil, err
		}
		if err := c.laneFree(tx, scaleSetLane(id)); err != nil {
			return nil, err
		}
		ss.Provisioning, ss.Capacity = Deleting, 0
		if err := scaleSetTable.Put(tx, id.Key(), ss); err != nil {
			return nil, err
		}
		duration := c.Latency.Draw(latency.VMDelete)
		if err := c.shrink(tx, ss); err != nil {
			return nil, err
		}
		return c.enqueue(tx, job{
			kind:     opScaleSetDelete,
			lane:     scaleSetLane(id),
			target:   ss.ID,
			location: ss.Location,
			duration: duration,
		})
	})
}

func (c *Cloud) completeScaleSet(tx *store.Tx, op *operations.Operation, id ID) error {
	ss, err := scaleSetTable.Get(tx, id.Key())
	if err != nil || ss == nil {
		return err
	}
	if op.Kind == opScaleSetDelete {
		left, err := c.members(tx, ss)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return armerror.NotAllowed("Scale set '%s' cannot be deleted as the deletion of its instance %s failed.", ss.ID.Name,
				left[0].Name)
		}
		return scaleSetTable.Delete(tx, id.Key())
	}
	ss.Provisioning = Succeeded
	return scaleSetTable.Put(tx, id.Key(), ss)
}

func (c *Cloud) failScaleSet(tx *store.Tx, id ID) error {
	ss, err := scaleSetTable.Get(tx, id.Key())
	if err != nil || ss == nil {
		return err
	}
	ss.Provisioning = Failed
	return scaleSetTable.Put(tx, id.Key(), ss)
}
