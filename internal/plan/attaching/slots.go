package attaching

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// NoRoom begins what the scheduler extender says of a VM without slots for a pod's disks.
const NoRoom = "no room for the pod's data disks"

// SlotInput is the input of Slots.
type SlotInput struct {
	Attachment *apiv1.AzVolumeAttachment
	// MaxShares of the disk.
	MaxShares int32
	// MaxDataDisks of the VM; 0 if it is not known, and then Azure decides.
	MaxDataDisks int32
	// ReservedSlots of each VM are kept free for primaries.
	ReservedSlots int32
	// OfVolume and OnNode are the attachments of the volume and of the node, in any order; the
	// attachment itself may be among them.
	OfVolume, OnNode []*apiv1.AzVolumeAttachment
	// AzureFull says that Azure answered that it has no free slot, whatever the attachments say.
	AzureFull bool
	// HasPrimary says of a volume whether it has a primary now.
	HasPrimary func(volume string) bool
	// Guards says of a replica that it must not give way, because its node guards against another
	// one (ownership.GuardsAgainst); nil if there are none.
	Guards func(replica *apiv1.AzVolumeAttachment) bool
	// Paused says of an attachment that its volume is paused, so that its disk is not detached; nil if there
	// are none.
	Paused func(a *apiv1.AzVolumeAttachment) bool
}

// SlotDecision is the answer of Slots. Its zero value grants a slot.
type SlotDecision struct {
	// GiveWay names the replica to delete so that its slot becomes free.
	GiveWay string
	// Wait says that a slot is being freed.
	Wait bool
	// Guards says that a replica gives its slot only after a fenced node has lost the disk, which
	// causes no event of this attachment.
	Guards bool
	// Full says that no slot can be freed.
	Full    bool
	Message string
}

// Slots decides whether there is a slot on the node and a share of the disk for an attachment. If
// it must, a primary takes them from a replica; a replica takes only what is free, and leaves the
// reserve (law 8).
func Slots(in SlotInput) SlotDecision {
	volume, node := in.Attachment.Spec.VolumeName, in.Attachment.Spec.NodeName
	shares := occupants(in.OfVolume, in.Attachment.Name)
	slots := occupants(in.OnNode, in.Attachment.Name)
	if in.Attachment.Spec.Role == apiv1.RoleReplica {
		// A primary without a slot is about to take one.
		shares, slots = append(shares, thatUse(in.OfVolume, due)...), append(slots, thatUse(in.OnNode, due)...)
		switch {
		case len(shares) >= int(in.MaxShares):
			return SlotDecision{Full: true, Message: fmt.Sprintf("all %d shares of disk %s are in use", in.MaxShares, volume)}
		case in.MaxDataDisks > 0 && len(slots) >= int(in.MaxDataDisks-in.ReservedSlots):
			return SlotDecision{
				Full: true,
				Message: fmt.Sprintf("node %s has %d of %d data disks, and %d are reserved for primaries", node, len(slots),
					in.MaxDataDisks, in.ReservedSlots),
			}
		}
		return SlotDecision{}
	}
	switch {
	case len(shares) >= int(in.MaxShares):
		return in.take(shares, in.OfVolume, fmt.Sprintf("all %d shares of disk %s are in use", in.MaxShares, volume))
	case in.MaxDataDisks > 0 && len(slots) >= int(in.MaxDataDisks):
		return in.take(slots, in.OnNode, fmt.Sprintf("node %s has all of its %d data disks", node, in.MaxDataDisks))
	case in.AzureFull:
		return in.take(append(shares, slots...), in.OnNode, "Azure has no free slot or share on node "+node)
	}
	return SlotDecision{}
}

// slotUse is how an attachment uses a slot of its VM and a share of its disk.
type slotUse int

const (
	// none: it has no slot at Azure and will get none as it is.
	none slotUse = iota
	// wanted: it is a replica that takes a slot if one is free.
	wanted
	// due: it is a primary that will use a slot and has none yet.
	due
	// yielding: it uses, or may use, a slot that a primary can get, because it is a replica or is
	// being detached.
	yielding
	// kept: it uses, or may use, a slot that no primary can get.
	kept
)

// useOf is the one rule for the slots of a node.
func useOf(a *apiv1.AzVolumeAttachment) slotUse {
	replica, leaving, state := a.Spec.Role == apiv1.RoleReplica, a.DeletionTimestamp != nil, a.Status.State
	if AttachUnproved(a) {
		state = apiv1.AttachmentAttaching
	}
	switch state {
	case apiv1.AttachmentDetachFail:
		return kept
	case apiv1.AttachmentAttaching, apiv1.AttachmentAttached, apiv1.AttachmentDetaching:
		if replica || leaving || a.Status.State == apiv1.AttachmentDetaching {
			return yielding
		}
		return kept
	case "", apiv1.AttachmentPending, apiv1.AttachmentFailed:
	}
	switch {
	case leaving, replica && a.Status.State == apiv1.AttachmentFailed:
		return none
	case replica:
		return wanted
	}
	return due
}

func thatUse(all []*apiv1.AzVolumeAttachment, uses ...slotUse) []*apiv1.AzVolumeAttachment {
	var found []*apiv1.AzVolumeAttachment
	for _, a := range all {
		if slices.Contains(uses, useOf(a)) {
			found = append(found, a)
		}
	}
	return found
}

