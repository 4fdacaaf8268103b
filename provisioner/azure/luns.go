package azure

import (
	"context"
	"fmt"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/batch"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

// maxLUNs is how many LUNs a VM has
// (https://learn.microsoft.com/rest/api/compute/virtual-machines/create-or-update, DataDisk.lun).
const maxLUNs = 64

// chooseLUNs chooses the LUNs of the disks that are to be attached, by disk, if other disks are
// recorded for the VM. It reads the VM, because those of other tools are not recorded.
func (v vmClient) chooseLUNs(ctx context.Context, changes []batch.Change) (map[string]int32, error) {
	taken, err := recordedLUNs(ctx, v.Name, changes)
	if err != nil || len(taken) == 0 {
		return nil, err
	}
	var disks []string
	for _, change := range changes {
		if change.Kind == operation.Attach && change.OtherLUNs != nil {
			disks = append(disks, change.DiskID)
		}
	}
	vm, err := v.get(ctx, false)
	if err != nil {
		return nil, err
	}
	return freeLUNs(disks, taken, vm.DataDisks), nil
}

// recordedLUNs are the LUNs that are recorded for other disks of the VM than those that are attached.
func recordedLUNs(ctx context.Context, vm string, changes []batch.Change) (map[int32]bool, error) {
	taken := map[int32]bool{}
	for _, change := range changes {
		if change.Kind != operation.Attach || change.OtherLUNs == nil {
			continue
		}
		others, err := change.OtherLUNs(ctx)
		if err != nil {
			return nil, fmt.Errorf("find the recorded LUNs of VM %s: %w", vm, err)
		}
		for _, lun := range others {
			taken[lun] = true
		}
	}
	return taken, nil
}

// freeLUNs returns LUNs for disks that are not attached. Where none is left, Azure says so.
func freeLUNs(disks []string, taken map[int32]bool, attached []provisioner.Attachment) map[string]int32 {
	there := map[string]bool{}
	for _, a := range attached {
		taken[a.LUN], there[operation.Key(a.DiskID)] = true, true
	}
	chosen := map[string]int32{}
	lun := int32(0)
	for _, disk := range disks {
		for lun < maxLUNs && taken[lun] {
			lun++
		}
		if lun < maxLUNs && !there[operation.Key(disk)] {
			chosen[disk] = lun
			lun++
		}
	}
	return chosen
}
