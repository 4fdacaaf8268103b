package compute

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/skus"
)

const maxLUN = 63

// cachingFor returns the caching mode in Azure's spelling; the empty one is the default.
func cachingFor(asked string) (string, error) {
	if asked == "" {
		return "None", nil
	}
	for _, mode := range []string{"None", "ReadOnly", "ReadWrite"} {
		if strings.EqualFold(mode, asked) {
			return mode, nil
		}
	}
	return "", armerror.InvalidParameter("dataDisk.caching",
		"The value '%s' of parameter 'dataDisk.caching' is invalid. Allowed values are None, ReadOnly, ReadWrite.", asked)
}

// attachCase is one disk on its way to one VM.
type attachCase struct {
	vm      *VM
	disk    *Disk
	copying bool
	caching string
	accel   bool
	created bool // by the same update
}

// checkAttach applies every rule that does not depend on the VM's other disks.
func checkAttach(a attachCase) error {
	for _, rule := range []func(attachCase) error{checkDiskReady, checkPlacement, checkOwners, checkSKUOnVM, checkCaching} {
		if err := rule(a); err != nil {
			return err
		}
	}
	return nil
}

func checkDiskReady(a attachCase) error {
	if a.created {
		return nil
	}
	switch a.disk.Provisioning {
	case Deleting:
		return armerror.New(404, "NotFound", "Disk %s is not found.", a.disk.ID)
	case Creating, Updating:
		return armerror.Conflict()
	case Failed:
		return armerror.NotAllowed("Disk '%s' cannot be attached because its provisioning failed.", a.disk.ID.Name)
	}
	if a.copying {
		return armerror.NotAllowed("Disk '%s' cannot be attached because its background copy has not finished.", a.disk.ID.Name)
	}
	return nil
}

func checkPlacement(a attachCase) error {
	vmZone, diskZone := zoneOf(a.vm.Zones), zoneOf(a.disk.Zones)
	sku, _ := skus.DiskByName(a.disk.Spec.SKU)
	switch {
	case a.vm.Location != a.disk.Location:
		return armerror.BadRequest("BadRequest",
			"Disk %s cannot be attached to the VM because it is not in the same location as the VM. VM location: '%s'. Disk location: '%s'.",
			a.disk.ID, a.vm.Location, a.disk.Location)
	case diskZone != "" && a.vm.Properties["availabilitySet"] != nil:
		return armerror.BadRequest("BadRequest",
			"Zonal Disk '%s' cannot be attached to resource '%s' because the resource belongs to an Availability Set. Only regional disks can be attached.",
			a.disk.ID, a.vm.ID)
	case !sku.ZoneRedundant && vmZone != diskZone:
		return armerror.BadRequest("BadRequest",
			"Disk %s cannot be attached to the VM because it is not in the same zone as the VM. VM zone: '%s'. Disk zone: '%s'.",
			a.disk.ID, vmZone, diskZone)
	}
	return nil
}

func zoneOf(zones []string) string {
	if len(zones) == 0 {
		return ""
	}
	return zones[0]
}

// checkOwners judges by the other VMs that hold the disk or are about to.
func checkOwners(a attachCase) error {
	d := a.disk
	for _, claim := range d.Claims {
		// Azure lets only one attach of a shared disk be under way at a time.
		if !claim.Attached && d.Spec.MaxShares > 1 {
			return armerror.New(409, "ConflictingUserInput",
				"Cannot attach the disk %s to VM %s because another request is attaching it to VM %s.",
				d.ID.Name, a.vm.ID, claim.VM).WithTarget("dataDisks")
		}
	}
	if len(d.Claims) < d.Spec.MaxShares {
		return nil
	}
	if d.Spec.MaxShares > 1 {
		return armerror.New(409, "ConflictingUserInput",
			"Cannot attach the disk %s to VM %s because it is already attached to %d VMs, which is its 'maxShares' limit.",
			d.ID.Name, a.vm.ID, len(d.Claims)).WithTarget("dataDisks")
	}
	return armerror.New(409, "ConflictingUserInput",
		"Cannot attach the disk %s to VM %s because it is already attached to VM %s. A disk can be attached to only one VM at a time.",
		d.ID.Name, a.vm.ID, d.Claims[0].VM).WithTarget("dataDisks")
}