// occupants are the attachments that use, or may use, a slot at Azure.
func occupants(all []*apiv1.AzVolumeAttachment, except string) []*apiv1.AzVolumeAttachment {
	return slices.DeleteFunc(thatUse(all, yielding, kept), func(a *apiv1.AzVolumeAttachment) bool { return a.Name == except })
}

// DueForSlot reports whether an attachment is a primary that will use a slot at Azure and has none
// yet.
func DueForSlot(a *apiv1.AzVolumeAttachment) bool { return useOf(a) == due }

// KeepsSlot reports whether an attachment uses, or will use, a slot that a primary cannot get from
// it. A slot that Azure failed to free stays taken.
func KeepsSlot(a *apiv1.AzVolumeAttachment) bool { return DueForSlot(a) || useOf(a) == kept }

// SlotLimit returns how many data disks of a VM the driver may use; negative if that is not known,
// and then Azure decides.
func SlotLimit(c *apiv1.NodeCapacity) int32 {
	if c == nil || c.MaxDataDisks <= 0 {
		return -1
	}
	return max(c.MaxDataDisks-c.ForeignDisks, 0)
}

// FreeSlots returns how many slots of a VM none of its attachments has or wants; negative if that
// is not known.
func FreeSlots(c *apiv1.NodeCapacity, onNode []*apiv1.AzVolumeAttachment) int32 {
	limit := SlotLimit(c)
	if limit < 0 {
		return limit
	}
	return max(limit-int32(len(thatUse(onNode, wanted, due, yielding, kept))), 0)
}

// WaitsForSlot reports whether an attachment is a primary that waits for a slot or a share, or
// found none: replicas that were deleted for it must not be created again before it has its slot.
func WaitsForSlot(a *apiv1.AzVolumeAttachment) bool {
	if a.Spec.Role != apiv1.RolePrimary || a.DeletionTimestamp != nil || a.Status.State == apiv1.AttachmentAttached {
		return false
	}
	c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached)
	return (c != nil && (c.Reason == apiv1.ReasonWaitingForDiskSlot || c.Reason == apiv1.ReasonNoDiskSlot)) ||
		(a.Status.Error != nil && a.Status.Error.Reason == string(provisioner.InsufficientCapacity))
}

// Occupied counts the attachments that use, or may use, a slot and a share at Azure, without the
// attachments of one name.
func Occupied(all []*apiv1.AzVolumeAttachment, except string) int { return len(occupants(all, except)) }

// take picks the replica that gives up its slot, the least useful one. A replica whose node holds
// off a fenced one is not picked: the primary waits, because the data's safety (law 3) comes before
// law 8. A replica of a volume without a primary is less useful than a replica of a volume with
// one; a replica that is still being attached is picked last, because its attach must complete
// first; and among equals the order of names decides, so that every caller picks the same one. A
// replica that is being detached already is left to the first primary that waits, by name: the
// others take another replica each, so that all of them attach at once and not one after the other.
func (in SlotInput) take(from, rivals []*apiv1.AzVolumeAttachment, full string) SlotDecision {
	var replicas, leaving []*apiv1.AzVolumeAttachment
	for _, a := range from {
		switch {
		case in.Paused != nil && in.Paused(a): // its disk is not detached, so it keeps the slot
		case a.DeletionTimestamp != nil:
			leaving = append(leaving, a)
		case a.Spec.Role == apiv1.RoleReplica:
			replicas = append(replicas, a)
		}
	}
	if ahead := in.ahead(rivals); ahead < len(leaving) {
		return SlotDecision{Wait: true, Message: full + "; " + leaving[ahead].Name + " is being detached"}
	}
	free := in.withoutGuards(replicas)
	switch {
	case len(replicas) == 0:
		return SlotDecision{Full: true, Message: full}
	case len(free) == 0:
		return SlotDecision{
			Wait:   true,
			Guards: true,
			Message: full + "; " +
				slices.MinFunc(replicas, byName).Name + " is kept, because only its reservation keeps a fenced node from writing",
		}
	}
	return SlotDecision{GiveWay: slices.MinFunc(free, func(a, b *apiv1.AzVolumeAttachment) int {
		if d := in.missed(a) - in.missed(b); d != 0 {
			return d
		}
		return byName(a, b)
	}).Name, Message: full}
}

func byName(a, b *apiv1.AzVolumeAttachment) int { return strings.Compare(a.Name, b.Name) }

// ahead counts the primaries that wait for a slot like this one and precede it.
func (in SlotInput) ahead(rivals []*apiv1.AzVolumeAttachment) int {
	n := 0
	for _, a := range thatUse(rivals, due) {
		failed := a.Status.State == apiv1.AttachmentFailed && !WaitsForSlot(a)
		if !failed && a.Name < in.Attachment.Name {
			n++
		}
	}
	return n
}

func (in SlotInput) missed(a *apiv1.AzVolumeAttachment) int {
	points := 0
	if a.Status.State == apiv1.AttachmentAttaching {
		points++
	}
	if in.HasPrimary != nil && in.HasPrimary(a.Spec.VolumeName) {
		points += 2
	}
	return points
}

// DiskFull reports whether all shares of the disk are in use, some of them by VMs that no
// attachment names: no other node can attach it either.
func DiskFull(v *apiv1.AzVolume, attachments []*apiv1.AzVolumeAttachment) bool {
	if v == nil || v.Status.Disk == nil || len(v.Status.Disk.UnrecordedVMs) == 0 {
		return false
	}
	return len(v.Status.Disk.UnrecordedVMs)+Occupied(attachments, "") >= int(v.Shares())
}
