package compute

import (
	"encoding/json"
	"fmt"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/skus"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// Linked is a disk encryption set or a disk access. It exists so that disks can refer to it, and
// has no effect.
type Linked struct {
	ID         ID                `json:"id"`
	Location   string            `json:"location"`
	Tags       map[string]string `json:"tags,omitempty"`
	TopLevel   Properties        `json:"topLevel,omitempty"`
	Properties Properties        `json:"properties,omitempty"`
}

// PutLinked makes or replaces a disk encryption set or disk access. Its operation has no effect of its
// own: the resource can be used at once.
func (c *Cloud) PutLinked(l Linked) (Accepted[Linked], error) {
	location, ok := skus.LocationByName(l.Location)
	if !ok {
		return Accepted[Linked]{}, locationUnknown(l.Location)
	}
	l.Location = location.Name
	return change(c, func(tx *store.Tx) (Accepted[Linked], error) {
		if err := openGroup(tx, l.ID.Subscription, l.ID.Group); err != nil {
			return Accepted[Linked]{}, err
		}
		before, err := linkedTable.Get(tx, l.ID.Key())
		if err != nil {
			return Accepted[Linked]{}, err
		}
		if err := linkedTable.Put(tx, l.ID.Key(), &l); err != nil {
			return Accepted[Linked]{}, err
		}
		op, err := c.enqueue(tx, job{
			kind:     opLinkedPut,
			lane:     "linked " + l.ID.Key(),
			target:   l.ID,
			location: l.Location,
			duration: c.Latency.Draw(latency.DiskUpdate),
			payload:  before,
		})
		return Accepted[Linked]{Resource: &l, Op: op}, err
	})
}

// failLinked puts back what was there before.
func failLinked(tx *store.Tx, op *operations.Operation, id ID) error {
	var before *Linked
	if err := json.Unmarshal(op.Payload, &before); err != nil {
		return fmt.Errorf("decode payload: %w", err)
	}
	if before == nil {
		return linkedTable.Delete(tx, id.Key())
	}
	return linkedTable.Put(tx, id.Key(), before)
}

// Linked returns a disk encryption set or disk access.
func (c *Cloud) Linked(id ID) (*Linked, error) {
	return view(c, func(tx *store.Tx) (*Linked, error) { return get(tx, linkedTable, id) })
}

// DeleteLinked deletes a disk encryption set or disk access that no disk refers to.
func (c *Cloud) DeleteLinked(id ID) (found bool, err error) {
	return change(c, func(tx *store.Tx) (bool, error) {
		l, err := linkedTable.Get(tx, id.Key())
		if err != nil || l == nil {
			return false, err
		}
		for r, err := range diskTable.Scan(tx, "", "") {
			if err != nil {
				return false, err
			}
			for _, link := range linksOf(r.Value.Spec.Other) {
				if used, err := ParseID(link, ""); err == nil && used.Key() == id.Key() {
					return false, armerror.NotAllowed("%s cannot be deleted because disk %s refers to it.", id, r.Value.ID)
				}
			}
		}
		return true, linkedTable.Delete(tx, id.Key())
	})
}

// linksOf returns what the properties of a disk refer to, by kind.
func linksOf(p Properties) map[string]string {
	var encryption struct {
		Set string `json:"diskEncryptionSetId"`
	}
	var access string
	_ = json.Unmarshal(p["encryption"], &encryption) // a value of another type refers to nothing
	_ = json.Unmarshal(p["diskAccessId"], &access)
	return map[string]string{KindEncryptionSet: encryption.Set, KindDiskAccess: access}
}

// checkLinks refuses a disk that refers to an encryption set or disk access that does not exist.
func checkLinks(tx *store.Tx, p Properties) error {
	for kind, link := range linksOf(p) {
		if link == "" {
			continue
		}
		id, err := ParseID(link, kind)
		if err == nil && id.Kind == kind {
			if l, err := linkedTable.Get(tx, id.Key()); err != nil || l != nil {
				return err
			}
		}
		name := map[string]string{KindEncryptionSet: "DiskEncryptionSet", KindDiskAccess: "DiskAccess"}[kind]
		return armerror.BadRequest("BadRequest", "%s '%s' was not found.", name, link)
	}
	return nil
}
