package verify

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"strings"
)

// vmSize takes four data disks.
const vmSize = "Standard_D2s_v3"

func ofVM(name, action string) func(*world) string {
	return func(w *world) string {
		return strings.TrimSuffix(w.vm(name)+"/"+action, "/") + "?api-version=" + vmVersion
	}
}

const vmList = "/providers/Microsoft.Compute/virtualMachines?api-version=" + vmVersion

// listOfGroup is the path of the list of the VMs of the run's group.
func listOfGroup(more string) func(*world) string {
	return func(w *world) string { return w.groupPath(w.group) + vmList + more }
}

// partsListed says which parts vm-1 has on the first page of a list.
func partsListed(path func(*world) string) func(context.Context, *world) (string, error) {
	return func(ctx context.Context, w *world) (string, error) {
		a, err := w.do(ctx, http.MethodGet, path(w), nil)
		if err != nil {
			return "", err
		}
		entries, _ := a.body["value"].([]any)
		for _, entry := range entries {
			vm, _ := entry.(object)
			if id, _ := vm["id"].(string); !strings.EqualFold(id, w.vm("vm-1")) {
				continue
			}
			properties, _ := vm["properties"].(object)
			var parts []string
			for _, part := range []string{"storageProfile", "instanceView"} {
				if properties[part] != nil {
					parts = append(parts, part)
				}
			}
			return strings.Join(parts, " "), nil
		}
		return "not on the first page", nil
	}
}

// vmSpec is a small Linux VM. Its password is random, and known to no one.
func (w *world) vmSpec(name string) object {
	return object{"location": w.Location, "properties": object{
		"hardwareProfile": object{"vmSize": vmSize},
		"osProfile": object{
			"computerName":  name,
			"adminUsername": "azuresim",
			"adminPassword": "aA1-" + rand.Text(),
		},
		"storageProfile": object{
			"imageReference": object{
				"publisher": "Canonical",
				"offer":     "ubuntu-24_04-lts",
				"sku":       "minimal",
				"version":   "latest",
			},
			"osDisk": object{
				"createOption": "FromImage",
				"deleteOption": "Delete",
				"managedDisk":  object{"storageAccountType": "StandardSSD_LRS"},
			},
		},
		"networkProfile": object{"networkApiVersion": "2020-11-01", "networkInterfaceConfigurations": []object{{
			"name": "nic", "properties": object{
				"deleteOption": "Delete",
				"primary":      true,
				"ipConfigurations": []object{{
					"name": "ip", "properties": object{"subnet": object{"id": w.Subnet}},
				}},
			},
		}}},
	}}
}

func makeVM(name string) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		if w.Subnet == "" {
			network := w.groupPath(w.group) + "/providers/Microsoft.Network/virtualNetworks/net"
			err := w.ensure(ctx, network, networkVersion, object{"location": w.Location, "properties": object{
				"addressSpace": object{"addressPrefixes": []string{"10.0.0.0/24"}},
				"subnets":      []object{{"name": "vms", "properties": object{"addressPrefix": "10.0.0.0/25"}}},
			}})
			if err != nil {
				return err
			}
			w.Subnet = network + "/subnets/vms"
		}
		return w.ensure(ctx, w.vm(name), vmVersion, w.vmSpec(name))
	}
}

// attachBody attaches a disk; more are further members of the entry.
func (w *world) attachBody(disk string, more object) object {
	entry := object{"diskId": w.disk(disk)}
	maps.Copy(entry, more)
	return object{"dataDisksToAttach": []object{entry}}
}

// attached makes the VM and the disk, and attaches it.
func attached(vm, disk string, changes, entry object) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		key := w.vm(vm) + " " + disk
		if w.made[key] {
			return nil
		}
		if err := makeVM(vm)(ctx, w); err != nil {
			return err
		}
		if err := makeDisk(disk, changes)(ctx, w); err != nil {
			return err
		}
		a, err := w.do(ctx, http.MethodPost, ofVM(vm, "attachDetachDataDisks")(w), w.attachBody(disk, entry))
		if err == nil && (a.status >= http.StatusBadRequest || a.code != "") {
			err = fmt.Errorf("attach disk %s to VM %s: %s: %s", disk, vm, a, a.message)
		}
		w.made[key] = err == nil
		return err
	}
}

