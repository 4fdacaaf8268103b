package arm

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
)

type vmBody struct {
	Location   *string         `json:"location"`
	Zones      []string        `json:"zones"`
	Tags       tags            `json:"tags"`
	Properties json.RawMessage `json:"properties"`
	SKU        *skuBody        `json:"sku"` // of scale-set instances
	// Read only, dropped.
	ID         json.RawMessage `json:"id"`
	Name       json.RawMessage `json:"name"`
	Type       json.RawMessage `json:"type"`
	ETag       json.RawMessage `json:"etag"`
	Resources  json.RawMessage `json:"resources"`
	InstanceID json.RawMessage `json:"instanceId"`
}

type vmPropertiesBody struct {
	Hardware json.RawMessage `json:"hardwareProfile"`
	Storage  json.RawMessage `json:"storageProfile"`
	ScaleSet *reference      `json:"virtualMachineScaleSet"`
}

type reference struct {
	ID string `json:"id"`
}

type hardwareBody struct {
	Size *string `json:"vmSize"`
}

type storageBody struct {
	DataDisks *[]json.RawMessage `json:"dataDisks"`
}

type dataDiskBody struct {
	LUN              *int            `json:"lun"`
	Name             string          `json:"name"`
	CreateOption     string          `json:"createOption"`
	Caching          string          `json:"caching"`
	DeleteOption     string          `json:"deleteOption"`
	DetachOption     string          `json:"detachOption"`
	SizeGB           *int64          `json:"diskSizeGB"`
	ToBeDetached     bool            `json:"toBeDetached"`
	WriteAccelerator bool            `json:"writeAcceleratorEnabled"`
	ManagedDisk      json.RawMessage `json:"managedDisk"`
}

// managedBody is a managedDisk; in a POST its members stand in the entry itself.
type managedBody struct {
	ID          string `json:"id"`
	AccountType string `json:"storageAccountType"`
}

// decodeVM reads a VM or instance. whole says that the body is a PUT, where a storage profile
// without data disks means none.
func decodeVM(raw []byte, whole bool) (compute.VMInput, error) {
	var b vmBody
	var p vmPropertiesBody
	var h hardwareBody
	var st storageBody
	in := compute.VMInput{}
	top, err := decode(raw, &b)
	if err != nil {
		return in, err
	}
	rest, err := decode(b.Properties, &p)
	if err != nil {
		return in, err
	}
	if in.Hardware, err = decode(p.Hardware, &h); err != nil {
		return in, err
	}
	if in.Storage, err = decode(p.Storage, &st); err != nil {
		return in, err
	}
	in.Location, in.Zones, in.Tags, in.Size, in.TopLevel = b.Location, b.Zones, b.Tags, h.Size, top
	in.Properties = without(rest, "provisioningState", "vmId", "instanceView", "timeCreated", "latestModelApplied")
	if p.ScaleSet != nil && p.ScaleSet.ID != "" {
		in.ScaleSet = &p.ScaleSet.ID
	}
	in.DisksGiven = st.DataDisks != nil || whole && p.Storage != nil
	if st.DataDisks == nil {
		return in, nil
	}
	for _, raw := range *st.DataDisks {
		d, err := decodeDataDisk(raw)
		if err != nil {
			return in, err
		}
		in.Disks = append(in.Disks, d)
	}
	return in, nil
}

func decodeDataDisk(raw json.RawMessage) (compute.DataDiskInput, error) {
	var d dataDiskBody
	if _, err := decode(raw, &d); err != nil {
		return compute.DataDiskInput{}, err
	}
	var m managedBody
	other, err := decode(d.ManagedDisk, &m)
	return compute.DataDiskInput{
		Name:         d.Name,
		CreateOption: d.CreateOption,
		SizeGB:       d.SizeGB,
		ToBeDetached: d.ToBeDetached,
		DetachOption: d.DetachOption,
		AttachInput: compute.AttachInput{
			DiskID:           m.ID,
			LUN:              d.LUN,
			Caching:          d.Caching,
			DeleteOption:     d.DeleteOption,
			WriteAccelerator: d.WriteAccelerator,
			AccountType:      m.AccountType,
			Other:            other,
		},
	}, err
}

func (s *Server) putVM(c *call) (reply, error) {
	in, err := decodeVM(c.body, true)
	if err != nil {
		return reply{}, err
	}
	in.IfMatch = c.Header.Get("If-Match")
	if c.Header.Get("If-None-Match") == "*" {
		if _, err := s.Cloud.VM(c.id()); err == nil {
			return reply{}, armerror.New(412, "PreconditionFailed", "The resource '%s' exists already.", c.id())
		}
	}
	a, err := s.Cloud.PutVM(c.id(), in)
	if e, ok := errors.AsType[*armerror.Error](err); ok && e.Target == "instanceIds" {
		err = armerror.InvalidParameter("instanceIds", "%s", e.Message)
	}
	if err != nil {
		return reply{}, err
	}
	status := http.StatusOK
	if a.Created {
		status = http.StatusCreated
	}
	return s.vmReply(a, status), nil
}

func (s *Server) patchVM(c *call) (reply, error) {
	in, err := decodeVM(c.body, false)
	if err != nil {
		return reply{}, err
	}
	in.IfMatch = c.Header.Get("If-Match")
	a, err := s.Cloud.PatchVM(c.id(), in)
	if err != nil {
		return reply{}, err
	}
	return s.vmReply(a, http.StatusOK), nil
}

