package arm

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/skus"
)

func (s *Server) listSKUs(c *call) (reply, error) {
	location := ""
	if filter := c.URL.Query().Get("$filter"); filter != "" {
		field, value, ok := strings.Cut(filter, " eq ")
		if !ok || !strings.EqualFold(strings.TrimSpace(field), "location") {
			return reply{}, armerror.BadRequest("InvalidFilter", "The filter '%s' is not supported; location eq '<location>' is.",
				filter)
		}
		location = strings.Trim(strings.TrimSpace(value), "'")
	}
	return reply{status: http.StatusOK, body: map[string]any{"value": skus.List(location)}}, nil
}

func (s *Server) renderSubscription(id string) any {
	return map[string]any{
		"id": "/subscriptions/" + id, "subscriptionId": id, "tenantId": Tenant, "displayName": "azuresim", "state": "Enabled",
		"subscriptionPolicies": map[string]string{"quotaId": "PayAsYouGo_2014-09-01", "spendingLimit": "Off"},
	}
}

func (s *Server) listSubscriptions(*call) (reply, error) {
	var list []any
	for _, id := range s.Cloud.Subscriptions {
		list = append(list, s.renderSubscription(id))
	}
	return reply{status: http.StatusOK, body: map[string]any{"value": list}}, nil
}

func (s *Server) getSubscription(c *call) (reply, error) {
	return reply{status: http.StatusOK, body: s.renderSubscription(c.params["subscription"])}, nil
}

func renderGroup(g *compute.Group) any {
	state := compute.Succeeded
	if g.Deleting {
		state = compute.Deleting
	}
	return object(nil, map[string]any{
		"id": "/subscriptions/" + g.Subscription + "/resourceGroups/" + g.Name, "name": g.Name,
		"type":     "Microsoft.Resources/resourceGroups",
		"location": g.Location, "tags": g.Tags, "properties": map[string]string{"provisioningState": state},
	})
}

func (s *Server) putGroup(c *call) (reply, error) {
	var b struct {
		Location string `json:"location"`
		Tags     tags   `json:"tags"`
	}
	if err := json.Unmarshal(c.body, &b); err != nil {
		return reply{}, invalidContent(err)
	}
	if b.Location == "" {
		return reply{}, armerror.BadRequest("LocationRequired", "The location property is required for this definition.")
	}
	created, err := s.Cloud.PutGroup(compute.Group{
		Subscription: c.params["subscription"],
		Name:         c.params["group"],
		Location:     b.Location,
		Tags:         b.Tags,
	})
	if err != nil {
		return reply{}, err
	}
	out, err := s.getGroup(c)
	if created {
		out.status = http.StatusCreated
	}
	return out, err
}

func (s *Server) getGroup(c *call) (reply, error) {
	g, err := s.Cloud.Group(c.params["subscription"], c.params["group"])
	if err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusOK, body: renderGroup(g)}, nil
}

func (s *Server) headGroup(c *call) (reply, error) {
	if _, err := s.getGroup(c); err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusNoContent}, nil
}

func (s *Server) deleteGroup(c *call) (reply, error) {
	op, err := s.Cloud.DeleteGroup(c.params["subscription"], c.params["group"])
	return reply{status: http.StatusAccepted, op: op}, err
}

func (s *Server) listGroups(c *call) (reply, error) {
	groups, err := s.Cloud.Groups(c.params["subscription"])
	if err != nil {
		return reply{}, err
	}
	list := make([]any, 0, len(groups))
	for _, g := range groups {
		list = append(list, renderGroup(g))
	}
	return reply{status: http.StatusOK, body: map[string]any{"value": list}}, nil
}
