package attaching_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

const reservationKey = "0xad1d540000020002"

// beingFenced is the attachment of node a, which was lost under epoch 2.
func beingFenced() attaching.Input {
	volume := objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipReleasing))
	volume.Status.Primary.Cause = apiv1.CauseNodeLost
	a := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)
	a.Status.VMID = "vm-a"
	return attaching.Input{
		Now:          objects.Now,
		Attachment:   a,
		Volume:       volume,
		VMID:         "vm-a",
		HasFinalizer: true,
		NodeLost:     true,
	}
}

func asked(node string, before time.Duration) attaching.Helper {
	return attaching.Helper{NodeName: node,
		Request: &apiv1.FenceRequest{RequestTime: metav1.NewMicroTime(objects.Now.Add(-before))}}
}

func (h helper) answered(key string) attaching.Helper {
	h.Result = &apiv1.FenceResult{Key: key, PRGeneration: 4}
	return attaching.Helper(h)
}

type helper attaching.Helper

func TestHelpersAreAskedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	idle := func(node string) attaching.Helper { return attaching.Helper{NodeName: node} }
	const second = time.Second
	for name, test := range map[string]struct {
		helpers []attaching.Helper
		ask     string
		within  time.Duration
		proof   string // the node that gave it
	}{
		"no helper":                 {},
		"none was asked":            {helpers: []attaching.Helper{idle("b"), idle("c")}, ask: "b", within: 2 * second},
		"the first was just asked":  {helpers: []attaching.Helper{asked("b", second/2), idle("c")}, within: 3 * second / 2},
		"the first does not answer": {helpers: []attaching.Helper{asked("b", 2*second), idle("c")}, ask: "c", within: 2 * second},
		"the first has failed": {helpers: []attaching.Helper{helper(asked("b", second/2)).answered(""), idle("c")}, ask: "c",
			within: 2 * second},
		"the first answers late": {
			helpers: []attaching.Helper{helper(asked("b", 3*second)).answered(reservationKey), asked("c", second)}, proof: "b"},
		"the second answers": {
			helpers: []attaching.Helper{asked("b", 3*second), helper(asked("c", second)).answered(reservationKey)}, proof: "c"},
		"no one answers": {helpers: []attaching.Helper{asked("b", 4*second), asked("c", 2*second)}},
		"one was asked by a clock far ahead": {helpers: []attaching.Helper{asked("b", -time.Hour), idle("c")}, ask: "c",
			within: 2 * second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := beingFenced()
			in.Helpers = test.helpers
			step := attaching.Next(in)
			if step.Start != operation.WorkFence {
				t.Errorf("got work %q, want the forced detach at the same time", step.Start)
			}
			got := ""
			if p := step.Status.Proof; p != nil {
				got = p.Preemption.NodeName
				if p.Type != apiv1.ProofPreempted || p.Epoch != 2 || p.Preemption.Key != reservationKey ||
					p.Preemption.PRGeneration != 4 {
					t.Errorf("got proof %+v, want Preempted of epoch 2 with key and generation", p)
				}
			}
			if step.Ask != test.ask || step.RequeueAfter != test.within || got != test.proof {
				t.Errorf("got ask %q, again after %s, proof of %q; want %q, %s, %q", step.Ask, step.RequeueAfter, got, test.ask,
					test.within, test.proof)
			}
		})
	}
}

func TestAfterThePreemptionTheDiskIsDetachedByForce(t *testing.T) {
	t.Parallel()
	in := beingFenced()
	in.Helpers = []attaching.Helper{helper(asked("b", 0)).answered(reservationKey)}
	in.Job = operation.Job{
		Work:     operation.WorkFence,
		Phase:    operation.PhaseAccepted,
		Tokens:   []string{"fence"},
		Accepted: objects.Now,
	}
	step := attaching.Next(in)
	if op := step.Status.Operation; step.Status.Proof == nil || op == nil || op.ResumeToken != "fence" {
		t.Fatalf("got proof %+v and operation %+v, want the proof, and the forced detach continued", step.Status.Proof, op)
	}
	in.Attachment.Status, in.Helpers = step.Status, nil
	in.Volume.Status.Primary = &apiv1.Ownership{Epoch: 3, NodeName: "b", State: apiv1.OwnershipHeld}
	for _, a := range objects.Attachments(in.Attachment, objects.Deleted(in.Attachment.DeepCopy())) {
		in.Attachment = a
		in.Job = operation.Job{}
		if step := attaching.Next(in); step.Start != operation.WorkFence || step.Resume != "fence" || step.RemoveFinalizer {
			t.Errorf("deleted %t, in a new process: got work %q with token %q; want the forced detach resumed",
				a.DeletionTimestamp != nil, step.Start, step.Resume)
		}
		in.Job = operation.Job{
			Work:  operation.WorkFence,
			Phase: operation.PhaseEnded,
			Ended: objects.Now,
			Truth: operation.Truth{Epoch: 2},
		}
		if p := attaching.Next(in).Status.Proof; p == nil || p.Type != apiv1.ProofDetached {
			t.Errorf("deleted %t, after the forced detach: got proof %+v, want Detached", a.DeletionTimestamp != nil, p)
		}
	}
}

