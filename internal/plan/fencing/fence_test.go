package fencing_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/fencing"
)

func TestMayFence(t *testing.T) {
	t.Parallel()
	deleted := metav1.Now()
	for name, test := range map[string]struct {
		edit func(*apiv1.FenceRequest, *apiv1.AzVolume, *apiv1.AzVolumeAttachment)
		want bool
	}{
		"the lost node is being fenced": {func(*apiv1.FenceRequest, *apiv1.AzVolume, *apiv1.AzVolumeAttachment) {}, true},
		"the request names this node": {func(r *apiv1.FenceRequest, v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
			r.NodeName, v.Status.Primary.NodeName = "node-2", "node-2"
		}, false},
		"the request is for an AzVolume that was deleted": {
			func(r *apiv1.FenceRequest, _ *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { r.VolumeUID = "deleted" }, false},
		"the request has an earlier epoch": {
			func(r *apiv1.FenceRequest, _ *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { r.Epoch-- }, false},
		"the volume is used by several nodes": {func(_ *apiv1.FenceRequest, v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
			v.Spec.Access = apiv1.AccessMultiNode
		}, false},
		"the volume was never owned": {
			func(_ *apiv1.FenceRequest, v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.Primary = nil }, false},
		"another node owns the volume": {func(_ *apiv1.FenceRequest, v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
			v.Status.Primary.NodeName = "node-3"
		}, false},
		"the node still holds the ownership": {func(_ *apiv1.FenceRequest, v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
			v.Status.Primary.State = apiv1.OwnershipHeld
		}, false},
		"the node has released the volume": {func(_ *apiv1.FenceRequest, v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
			v.Status.Primary.State = apiv1.OwnershipReleased
		}, false},
		"the node is not lost, its pod has ended": {func(_ *apiv1.FenceRequest, v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
			v.Status.Primary.Cause = apiv1.CauseUnpublished
		}, false},
		"this node's attachment is the primary": {func(_ *apiv1.FenceRequest, _ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			a.Spec.Role = apiv1.RolePrimary
		}, false},
		"this node's attachment is being deleted": {func(_ *apiv1.FenceRequest, _ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			a.DeletionTimestamp = &deleted
		}, false},
		"this node's disk is being attached": {func(_ *apiv1.FenceRequest, _ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			a.Status.State = apiv1.AttachmentAttaching
		}, false},
		"this node's attachment has no LUN": {
			func(_ *apiv1.FenceRequest, _ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.LUN = nil }, false},
		"this node was another VM when it was attached": {
			func(_ *apiv1.FenceRequest, _ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
				a.Status.VMID = "vm-before"
			}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := apiv1.FenceRequest{VolumeName: "v", NodeName: "node-1", Epoch: 7}
			volume := &apiv1.AzVolume{Status: apiv1.AzVolumeStatus{Primary: &apiv1.Ownership{
				NodeName: "node-1",
				Epoch:    7,
				State:    apiv1.OwnershipReleasing,
				Cause:    apiv1.CauseNodeLost,
			}}}
			own := attachment("node-2", 0, "")
			test.edit(&request, volume, own)
			if why := fencing.MayFence("node-2", "vm", request, volume, own); (why == "") != test.want {
				t.Errorf("got %q, want it allowed: %t", why, test.want)
			}
		})
	}
	decided := &apiv1.AzVolume{Status: apiv1.AzVolumeStatus{Primary: &apiv1.Ownership{
		NodeName: "node-1", State: apiv1.OwnershipReleasing, Cause: apiv1.CauseNodeLost,
	}}}
	for _, volume := range []*apiv1.AzVolume{{}, decided} {
		if fencing.MayFence("node-2", "vm", apiv1.FenceRequest{NodeName: "node-1"}, volume, nil) == "" {
			t.Error("a node without an attachment may fence, want a refusal")
		}
	}
}

func attachment(node string, epoch int64, proof apiv1.ProofType) *apiv1.AzVolumeAttachment {
	a := &apiv1.AzVolumeAttachment{
		Spec:   apiv1.AzVolumeAttachmentSpec{VolumeName: "v", NodeName: node, Role: apiv1.RoleReplica, Epoch: epoch},
		Status: apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttached, LUN: ptr.To[int32](1), VMID: "VM"},
	}
	if proof != "" {
		a.Status.Proof = &apiv1.ReleaseProof{Type: proof, Epoch: epoch}
	}
	return a
}

