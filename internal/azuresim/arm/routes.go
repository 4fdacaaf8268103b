package arm

import (
	"net/http"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/throttle"
)

// route ties a method and a path pattern to a handler. Literal segments match in any case, as in
// Azure.
type route struct {
	method   string
	segments []string
	api      string // the name of the call in Azure's REST reference
	kind     string
	policy   string
	open     bool // needs no token, no api-version, no quota
	handle   handler
}

// action is the last segment of a POST.
func (r *route) action() string {
	if r.method != http.MethodPost {
		return ""
	}
	return r.segments[len(r.segments)-1]
}

const (
	sub      = "subscriptions/{subscription}"
	group    = sub + "/resourceGroups/{group}"
	provider = "/providers/Microsoft.Compute/"
)

func (s *Server) table() []route {
	var list []route
	add := func(method, pattern, api, kind, policy string, handle handler) {
		list = append(list, route{
			method:   method,
			segments: strings.Split(pattern, "/"),
			api:      api,
			kind:     kind,
			policy:   policy,
			handle:   handle,
		})
	}
	s.addDisks(add)
	s.addVMs(add)
	s.addScaleSets(add)
	s.addLinked(add)
	add("GET", sub+provider+"skus", "ResourceSKUs.List", "skus", "", s.listSKUs)
	add("GET", sub+provider+"locations/{location}/usages", "Usage.List", "usages", throttle.GetUsages, s.listUsages)
	add("GET", sub+provider+"locations/{location}/operations/{operation}", "Operations.Get", "operations", throttle.GetOperation,
		s.getOperation)
	add("GET", sub+provider+"locations/{location}/DiskOperations/{operation}", "DiskOperations.Get", "operations",
		throttle.PollDisk, s.getOperation)
	add("GET", "subscriptions", "Subscriptions.List", "subscriptions", "", s.listSubscriptions)
	add("GET", sub, "Subscriptions.Get", "subscriptions", "", s.getSubscription)
	add("GET", sub+"/resourceGroups", "ResourceGroups.List", "resourceGroups", "", s.listGroups)
	add("PUT", group, "ResourceGroups.CreateOrUpdate", "resourceGroups", "", s.putGroup)
	add("GET", group, "ResourceGroups.Get", "resourceGroups", "", s.getGroup)
	add("HEAD", group, "ResourceGroups.CheckExistence", "resourceGroups", "", s.headGroup)
	add("DELETE", group, "ResourceGroups.Delete", "resourceGroups", "", s.deleteGroup)
	add("GET", sub+"/operationresults/{operation}", "ResourceGroups.DeleteResult", "resourceGroups", "", s.getOperation)
	return append(list, s.openRoutes()...)
}

type adder func(method, pattern, api, kind, policy string, handle handler)

func (s *Server) addDisks(add adder) {
	for _, r := range []struct{ kind, api, put string }{
		{compute.KindDisk, "Disks", throttle.PutDisk}, {compute.KindSnapshot, "Snapshots", throttle.PutSnapshot},
	} {
		h := s.diskHandlers()
		if r.kind == compute.KindSnapshot {
			h = s.snapshotHandlers()
		}
		one := group + provider + r.kind + "/{name}"
		add("PUT", one, r.api+".CreateOrUpdate", r.kind, r.put, h.put)
		add("PATCH", one, r.api+".Update", r.kind, throttle.PutDisk, h.patch)
		add("GET", one, r.api+".Get", r.kind, throttle.GetDisk, h.get)
		add("DELETE", one, r.api+".Delete", r.kind, throttle.DeleteDisk, h.delete)
		add("GET", group+provider+r.kind, r.api+".ListByResourceGroup", r.kind, throttle.ListDisks, h.list)
		add("GET", sub+provider+r.kind, r.api+".List", r.kind, throttle.ListDisks, h.list)
	}
}

