package fencing

import (
	"fmt"
	"slices"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// AnswerTimeout is how long a node may take to answer a request to fence, by the controller's
// clock. Then the next one is asked, and the node is unresponsive.
const AnswerTimeout = 2 * time.Second

// MayFence returns why a node must not take the reservation of a volume from the node that a
// request names, or "" if it may: the controller has decided to fence that node under that epoch,
// and this node has a replica that it does not use. volume and own, this node's attachment, were
// read at the API server; own is nil if there is none. vmID is the VM that this node is.
func MayFence(node, vmID string, request apiv1.FenceRequest, volume *apiv1.AzVolume, own *apiv1.AzVolumeAttachment) string {
	primary := volume.Status.Primary
	switch {
	case request.NodeName == node:
		return fmt.Sprintf("node %s cannot fence itself", node)
	case request.VolumeUID != volume.UID:
		return fmt.Sprintf("the request is for an AzVolume %s that was deleted", volume.Name)
	case volume.Spec.Access == apiv1.AccessMultiNode:
		return fmt.Sprintf("volume %s is used by several nodes, which do not reserve its disk", volume.Name)
	case !ownership.OwnedBy(volume, request.NodeName) || primary.Epoch != request.Epoch:
		return fmt.Sprintf("node %s does not own volume %s under epoch %d", request.NodeName, volume.Name, request.Epoch)
	case !ownership.FenceDecided(volume, request.NodeName):
		return fmt.Sprintf("node %s is not being fenced from volume %s: its ownership is %s", request.NodeName, volume.Name,
			primary.State)
	case own == nil:
		return fmt.Sprintf("volume %s has no attachment at node %s", volume.Name, node)
	case own.DeletionTimestamp != nil:
		return fmt.Sprintf("the attachment of volume %s at node %s is being deleted", volume.Name, node)
	case own.Spec.Role != apiv1.RoleReplica:
		return fmt.Sprintf("the attachment of volume %s at node %s is a %s, and not a replica", volume.Name, node, own.Spec.Role)
	case ownership.AttachedToAnotherVM(own, vmID):
		return fmt.Sprintf("volume %s was attached to VM %s, and node %s is VM %s now", volume.Name, own.Status.VMID, node, vmID)
	case own.Status.State != apiv1.AttachmentAttached || own.Status.LUN == nil:
		return fmt.Sprintf("the attachment of volume %s at node %s is %q", volume.Name, node, own.Status.State)
	}
	return ""
}

// GuardsAgainst returns another node that only a reservation keeps from writing to a volume, "" if
// there is none: the node was proved to be fenced by a pre-emption, and its attachment still
// exists, so that the disk may still be attached to it. While there is one, this node must not end
// the reservation. attachments are the volume's, read at the API server.
func GuardsAgainst(attachments []*apiv1.AzVolumeAttachment, node string) string {
	for _, a := range attachments {
		if a.Spec.NodeName != node && ownership.Preempted(a) {
			return a.Spec.NodeName
		}
	}
	return ""
}

// Found is what a node found when it came to hold the reservation of a disk.
type Found string

// What there can be.
const (
	// FoundNone: no node held a reservation.
	FoundNone Found = "None"
	// FoundOwn: this node held it with the same key.
	FoundOwn Found = "Own"
	// FoundOther: another key held it at some time before.
	FoundOther Found = "Other"
)

// Reserved is what a node knows when it has come to hold the reservation of a disk.
type Reserved struct {
	Found Found
	// Key with which it holds the reservation.
	Key string
	// RecordedKey and RecordedUnfenced are from the node's record of an earlier staging of the
	// volume; zero for none.
	RecordedKey      string
	RecordedUnfenced bool
	// LastRelease of the volume; nil for none.
	LastRelease *apiv1.ReleaseRecord
}

// Unfenced reports whether the reservation keeps no fenced node from writing. Then it may end
// without a look at the other attachments (GuardsAgainst).
//
// It is true if the disk was free before. From a pre-emption until the disk is detached from the
// fenced node, the disk is never free: the node that fenced holds the reservation with its
// fence-only key, and each later owner takes it over. None of them is unfenced, because each has
// found a key. A key that is not fence-only may belong to an owner that was lost while an earlier
// fence was in force. Once a key is unfenced, it stays so: only the node that holds the reservation
// can be fenced.
//
// A reservation can also be lost: a person clears it, or Azure ends it when it detaches a disk,
// which Azure does not document. Therefore the answer is also no if the record or the last release
// shows that a node was fenced. It is wrong only if the reservation was lost, and the node that was
// fenced is an owner before the last one. The disk took that node's writes before the staging then.
func (r Reserved) Unfenced() bool {
	switch {
	case r.Found == FoundOther, r.RecordedKey != "" && !r.RecordedUnfenced:
		return false
	case r.RecordedKey == r.Key:
		return true
	case r.Found == FoundOwn: // the process was killed before it wrote its record, and what it had found is not known
		return false
	default:
		return r.LastRelease == nil || r.LastRelease.Proof.Type != apiv1.ProofPreempted
	}
}

// ProofMissing reports whether a node that was lost under an epoch has not been proved to have
// released the volume. A fence may become its proof then, also if the request for that fence is
// gone.
func ProofMissing(attachments []*apiv1.AzVolumeAttachment, lost string, epoch int64) bool {
	for _, a := range attachments {
		if a.Spec.NodeName == lost && a.Spec.Epoch == epoch && !ownership.HasProof(a) {
			return true
		}
	}
	return false
}

// Answers reports whether a result answers a request. The time of the request only identifies it:
// no two clocks are compared.
func Answers(result apiv1.FenceResult, request apiv1.FenceRequest) bool {
	return result.VolumeName == request.VolumeName && result.VolumeUID == request.VolumeUID &&
		result.NodeName == request.NodeName &&
		result.Epoch == request.Epoch && result.RequestTime.Equal(&request.RequestTime)
}

// Unanswered reports whether a node was asked to fence another one from a volume and has not
// answered yet.
func Unanswered(node *apiv1.AzDriverNode, volume string) bool {
	return slices.ContainsFunc(node.FenceRequests(), func(request apiv1.FenceRequest) bool {
		return request.VolumeName == volume && !answered(node, request)
	})
}

// Unresponsive reports whether a node has not answered a request within AnswerTimeout. If it may
// still answer in time, left is until when; 0 if nothing is asked of it.
func Unresponsive(node *apiv1.AzDriverNode, now time.Time) (unresponsive bool, left time.Duration) {
	for _, request := range node.FenceRequests() {
		if answered(node, request) {
			continue
		}
		remaining := operation.Remaining(AnswerTimeout, request.RequestTime.Time, now)
		if remaining == 0 {
			return true, 0
		}
		left = operation.Sooner(left, remaining)
	}
	return false, left
}

func answered(node *apiv1.AzDriverNode, request apiv1.FenceRequest) bool {
	return slices.ContainsFunc(node.Status.FenceResults, func(result apiv1.FenceResult) bool { return Answers(result, request) })
}
