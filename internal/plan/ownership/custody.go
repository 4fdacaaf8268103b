package ownership

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Azure attaches a disk with maxShares 1 to one VM. Shared disks have no interlock between
// clusters: a disk that was adopted, or whose AzVolume was restored from a backup, may be in use by
// another cluster, and neither the attachments nor the node reports of this cluster know of it. So
// Azure is asked who has the disk as long as the AzVolume does not confirm that this cluster uses
// it.

// Custody says which cluster uses a disk before a node acquires the ownership.
type Custody string

const (
	// CustodyOurs: this cluster uses the disk, and Azure is not asked.
	CustodyOurs Custody = "Ours"
	// CustodyLapsed: this cluster used the disk, and has not had it attached for some time. The
	// disk's reservation would show that another cluster has used it since, so Azure is not asked
	// now. It is asked at the next publish, unless the node stages the volume before.
	CustodyLapsed Custody = "Lapsed"
	// CustodyUnknown: Azure must be asked.
	CustodyUnknown Custody = "Unknown"
)

// custodyLasts is for how long after its release a shared disk counts as this cluster's although it
// is attached nowhere. No planned move takes that long.
const custodyLasts = 5 * time.Minute

// CustodyOf returns which cluster uses a volume's disk, as far as the objects show it. attachments
// are the volume's.
func CustodyOf(volume *apiv1.AzVolume, attachments []*apiv1.AzVolumeAttachment, now time.Time) Custody {
	released := volume.Status.LastReleasedTime
	switch {
	case !Confirmed(volume), volume.Spec.Access == apiv1.AccessMultiNode && len(attachments) == 0:
		return CustodyUnknown // nothing records when the last node of several released the volume
	case volume.Spec.Disk.MaxShares <= 1 || len(attachments) > 0 || released == nil || now.Sub(released.Time) < custodyLasts:
		return CustodyOurs
	case volume.Status.Fencing == apiv1.FencingPreemption:
		return CustodyLapsed
	default:
		return CustodyUnknown
	}
}

// Confirmed reports whether the AzVolume says that this cluster uses the disk; see
// AzVolumeStatus.ConfirmedUID.
func Confirmed(volume *apiv1.AzVolume) bool {
	return volume.Status.ConfirmedUID != "" && volume.Status.ConfirmedUID == volume.UID
}

// UsesDisk reports whether a node uses a disk of this cluster: it owns the volume, and the AzVolume
// confirms that this cluster uses the disk. No other cluster attaches a disk that this one has
// attached, so a VM that has it and that nothing names is the node's. Otherwise it may be another
// cluster's.
func UsesDisk(volume *apiv1.AzVolume, node string) bool {
	return OwnedBy(volume, node) && Confirmed(volume)
}

// Copied reports whether the status of an attachment was restored from a backup: it names a VM, and
// was recorded for an object with another UID. Nothing of it counts. In another cluster it names a
// VM and a state that are the former cluster's.
func Copied(attachment *apiv1.AzVolumeAttachment) bool {
	return attachment.Status.VMID != "" && attachment.Status.UID != attachment.UID
}

// ForeignVM returns a VM that has a disk and that is outside of this cluster, "" if there is none:
// no node is that VM, and this driver has not attached the disk to it. attachedTo are the VMs that
// Azure lists for the disk, and attachments are the volume's. A VM whose Node was deleted is not
// foreign while an attachment names it.
func ForeignVM(
	attachedTo []string, attachments []*apiv1.AzVolumeAttachment, isNode func(vm string) (bool, error),
) (string, error) {
	for _, vm := range attachedTo {
		names := func(a *apiv1.AzVolumeAttachment) bool { return !Copied(a) && strings.EqualFold(a.Status.VMID, vm) }
		if slices.ContainsFunc(attachments, names) {
			continue
		}
		if ours, err := isNode(vm); err != nil || !ours {
			return vm, err
		}
	}
	return "", nil
}

// ForeignUse says that a VM outside of the cluster may use a disk, and what the reader can do.
func ForeignUse(vm, disk string) string {
	return fmt.Sprintf("Azure says that disk %s is attached to VM %s, which is no node of this cluster and may be using the disk; "+
		"when nothing on that VM uses it any more, detach it there (az vm disk detach, with --force-detach if the VM does not answer)", disk, vm)
}