func (s *Server) addVMs(add adder) {
	k := compute.KindVM
	one := group + provider + k + "/{name}"
	add("PUT", one, "VirtualMachines.CreateOrUpdate", k, throttle.PutVM, s.putVM)
	add("PATCH", one, "VirtualMachines.Update", k, throttle.UpdateVM, s.patchVM)
	add("GET", one, "VirtualMachines.Get", k, throttle.LowCostGet, s.getVM)
	add("GET", one+"/instanceView", "VirtualMachines.InstanceView", k, throttle.LowCostGet,
		reader(s.Cloud.VM, renderInstanceView))
	add("DELETE", one, "VirtualMachines.Delete", k, throttle.DeleteVM, deleter(s.Cloud.DeleteVM))
	add("GET", group+provider+k, "VirtualMachines.List", k, throttle.HighCostGet, s.listVMs)
	add("GET", sub+provider+k, "VirtualMachines.ListAll", k, throttle.HighCostGet, s.listVMs)
	add("POST", one+"/attachDetachDataDisks", "VirtualMachines.AttachDetachDataDisks", k, throttle.UpdateVM, s.attachDetach)
	for action, api := range powerActions {
		add("POST", one+"/"+action, "VirtualMachines."+api, k, throttle.UpdateVM, s.power(action))
	}
}

var powerActions = map[string]string{
	compute.PowerOpStart: "Start", compute.PowerOpOff: "PowerOff", compute.PowerOpDeallocate: "Deallocate",
	compute.PowerOpRestart: "Restart",
}

func (s *Server) addScaleSets(add adder) {
	k, scaleSets := compute.KindScaleSet, lister(s, s.Cloud.ScaleSets, renderScaleSet)
	one := group + provider + k + "/{name}"
	add("PUT", one, "VirtualMachineScaleSets.CreateOrUpdate", k, "", writeScaleSet(s.Cloud.PutScaleSet))
	add("PATCH", one, "VirtualMachineScaleSets.Update", k, "", writeScaleSet(s.Cloud.PatchScaleSet))
	add("GET", one, "VirtualMachineScaleSets.Get", k, throttle.LowCostGetVMSS, s.getScaleSet)
	add("DELETE", one, "VirtualMachineScaleSets.Delete", k, "", deleter(s.Cloud.DeleteScaleSet))
	add("POST", one+"/delete", "VirtualMachineScaleSets.DeleteInstances", k, throttle.UpdateVMSSVMs, s.deleteInstances)
	add("GET", group+provider+k, "VirtualMachineScaleSets.List", k, throttle.HighCostGetVMSS, scaleSets)
	add("GET", sub+provider+k, "VirtualMachineScaleSets.ListAll", k, throttle.HighCostGetVMSS, scaleSets)

	all := one + "/virtualMachines"
	instance := all + "/{instance}"
	add("GET", all, "VirtualMachineScaleSetVMs.List", k, throttle.GetVMSSVMs, s.listInstances)
	add("PUT", instance, "VirtualMachineScaleSetVMs.Update", k, throttle.UpdateVMSSVMs, s.putVM)
	add("PATCH", instance, "VirtualMachineScaleSetVMs.Patch", k, throttle.UpdateVMSSVMs, s.patchVM)
	add("GET", instance, "VirtualMachineScaleSetVMs.Get", k, throttle.GetVMSSVMs, s.getVM)
	add("GET", instance+"/instanceView", "VirtualMachineScaleSetVMs.GetInstanceView", k, throttle.GetVMSSVMs,
		reader(s.Cloud.VM, renderInstanceView))
	add("DELETE", instance, "VirtualMachineScaleSetVMs.Delete", k, throttle.UpdateVMSSVMs, deleter(s.Cloud.DeleteVM))
	add("POST", instance+"/attachDetachDataDisks", "VirtualMachineScaleSetVMs.AttachDetachDataDisks", k, throttle.UpdateVMSSVMs,
		s.attachDetach)
	for action, api := range powerActions {
		add("POST", instance+"/"+action, "VirtualMachineScaleSetVMs."+api, k, throttle.UpdateVMSSVMs, s.power(action))
	}
}

func (s *Server) match(r *http.Request) (*route, map[string]string) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	for i := range s.routes {
		if s.routes[i].method != r.Method || len(s.routes[i].segments) != len(path) {
			continue
		}
		if params, ok := bind(s.routes[i].segments, path); ok {
			return &s.routes[i], params
		}
	}
	return nil, nil
}

func bind(segments, path []string) (map[string]string, bool) {
	params := map[string]string{}
	for i, want := range segments {
		switch {
		case strings.HasPrefix(want, "{"):
			if path[i] == "" {
				return nil, false
			}
			params[strings.Trim(want, "{}")] = path[i]
		case !strings.EqualFold(want, path[i]):
			return nil, false
		}
	}
	return params, true
}
