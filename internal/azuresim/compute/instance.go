package compute

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// scaleSetModel is what a scale set's model says about its instances.
type scaleSetModel struct {
	OS struct {
		Prefix  string          `json:"computerNamePrefix"`
		Windows json.RawMessage `json:"windowsConfiguration"`
	} `json:"osProfile"`
	Storage struct {
		Image      json.RawMessage `json:"imageReference"`
		Controller json.RawMessage `json:"diskControllerType"`
		OSDisk     map[string]any  `json:"osDisk"`
	} `json:"storageProfile"`
	Network struct {
		Interfaces []struct {
			Name       string `json:"name"`
			Properties struct {
				Primary bool `json:"primary"`
			} `json:"properties"`
		} `json:"networkInterfaceConfigurations"`
	} `json:"networkProfile"`
	// configurations of the network interfaces as the model gives them, and capabilities of the
	// instances
	configurations, capabilities json.RawMessage
}

// model reads the scale set's model. A part in a form that it cannot read counts as missing.
func (ss *ScaleSet) model() scaleSetModel {
	var m scaleSetModel
	var raw struct {
		Network struct {
			Interfaces json.RawMessage `json:"networkInterfaceConfigurations"`
		} `json:"networkProfile"`
	}
	_ = json.Unmarshal(ss.Properties["virtualMachineProfile"], &m)
	_ = json.Unmarshal(ss.Properties["virtualMachineProfile"], &raw)
	m.configurations, m.capabilities = raw.Network.Interfaces, ss.Properties["additionalCapabilities"]
	if m.OS.Prefix == "" {
		m.OS.Prefix = ss.ID.Name
	}
	return m
}

// shape gives an instance the profiles of the model: a computer name of the prefix and six base-36
// digits, an OS disk, and network interfaces.
func (m scaleSetModel) shape(vm *VM, number int) error {
	suffix := strconv.FormatInt(int64(number), 36)
	name := m.OS.Prefix + strings.Repeat("0", max(0, 6-len(suffix))) + suffix
	vm.Properties, vm.Storage = Properties{"additionalCapabilities": m.capabilities}, Properties{
		"imageReference":     m.Storage.Image,
		"diskControllerType": m.Storage.Controller,
	}
	if err := vm.Properties.set("osProfile", map[string]string{"computerName": name}); err != nil {
		return err
	}
	if m.Storage.OSDisk != nil {
		if err := vm.Storage.set("osDisk", m.osDisk(vm)); err != nil {
			return err
		}
	}
	if len(m.Network.Interfaces) > 0 {
		if err := vm.Properties.set("networkProfile", map[string]any{"networkInterfaces": m.interfaces(vm)}); err != nil {
			return err
		}
		if vm.ID.Instance != "" {
			if err := vm.Properties.set("networkProfileConfiguration",
				map[string]json.RawMessage{"networkInterfaceConfigurations": m.configurations}); err != nil {
				return err
			}
		}
	}
	for _, p := range []Properties{vm.Properties, vm.Storage} {
		for name, value := range p {
			if value == nil {
				delete(p, name)
			}
		}
	}
	return nil
}

func (p Properties) set(name string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	p[name] = raw
	return nil
}

// osDisk is the model's OS disk with a name and an ID.
func (m scaleSetModel) osDisk(vm *VM) map[string]any {
	disk := m.Storage.OSDisk
	disk["name"] = vm.Name + "_OsDisk_1_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	managed, _ := disk["managedDisk"].(map[string]any)
	if managed == nil {
		managed = map[string]any{}
	}
	managed["id"] = ID{
		Subscription: vm.ID.Subscription,
		Group:        vm.ID.Group,
		Kind:         KindDisk,
		Name:         disk["name"].(string),
	}.String()
	disk["managedDisk"] = managed
	if disk["osType"] == nil {
		disk["osType"] = "Linux"
		if m.OS.Windows != nil {
			disk["osType"] = "Windows"
		}
	}
	return disk
}

// interfaces are the instance's network interfaces: parts of an instance of a uniform scale set,
// resources of their own for a VM.
func (m scaleSetModel) interfaces(vm *VM) []any {
	list := make([]any, 0, len(m.Network.Interfaces))
	for _, nic := range m.Network.Interfaces {
		id := vm.ID.String() + "/networkInterfaces/" + nic.Name
		if vm.ID.Instance == "" {
			id = "/subscriptions/" + vm.ID.Subscription + "/resourceGroups/" + vm.ID.Group +
				"/providers/Microsoft.Network/networkInterfaces/" + nic.Name + "-" + vm.VMID[:8]
		}
		list = append(list, map[string]any{
			"id":         id,
			"properties": map[string]any{"primary": nic.Properties.Primary || len(m.Network.Interfaces) == 1},
		})
	}
	return list
}
