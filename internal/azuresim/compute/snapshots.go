package compute

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/skus"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// SnapshotInput is a PUT or PATCH of a snapshot; nil means that the caller did not say.
type SnapshotInput struct {
	Location    *string
	Tags        map[string]string
	SKU         *string
	Incremental *bool
	Source      *SourceInput
	Other       Properties
}

// SnapshotView is a snapshot as a caller sees it.
type SnapshotView struct {
	Snapshot
	AccessState       string   // what can be made from it
	CompletionPercent *float64 // of the background copy, if there is one
}

func (c *Cloud) snapshotView(s *Snapshot) *SnapshotView {
	now := c.Clock.Now()
	v := &SnapshotView{Snapshot: *s, CompletionPercent: completion(s.CopyStarted, s.CopyDone, now)}
	complete, instant := !s.CopyDone.After(now), s.InstantUntil.After(now)
	switch {
	case s.Provisioning == Creating || !complete && !instant:
		v.AccessState = AccessPending
	case !complete:
		v.AccessState = AccessInstant
	case instant:
		v.AccessState = AccessAvailableWithInstant
	default:
		v.AccessState = AccessAvailable
	}
	return v
}

// What can be made from a snapshot: nothing, disks, or disks and copies.
const (
	AccessPending              = "Pending"
	AccessInstant              = "InstantAccess"
	AccessAvailable            = "Available"
	AccessAvailableWithInstant = "AvailableWithInstantAccess"
)

// PutSnapshot makes a snapshot or updates it.
func (c *Cloud) PutSnapshot(id ID, in SnapshotInput) (Accepted[SnapshotView], error) {
	return change(c, func(tx *store.Tx) (Accepted[SnapshotView], error) {
		if err := c.acceptsWrite(tx, id); err != nil {
			return Accepted[SnapshotView]{}, err
		}
		s, err := snapshotTable.Get(tx, id.Key())
		if err != nil {
			return Accepted[SnapshotView]{}, err
		}
		if s != nil && s.Provisioning != Failed {
			return c.updateSnapshot(tx, s, in)
		}
		return c.createSnapshot(tx, id, in)
	})
}

// PatchSnapshot updates a snapshot.
func (c *Cloud) PatchSnapshot(id ID, in SnapshotInput) (Accepted[SnapshotView], error) {
	return change(c, func(tx *store.Tx) (Accepted[SnapshotView], error) {
		if err := c.acceptsWrite(tx, id); err != nil {
			return Accepted[SnapshotView]{}, err
		}
		s, err := get(tx, snapshotTable, id)
		if err != nil {
			return Accepted[SnapshotView]{}, err
		}
		return c.updateSnapshot(tx, s, in)
	})
}

func (c *Cloud) updateSnapshot(tx *store.Tx, s *Snapshot, in SnapshotInput) (Accepted[SnapshotView], error) {
	var none Accepted[SnapshotView]
	if in.Incremental != nil && *in.Incremental != s.Incremental {
		return none, armerror.New(409, "PropertyChangeNotAllowed",
			"Changing property 'incremental' is not allowed.").WithTarget("incremental")
	}
	if in.Source != nil && in.Source.ResourceID != "" && !strings.EqualFold(in.Source.ResourceID, s.Source.ResourceID) {
		return none, armerror.New(409, "PropertyChangeNotAllowed",
			"Changing property 'creationData.sourceResourceId' is not allowed.").WithTarget("creationData.sourceResourceId")
	}
	if in.Tags != nil {
		s.Tags = in.Tags
	}
	s.Other = overlaid(s.Other, in.Other)
	s.Provisioning = Updating
	if err := snapshotTable.Put(tx, s.ID.Key(), s); err != nil {
		return none, err
	}
	op, err := c.enqueue(tx, job{
		kind:     opSnapshotUpdate,
		lane:     diskLane(s.ID),
		target:   s.ID,
		location: s.Location,
		duration: c.Latency.Draw(latency.DiskUpdate),
	})
	return Accepted[SnapshotView]{c.snapshotView(s), op, false}, err
}

func (c *Cloud) createSnapshot(tx *store.Tx, id ID, in SnapshotInput) (Accepted[SnapshotView], error) {
	var none Accepted[SnapshotView]
	if in.Location == nil || *in.Location == "" {
		return none, armerror.BadRequest("LocationRequired", "The location property is required for this definition.")
	}
	location, ok := skus.LocationByName(*in.Location)
	if !ok {
		return none, locationUnknown(*in.Location)
	}
	s := &Snapshot{
		ID:           id,
		UID:          uuid.NewString(),
		Location:     location.Name,
		Tags:         in.Tags,
		SKU:          skus.StandardLRS,
		Incremental:  deref(in.Incremental),
		Created:      c.Clock.Now().UTC(),
		Provisioning: Creating,
		Other:        in.Other,
	}
	set(&s.SKU, in.SKU)
	if err := checkSnapshotSKU(s.SKU); err != nil {
		return none, err
	}
	if err := c.snapshotSource(tx, s, in.Source); err != nil {
		return none, err
	}
	if err := snapshotTable.Put(tx, id.Key(), s); err != nil {
		return none, err
	}
	op, err := c.enqueue(tx, job{
		kind:     opSnapshotCreate,
		lane:     diskLane(id),
		target:   id,
		location: s.Location,
		duration: c.Latency.Draw(latency.SnapshotCreate),
	})
	return Accepted[SnapshotView]{c.snapshotView(s), op, true}, err
}