func (s *Server) vmReply(a compute.Accepted[compute.VM], status int) reply {
	return reply{
		status: status,
		body:   renderVM(a.Resource, false),
		op:     a.Op,
		header: etag(a.Resource),
	}
}

func etag(resource interface{ ETag() string }) http.Header {
	return http.Header{"Etag": {`"` + resource.ETag() + `"`}}
}

func (s *Server) getVM(c *call) (reply, error) {
	vm, err := s.Cloud.VM(c.id())
	if err != nil {
		return reply{}, err
	}
	expand := strings.EqualFold(c.URL.Query().Get("$expand"), "instanceView")
	return reply{
		status: http.StatusOK,
		body:   renderVM(vm, expand),
		header: etag(vm),
	}, nil
}

func (s *Server) power(action string) handler {
	return func(c *call) (reply, error) {
		action := action
		if action == compute.PowerOpDeallocate && strings.EqualFold(c.URL.Query().Get("hibernate"), "true") {
			action = compute.PowerOpHibernate
		}
		op, err := s.Cloud.SetPower(c.id(), action)
		return reply{
			status:   http.StatusAccepted,
			op:       op,
			location: true,
		}, err
	}
}

func (s *Server) listVMs(c *call) (reply, error) {
	after, err := c.after()
	if err != nil {
		return reply{}, err
	}
	q := c.URL.Query()
	filter, render := q.Get("$filter"), s.renderListed(c)
	if filter != "" {
		return s.listMembers(c, filter, after, render)
	}
	p, err := s.Cloud.VMs(c.params["subscription"], c.params["group"], after, s.PageSize)
	return listReply(c, p, render), err
}

// renderListed renders the entries of a list of VMs: whole, with their status, or with their status
// only. Lists of a resource group have no statusOnly. Without a filter the expand option is accepted
// and has no effect.
func (s *Server) renderListed(c *call) func(*compute.VM) any {
	q := c.URL.Query()
	if only := q.Get("statusOnly"); only != "" && !strings.EqualFold(only, "false") && c.params["group"] == "" {
		return renderStatus
	}
	expand := strings.EqualFold(q.Get("$expand"), "instanceView") && q.Get("$filter") != ""
	return func(vm *compute.VM) any { return s.renderListedVM(vm, expand) }
}

// listMembers answers the one filter that Azure has here: the VMs of a flexible scale set.
func (s *Server) listMembers(c *call, filter, after string, render func(*compute.VM) any) (reply, error) {
	field, value, ok := strings.Cut(filter, " eq ")
	if !ok || !strings.EqualFold(strings.Trim(strings.TrimSpace(field), "'"), "virtualMachineScaleSet/id") {
		return reply{}, armerror.BadRequest("InvalidParameter",
			"The filter '%s' is not supported; 'virtualMachineScaleSet/id' eq '<id>' is.", filter)
	}
	var none compute.Page[compute.VM]
	id, err := compute.ParseID(strings.Trim(strings.TrimSpace(value), "'"), "$filter")
	if err != nil {
		return listReply(c, none, render), nil
	}
	p, err := s.Cloud.Instances(id, after, s.PageSize)
	if e, ok := errors.AsType[*armerror.Error](err); ok && e.Status == http.StatusNotFound {
		return listReply(c, none, render), nil
	}
	return listReply(c, p, render), err
}

type attachDetachBody struct {
	Attach []json.RawMessage `json:"dataDisksToAttach"`
	Detach []struct {
		DiskID string `json:"diskId"`
		Option string `json:"detachOption"`
	} `json:"dataDisksToDetach"`
}

type attachBody struct {
	DiskID           string `json:"diskId"`
	LUN              *int   `json:"lun"`
	Caching          string `json:"caching"`
	DeleteOption     string `json:"deleteOption"`
	WriteAccelerator bool   `json:"writeAcceleratorEnabled"`
}

func (s *Server) attachDetach(c *call) (reply, error) {
	var b attachDetachBody
	if _, err := decode(c.body, &b); err != nil {
		return reply{}, err
	}
	var attach []compute.AttachInput
	for _, raw := range b.Attach {
		var a attachBody
		other, err := decode(raw, &a)
		if err != nil {
			return reply{}, err
		}
		attach = append(attach, compute.AttachInput{
			DiskID:           a.DiskID,
			LUN:              a.LUN,
			Caching:          a.Caching,
			DeleteOption:     a.DeleteOption,
			WriteAccelerator: a.WriteAccelerator,
			Other:            other,
		})
	}
	var detach []compute.DetachInput
	for _, d := range b.Detach {
		if d.Option != "" && !strings.EqualFold(d.Option, "ForceDetach") {
			return reply{}, armerror.InvalidParameter("dataDisksToDetach.detachOption",
				"The value '%s' of parameter 'dataDisksToDetach.detachOption' is invalid. Allowed values are ForceDetach.",
				d.Option)
		}
		detach = append(detach, compute.DetachInput{DiskID: d.DiskID, Force: d.Option != ""})
	}
	op, err := s.Cloud.AttachDetach(c.id(), attach, detach)
	return reply{
		status:   http.StatusAccepted,
		op:       op,
		location: true,
	}, err
}
