package arm

import (
	"encoding/json"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
)

// resourceBody is what every resource has.
type resourceBody struct {
	Location   *string         `json:"location"`
	Zones      []string        `json:"zones"`
	Tags       tags            `json:"tags"`
	SKU        *skuBody        `json:"sku"`
	Properties json.RawMessage `json:"properties"`
}

type skuBody struct {
	Name     *string `json:"name,omitempty"`
	Tier     *string `json:"tier,omitempty"`
	Capacity *int    `json:"capacity,omitempty"`
}

type creationBody struct {
	Option   string  `json:"createOption"`
	Source   string  `json:"sourceResourceId"`
	URI      string  `json:"sourceUri"`
	SourceID *string `json:"sourceUniqueId"` // read only
	Instant  *int64  `json:"instantAccessDurationMinutes"`
}

type diskBody struct {
	Creation     json.RawMessage `json:"creationData"`
	SizeGB       *int64          `json:"diskSizeGB"`
	MaxShares    *int            `json:"maxShares"`
	Tier         *string         `json:"tier"`
	Bursting     *bool           `json:"burstingEnabled"`
	IOPS         *int64          `json:"diskIOPSReadWrite"`
	MBps         *int64          `json:"diskMBpsReadWrite"`
	IOPSReadOnly *int64          `json:"diskIOPSReadOnly"`
	MBpsReadOnly *int64          `json:"diskMBpsReadOnly"`
	Frequent     *bool           `json:"optimizedForFrequentAttach"`
}

func decodeDisk(raw []byte) (compute.DiskInput, error) {
	var r resourceBody
	var d diskBody
	if _, err := decode(raw, &r); err != nil {
		return compute.DiskInput{}, err
	}
	rest, err := decode(r.Properties, &d)
	if err != nil {
		return compute.DiskInput{}, err
	}
	source, err := decodeCreation(d.Creation)
	in := compute.DiskInput{
		Location:     r.Location,
		Zones:        r.Zones,
		Tags:         r.Tags,
		SizeGB:       d.SizeGB,
		MaxShares:    d.MaxShares,
		Tier:         d.Tier,
		Bursting:     d.Bursting,
		IOPS:         d.IOPS,
		MBps:         d.MBps,
		IOPSReadOnly: d.IOPSReadOnly,
		MBpsReadOnly: d.MBpsReadOnly,
		Frequent:     d.Frequent,
		Source:       source,
		Other: without(rest, "timeCreated", "provisioningState", "uniqueId", "diskSizeBytes", "diskState", "shareInfo",
			"completionPercent",
			"LastOwnershipUpdateTime", "burstingEnabledTime", "propertyUpdatesInProgress"),
	}
	if r.SKU != nil {
		in.SKU = r.SKU.Name
	}
	return in, err
}

func decodeCreation(raw json.RawMessage) (*compute.SourceInput, error) {
	if raw == nil || string(raw) == "null" {
		return nil, nil
	}
	var c creationBody
	rest, err := decode(raw, &c)
	if err != nil {
		return nil, err
	}
	source := c.Source
	if source == "" {
		source = c.URI // older clients give a resource ID here
	}
	return &compute.SourceInput{
		Option:         c.Option,
		ResourceID:     source,
		InstantMinutes: c.Instant,
		Other:          rest,
	}, nil
}

func (s *Server) diskHandlers() handlers {
	return handlers{
		put:    sparse(writer(decodeDisk, s.Cloud.PutDisk, accepted(renderDisk))),
		patch:  writer(decodeDisk, s.Cloud.PatchDisk, accepted(renderDisk)),
		get:    reader(s.Cloud.Disk, renderDisk),
		delete: deleter(s.Cloud.DeleteDisk),
		list:   lister(s, s.Cloud.Disks, renderDisk),
	}
}
