package attaching

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/fencing"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// Helper is a healthy node with a replica, which can take the reservation of the disk from a lost
// node.
type Helper struct {
	NodeName string
	// Request and Result are about the lost node's attachment, in the AzDriverNode of the helper;
	// nil for none.
	Request *apiv1.FenceRequest
	Result  *apiv1.FenceResult
}

// HelperOf returns a node as a helper in fencing the attachment's node. Requests of other fences of
// the volume do not count. Neither does a result that does not answer the request: it is of an
// earlier fence, under an AzVolume that was deleted, for example, in which epochs began again.
func HelperOf(node *apiv1.AzDriverNode, volume *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) Helper {
	h := Helper{NodeName: node.Name}
	for _, r := range node.FenceRequests() {
		if r.VolumeName == a.Spec.VolumeName && r.VolumeUID == volume.UID && r.NodeName == a.Spec.NodeName &&
			r.Epoch == a.Spec.Epoch {
			h.Request = &r
		}
	}
	for _, r := range node.Status.FenceResults {
		if h.Request != nil && fencing.Answers(r, *h.Request) {
			h.Result = &r
		}
	}
	return h
}

// MayPreempt reports whether a fence may take the reservation of the disk from the attachment's
// node: the failover has decided that the node is lost, there is no proof yet, and the node's
// report says that it holds the reservation under the attachment's epoch. report is nil if the node
// has none. A report that lies about this costs the answer of one node, which finds that the key
// does not hold the reservation.
func MayPreempt(volume *apiv1.AzVolume, a *apiv1.AzVolumeAttachment, report *apiv1.AzDriverNode) bool {
	if a.Spec.Role != apiv1.RolePrimary || !ownership.FenceDecided(volume, a.Spec.NodeName) ||
		volume.Status.Primary.Epoch != a.Spec.Epoch ||
		ownership.HasProof(a) || report == nil {
		return false
	}
	return slices.ContainsFunc(report.Status.StagedVolumes, func(s apiv1.StagedVolume) bool {
		return s.VolumeName == volume.Name && s.Epoch == a.Spec.Epoch && s.ReservationKey != ""
	})
}

// FenceRequestOver reports whether a request to fence has served its purpose: the lost node's
// attachment is gone, so the disk is not attached to the lost node any more, and the reservation
// need not be guarded against. attachment is the one of the lost node, read at the API server; nil
// if there is none.
func FenceRequestOver(request apiv1.FenceRequest, attachment *apiv1.AzVolumeAttachment) bool {
	return attachment == nil || attachment.Spec.Epoch != request.Epoch
}

// preempt adds a request to the helpers to the step of a fence. The first proof counts, Azure's or
// a helper's. Helpers are asked one after the other. No helper is asked twice.
func (s *Step) preempt(in Input) {
	if p := s.Status.Proof; p != nil && p.Epoch >= in.Attachment.Spec.Epoch {
		return
	}
	for _, h := range in.Helpers {
		if h.Result != nil && h.Result.Key != "" {
			s.preempted(in, h)
			return
		}
	}
	for _, h := range in.Helpers {
		switch {
		case h.Result != nil:
		case h.Request == nil:
			s.Ask = h.NodeName
			s.soon(fencing.AnswerTimeout)
			return
		default:
			if left := operation.Remaining(fencing.AnswerTimeout, h.Request.RequestTime.Time, in.Now); left > 0 {
				s.soon(left)
				return
			}
		}
	}
}

func (s *Step) soon(in time.Duration) { s.RequeueAfter = operation.Sooner(s.RequeueAfter, in) }

// preempted records the proof of a helper. The forced detach goes on, and so its operation and its
// failures remain in the status.
func (s *Step) preempted(in Input, h Helper) {
	message := fmt.Sprintf("node %s has taken the reservation of the disk with key %s", h.NodeName, h.Result.Key)
	s.Status.Proof = &apiv1.ReleaseProof{
		Type:       apiv1.ProofPreempted,
		Epoch:      in.Attachment.Spec.Epoch,
		ProvenTime: metav1.NewTime(in.Now),
		Message:    message,
		Preemption: &apiv1.Preemption{
			NodeName:     h.NodeName,
			Key:          h.Result.Key,
			PRGeneration: h.Result.PRGeneration,
		},
	}
	s.condition(in, conditionNow(in.Attachment), apiv1.ReasonVolumeFenced, message)
}
