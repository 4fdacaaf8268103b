package arm

import (
	"encoding/json"
	"net/http"

	"github.com/azuredisk-csi/azuredisk/azuresim/compute"
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
		Location: r.Location, Tags: r.Tags, Incremental: b.Incremental, Source: source,
		Other: without(rest, "timeCreated", "provisioningState", "uniqueId", "diskSizeBytes", "diskState", "completionPercent",
			"incrementalSnapshotFamilyId", "snapshotAccessState", "encryption"),
	}
	if r.SKU != nil {
		in.SKU = r.SKU.Name
	}
	return in, err
}

func (s *Server) snapshotHandlers() handlers {
	write := func(do func(compute.ID, compute.SnapshotInput) (compute.Accepted[compute.SnapshotView], error)) func(*call) (reply, error) {
		return func(c *call) (reply, error) {
			in, err := decodeSnapshot(c.body)
			if err != nil {
				return reply{}, err
			}
			a, err := do(c.id(), in)
			if err != nil {
				return reply{}, err
			}
			return reply{status: http.StatusAccepted, body: renderSnapshot(a.Resource), op: a.Op, location: true}, nil
		}
	}
	return handlers{
		put: write(s.Cloud.PutSnapshot), patch: write(s.Cloud.PatchSnapshot),
		get: func(c *call) (reply, error) {
			sn, err := s.Cloud.Snapshot(c.id())
			if err != nil {
				return reply{}, err
			}
			return reply{status: http.StatusOK, body: renderSnapshot(sn)}, nil
		},
		delete: deleter(s.Cloud.DeleteSnapshot),
		list: func(c *call) (reply, error) {
			after, err := c.after()
			if err != nil {
				return reply{}, err
			}
			p, err := s.Cloud.Snapshots(c.params["subscription"], c.params["group"], after, s.PageSize)
			return listReply(c, p, func(sn *compute.SnapshotView) any { return renderSnapshot(sn) }), err
		},
	}
}
