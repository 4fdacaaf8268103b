package ownership

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Azure attaches a disk with maxShares 1 to one VM. Shared disks have no interlock between
// clusters: a disk may be in use by another cluster because it was adopted, because its AzVolume was
// restored from a backup, or because a person has detached it from this cluster's VMs. Neither the
// attachments nor the node reports of this cluster know of it. So Azure is asked after each attach
// (AskAfterAttach), and no node uses a disk before that. Azure is also asked before a node acquires
// the ownership, as long as the AzVolume does not confirm that this cluster uses the disk: then a
// disk that another cluster uses is not attached at all.

// Custody says which cluster uses a disk before a node acquires the ownership.
type Custody string

const (
	// CustodyOurs: this cluster uses the disk, and Azure is not asked before the publish.
	CustodyOurs Custody = "Ours"
	// CustodyUnknown: Azure must be asked.
	CustodyUnknown Custody = "Unknown"
)

// custodyLasts is for how long after its release a shared disk counts as this cluster's although it
// is attached nowhere. No planned move takes that long.
const custodyLasts = 5 * time.Minute

// CustodyOf returns which cluster uses a volume's disk, as far as the objects show it. attachments
// are the volume's. CustodyOurs lets a node acquire the ownership, and no more: Azure is asked again
// after an attach.
func CustodyOf(volume *apiv1.AzVolume, attachments []*apiv1.AzVolumeAttachment, now time.Time) Custody {
	released, last, shared := volume.Status.LastReleasedTime, volume.Status.LastRelease, volume.Spec.Disk.MaxShares > 1
	switch {
	case !CustodyConfirmed(volume), volume.Spec.Access == apiv1.AccessMultiNode && len(attachments) == 0:
		return CustodyUnknown // nothing records when the last node of several released the volume
	case shared && last != nil && ProvedByAzure(last.Proof) && !HasPrimary(volume, attachments):
		return CustodyUnknown // the release is recorded when Azure was asked, and may have been long before
	case !shared || len(attachments) > 0 || released == nil || now.Sub(released.Time) < custodyLasts ||
		volume.Status.Fencing == apiv1.FencingPreemption: // a key of another cluster would be found as well
		return CustodyOurs
	default:
		return CustodyUnknown
	}
}

// CustodyConfirmed reports whether the AzVolume says that this cluster uses the disk; see
// AzVolumeStatus.ConfirmedUID.
func CustodyConfirmed(volume *apiv1.AzVolume) bool {
	return volume.Status.ConfirmedUID != "" && volume.Status.ConfirmedUID == volume.UID
}

// ProvedByAzure reports whether a proof of release says what Azure has, and not that a node of this
// cluster had the disk until then.
func ProvedByAzure(proof apiv1.ReleaseProof) bool {
	return proof.Type == apiv1.ProofDetached || proof.Type == apiv1.ProofVMDown
}

// AskAfterAttach reports whether Azure must be asked for VMs outside of this cluster after an attach
// of a volume's disk, before the attachment is Attached. Each of two clusters attaches the disk
// first and asks then, so at least one of them sees the other. Only the attach of a disk with
// maxShares 1 is the answer by itself.
func AskAfterAttach(volume *apiv1.AzVolume) bool {
	return volume.Shares() > 1 || !CustodyConfirmed(volume)
}

// Copied reports whether the status of an attachment was restored from a backup: it names a VM, and
// was recorded for an object with another UID. Nothing of it counts. In another cluster it names a
// VM and a state that are the former cluster's.
func Copied(attachment *apiv1.AzVolumeAttachment) bool {
	return attachment.Status.VMID != "" && attachment.Status.UID != attachment.UID
}

// OtherClusterVM returns a VM that has a disk and that is outside of this cluster, "" if there is
// none: no node is that VM, and this driver has not attached the disk to it. Of several it is the
// first by its ID in lower case, so that two clusters name the same one. attachedTo are the VMs that
// Azure lists for the disk, and attachments are the volume's. A VM whose Node was deleted is this
// cluster's while an attachment names it.
func OtherClusterVM(
	attachedTo []string, attachments []*apiv1.AzVolumeAttachment, isNode func(vm string) (bool, error),
) (string, error) {
	for _, vm := range slices.SortedFunc(slices.Values(attachedTo), compareFold) {
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

func compareFold(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) }

// OtherClusterUse says that a VM outside of the cluster may use a disk, and what the reader can do.
func OtherClusterUse(vm, disk string) string {
	return fmt.Sprintf("Azure says that disk %s is attached to VM %s, which is no node of this cluster and may be using the disk; "+
		"when nothing on that VM uses it any more, detach it there (az vm disk detach, with --force-detach if the VM does not answer)", disk, vm)
}
