package arm

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
)

// handler answers a call.
type handler func(*call) (reply, error)

// handlers are the calls that disks and snapshots have in common.
type handlers struct {
	put, patch, get, delete, list handler
}

// reader answers with the resource.
func reader[T any](read func(compute.ID) (*T, error), render func(*T) any) handler {
	return func(c *call) (reply, error) {
		r, err := read(c.id())
		if err != nil {
			return reply{}, err
		}
		return reply{status: http.StatusOK, body: render(r)}, nil
	}
}

// writer writes a resource as the body of a PUT or a PATCH says.
func writer[In, T any](decode func([]byte) (In, error), write func(compute.ID, In) (compute.Accepted[T], error),
	answer func(compute.Accepted[T]) reply) handler {
	return func(c *call) (reply, error) {
		in, err := decode(c.body)
		if err != nil {
			return reply{}, err
		}
		a, err := write(c.id(), in)
		if err != nil {
			return reply{}, err
		}
		return answer(a), nil
	}
}

// accepted answers 202 to a write.
func accepted[T any](render func(*T) any) func(compute.Accepted[T]) reply {
	return func(a compute.Accepted[T]) reply {
		return reply{
			status:   http.StatusAccepted,
			body:     render(a.Resource),
			op:       a.Op,
			location: true,
		}
	}
}

// sparse shortens the answer to a PUT that the disk provider has accepted: the operation has not begun
// to make the resource, and the answer has what the caller sent.
func sparse(put handler) handler {
	return func(c *call) (reply, error) {
		out, err := put(c)
		whole, ok := out.body.(map[string]any)
		if err != nil || out.op == nil || !ok {
			return out, err
		}
		var sent struct {
			SKU        map[string]any
			Properties map[string]any
		}
		if err := json.Unmarshal(c.body, &sent); err != nil {
			return reply{}, err
		}
		made, sku := whole["properties"].(map[string]any), whole["sku"].(map[string]string)
		properties := object(nil, sent.Properties)
		properties["provisioningState"] = made["provisioningState"]
		short := map[string]any{"properties": properties}
		for _, name := range []string{"id", "name", "type", "location", "zones", "tags"} {
			if whole[name] != nil {
				short[name] = whole[name]
			}
		}
		switch existed := !strings.HasSuffix(out.op.Kind, ".create"); {
		case existed:
			short["sku"], properties["diskSizeBytes"] = sku, made["diskSizeBytes"]
		case sent.SKU != nil:
			short["sku"] = map[string]string{"name": sku["name"]}
		}
		out.body = short
		return out, nil
	}
}

// lister answers with a page of a resource group or a subscription.
func lister[T any](s *Server, list func(subscription, group, after string, limit int) (compute.Page[T], error),
	render func(*T) any) handler {
	return func(c *call) (reply, error) {
		after, err := c.after()
		if err != nil {
			return reply{}, err
		}
		p, err := list(c.params["subscription"], c.params["group"], after, s.PageSize)
		return listReply(c, p, render), err
	}
}

// deleter answers 204 if there is nothing to delete.
func deleter(do func(compute.ID) (*operations.Operation, error)) handler {
	return func(c *call) (reply, error) {
		op, err := do(c.id())
		if err != nil {
			return reply{}, err
		}
		if op == nil {
			return reply{status: http.StatusNoContent}, nil
		}
		return reply{
			status:   http.StatusAccepted,
			op:       op,
			location: true,
		}, nil
	}
}