func vmPlays() []play {
	post := func(rule, want, vm string, body func(w *world) object) play {
		return play{rule, want, func(ctx context.Context, w *world) (string, error) {
			a, err := w.do(ctx, http.MethodPost, ofVM(vm, "attachDetachDataDisks")(w), body(w))
			return a.String(), err
		}}.after(makeVM(vm))
	}
	attach := func(rule, want, vm, disk string, more object) play {
		return post(rule, want, vm, func(w *world) object { return w.attachBody(disk, more) })
	}
	one := attached("vm-1", "one", nil, object{"lun": 0})
	shared := attached("vm-1", "shared", object{"maxShares": 2}, object{"lun": 1})
	grow := func(properties object) func(context.Context, *world) (string, error) {
		return refusal("", "", http.MethodPatch, ofDisk("shared"), object{"properties": properties}).after(shared).run
	}
	return []play{
		refusal("vm-size", "400 InvalidParameter", http.MethodPut, ofVM("refused", ""), object{
			"location": "eastus", "properties": object{"hardwareProfile": object{"vmSize": "Golden_D2"}},
		}),
		play{"list-expand", "storageProfile", partsListed(listOfGroup("&$expand=instanceView"))}.after(makeVM("vm-1")),
		play{"list-vms", "storageProfile", partsListed(listOfGroup(""))}.after(makeVM("vm-1")),
		play{"list-status", "instanceView", partsListed(func(w *world) string {
			return "/subscriptions/" + w.Subscription + vmList + "&statusOnly=true"
		})}.after(makeVM("vm-1")),
		attach("attach-missing-disk", "404 NotFound", "vm-1", "none", nil),
		post("attach-nothing", "400 InvalidParameter", "vm-1", func(*world) object { return object{} }),
		attach("attach-owned", "409 ConflictingUserInput", "vm-2", "one", nil).after(one),
		attach("attach-lun", "400 InvalidParameter", "vm-1", "free", object{"lun": 0}).after(one).after(makeDisk("free", nil)),
		attach("attach-lun", "400 InvalidParameter", "vm-1", "free", object{"lun": 64}).after(makeDisk("free", nil)),
		attach("attach-fixed", "409 PropertyChangeNotAllowed", "vm-1", "one", object{"lun": 3}).after(one),
		attach("attach-caching", "400 InvalidParameter", "vm-1", "free",
			object{"caching": "Sometimes"}).after(makeDisk("free", nil)),
		attach("attach-zone", "400 BadRequest", "vm-1", "zonal", nil).after(makeDisk("zonal", object{"/zones": []string{"1"}})),
		post("detach-absent", "400 InvalidParameter", "vm-1", func(w *world) object {
			return object{"dataDisksToDetach": []object{{"diskId": w.disk("free")}}}
		}).after(makeDisk("free", nil)),
		refusal("disk-delete-attached", "409 OperationNotAllowed", http.MethodDelete, ofDisk("one"), nil).after(one),
		{"disk-shares-change", "409 OperationNotAllowed", grow(object{"maxShares": 3})},
		{"disk-grow-attached", "409 OperationNotAllowed", grow(object{"diskSizeGB": 8})},
		refusal("vm-etag", "412 PreconditionFailed", http.MethodPatch, ofVM("vm-1", ""), object{"tags": object{"a": "b"}},
			"If-Match", `"0"`).after(makeVM("vm-1")),
		{"vm-fixed", "409 PropertyChangeNotAllowed", func(ctx context.Context, w *world) (string, error) {
			body := w.vmSpec("vm-1")
			body["location"] = "japaneast"
			a, err := w.do(ctx, http.MethodPut, ofVM("vm-1", "")(w), body)
			return a.String(), err
		}},
		{"disk-attaching-state", "Unattached", duringAttach("seen", func(ctx context.Context, w *world) (string, error) {
			a, err := w.send(ctx, http.MethodGet, ofDisk("seen")(w), nil)
			properties, _ := a.body["properties"].(object)
			return fmt.Sprint(properties["diskState"]), err
		})},
		{"disk-delete-attaching", "202", duringAttach("deleted", func(ctx context.Context, w *world) (string, error) {
			a, err := w.do(ctx, http.MethodDelete, ofDisk("deleted")(w), nil)
			return a.String(), err
		})},
	}
}

// duringAttach does something while an attach of the disk is in flight, and detaches the disk.
func duringAttach(disk string, do func(context.Context, *world) (string, error)) func(context.Context, *world) (string, error) {
	return func(ctx context.Context, w *world) (string, error) {
		if err := makeVM("vm-2")(ctx, w); err != nil {
			return "", err
		}
		if err := makeDisk(disk, nil)(ctx, w); err != nil {
			return "", err
		}
		path := ofVM("vm-2", "attachDetachDataDisks")(w)
		a, err := w.send(ctx, http.MethodPost, path, w.attachBody(disk, nil))
		if err != nil {
			return "", err
		}
		got, err := do(ctx, w)
		if err != nil {
			return "", err
		}
		if err := w.await(ctx, &a); err != nil {
			return "", err
		}
		_, err = w.do(ctx, http.MethodPost, path, object{"dataDisksToDetach": []object{{"diskId": w.disk(disk)}}})
		return got, err
	}
}
