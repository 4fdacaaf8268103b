package arm

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
)

type scaleSetBody struct {
	Location   *string         `json:"location"`
	Zones      []string        `json:"zones"`
	Tags       tags            `json:"tags"`
	SKU        *skuBody        `json:"sku"`
	Properties json.RawMessage `json:"properties"`
	// Read only, dropped.
	ID   json.RawMessage `json:"id"`
	Name json.RawMessage `json:"name"`
	Type json.RawMessage `json:"type"`
	ETag json.RawMessage `json:"etag"`
}

type scaleSetPropertiesBody struct {
	Mode *string `json:"orchestrationMode"`
}

func decodeScaleSet(raw []byte) (compute.ScaleSetInput, error) {
	var b scaleSetBody
	var p scaleSetPropertiesBody
	top, err := decode(raw, &b)
	if err != nil {
		return compute.ScaleSetInput{}, err
	}
	rest, err := decode(b.Properties, &p)
	in := compute.ScaleSetInput{
		Location:   b.Location,
		Zones:      b.Zones,
		Tags:       b.Tags,
		Mode:       p.Mode,
		TopLevel:   top,
		Properties: without(rest, "provisioningState", "uniqueId", "timeCreated"),
	}
	if b.SKU != nil {
		in.SKU, in.Capacity = b.SKU.Name, b.SKU.Capacity
	}
	return in, err
}

// writeScaleSet answers a PUT or a PATCH of a scale set.
func writeScaleSet(write func(compute.ID, compute.ScaleSetInput) (compute.Accepted[compute.ScaleSet], error)) handler {
	return func(c *call) (reply, error) {
		in, err := decodeScaleSet(c.body)
		if err != nil {
			return reply{}, err
		}
		in.IfMatch = c.Header.Get("If-Match")
		a, err := write(c.id(), in)
		if err != nil {
			return reply{}, err
		}
		status := http.StatusOK
		if a.Created {
			status = http.StatusCreated
		}
		return reply{
			status: status,
			body:   renderScaleSet(a.Resource),
			op:     a.Op,
			header: etag(a.Resource),
		}, nil
	}
}

func (s *Server) getScaleSet(c *call) (reply, error) {
	ss, err := s.Cloud.ScaleSet(c.id())
	if err != nil {
		return reply{}, err
	}
	return reply{
		status: http.StatusOK,
		body:   renderScaleSet(ss),
		header: etag(ss),
	}, nil
}

func (s *Server) deleteInstances(c *call) (reply, error) {
	var b struct {
		Instances []string `json:"instanceIds"`
	}
	if _, err := decode(c.body, &b); err != nil {
		return reply{}, err
	}
	if len(b.Instances) == 0 {
		return reply{}, armerror.InvalidParameter("instanceIds", "Required parameter 'instanceIds' is missing (null).")
	}
	op, err := s.Cloud.DeleteInstances(c.id(), b.Instances)
	return reply{
		status:   http.StatusAccepted,
		op:       op,
		location: true,
	}, err
}

func (s *Server) listInstances(c *call) (reply, error) {
	after, err := c.after()
	if err != nil {
		return reply{}, err
	}
	expand := strings.EqualFold(c.URL.Query().Get("$expand"), "instanceView")
	p, err := s.Cloud.Instances(c.id(), after, s.PageSize)
	return listReply(c, p, func(vm *compute.VM) any { return renderVM(vm, expand) }), err
}

func renderScaleSet(ss *compute.ScaleSet) any {
	mode := "Uniform"
	if ss.Flexible {
		mode = "Flexible"
	}
	return object(ss.TopLevel, map[string]any{
		"id": ss.ID.String(), "name": ss.ID.Name, "type": "Microsoft.Compute/virtualMachineScaleSets", "location": ss.Location,
		"zones": ss.Zones, "tags": ss.Tags, "etag": `"` + ss.ETag() + `"`,
		"sku": map[string]any{"name": ss.SKU, "tier": "Standard", "capacity": ss.Capacity},
		"properties": object(ss.Properties, map[string]any{
			"provisioningState": ss.Provisioning, "uniqueId": ss.UniqueID, "timeCreated": stamp(ss.Created),
			"orchestrationMode": mode,
		}),
	})
}
