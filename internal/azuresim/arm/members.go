package arm

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
)

// models make the bodies that calls take, by the name of the call. The SDK's types are generated
// from Azure's REST specification, so a member that they do not have is one that Azure does not
// know.
var models = map[string]func() any{
	"Disks.CreateOrUpdate":                   func() any { return &armcompute.Disk{} },
	"Disks.Update":                           func() any { return &armcompute.DiskUpdate{} },
	"Snapshots.CreateOrUpdate":               func() any { return &armcompute.Snapshot{} },
	"Snapshots.Update":                       func() any { return &armcompute.SnapshotUpdate{} },
	"VirtualMachines.CreateOrUpdate":         func() any { return &armcompute.VirtualMachine{} },
	"VirtualMachines.Update":                 func() any { return &armcompute.VirtualMachineUpdate{} },
	"VirtualMachines.AttachDetachDataDisks":  func() any { return &armcompute.AttachDetachDataDisksRequest{} },
	"VirtualMachineScaleSets.CreateOrUpdate": func() any { return &armcompute.VirtualMachineScaleSet{} },
	"VirtualMachineScaleSets.Update":         func() any { return &armcompute.VirtualMachineScaleSetUpdate{} },
	"VirtualMachineScaleSets.DeleteInstances": func() any {
		return &armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{}
	},
	"VirtualMachineScaleSetVMs.Update":                func() any { return &armcompute.VirtualMachineScaleSetVM{} },
	"VirtualMachineScaleSetVMs.Patch":                 func() any { return &armcompute.VirtualMachineScaleSetVM{} },
	"VirtualMachineScaleSetVMs.AttachDetachDataDisks": func() any { return &armcompute.AttachDetachDataDisksRequest{} },
	"DiskEncryptionSets.CreateOrUpdate":               func() any { return &armcompute.DiskEncryptionSet{} },
	"DiskAccesses.CreateOrUpdate":                     func() any { return &armcompute.DiskAccess{} },
}

// checkMembers refuses a body that has members which the call does not know.
func (r *route) checkMembers(raw []byte) *armerror.Error {
	newModel, ok := models[r.api]
	if !ok || len(raw) == 0 {
		return nil
	}
	model := newModel()
	if err := json.Unmarshal(raw, model); err != nil {
		return armerror.From(invalidContent(err))
	}
	known, err := json.Marshal(model)
	if err != nil {
		return armerror.From(err)
	}
	var given, kept any
	if err := errors.Join(json.Unmarshal(raw, &given), json.Unmarshal(known, &kept)); err != nil {
		return armerror.From(invalidContent(err))
	}
	path := unknownMember(given, kept, "")
	name := path[strings.LastIndexByte(path, '.')+1:]
	if path == "" {
		return nil
	}
	e := armerror.BadRequest("BadRequest", "Could not find member '%s'. Path '%s'.", name, path).WithTarget(path)
	if name == path { // Resource Manager itself reads the outermost object
		e.Code = "InvalidRequestContent"
	}
	return e
}

// unknownMember returns the path of a member that is lost, "" if there is none. Members that are
// null count as absent.
func unknownMember(given, kept any, path string) string {
	switch g := given.(type) {
	case map[string]any:
		k, _ := kept.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(g)) {
			value := g[name]
			at := strings.TrimPrefix(path+"."+name, ".")
			have, ok := k[name]
			if value != nil && !ok {
				return at
			}
			if found := unknownMember(value, have, at); found != "" {
				return found
			}
		}
	case []any:
		k, _ := kept.([]any)
		for i, value := range g[:min(len(g), len(k))] {
			if found := unknownMember(value, k[i], fmt.Sprintf("%s[%d]", path, i)); found != "" {
				return found
			}
		}
	}
	return ""
}
