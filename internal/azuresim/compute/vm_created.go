package compute

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/skus"
)

// createListed makes the disk that a new entry of a whole list asks for. The creation is an
// operation of its own, for which the update of the VM waits.
func (c *Cloud) createListed(u *update, in *DataDiskInput) error {
	if in.SizeGB == nil {
		return missing("dataDisk.diskSizeGB")
	}
	if in.Name == "" {
		in.Name = fmt.Sprintf("%s_disk%d_%s", u.vm.Name, *in.LUN+2, strings.ReplaceAll(uuid.NewString(), "-", ""))
	}
	id := ID{
		Subscription: u.vm.ID.Subscription,
		Group:        u.vm.ID.Group,
		Kind:         KindDisk,
		Name:         in.Name,
	}
	if err := CheckName(KindDisk, id.Name); err != nil {
		return err
	}
	switch d, err := diskTable.Get(u.tx, id.Key()); {
	case err != nil:
		return err
	case d != nil:
		return armerror.New(409, "ConflictingUserInput",
			"Disk %s already exists in resource group %s. Only CreateOption.Attach is supported.",
			id.Name, strings.ToUpper(id.Group)).WithTarget(u.vm.ID.String())
	}
	in.DiskID, in.created = id.String(), true
	if c.Latency.Profile().UpperCaseGroups {
		id.Group = strings.ToUpper(id.Group)
	}
	_, err := c.createDisk(u.tx, id, u.vm.diskFor(in))
	return err
}

// diskFor is the disk that an entry with createOption Empty stands for: in the zone of the VM, and a
// premium SSD where the size of the VM takes one and the entry names no type.
func (vm *VM) diskFor(in *DataDiskInput) DiskInput {
	size, _ := skus.SizeByName(vm.Size)
	name := in.AccountType
	switch {
	case name == "" && size.PremiumIO:
		name = skus.PremiumLRS
	case name == "":
		name = skus.StandardLRS
	}
	disk := DiskInput{
		Location: &vm.Location,
		SKU:      &name,
		SizeGB:   in.SizeGB,
		Source:   &SourceInput{Option: "Empty"},
	}
	if sku, _ := skus.DiskByName(name); !sku.ZoneRedundant {
		disk.Zones = vm.Zones
	}
	var set struct {
		ID string `json:"id"`
	}
	if raw := in.Other["diskEncryptionSet"]; raw != nil && json.Unmarshal(raw, &set) == nil && set.ID != "" {
		link, _ := json.Marshal(map[string]string{ // of strings, which cannot fail
			"type": "EncryptionAtRestWithCustomerKey", "diskEncryptionSetId": set.ID,
		})
		disk.Other = Properties{"encryption": link}
	}
	return disk
}

// awaitCreated returns operations.ErrNotYet while a disk that the operation attaches is being created.
func (c *Cloud) awaitCreated(op *operations.Operation, vm *VM) error {
	for _, d := range vm.Disks {
		if !d.Created || d.Operation != op.ID || d.State != DiskAttaching {
			continue
		}
		disk, err := c.present(d)
		if err != nil {
			return err
		}
		if disk != nil && disk.Provisioning == Creating {
			return operations.ErrNotYet
		}
	}
	return nil
}
