package arm

import (
	"cmp"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/skus"
)

func stamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.0000000+00:00")
}

// shown is the provisioning state in Azure's spelling for disks: one that is being made is being
// updated.
func shown(state string) string {
	if state == compute.Creating {
		return compute.Updating
	}
	return state
}

func renderDisk(d *compute.DiskView) any {
	spec := d.Spec
	p := object(spec.Other, map[string]any{
		"creationData": object(d.Source.Other, map[string]any{
			"createOption": d.Source.Option, "sourceResourceId": orNil(d.Source.ResourceID),
			"sourceUniqueId": orNil(d.Source.UID),
		}),
		"diskSizeGB": spec.SizeGB, "diskSizeBytes": d.SizeBytes(), "tier": orNil(d.Tier),
		"timeCreated": stamp(d.Created), "provisioningState": shown(d.Provisioning), "diskState": d.State, "uniqueId": d.UID,
		"diskIOPSReadWrite": orNil(d.IOPS), "diskMBpsReadWrite": orNil(d.MBps),
		"diskIOPSReadOnly": orNil(spec.IOPSReadOnly), "diskMBpsReadOnly": orNil(spec.MBpsReadOnly),
		"burstingEnabled": orNil(spec.Bursting), "burstingEnabledTime": stamp(d.BurstingOn),
		"optimizedForFrequentAttach": spec.OptimizedForFrequentAttach, "completionPercent": d.CompletionPercent,
		"LastOwnershipUpdateTime": stamp(d.OwnerChanged),
	})
	for name, value := range map[string]string{"networkAccessPolicy": "AllowAll", "publicNetworkAccess": "Enabled"} {
		if p[name] == nil {
			p[name] = value
		}
	}
	if p["encryption"] == nil {
		p["encryption"] = map[string]string{"type": "EncryptionAtRestWithPlatformKey"}
	}
	if spec.MaxShares > 1 || spec.SKU == skus.UltraSSDLRS {
		p["maxShares"] = spec.MaxShares
	}
	if spec.SKU == skus.UltraSSDLRS {
		p["diskIOPSReadOnly"], p["diskMBpsReadOnly"] = cmp.Or(spec.IOPSReadOnly, 650), cmp.Or(spec.MBpsReadOnly, 82)
	}
	body := map[string]any{
		"id": d.ID.String(), "name": d.ID.Name, "type": "Microsoft.Compute/disks", "location": d.Location,
		"zones": d.Zones, "tags": spec.Tags, "sku": map[string]string{
			"name": spec.SKU,
			"tier": skuTier(spec.SKU),
		}, "properties": p,
	}
	if len(d.Owners) > 0 {
		body["managedBy"] = d.Owners[0]
	}
	if spec.MaxShares > 1 && len(d.Owners) > 0 {
		body["managedByExtended"] = d.Owners
		shares := make([]map[string]string, 0, len(d.Owners))
		for _, vm := range d.Owners {
			shares = append(shares, map[string]string{"vmUri": vm})
		}
		p["shareInfo"] = shares
	}
	return object(nil, body)
}

func skuTier(sku string) string {
	tier, _, _ := strings.Cut(sku, "_")
	switch tier {
	case "PremiumV2":
		return "Premium"
	case "UltraSSD":
		return "Ultra"
	case "StandardSSD":
		return "Standard"
	}
	return tier
}

func renderSnapshot(s *compute.SnapshotView) any {
	properties := object(s.Other, map[string]any{
		"creationData": object(s.Source.Other, map[string]any{
			"createOption": s.Source.Option, "sourceResourceId": s.Source.ResourceID, "sourceUniqueId": s.Source.UID,
			"instantAccessDurationMinutes": instantMinutes(s),
		}),
		"diskSizeGB": s.SizeGB, "diskSizeBytes": s.SizeGB << 30, "timeCreated": stamp(s.Created),
		"provisioningState": shown(s.Provisioning),
		"diskState":         compute.StateUnattached, "uniqueId": s.UID, "incremental": s.Incremental,
		"incrementalSnapshotFamilyId": orNil(s.FamilyID),
		"completionPercent":           s.CompletionPercent, "snapshotAccessState": s.AccessState,
		"encryption": map[string]string{"type": "EncryptionAtRestWithPlatformKey"},
	})
	for name, value := range map[string]string{"networkAccessPolicy": "AllowAll", "publicNetworkAccess": "Enabled"} {
		if properties[name] == nil {
			properties[name] = value
		}
	}
	return object(nil, map[string]any{
		"id": s.ID.String(), "name": s.ID.Name, "type": "Microsoft.Compute/snapshots", "location": s.Location, "tags": s.Tags,
		"sku": map[string]string{"name": s.SKU, "tier": skuTier(s.SKU)}, "properties": properties,
	})
}

func instantMinutes(s *compute.SnapshotView) any {
	if s.InstantUntil.IsZero() {
		return nil
	}
	return int64(s.InstantUntil.Sub(s.Created) / time.Minute)
}
