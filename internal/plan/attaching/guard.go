package attaching

import (
	"fmt"
	"slices"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// guardRetry is how often an attachment that guards is decided again: the detach of the fenced node causes
// no event of it.
const guardRetry = 5 * time.Second

// GuardsAgainst returns the node for which the disk must stay attached to the node of attachment a; "" if
// there is none. That is a node that only the reservation of a's node keeps from writing
// (ownership.GuardsAgainst), or one whose reservation a's node was asked to take: it may have done so
// before its answer is read. The request is written before a's node acts, and that node refuses it
// if the attachment is being deleted. So a caller that reads both from the API server, after the
// deletion, misses no pre-emption. report is the AzDriverNode of a's node; nil for none.
func GuardsAgainst(
	volume *apiv1.AzVolume, a *apiv1.AzVolumeAttachment, all []*apiv1.AzVolumeAttachment, report *apiv1.AzDriverNode,
) string {
	if node := ownership.GuardsAgainst(volume, a, all); node != "" || volume == nil || report == nil || ownership.Preempted(a) {
		return node
	}
	for _, lost := range all {
		if lost.Spec.VolumeName != a.Spec.VolumeName || lost.Name == a.Name || ownership.HasProof(lost) {
			continue
		}
		h := HelperOf(report, volume, lost)
		if h.Request != nil && (h.Result == nil || h.Result.Key != "") {
			return lost.Spec.NodeName
		}
	}
	return ""
}

// guardsStill reports whether a detach has to wait because of in.GuardsAgainst. A detach that Azure was
// asked for goes on.
func guardsStill(in Input, work operation.Work) bool {
	op := in.Attachment.Status.Operation
	return in.GuardsAgainst != "" && (op == nil || op.Type != string(work))
}

func (s *Step) keep(in Input) {
	s.condition(in, conditionNow(in.Attachment), apiv1.ReasonGuardsFencedNode,
		fmt.Sprintf("only the reservation of this node keeps node %s from writing; the disk stays attached here "+
			"until Azure has detached it there", in.GuardsAgainst))
	s.soon(guardRetry)
}

// fenceOfGuard is the fence of a node that has to keep the disk. Its VM is read, because a proof that
// Azure has no such VM needs no detach, and another node may take the reservation. Otherwise the
// fence waits.
func (s *Step) fenceOfGuard(in Input) {
	if in.Attachment.Status.VMID != "" && in.SharedWith == "" && !in.Job.Running() {
		s.Start, s.ReadOnly = operation.WorkFence, true
	}
	s.keep(in)
}

// fenceRead is the end of the job of fenceOfGuard, if the VM may run.
func (s *Step) fenceRead(in Input) {
	if in.GuardsAgainst == "" {
		s.RequeueAfter = operation.MinWait // the job is forgotten, and the next step detaches the disk
		return
	}
	s.keep(in)
	s.RequeueAfter = fenceRetry
}

// withoutGuards returns the replicas that may give up their slots.
func (in SlotInput) withoutGuards(replicas []*apiv1.AzVolumeAttachment) []*apiv1.AzVolumeAttachment {
	if in.Guards == nil {
		return replicas
	}
	return slices.DeleteFunc(slices.Clone(replicas), in.Guards)
}
