package scheduler

import (
	"fmt"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Slots are the data disks that a VM can take.
type Slots struct {
	// Max is how many in all; 0 if that is not known, and then Azure decides.
	Max int
	// Foreign is how many of them are attached from outside the driver.
	Foreign int
	// Taken names the volumes whose disks are there, or are meant to be, and cannot give way.
	Taken []string
}

// Room judges whether the VM of a node can take the disks of all of a pod's volumes. Disks that are there already need no slot
// of their own, and replicas of other volumes give way (law 8); the pod's own replicas do not.
func Room(node string, slots Slots, volumes []Volume) Feasibility {
	missing := 0
	own := make(map[string]bool, len(volumes))
	for _, volume := range volumes {
		if volume.Nodes[node] < Replica {
			missing++
		}
		own[volume.Name] = true
	}
	if slots.Max <= 0 || missing == 0 {
		return Feasibility{}
	}
	others := 0
	for _, name := range slots.Taken {
		if !own[name] {
			others++
		}
	}
	if others+slots.Foreign+len(volumes) <= slots.Max {
		return Feasibility{}
	}
	// The same words for every VM of a size, so that the scheduler can count them together.
	return Feasibility{FaultNoRoom, fmt.Sprintf(
		"no room for the pod's data disks (%d): the VM can take %d, and volumes in use and disks from outside the driver do not leave enough",
		len(volumes), slots.Max)}
}

// givesWay says that the slot of an attachment can be had by a primary: it is a replica's, it is being
// freed, or Azure never gave it. One that Azure failed to free stays taken.
func givesWay(a *apiv1.AzVolumeAttachment) bool {
	switch a.Status.State {
	case apiv1.AttachmentDetachFail:
		return false
	case apiv1.AttachmentDetaching, apiv1.AttachmentFailed:
		return true
	case "", apiv1.AttachmentPending, apiv1.AttachmentAttaching, apiv1.AttachmentAttached:
	}
	return a.DeletionTimestamp != nil || a.Spec.Role == apiv1.RoleReplica
}
