package arm

import (
	"net/http"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
)

// addLinked adds what disks refer to: encryption sets and disk accesses.
func (s *Server) addLinked(add adder) {
	for kind, api := range map[string]string{
		compute.KindEncryptionSet: "DiskEncryptionSets",
		compute.KindDiskAccess:    "DiskAccesses",
	} {
		one := group + provider + kind + "/{name}"
		add("PUT", one, api+".CreateOrUpdate", kind, "", s.putLinked)
		add("GET", one, api+".Get", kind, "", reader(s.Cloud.Linked, renderLinked))
		add("DELETE", one, api+".Delete", kind, "", s.deleteLinked)
	}
}

func (s *Server) putLinked(c *call) (reply, error) {
	var b struct {
		Location   string             `json:"location"`
		Tags       tags               `json:"tags"`
		Properties compute.Properties `json:"properties"`
	}
	top, err := decode(c.body, &b)
	if err != nil {
		return reply{}, err
	}
	if b.Location == "" {
		return reply{}, armerror.BadRequest("LocationRequired", "The location property is required for this definition.")
	}
	a, err := s.Cloud.PutLinked(compute.Linked{
		ID:         c.id(),
		Location:   b.Location,
		Tags:       b.Tags,
		TopLevel:   without(top, "id", "name", "type"),
		Properties: without(b.Properties, "provisioningState", "timeCreated"),
	})
	if err != nil {
		return reply{}, err
	}
	return accepted(renderLinked)(a), nil
}

func (s *Server) deleteLinked(c *call) (reply, error) {
	found, err := s.Cloud.DeleteLinked(c.id())
	if found {
		return reply{status: http.StatusOK}, err
	}
	return reply{status: http.StatusNoContent}, err
}

func renderLinked(l *compute.Linked) any {
	return object(l.TopLevel, map[string]any{
		"id": l.ID.String(), "name": l.ID.Name, "type": "Microsoft.Compute/" + l.ID.Kind, "location": l.Location, "tags": l.Tags,
		"properties": object(l.Properties, map[string]any{"provisioningState": compute.Succeeded}),
	})
}
