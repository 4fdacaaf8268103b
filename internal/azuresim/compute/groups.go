package compute

import (
	"errors"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/skus"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
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
		if old != nil && old.Deleting {
			return false, openGroup(tx, g.Subscription, g.Name)
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

// DeleteGroup deletes a resource group with all that is in it. A group that is being deleted returns
// the operation under way.
func (c *Cloud) DeleteGroup(subscription, name string) (*operations.Operation, error) {
	return change(c, func(tx *store.Tx) (*operations.Operation, error) {
		g, err := mustGroup(tx, subscription, name)
		if err != nil {
			return nil, err
		}
		key := groupKey(subscription, name)
		running, err := c.engine.Lane(tx, key)
		if err != nil {
			return nil, err
		}
		if len(running) > 0 {
			return running[0], nil
		}
		g.Deleting = true
		if err := groupTable.Put(tx, key, g); err != nil {
			return nil, err
		}
		return c.enqueue(tx, job{
			kind:     opGroupDelete,
			lane:     key,
			target:   ID{Subscription: g.Subscription, Group: g.Name},
			location: g.Location,
		})
	})
}

// emptyGroup deletes what is in a group, the users of a resource before the resource. It returns
// operations.ErrNotYet while something is on its way out or busy, and nothing when all is gone but
// what cannot be deleted.
func (c *Cloud) emptyGroup(group ID) error {
	for _, step := range []struct {
		kind   string
		delete func(ID) (*operations.Operation, error)
	}{
		{KindScaleSet, c.DeleteScaleSet}, {KindVM, c.DeleteVM}, {KindSnapshot, c.DeleteSnapshot}, {KindDisk, c.DeleteDisk},
		{KindEncryptionSet, c.dropLinked}, {KindDiskAccess, c.dropLinked},
	} {
		ids, err := c.inGroup(group, step.kind)
		if err != nil {
			return err
		}
		waiting := false
		for _, id := range ids {
			op, err := step.delete(id)
			refusal, refused := errors.AsType[*armerror.Error](err)
			switch {
			case err != nil && !refused:
				return err
			case op != nil, refused && refusal.Code != "OperationNotAllowed":
				waiting = true
			}
		}
		if waiting {
			return operations.ErrNotYet
		}
	}
	return nil
}

func (c *Cloud) dropLinked(id ID) (*operations.Operation, error) {
	_, err := c.DeleteLinked(id)
	return nil, err
}

// inGroup lists the resources of a kind in a group.
func (c *Cloud) inGroup(group ID, kind string) ([]ID, error) {
	return view(c, func(tx *store.Tx) ([]ID, error) {
		prefix := groupPrefix(group.Subscription, group.Group, kind)
		switch kind {
		case KindScaleSet:
			return idsOf(tx, scaleSetTable, prefix, func(s *ScaleSet) ID { return s.ID })
		case KindVM:
			return idsOf(tx, vmTable, prefix, func(vm *VM) ID { return vm.ID })
		case KindSnapshot:
			return idsOf(tx, snapshotTable, prefix, func(s *Snapshot) ID { return s.ID })
		case KindDisk:
			return idsOf(tx, diskTable, prefix, func(d *Disk) ID { return d.ID })
		default:
			return idsOf(tx, linkedTable, prefix, func(l *Linked) ID { return l.ID })
		}
	})
}

func idsOf[T any](tx *store.Tx, table store.Table[T], prefix string, id func(*T) ID) ([]ID, error) {
	list, err := values(table.All(tx, prefix))
	ids := make([]ID, 0, len(list))
	for _, v := range list {
		ids = append(ids, id(v))
	}
	return ids, err
}

// completeGroup removes a group, or fails because something in it could not be deleted.
func (c *Cloud) completeGroup(tx *store.Tx, group ID) error {
	prefix := groupKey(group.Subscription, group.Group) + "/"
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
				"Deletion of resource group '%s' failed as some of its resources could not be deleted. The provisioning state of the resource group will be rolled back.",
				group.Group)
		}
	}
	return groupTable.Delete(tx, groupKey(group.Subscription, group.Group))
}

func (c *Cloud) failGroup(tx *store.Tx, group ID) error {
	g, err := groupTable.Get(tx, groupKey(group.Subscription, group.Group))
	if err != nil || g == nil {
		return err
	}
	g.Deleting = false
	return groupTable.Put(tx, groupKey(group.Subscription, group.Group), g)
}

func hasAny[T any](t store.Table[T], tx *store.Tx, prefix string) (bool, error) {
	for _, err := range t.Scan(tx, prefix, "") {
		return err == nil, err
	}
	return false, nil
}

// openGroup refuses writes in a group that does not exist or is being deleted.
func openGroup(tx *store.Tx, subscription, name string) error {
	g, err := mustGroup(tx, subscription, name)
	if err == nil && g.Deleting {
		return armerror.New(409, "ResourceGroupBeingDeleted",
			"The resource group '%s' is in deprovisioning state and cannot perform this operation.", name)
	}
	return err
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