func TestWhatMayEndAReservation(t *testing.T) {
	t.Parallel()
	promoted := attachment("node-1", 6, apiv1.ProofPreempted)
	promoted.Spec.Epoch = 8
	for name, test := range map[string]struct {
		node1    *apiv1.AzVolumeAttachment
		guards   string
		unproved bool
	}{
		"the lost node has no attachment":            {nil, "", false},
		"it was fenced by a pre-emption":             {attachment("node-1", 6, apiv1.ProofPreempted), "node-1", false},
		"it was fenced by a detach":                  {attachment("node-1", 6, apiv1.ProofDetached), "", false},
		"it has no proof":                            {attachment("node-1", 6, ""), "", true},
		"another node has that epoch":                {attachment("node-3", 6, ""), "", false},
		"its attachment is new":                      {attachment("node-1", 0, ""), "", false},
		"it owns the volume again, as a later epoch": {promoted, "", false},
		"it is this node":                            {attachment("node-2", 6, apiv1.ProofPreempted), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := []*apiv1.AzVolumeAttachment{attachment("node-3", 0, "")}
			if test.node1 != nil {
				all = append(all, test.node1)
			}
			if got := fencing.GuardsAgainst(all, "node-2"); got != test.guards {
				t.Errorf("GuardsAgainst: got %q, want %q", got, test.guards)
			}
			if got := fencing.ProofMissing(all, "node-1", 6); got != test.unproved {
				t.Errorf("proof missing: got %t, want %t", got, test.unproved)
			}
		})
	}
}

