package compute

import (
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/skus"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// sourceInfo is what a copy takes over from a disk or snapshot.
type sourceInfo struct {
	id       ID
	uid      string
	location string
	sku      string
	sizeGB   int64
	family   string
	ready    bool // disks can be made from it
	instant  bool // it is ready before its content is all there, so that it cannot be copied
}

// findSource looks up a disk or snapshot by resource ID.
func (c *Cloud) findSource(tx *store.Tx, resourceID, parameter string) (sourceInfo, error) {
	id, err := ParseID(resourceID, parameter)
	if err != nil {
		return sourceInfo{}, err
	}
	switch id.Kind {
	case KindDisk:
		d, err := source(tx, diskTable, id)
		if err != nil {
			return sourceInfo{}, err
		}
		ready := d.Provisioning != Creating && d.Provisioning != Failed && !d.CopyDone.After(c.Clock.Now())
		return sourceInfo{
			id:       d.ID,
			uid:      d.UID,
			location: d.Location,
			sku:      d.Spec.SKU,
			sizeGB:   d.Spec.SizeGB,
			ready:    ready,
		}, goneIf(d.Provisioning, id)
	case KindSnapshot:
		s, err := source(tx, snapshotTable, id)
		if err != nil {
			return sourceInfo{}, err
		}
		seen := c.snapshotView(s)
		ready := s.Provisioning == Succeeded && seen.AccessState != AccessPending
		return sourceInfo{
			id:       s.ID,
			uid:      s.UID,
			location: s.Location,
			sku:      s.SKU,
			sizeGB:   s.SizeGB,
			family:   s.FamilyID,
			ready:    ready,
			instant:  seen.AccessState == AccessInstant,
		}, goneIf(s.Provisioning, id)
	}
	return sourceInfo{}, armerror.InvalidParameter(parameter, "Parameter '%s' must be the ID of a disk or snapshot; '%s' is not.",
		parameter, resourceID)
}

func goneIf(provisioning string, id ID) error {
	if provisioning == Deleting {
		return noSource(id)
	}
	return nil
}

// noSource refuses a copy of what does not exist.
func noSource(id ID) error {
	return armerror.New(404, "NotFound", "Resource %s is not found.", id.Name)
}

// elsewhere refuses a copy of what is in another location.
func elsewhere() error {
	return armerror.New(404, "NotFound", "The entity was not found in this Azure location.")
}

// source reads the source of a copy.
func source[T any](tx *store.Tx, table store.Table[T], id ID) (*T, error) {
	found, err := table.Get(tx, id.Key())
	if err == nil && found == nil {
		return nil, noSource(id)
	}
	return found, err
}

// resolveSource fills in what a new disk of the SKU is made from and returns the size of its
// source, 0 if there is none.
func (c *Cloud) resolveSource(tx *store.Tx, d *Disk, sku string, in *SourceInput) (sizeGB int64, err error) {
	d.Source = Source{Option: in.Option, Other: in.Other}
	switch strings.ToLower(in.Option) {
	case "empty":
		d.Source.Option = "Empty"
		return 0, nil
	case "copy", "copystart":
	default:
		return 0, armerror.InvalidParameter("disk.creationData.createOption",
			"The value '%s' of parameter 'disk.creationData.createOption' is not supported by this simulator; Empty, Copy and CopyStart are.", in.Option)
	}
	if in.ResourceID == "" {
		return 0, missing("disk.creationData.sourceResourceId")
	}
	src, err := c.findSource(tx, in.ResourceID, "disk.creationData.sourceResourceId")
	if err != nil {
		return 0, err
	}
	if !src.ready {
		return 0, armerror.NotAllowed("The source '%s' is not ready: its background copy or creation has not finished.", src.id)
	}
	if src.location != d.Location && !strings.EqualFold(in.Option, "CopyStart") {
		return 0, elsewhere()
	}
	d.Source.ResourceID, d.Source.UID, d.Source.Option = src.id.String(), src.uid, "Copy"
	if strings.EqualFold(in.Option, "CopyStart") {
		d.Source.Option = "CopyStart"
	}
	if d.Source.Option == "CopyStart" || src.id.Kind == KindSnapshot && copiesInBackground(sku) {
		d.CopyStarted, d.CopyDone = c.copyTimes()
	}
	return src.sizeGB, nil
}

// notASource refuses while an operation under way copies from the disk or snapshot.
func (c *Cloud) notASource(tx *store.Tx, uid string) error {
	ops, err := c.engine.Unfinished(tx)
	if err != nil {
		return err
	}
	for _, op := range ops {
		target, err := ParseID(op.Target, "target")
		if err != nil {
			continue
		}
		var source string
		switch op.Kind {
		case opDiskCreate:
			if d, err := diskTable.Get(tx, target.Key()); err != nil {
				return err
			} else if d != nil {
				source = d.Source.UID
			}
		case opSnapshotCreate:
			if s, err := snapshotTable.Get(tx, target.Key()); err != nil {
				return err
			} else if s != nil {
				source = s.Source.UID
			}
		}
		if source == uid {
			return armerror.Conflict()
		}
	}
	return nil
}

// copiedBySnapshot refuses while the background copy of a snapshot reads from the source of that
// uid.
func (c *Cloud) copiedBySnapshot(tx *store.Tx, id ID, uid string) error {
	now := c.Clock.Now()
	for r, err := range snapshotTable.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		if s := r.Value; s.Source.UID == uid && s.Source.Option == "CopyStart" && s.CopyDone.After(now) {
			return armerror.NotAllowed("Snapshot '%s' cannot be deleted while it is being copied to '%s'.", id.Name, s.ID)
		}
	}
	return nil
}

// copiesInBackground: snapshots of provisioned disks, and such disks made from snapshots, fill up
// after they are made.
func copiesInBackground(sku string) bool {
	s, ok := skus.DiskByName(sku)
	return ok && s.Provisioned
}

// copyTimes returns when a background copy that begins now starts and ends.
func (c *Cloud) copyTimes() (started, done time.Time) {
	now := c.Clock.Now().UTC()
	return now, now.Add(c.Latency.Draw(latency.BackgroundCopy))
}
