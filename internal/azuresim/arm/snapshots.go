package arm

import (
	"encoding/json"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
)

type snapshotBody struct {
	Creation    json.RawMessage `json:"creationData"`
	Incremental *bool           `json:"incremental"`
	SizeGB      *int64          `json:"diskSizeGB"` // the source decides
}

func decodeSnapshot(raw []byte) (compute.SnapshotInput, error) {
	var r resourceBody
	var b snapshotBody
	if _, err := decode(raw, &r); err != nil {
		return compute.SnapshotInput{}, err
	}
	rest, err := decode(r.Properties, &b)
	if err != nil {
		return compute.SnapshotInput{}, err
	}
	source, err := decodeCreation(b.Creation)
	in := compute.SnapshotInput{
		Location:    r.Location,
		Tags:        r.Tags,
		Incremental: b.Incremental,
		Source:      source,
		Other: without(rest, "timeCreated", "provisioningState", "uniqueId", "diskSizeBytes", "diskState", "completionPercent",
			"incrementalSnapshotFamilyId", "snapshotAccessState", "encryption"),
	}
	if r.SKU != nil {
		in.SKU = r.SKU.Name
	}
	return in, err
}

func (s *Server) snapshotHandlers() handlers {
	return handlers{
		put:    sparse(writer(decodeSnapshot, s.Cloud.PutSnapshot, accepted(renderSnapshot))),
		patch:  writer(decodeSnapshot, s.Cloud.PatchSnapshot, accepted(renderSnapshot)),
		get:    reader(s.Cloud.Snapshot, renderSnapshot),
		delete: deleter(s.Cloud.DeleteSnapshot),
		list:   lister(s, s.Cloud.Snapshots, renderSnapshot),
	}
}