func TestUnfenced(t *testing.T) {
	t.Parallel()
	const own, before = "0x7", "0x6"
	preempted := &apiv1.ReleaseRecord{Proof: apiv1.ReleaseProof{Type: apiv1.ProofPreempted}}
	for name, test := range map[string]struct {
		reserved fencing.Reserved
		want     bool
	}{
		"the disk was free": {fencing.Reserved{Found: fencing.FoundNone}, true},
		"the disk was free, and the owner before has unstaged": {fencing.Reserved{
			Found: fencing.FoundNone, LastRelease: &apiv1.ReleaseRecord{Proof: apiv1.ReleaseProof{Type: apiv1.ProofUnstaged}},
		}, true},
		"the disk was free, and the owner before was fenced by a pre-emption": {
			fencing.Reserved{Found: fencing.FoundNone, LastRelease: preempted}, false},
		"another key held the reservation": {fencing.Reserved{Found: fencing.FoundOther}, false},
		"another key, and the record says unfenced": {
			fencing.Reserved{Found: fencing.FoundOther, RecordedKey: own, RecordedUnfenced: true}, false},
		"repeated": {fencing.Reserved{Found: fencing.FoundOwn, RecordedKey: own, RecordedUnfenced: true}, true},
		"repeated, and the owner before the first staging was fenced by a pre-emption": {
			fencing.Reserved{Found: fencing.FoundOwn, RecordedKey: own}, false},
		"reserved by a process that was killed before it wrote its record": {fencing.Reserved{Found: fencing.FoundOwn}, false},
		"reserved by a process that was killed, with the record of an earlier epoch": {
			fencing.Reserved{Found: fencing.FoundOwn, RecordedKey: before, RecordedUnfenced: true}, false},
		"the reservation was lost": {
			fencing.Reserved{Found: fencing.FoundNone, RecordedKey: own, RecordedUnfenced: true}, true},
		"the reservation was lost, and a node was fenced": {fencing.Reserved{Found: fencing.FoundNone, RecordedKey: own}, false},
		"the reservation of an earlier epoch was lost, and a node was fenced": {
			fencing.Reserved{Found: fencing.FoundNone, RecordedKey: before}, false},
		"the reservation of an earlier epoch was lost": {
			fencing.Reserved{Found: fencing.FoundNone, RecordedKey: before, RecordedUnfenced: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.reserved.Key = own
			if got := test.reserved.Unfenced(); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

func TestUnresponsive(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	asked := func(volume string, ago time.Duration) apiv1.FenceRequest {
		return apiv1.FenceRequest{
			VolumeName:  volume,
			NodeName:    "node-1",
			Epoch:       6,
			RequestTime: metav1.NewMicroTime(now.Add(-ago)),
		}
	}
	answered := func(volume string, epoch int64, ago time.Duration) apiv1.FenceResult {
		return apiv1.FenceResult{
			VolumeName:  volume,
			NodeName:    "node-1",
			Epoch:       epoch,
			RequestTime: metav1.NewMicroTime(now.Add(-ago)),
		}
	}
	for name, test := range map[string]struct {
		requests []apiv1.FenceRequest
		results  []apiv1.FenceResult
		want     bool
		left     time.Duration
	}{
		"nothing is asked": {nil, nil, false, 0},
		"it may still answer": {[]apiv1.FenceRequest{asked("v", time.Second),
			asked("w", 1500*time.Millisecond)}, nil, false, 500 * time.Millisecond},
		"it has answered": {[]apiv1.FenceRequest{asked("v", time.Minute)},
			[]apiv1.FenceResult{answered("v", 6, time.Minute)}, false, 0},
		"it has answered about an earlier epoch": {[]apiv1.FenceRequest{asked("v", time.Minute)},
			[]apiv1.FenceResult{answered("v", 5, time.Minute)}, true, 0},
		"it has answered an earlier request": {[]apiv1.FenceRequest{asked("v", time.Minute)},
			[]apiv1.FenceResult{answered("v", 6, time.Hour)}, true, 0},
		"it has answered in time about one of several": {[]apiv1.FenceRequest{asked("v", 2*time.Second), asked("w", time.Second)},
			[]apiv1.FenceResult{answered("w", 6, time.Second)}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := &apiv1.AzDriverNode{
				Spec:   apiv1.AzDriverNodeSpec{Requests: &apiv1.NodeRequests{Fences: test.requests}},
				Status: apiv1.AzDriverNodeStatus{FenceResults: test.results},
			}
			if got, left := fencing.Unresponsive(node, now); got != test.want || left != test.left {
				t.Errorf("got %t, %s; want %t, %s", got, left, test.want, test.left)
			}
		})
	}
}

func TestAResultAnswersItsRequestOnly(t *testing.T) {
	t.Parallel()
	at := metav1.NewMicroTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	request := apiv1.FenceRequest{VolumeName: "v", VolumeUID: "1", NodeName: "node-1", Epoch: 6, RequestTime: at}
	for name, test := range map[string]struct {
		edit func(*apiv1.FenceResult)
		want bool
	}{
		"of this request":              {func(*apiv1.FenceResult) {}, true},
		"of another volume":            {func(r *apiv1.FenceResult) { r.VolumeName = "w" }, false},
		"of a volume that was deleted": {func(r *apiv1.FenceResult) { r.VolumeUID = "0" }, false},
		"of the fence of another node": {func(r *apiv1.FenceResult) { r.NodeName = "node-3" }, false},
		"of an earlier epoch":          {func(r *apiv1.FenceResult) { r.Epoch = 5 }, false},
		"of an earlier request":        {func(r *apiv1.FenceResult) { r.RequestTime = metav1.NewMicroTime(at.Add(-1)) }, false},
	} {
		result := apiv1.FenceResult{VolumeName: "v", VolumeUID: "1", NodeName: "node-1", Epoch: 6, RequestTime: at}
		test.edit(&result)
		if got := fencing.Answers(result, request); got != test.want {
			t.Errorf("a result %s: got %t, want %t", name, got, test.want)
		}
		node := &apiv1.AzDriverNode{
			Spec:   apiv1.AzDriverNodeSpec{Requests: &apiv1.NodeRequests{Fences: []apiv1.FenceRequest{request}}},
			Status: apiv1.AzDriverNodeStatus{FenceResults: []apiv1.FenceResult{result}},
		}
		if got := fencing.Unanswered(node, "v"); got == test.want {
			t.Errorf("a result %s: got that the request is unanswered: %t, want %t", name, got, !test.want)
		}
		if fencing.Unanswered(node, "w") {
			t.Errorf("a result %s: got that a request for another volume is unanswered, want that there is none", name)
		}
	}
}
