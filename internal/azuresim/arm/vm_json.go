package arm

import (
	"encoding/json"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
)

func renderVM(vm *compute.VM, instanceView bool) any {
	p := object(vm.Properties, map[string]any{
		"vmId": vm.VMID, "provisioningState": vm.Provisioning, "timeCreated": stamp(vm.Created),
		"hardwareProfile": object(vm.Hardware, map[string]any{"vmSize": vm.Size}), "storageProfile": renderStorage(vm),
	})
	uniform := vm.ID.Instance != ""
	if instanceView {
		p["instanceView"] = renderInstanceView(vm)
	}
	if vm.ScaleSet != "" && !uniform {
		p["virtualMachineScaleSet"] = reference{vm.ScaleSet}
	}
	kind := "Microsoft.Compute/virtualMachines"
	body := map[string]any{
		"id": vm.ID.String(), "name": vm.Name, "location": vm.Location, "zones": vm.Zones, "tags": vm.Tags, "properties": p,
		"etag": `"` + vm.ETag() + `"`,
	}
	if uniform {
		kind = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines"
		p["latestModelApplied"] = true
		body["instanceId"] = vm.ID.Instance
		body["sku"] = map[string]string{"name": vm.Size, "tier": "Standard"}
	}
	body["type"] = kind
	return object(vm.TopLevel, body)
}

// renderListedVM renders an entry of a list.
func (s *Server) renderListedVM(vm *compute.VM, instanceView bool) any {
	if s.Latency.Profile().UpperCaseGroups && vm.ID.Instance == "" {
		listed := *vm
		listed.ID.Group = strings.ToUpper(vm.ID.Group)
		vm = &listed
	}
	return renderVM(vm, instanceView)
}

// renderStatus is an entry of a list with statusOnly: neither tags nor profiles, so it says nothing
// about disks.
func renderStatus(vm *compute.VM) any {
	return map[string]any{
		"id": vm.ID.String(), "name": vm.Name, "location": vm.Location, "type": "Microsoft.Compute/virtualMachines",
		"properties": map[string]any{
			"vmId":              vm.VMID,
			"provisioningState": vm.Provisioning,
			"instanceView":      renderInstanceView(vm),
		},
	}
}

// renderStorage is the storage profile, the result of attachDetachDataDisks.
func renderStorage(vm *compute.VM) any {
	disks := make([]any, 0, len(vm.Disks))
	for _, d := range vm.Disks {
		if d.Unlisted {
			continue
		}
		createOption, deleteOption, detachOption := "Attach", d.DeleteOption, any(nil)
		id := any(d.Disk.String())
		if d.Created {
			createOption = "Empty"
		}
		if d.Created && d.State == compute.DiskAttaching {
			id = nil // Azure has yet to make the disk
		}
		if d.Force && d.State == compute.DiskDetaching {
			detachOption = "ForceDetach"
		}
		if deleteOption == "" {
			deleteOption = "Detach"
		}
		disks = append(disks, object(nil, map[string]any{
			"lun": d.LUN, "name": d.Disk.Name, "createOption": createOption, "caching": d.Caching,
			"writeAcceleratorEnabled": orNil(d.WriteAccelerator), "diskSizeGB": orNil(shownSize(vm, d)),
			"managedDisk":  object(d.Other, map[string]any{"id": id, "storageAccountType": orNil(d.SKU)}),
			"deleteOption": deleteOption, "detachOption": detachOption,
			"toBeDetached": d.State == compute.DiskDetaching || d.State == compute.DiskDetachFailed,
		}))
	}
	return object(vm.Storage, map[string]any{"dataDisks": disks})
}

// shownSize is the size of a disk in a VM's list: a VM that is off shows none.
func shownSize(vm *compute.VM, d compute.DataDisk) int64 {
	if vm.Off() {
		return 0
	}
	return d.SizeGB
}

type status struct {
	Code    string `json:"code"`
	Level   string `json:"level"`
	Display string `json:"displayStatus"`
	Time    any    `json:"time,omitempty"`
}

func renderInstanceView(vm *compute.VM) any {
	level := "Info"
	if vm.Provisioning == compute.Failed {
		level = "Error"
	}
	statuses := []status{
		{
			Code:    "ProvisioningState/" + strings.ToLower(vm.Provisioning),
			Level:   level,
			Display: "Provisioning " + strings.ToLower(vm.Provisioning),
			Time:    stamp(vm.Created),
		},
		{Code: "PowerState/" + vm.Power, Level: "Info", Display: "VM " + vm.Power},
	}
	if vm.Hibernated {
		statuses = append(statuses, status{
			Code:    "HibernationState/Hibernated",
			Level:   "Info",
			Display: "Hibernated",
		})
	}
	disks := make([]any, 0, len(vm.Disks))
	for _, d := range vm.Disks {
		state := map[string]string{
			compute.DiskAttaching: "updating", compute.DiskAttached: "succeeded", compute.DiskDetaching: "updating",
			compute.DiskDetachFailed: "failed", compute.DiskAttachFailed: "failed",
		}[d.State]
		disks = append(disks, map[string]any{
			"name": d.Disk.Name, "statuses": []status{{
				Code:    "ProvisioningState/" + state,
				Level:   "Info",
				Display: "Provisioning " + state,
				Time:    stamp(d.Changed),
			}},
		})
	}
	return object(nil, map[string]any{"statuses": statuses, "disks": disks, "computerName": computerName(vm)})
}

func computerName(vm *compute.VM) any {
	var profile struct {
		Name string `json:"computerName"`
	}
	if raw := vm.Properties["osProfile"]; raw == nil || json.Unmarshal(raw, &profile) != nil {
		return nil
	}
	return orNil(profile.Name)
}
