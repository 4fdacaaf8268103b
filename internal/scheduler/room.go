package scheduler

import (
	"fmt"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
)

// Room judges whether the VM of a node can take the disks of all of a pod's volumes. Disks that are
// there already need no slot of their own, and replicas of other volumes give way (law 8); the
// pod's own replicas do not. taken names the volumes whose disks are there, or are meant to be, and
// cannot give way.
func Room(node string, capacity *apiv1.NodeCapacity, taken []string, volumes []Volume) Feasibility {
	missing := 0
	own := make(map[string]bool, len(volumes))
	for _, volume := range volumes {
		if volume.Nodes[node] < Replica {
			if !capacity.Takes(volume.SKU) {
				return unsupported(volume.SKU)
			}
			missing++
		}
		own[volume.Name] = true
	}
	if missing == 0 {
		return Feasibility{}
	}
	others := 0
	for _, name := range taken {
		if !own[name] {
			others++
		}
	}
	return roomFor(capacity, others, len(volumes))
}

// roomFor judges whether a VM can have so many disks of a pod beside the other disks that cannot
// give way. If Azure does not list the VM's size, it decides itself.
func roomFor(capacity *apiv1.NodeCapacity, others, disks int) Feasibility {
	if limit := attaching.SlotLimit(capacity); limit < 0 || others+disks <= int(limit) {
		return Feasibility{}
	}
	// The same words for every VM of a size, so that the scheduler can count them together.
	return Feasibility{FaultNoRoom, fmt.Sprintf(
		attaching.NoRoom+" (%d): the VM can take %d, and volumes in use and disks from outside the driver do not leave enough",
		disks, capacity.MaxDataDisks)}
}

func unsupported(sku string) Feasibility {
	return Feasibility{faultUnsupported, fmt.Sprintf("disks of SKU %s cannot be attached to a VM of this size in this zone", sku)}
}
