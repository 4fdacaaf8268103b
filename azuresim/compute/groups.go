package compute

import (
	"strings"

	"github.com/azuredisk-csi/azuredisk/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/azuresim/skus"
	"github.com/azuredisk-csi/azuredisk/azuresim/store"
)

func groupKey(subscription, name string) string {
	return strings.ToLower("/subscriptions/" + subscription + "/resourcegroups/" + name)
}

// PutGroup makes or updates a resource group. created says which.
func (c *Cloud) PutGroup(g Group) (created bool, err error) {
	l, ok := skus.LocationByName(g.Location)
	if !ok {
		return false, locationUnknown(g.Location)
	}
	g.Location = l.Name
	return change(c, func(tx *store.Tx) (bool, error) {
		old, err := groupTable.Get(tx, groupKey(g.Subscription, g.Name))
		if err != nil {
			return false, err
		}
		if old != nil && old.Location != g.Location {
			return false, armerror.New(409, "InvalidResourceGroupLocation",
				"Invalid resource group location '%s'. The Resource group already exists in location '%s'.", g.Location,
				old.Location)
		}
		return old == nil, groupTable.Put(tx, groupKey(g.Subscription, g.Name), &g)
	})
}

// Group returns a resource group.
func (c *Cloud) Group(subscription, name string) (*Group, error) {
	return view(c, func(tx *store.Tx) (*Group, error) { return mustGroup(tx, subscription, name) })
}

// Groups lists the resource groups of a subscription.
func (c *Cloud) Groups(subscription string) ([]*Group, error) {
	return view(c, func(tx *store.Tx) ([]*Group, error) {
		return values(groupTable.All(tx, groupKey(subscription, "")))
	})
}

// DeleteGroup removes an empty resource group. Azure would delete what is in it; here that is
// refused.
func (c *Cloud) DeleteGroup(subscription, name string) error {
	return c.Store.Update(func(tx *store.Tx) error {
		if _, err := mustGroup(tx, subscription, name); err != nil {
			return err
		}
		prefix := groupKey(subscription, name) + "/"
		for _, used := range []func() (bool, error){
			func() (bool, error) { return hasAny(diskTable, tx, prefix) },
			func() (bool, error) { return hasAny(snapshotTable, tx, prefix) },
			func() (bool, error) { return hasAny(vmTable, tx, prefix) },
			func() (bool, error) { return hasAny(scaleSetTable, tx, prefix) },
			func() (bool, error) { return hasAny(linkedTable, tx, prefix) },
		} {
			if any, err := used(); err != nil {
				return err
			} else if any {
				return armerror.New(409, "ResourceGroupDeletionBlocked",
					"Deletion of resource group '%s' is refused as it still holds resources.", name)
			}
		}
		return groupTable.Delete(tx, groupKey(subscription, name))
	})
}

func hasAny[T any](t store.Table[T], tx *store.Tx, prefix string) (bool, error) {
	for _, err := range t.Scan(tx, prefix, "") {
		return err == nil, err
	}
	return false, nil
}

func mustGroup(tx *store.Tx, subscription, name string) (*Group, error) {
	g, err := groupTable.Get(tx, groupKey(subscription, name))
	if err == nil && g == nil {
		return nil, armerror.New(404, "ResourceGroupNotFound", "Resource group '%s' could not be found.", name)
	}
	return g, err
}

func locationUnknown(location string) *armerror.Error {
	return armerror.BadRequest("LocationNotAvailableForResourceType",
		"The provided location '%s' is not available. List of available regions can be had from the resource SKUs.", location)
}

func values[T any](records []store.Record[T], err error) ([]*T, error) {
	list := make([]*T, 0, len(records))
	for _, r := range records {
		list = append(list, r.Value)
	}
	return list, err
}