func TestMayPreempt(t *testing.T) {
	t.Parallel()
	type change func(*apiv1.AzVolume, *apiv1.AzVolumeAttachment, *apiv1.AzDriverNode)
	for name, test := range map[string]struct {
		change change
		want   bool
	}{
		"a lost node that holds the reservation": {func(*apiv1.AzVolume, *apiv1.AzVolumeAttachment, *apiv1.AzDriverNode) {},
			true},
		"a node that is not given up": {func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment, _ *apiv1.AzDriverNode) {
			v.Status.Primary.Cause = apiv1.CauseUnpublished
		}, false},
		"a replica": {func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment, _ *apiv1.AzDriverNode) {
			a.Spec.Role = apiv1.RoleReplica
		}, false},
		"an attachment and a reservation of an earlier epoch": {
			func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment, _ *apiv1.AzDriverNode) {
				v.Status.Primary.Epoch = 3
			}, false},
		"an attachment of an earlier epoch": {
			func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment, _ *apiv1.AzDriverNode) { a.Spec.Epoch = 1 }, false},
		"a reservation of another epoch": {func(_ *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment, d *apiv1.AzDriverNode) {
			d.Status.StagedVolumes[0].Epoch = 1
		}, false},
		"no reservation": {func(_ *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment, d *apiv1.AzDriverNode) {
			d.Status.StagedVolumes[0].ReservationKey = ""
		}, false},
		"a reservation of another volume": {func(_ *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment, d *apiv1.AzDriverNode) {
			d.Status.StagedVolumes[0].VolumeName = "other"
		}, false},
		"a proof": {func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment, _ *apiv1.AzDriverNode) {
			a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofDetached, Epoch: 2}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := beingFenced()
			report := &apiv1.AzDriverNode{Status: apiv1.AzDriverNodeStatus{StagedVolumes: []apiv1.StagedVolume{
				{VolumeName: in.Volume.Name, Epoch: 2, Phase: apiv1.PhaseStaged, ReservationKey: reservationKey},
			}}}
			test.change(in.Volume, in.Attachment, report)
			if got := attaching.MayPreempt(in.Volume, in.Attachment, report); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
	if in := beingFenced(); attaching.MayPreempt(in.Volume, in.Attachment, nil) {
		t.Error("got true without a report, want false")
	}
}

func TestRequestsAndResultsOfOtherFencesDoNotCount(t *testing.T) {
	t.Parallel()
	in := beingFenced()
	a, volume := in.Attachment, in.Volume
	volume.UID = "present"
	request := apiv1.FenceRequest{
		VolumeName:  a.Spec.VolumeName,
		VolumeUID:   volume.UID,
		NodeName:    "a",
		Epoch:       2,
		RequestTime: metav1.NewMicroTime(objects.Now),
	}
	answerTo := func(r apiv1.FenceRequest) apiv1.FenceResult {
		return apiv1.FenceResult{
			VolumeName:  r.VolumeName,
			VolumeUID:   r.VolumeUID,
			NodeName:    r.NodeName,
			Epoch:       r.Epoch,
			RequestTime: r.RequestTime,
			Key:         reservationKey,
			ResultTime:  metav1.NewMicroTime(objects.Now.Add(-time.Hour)), // by the node's clock
		}
	}
	for name, change := range map[string]func(*apiv1.FenceRequest){
		"another volume": func(r *apiv1.FenceRequest) { r.VolumeName = "other" },
		"an AzVolume of the same name that was deleted": func(r *apiv1.FenceRequest) { r.VolumeUID = "deleted" },
		"another node":     func(r *apiv1.FenceRequest) { r.NodeName = "z" },
		"an earlier epoch": func(r *apiv1.FenceRequest) { r.Epoch = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := request
			change(&other)
			node := &apiv1.AzDriverNode{
				Spec:   apiv1.AzDriverNodeSpec{Requests: &apiv1.NodeRequests{Fences: []apiv1.FenceRequest{other}}},
				Status: apiv1.AzDriverNodeStatus{FenceResults: []apiv1.FenceResult{answerTo(other)}},
			}
			if h := attaching.HelperOf(node, volume, a); h.Request != nil || h.Result != nil {
				t.Errorf("got %+v, want neither request nor result", h)
			}
			node.Spec.Requests.Fences[0] = request
			if h := attaching.HelperOf(node, volume, a); h.Request == nil || h.Result != nil {
				t.Errorf("got %+v, want the request of this fence, and no result", h)
			}
		})
	}
	earlier := request
	earlier.RequestTime = metav1.NewMicroTime(objects.Now.Add(-time.Minute))
	for name, test := range map[string]struct {
		requests []apiv1.FenceRequest
		answers  apiv1.FenceRequest
		want     bool
	}{
		"the result of the request":                        {[]apiv1.FenceRequest{request}, request, true},
		"the result of a request from before the decision": {[]apiv1.FenceRequest{request}, earlier, false},
		"a result without a request":                       {nil, request, false},
	} {
		node := &apiv1.AzDriverNode{
			Spec:   apiv1.AzDriverNodeSpec{Requests: &apiv1.NodeRequests{Fences: test.requests}},
			Status: apiv1.AzDriverNodeStatus{FenceResults: []apiv1.FenceResult{answerTo(test.answers)}},
		}
		in := beingFenced()
		in.Volume.UID = volume.UID
		in.Helpers = []attaching.Helper{attaching.HelperOf(node, in.Volume, in.Attachment)}
		if proof := attaching.Next(in).Status.Proof; (proof != nil) != test.want {
			t.Errorf("%s: got proof %+v, want one: %t", name, proof, test.want)
		}
	}
	if attaching.FenceRequestOver(request, a) {
		t.Error("the request is over while the attachment exists, want it kept")
	}
	again := a.DeepCopy()
	again.Spec.Epoch = 0
	if !attaching.FenceRequestOver(request, nil) || !attaching.FenceRequestOver(request, again) {
		t.Error("the request is kept after the attachment is gone, want it over")
	}
}
