package lostnode_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// randomFailover draws a node with up to five volumes and six pods.
func randomFailover(t *rapid.T) lostnode.Input {
	judgement := nodehealth.Judgement{State: rapid.SampledFrom(
		[]nodehealth.State{nodehealth.Healthy, nodehealth.Suspect, nodehealth.Lost, nodehealth.Lost, nodehealth.Down}).Draw(t,
		"judgement")}
	judgement.Stopped = judgement.State == nodehealth.Down && rapid.Bool().Draw(t, "stopped")
	if rapid.IntRange(0, 5).Draw(t, "guard") == 0 {
		judgement.HeldBack, judgement.MassLoss = "guard", rapid.Bool().Draw(t, "mass loss")
	}
	stages := [][]func(*lostnode.Volume){
		{}, {}, {isDecided}, {isDecided, hasProof(apiv1.ProofDetached)}, {isDecided, hasProof(apiv1.ProofVMDown)},
		{isUnpublished}, {isUnpublished, hasProof(apiv1.ProofUnstaged)},
		{isMultiNode}, {isMultiNode, isMarked}, {isMultiNode, isMarked, hasProof(apiv1.ProofDetached)},
		{isMultiNode, isFencedAttachment}, {isMultiNode, hasProof(apiv1.ProofDetached), isFencedAttachment},
	}
	var list []lostnode.Volume
	for i := range rapid.IntRange(0, 5).Draw(t, "volumes") {
		list = append(list, held(fmt.Sprintf("v%d", i), rapid.SampledFrom(stages).Draw(t, "stage")...))
	}
	in := aNode(judgement, list)
	in.Heard = rapid.Bool().Draw(t, "heard")
	in.Unresponsive = rapid.IntRange(0, 5).Draw(t, "unresponsive") == 0
	in.OutOfServiceTaint = rapid.Bool().Draw(t, "taint")
	for i := range in.Volumes {
		in.Volumes[i].InUse = rapid.Bool().Draw(t, "in use")
	}
	if rapid.Bool().Draw(t, "tainted") {
		hasTaint(apiv1.TaintNodeLost)(&in)
	}
	if rapid.Bool().Draw(t, "recorded") {
		oursIsRecorded(&in)
	}
	quirks := []func(*lostnode.Pod){
		func(*lostnode.Pod) {}, func(*lostnode.Pod) {}, func(*lostnode.Pod) {}, unowned, optsOut, beingDeleted,
		ownedBy("DaemonSet"),
		also(lostnode.PodVolume{Name: "nfs"}), also(lostnode.PodVolume{
			Name:     "nfs",
			ReadOnly: true,
		}), also(lostnode.PodVolume{Name: "x", Unknown: true}),
		also(lostnode.PodVolume{
			Name:   "claim",
			Volume: "elsewhere",
		}), also(lostnode.PodVolume{
			Name:       "claim",
			Volume:     "old",
			Unrecorded: true,
		}),
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
		var used []string
		for _, v := range list {
			if rapid.IntRange(0, 2).Draw(t, "uses") == 0 {
				used = append(used, v.Volume.Name)
			}
		}
		in.Pods = append(in.Pods, using(fmt.Sprintf("p%d", i), used, rapid.SampledFrom(quirks).Draw(t, "quirk"),
			rapid.SampledFrom(quirks).Draw(t, "quirk")))
	}
	return in
}

func uses(p lostnode.Pod, volume string) bool {
	return slices.ContainsFunc(p.Volumes, func(v lostnode.PodVolume) bool { return v.Volume == volume })
}

func find(in lostnode.Input, pod *corev1.Pod) lostnode.Pod {
	return in.Pods[slices.IndexFunc(in.Pods, func(p lostnode.Pod) bool { return p.Pod == pod })]
}

func TestFailoverLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := randomFailover(t)
		step := lostnode.Next(in)
		line := told(step)
		unproven, decided := map[string]bool{}, map[string]bool{}
		for _, v := range in.Volumes {
			unproven[v.Volume.Name] = v.Proof() == nil
			decided[v.Volume.Name] = v.FenceDecided("n")
		}
		for _, d := range step.Delete {
			p := find(in, d.Pod)
			lostOne := in.Health.Fence()
			for _, v := range p.Volumes {
				if d.Force && unproven[v.Volume] {
					t.Fatalf("law 3: %s is deleted by force, and %s has no proof: %s", p.Pod.Name, v.Volume, line)
				}
				if (v.Volume == "" && !v.ReadOnly || v.Unrecorded) && in.Health.State != nodehealth.Down {
					t.Fatalf("%s may be writing to another driver's volume: %s", p.Pod.Name, line)
				}
				lostOne = lostOne || decided[v.Volume]
			}
			if !lostOne || len(d.Volumes) == 0 {
				t.Fatalf("%s is deleted and lost no volume: %s", p.Pod.Name, line)
			}
			if p.Pod.Annotations[apiv1.AnnotationFailover] != "" {
				t.Fatalf("%s is deleted and opted out: %s", p.Pod.Name, line)
			}
		}
		for _, v := range step.Fence {
			if !in.Health.Fence() || decided[v.Volume.Name] {
				t.Fatalf("a new decision without a reason: %s", line)
			}
			for _, left := range step.LeftAlone {
				if uses(find(in, left.Pod), v.Volume.Name) {
					t.Fatalf("%s is left alone, and its volume %s is fenced: %s", left.Pod.Name, v.Volume.Name, line)
				}
			}
			for _, p := range in.Pods {
				for _, other := range in.Volumes {
					name := other.Volume.Name
					if uses(p, v.Volume.Name) && uses(p, name) && unproven[name] && !decided[name] &&
						!slices.ContainsFunc(step.Fence, func(f lostnode.Volume) bool { return f.Volume.Name == name }) {
						t.Fatalf("%s loses %s and keeps %s: %s", p.Pod.Name, v.Volume.Name, name, line)
					}
				}
			}
		}
		for _, v := range append(slices.Clone(step.Prune), step.Unblocked...) {
			if unproven[v.Volume.Name] || !decided[v.Volume.Name] {
				t.Fatalf("%s is reported as unblocked without a proof: %s", v.Volume.Name, line)
			}
			if slices.ContainsFunc(in.Pods, func(p lostnode.Pod) bool { return uses(p, v.Volume.Name) }) {
				t.Fatalf("%s is pruned and in use: %s", v.Volume.Name, line)
			}
		}
		if in.Health.State == nodehealth.Healthy && in.Heard &&
			(step.Quarantine == lostnode.TaintAdd && len(decided) == 0 || step.OutOfService == lostnode.TaintAdd) {
			t.Fatalf("a node that is alive is tainted: %s", line)
		}
		if step.OutOfService == lostnode.TaintAdd &&
			(!in.OutOfServiceTaint || in.Health.State != nodehealth.Down || in.Health.Stopped) {
			t.Fatalf("the out-of-service taint of a node that is not off: %s", line)
		}
	})
}

// TestFailoverEnds does step after step, while the platform gives the proofs, until no step remains
// that could be done.
func TestFailoverEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := randomFailover(t)
		for range 8 {
			step := lostnode.Next(in)
			if again := lostnode.Next(in); told(again) != told(step) {
				t.Fatalf("two decisions on the same input: got %q, then %q", told(step), told(again))
			}
			in = taken(in, step)
		}
		step := lostnode.Next(in)
		step.LeftAlone, step.Unblocked = nil, nil
		if line := told(step); line != "" {
			t.Fatalf("after eight steps there is still %q to do", line)
		}
		if in.Health.Fence() {
			for _, v := range in.Volumes {
				if !v.FenceDecided("n") && v.Proof() == nil &&
					!slices.ContainsFunc(in.Pods, func(p lostnode.Pod) bool { return uses(p, v.Volume.Name) }) {
					t.Fatalf("volume %s was forgotten", v.Volume.Name)
				}
			}
		}
	})
}

// taken is the state after a step, and after Azure has given the proofs.
func taken(in lostnode.Input, step lostnode.Step) lostnode.Input {
	for i, v := range in.Volumes {
		same := func(f lostnode.Volume) bool { return f.Volume == v.Volume }
		fenced, repaired := slices.ContainsFunc(step.Fence, same), slices.ContainsFunc(step.Repair, same)
		switch {
		case fenced && v.Volume.Spec.Access == apiv1.AccessMultiNode, v.Volume.Spec.Access == apiv1.AccessMultiNode && repaired:
			isFencedAttachment(&in.Volumes[i])
		case fenced:
			isDecided(&in.Volumes[i])
		case v.FenceDecided("n") && v.Proof() == nil:
			objects.Proved(v.Attachment, apiv1.ProofDetached)
		}
	}
	in.Pods = slices.DeleteFunc(in.Pods, func(p lostnode.Pod) bool {
		return slices.ContainsFunc(step.Delete, func(d lostnode.PodDeletion) bool { return d.Pod == p.Pod })
	})
	for _, v := range step.Prune {
		i := slices.IndexFunc(in.Volumes, func(f lostnode.Volume) bool { return f.Volume == v.Volume })
		in.Volumes[i].InUse = false
	}
	taint := func(key string, what lostnode.TaintChange) {
		switch what {
		case lostnode.TaintAdd:
			hasTaint(key)(&in)
		case lostnode.TaintRemove:
			in.Node.Spec.Taints = slices.DeleteFunc(in.Node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
		case lostnode.TaintAsIs:
		}
	}
	taint(apiv1.TaintNodeLost, step.Quarantine)
	taint(apiv1.TaintNodeUnresponsive, step.Unresponsive)
	taint(corev1.TaintNodeOutOfService, step.OutOfService)
	switch step.OutOfService {
	case lostnode.TaintAdd:
		oursIsRecorded(&in)
	case lostnode.TaintRemove:
		in.DriverNode.Status.Conditions = nil
	case lostnode.TaintAsIs:
	}
	return in
}