func checkSKUOnVM(a attachCase) error {
	size, _ := skus.SizeByName(a.vm.Size)
	sku, _ := skus.DiskByName(a.disk.Spec.SKU)
	switch {
	case a.vm.hasBlobDisks():
		return armerror.NotAllowed("Addition of a managed disk to a VM with blob based disks is not supported.").WithTarget(
			"dataDisk")
	case sku.ResourceTier == "Premium" && !size.PremiumIO:
		return armerror.BadRequest("InvalidParameter",
			"Requested operation cannot be performed because storage account type '%s' is not supported for VM size '%s'.",
			sku.Name, a.vm.Size).WithTarget("dataDisk.managedDisk.storageAccountType")
	case sku.Name == skus.UltraSSDLRS && !a.vm.ultraEnabled():
		return armerror.BadRequest("InvalidParameter",
			"StorageAccountType UltraSSD_LRS can be used only when additionalCapabilities.ultraSSDEnabled is set.").
			WithTarget("dataDisk.managedDisk.storageAccountType")
	}
	return nil
}

func checkCaching(a attachCase) error {
	sku, _ := skus.DiskByName(a.disk.Spec.SKU)
	shared := a.disk.Spec.MaxShares > 1
	switch {
	case a.accel && (shared || !strings.HasPrefix(strings.ToLower(a.vm.Size), "standard_m")):
		return armerror.InvalidParameter("dataDisk.writeAcceleratorEnabled",
			"Write accelerator is not supported for disk '%s' on VM size '%s'.", a.disk.ID.Name, a.vm.Size)
	case a.caching == "None":
		return nil
	case shared:
		return armerror.InvalidParameter("dataDisk.caching",
			"Host caching '%s' is not supported for shared disk '%s'; only 'None' is.", a.caching, a.disk.ID.Name)
	case sku.Provisioned:
		return armerror.InvalidParameter("dataDisk.caching",
			"Host caching '%s' is not supported for disks of SKU '%s'; only 'None' is.", a.caching, sku.Name)
	case a.disk.Spec.SizeGB > 4095:
		return armerror.InvalidParameter("dataDisk.caching",
			"Host caching '%s' is not supported for disk '%s' as it is larger than 4095 GiB.", a.caching, a.disk.ID.Name)
	}
	return nil
}

// pickLUN checks the asked LUN or, if none was asked for, finds the lowest free one.
func (vm *VM) pickLUN(asked *int) (int, error) {
	taken := func(lun int) bool {
		return slices.ContainsFunc(vm.Disks, func(d DataDisk) bool { return d.LUN == lun })
	}
	if asked != nil {
		switch {
		case *asked < 0 || *asked > maxLUN:
			return 0, outOfRange("dataDisk.lun", int64(*asked), 0, maxLUN)
		case taken(*asked):
			return 0, armerror.InvalidParameter("dataDisk.lun", "A disk at LUN %d already exists.", *asked)
		}
		return *asked, nil
	}
	for lun := 0; lun <= maxLUN; lun++ {
		if !taken(lun) {
			return lun, nil
		}
	}
	return 0, tooManyDisks(maxLUN + 1)
}

func tooManyDisks(limit int) error {
	return armerror.NotAllowed("The maximum number of data disks allowed to be attached to a VM of this size is %d.",
		limit).WithTarget("dataDisks")
}

// checkCount applies the limit of the VM size to the disks for which counts says so.
func (vm *VM) checkCount(counts func(DataDisk) bool) error {
	size, ok := skus.SizeByName(vm.Size)
	n := 0
	for _, d := range vm.Disks {
		if counts(d) {
			n++
		}
	}
	if ok && n > size.MaxDataDisks {
		return tooManyDisks(size.MaxDataDisks)
	}
	return nil
}

// staying: the disk will be there when the updates so far are done.
func staying(d DataDisk) bool { return d.State != DiskDetaching }

func (vm *VM) findDisk(id ID) *DataDisk {
	for i := range vm.Disks {
		if vm.Disks[i].Disk.Key() == id.Key() {
			return &vm.Disks[i]
		}
	}
	return nil
}

func (vm *VM) ultraEnabled() bool {
	var caps struct {
		UltraSSDEnabled bool `json:"ultraSSDEnabled"`
	}
	raw := vm.Properties["additionalCapabilities"]
	return raw != nil && json.Unmarshal(raw, &caps) == nil && caps.UltraSSDEnabled
}

func (vm *VM) hasBlobDisks() bool {
	var os struct {
		VHD json.RawMessage `json:"vhd"`
	}
	raw := vm.Storage["osDisk"]
	return raw != nil && json.Unmarshal(raw, &os) == nil && os.VHD != nil
}
