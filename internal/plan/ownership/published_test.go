package ownership

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
)

func TestPublishedToFollowsKubernetesThroughAHandOver(t *testing.T) {
	heldAs := func(state apiv1.OwnershipState, node string, cause apiv1.ReleaseCause) *apiv1.Ownership {
		return &apiv1.Ownership{State: state, NodeName: node, Epoch: 3, Cause: cause}
	}
	attachment := func(node string, role apiv1.Role, state apiv1.AttachmentState,
		change ...func(*apiv1.AzVolumeAttachment)) *apiv1.AzVolumeAttachment {
		a := &apiv1.AzVolumeAttachment{
			Spec:   apiv1.AzVolumeAttachmentSpec{VolumeName: "v", NodeName: node, Role: role, Epoch: 3},
			Status: apiv1.AzVolumeAttachmentStatus{State: state},
		}
		for _, c := range change {
			c(a)
		}
		return a
	}
	operation := func(a *apiv1.AzVolumeAttachment) {
		a.Status.Operation = &apiv1.Operation{Type: string(operation.WorkAttach)}
	}
	older := func(a *apiv1.AzVolumeAttachment) { a.Spec.Epoch = 2 }
	proven := func(a *apiv1.AzVolumeAttachment) {
		a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofUnstaged, Epoch: a.Spec.Epoch}
	}
	deleted := func(a *apiv1.AzVolumeAttachment) { now := metav1.Now(); a.DeletionTimestamp = &now }
	fenced := func(a *apiv1.AzVolumeAttachment) {
		proven(a)
		deleted(a)
		a.Finalizers = append(a.Finalizers, apiv1.FinalizerFenced)
	}
	lost := &apiv1.ReleaseRecord{
		NodeName: "a",
		Cause:    apiv1.CauseNodeLost,
		Proof:    apiv1.ReleaseProof{Type: apiv1.ProofDetached, Epoch: 3},
	}
	unpublished := &apiv1.ReleaseRecord{
		NodeName: "a",
		Cause:    apiv1.CauseUnpublished,
		Proof:    apiv1.ReleaseProof{Type: apiv1.ProofUnstaged, Epoch: 3},
	}
	const primary, replica, attached = apiv1.RolePrimary, apiv1.RoleReplica, apiv1.AttachmentAttached
	type all = []*apiv1.AzVolumeAttachment
	tests := map[string]struct {
		multiNode   bool
		primary     *apiv1.Ownership
		last        *apiv1.ReleaseRecord
		attachments all
		back        bool
		want        []string
	}{
		"never published": {attachments: all{attachment("b", replica, attached)}},
		"a primary and its replicas": {primary: heldAs(apiv1.OwnershipHeld, "a", ""),
			attachments: all{attachment("b", replica, attached), attachment("a", primary, attached)}, want: []string{"a"}},
		"an attach that Azure has accepted": {primary: heldAs(apiv1.OwnershipHeld, "a", ""),
			attachments: all{attachment("a", primary, apiv1.AttachmentAttaching, operation)}, want: []string{"a"}},
		"an attach that Azure has not accepted yet": {
			primary: heldAs(apiv1.OwnershipHeld, "a", ""), attachments: all{attachment("a", primary, apiv1.AttachmentAttaching)}},
		"an attach that failed": {
			primary: heldAs(apiv1.OwnershipHeld, "a", ""), attachments: all{attachment("a", primary, apiv1.AttachmentFailed)}},
		"an ownership whose attachment is not promoted yet": {
			primary: heldAs(apiv1.OwnershipHeld, "a", ""), attachments: all{attachment("a", replica, attached)}},
		"an ownership whose attachment has the previous epoch": {
			primary: heldAs(apiv1.OwnershipHeld, "a", ""), attachments: all{attachment("a", primary, attached, older)}},
		"an ownership whose attachment is not promoted before Azure accepts the attach": {
			primary:     heldAs(apiv1.OwnershipHeld, "a", ""),
			attachments: all{attachment("a", replica, apiv1.AttachmentAttaching, operation)}},
		"an ownership with another node's attachment of its epoch": {
			primary: heldAs(apiv1.OwnershipHeld, "a", ""), attachments: all{attachment("b", primary, attached)}},
		"an ownership whose attachment is lost": {primary: heldAs(apiv1.OwnershipHeld, "a", "")},
		"an unpublish that waits for the proof": {primary: heldAs(apiv1.OwnershipReleasing, "a", apiv1.CauseUnpublished),
			attachments: all{attachment("a", primary, attached)}, want: []string{"a"}},
		"a lost node that is being fenced": {primary: heldAs(apiv1.OwnershipReleasing, "a", apiv1.CauseNodeLost),
			attachments: all{attachment("a", primary, apiv1.AttachmentDetaching)}, want: []string{"a"}},
		"an unpublish that is complete, with the attachment demoted": {primary: heldAs(apiv1.OwnershipReleased, "", ""),
			last: unpublished, attachments: all{attachment("a", replica, attached, proven)}},
		"a lost node that was fenced, and Kubernetes has not yet unpublished the volume there": {
			primary: heldAs(apiv1.OwnershipReleased, "", ""), last: lost, want: []string{"a"}},
		"a release that left no record":             {primary: heldAs(apiv1.OwnershipReleased, "", "")},
		"a node that was fenced and is Ready again": {primary: heldAs(apiv1.OwnershipReleased, "", ""), last: lost, back: true},
		"the node that took over from a lost one": {primary: heldAs(apiv1.OwnershipHeld, "b", ""), last: lost,
			attachments: all{attachment("b", primary, attached)}, want: []string{"b"}},
		"a shared volume is published to all of its nodes": {
			multiNode: true, attachments: all{attachment("b", primary, attached),
				attachment("a", primary, apiv1.AttachmentAttaching, operation)}, want: []string{"a", "b"}},
		"a shared volume whose attach to one node failed": {
			multiNode: true, attachments: all{attachment("b", primary, attached),
				attachment("a", primary, apiv1.AttachmentFailed)}, want: []string{"b"}},
		"a shared volume with proof from one node": {
			multiNode: true, attachments: all{attachment("b", primary, attached), attachment("a", primary, attached, proven)},
			want: []string{"b"}},
		"a shared volume whose attachment a user deleted": {
			multiNode: true, attachments: all{attachment("a", primary, attached, deleted)}, want: []string{"a"}},
		"a shared volume whose detach began before its unpublish": {
			multiNode: true, attachments: all{attachment("a", primary, apiv1.AttachmentDetaching, deleted)}, want: []string{"a"}},
		"a shared volume's replica that is being deleted": {
			multiNode: true, attachments: all{attachment("a", replica, attached, deleted)}},
		"a shared volume of a node that was fenced, which Kubernetes does not know yet": {
			multiNode: true, attachments: all{attachment("a", primary, apiv1.AttachmentDetaching, fenced)}, want: []string{"a"}},
		"a shared volume of a node that was fenced and is Ready again": {
			multiNode: true, attachments: all{attachment("a", primary, apiv1.AttachmentDetaching, fenced)}, back: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v := &apiv1.AzVolume{Spec: apiv1.AzVolumeSpec{Access: apiv1.AccessSingleNode}}
			if test.multiNode {
				v.Spec.Access = apiv1.AccessMultiNode
			}
			v.Status.Primary, v.Status.LastRelease = test.primary, test.last
			if got := PublishedTo(v, test.attachments, func(string) bool { return test.back }); !slices.Equal(got, test.want) {
				t.Errorf("published to %v, want %v", got, test.want)
			}
		})
	}
}