func checkSnapshotSKU(sku string) error {
	switch strings.ToLower(sku) {
	case "standard_lrs", "premium_lrs", "standard_zrs":
		return nil
	}
	return armerror.InvalidParameter("sku.name",
		"The value '%s' of parameter 'sku.name' is invalid. Supported values for snapshots are Standard_LRS, Premium_LRS, Standard_ZRS.", sku)
}

// snapshotSource fills in what the snapshot is of.
func (c *Cloud) snapshotSource(tx *store.Tx, s *Snapshot, in *SourceInput) error {
	if in == nil || in.Option == "" {
		return missing("snapshot.creationData.createOption")
	}
	start := strings.EqualFold(in.Option, "CopyStart")
	if !start && !strings.EqualFold(in.Option, "Copy") {
		return armerror.InvalidParameter("snapshot.creationData.createOption",
			"The value '%s' of parameter 'snapshot.creationData.createOption' is not supported by this simulator; Copy and CopyStart are.", in.Option)
	}
	if in.ResourceID == "" {
		return missing("snapshot.creationData.sourceResourceId")
	}
	src, err := c.findSource(tx, in.ResourceID, "snapshot.creationData.sourceResourceId")
	if err != nil {
		return err
	}
	switch {
	case !src.ready:
		return armerror.NotAllowed("The source '%s' is not ready: its background copy or creation has not finished.", src.id)
	case start && (src.id.Kind != KindSnapshot || !s.Incremental):
		return armerror.BadRequest("BadRequest", "CopyStart makes an incremental snapshot from an incremental snapshot.")
	case !start && src.location != s.Location:
		return elsewhere()
	case start && src.instant:
		return armerror.NotAllowed("The source '%s' is not ready: it is in state InstantAccess and cannot be copied before its background copy has finished.", src.id)
	case !start && copiesInBackground(src.sku) && !s.Incremental:
		return armerror.BadRequest("BadRequest", "Snapshots of a disk of SKU '%s' must be incremental.", src.sku)
	}
	s.SizeGB = src.sizeGB
	s.Source = Source{
		Option:     "Copy",
		ResourceID: src.id.String(),
		UID:        src.uid,
		Other:      in.Other,
	}
	if s.Incremental {
		s.FamilyID = src.family
		if s.FamilyID == "" {
			s.FamilyID = uuid.NewSHA1(uuid.Nil, []byte(src.uid)).String()
		}
	}
	if start {
		s.Source.Option = "CopyStart"
	}
	if start || copiesInBackground(src.sku) {
		s.CopyStarted, s.CopyDone = c.copyTimes()
	}
	return c.grantInstantAccess(s, in, !start && copiesInBackground(src.sku))
}

// grantInstantAccess lets disks be made from a snapshot of a provisioned disk for a while before
// its background copy has ended.
func (c *Cloud) grantInstantAccess(s *Snapshot, in *SourceInput, possible bool) error {
	const parameter = "snapshot.creationData.instantAccessDurationMinutes"
	switch {
	case in.InstantMinutes == nil:
		return nil
	case !possible:
		return armerror.InvalidParameter(parameter, "Parameter '%s' can be set for snapshots of disks of SKU '%s' and '%s' only.",
			parameter, skus.UltraSSDLRS, skus.PremiumV2LRS)
	case *in.InstantMinutes < 60 || *in.InstantMinutes > 300:
		return outOfRange(parameter, *in.InstantMinutes, 60, 300)
	}
	s.InstantUntil = s.Created.Add(time.Duration(*in.InstantMinutes) * time.Minute)
	return nil
}

// Snapshot returns a snapshot.
func (c *Cloud) Snapshot(id ID) (*SnapshotView, error) {
	return view(c, func(tx *store.Tx) (*SnapshotView, error) {
		s, err := get(tx, snapshotTable, id)
		if err != nil {
			return nil, err
		}
		return c.snapshotView(s), nil
	})
}

// Snapshots lists the snapshots of a resource group, or of the subscription if group is empty.
func (c *Cloud) Snapshots(subscription, group, after string, limit int) (Page[SnapshotView], error) {
	return view(c, func(tx *store.Tx) (Page[SnapshotView], error) {
		return page(tx, snapshotTable, span{groupPrefix(subscription, group, KindSnapshot), after, limit},
			func(s *Snapshot) (*SnapshotView, error) {
				return c.snapshotView(s), nil
			})
	})
}

// DeleteSnapshot deletes a snapshot. op is nil if there is no such snapshot.
func (c *Cloud) DeleteSnapshot(id ID) (*operations.Operation, error) {
	return change(c, func(tx *store.Tx) (*operations.Operation, error) {
		s, err := snapshotTable.Get(tx, id.Key())
		if err != nil || s == nil {
			return nil, err
		}
		if s.Provisioning == Deleting {
			return c.runningDelete(tx, id)
		}
		if err := c.laneFree(tx, diskLane(id)); err != nil {
			return nil, err
		}
		if err := c.notASource(tx, s.UID); err != nil {
			return nil, err
		}
		if err := c.copiedBySnapshot(tx, id, s.UID); err != nil {
			return nil, err
		}
		s.Provisioning = Deleting
		if err := snapshotTable.Put(tx, id.Key(), s); err != nil {
			return nil, err
		}
		return c.enqueue(tx, job{
			kind:     opSnapshotDelete,
			lane:     diskLane(id),
			target:   s.ID,
			location: s.Location,
			duration: c.Latency.Draw(latency.SnapshotDelete),
		})
	})
}

func (c *Cloud) completeSnapshot(tx *store.Tx, _ *operations.Operation, id ID) error {
	s, err := snapshotTable.Get(tx, id.Key())
	if err != nil || s == nil {
		return err
	}
	s.Provisioning = Succeeded
	return snapshotTable.Put(tx, id.Key(), s)
}
