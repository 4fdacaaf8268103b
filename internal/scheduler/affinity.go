package scheduler

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	jsonpatch "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// Weights of the preferences that the webhook adds. kube-scheduler adds up the weights of the terms
// that a node matches, and scales the sums so that the best node gets 100. Only their proportion
// matters.
const (
	// largestWeight is the largest that the API server accepts. A node with the best score gets it.
	largestWeight = 100
	// avoidWeight goes to each node that can mount the pod's volumes, if there are others that
	// cannot, and to each node in the zone of a new disk.
	avoidWeight = 50
	// existingWeight is the sum to which the weights of the pod's own preferences are reduced.
	// kube-scheduler weighs an extender of the chart five times as much as node affinity, and so
	// does this.
	existingWeight = largestWeight / 5
	// mostAvoided limits the names in a pod.
	mostAvoided = 100
)

// fitness is the judgement of the nodes for one pod.
type fitness struct {
	// Scores are the scores above 0 of the nodes that can mount the pod's volumes.
	Scores map[string]int64
	// Unfit are the nodes that cannot.
	Unfit map[string]Fault
}

// preferences returns the terms that steer a pod: one for the nodes of each score, the best first,
// and one that all nodes match but the unfit ones. A preference is never a requirement: a pod that
// can run only on an unfit node waits there instead of making an autoscaler add a node.
//
// Nodes are named by the label kubernetes.io/hostname, because Karpenter ignores pods whose terms
// have matchFields.
func (f fitness) preferences() []corev1.PreferredSchedulingTerm {
	nodes := map[int64][]string{}
	for _, node := range slices.Sorted(maps.Keys(f.Scores)) {
		nodes[f.Scores[node]] = append(nodes[f.Scores[node]], node)
	}
	var terms []corev1.PreferredSchedulingTerm
	for _, score := range slices.Backward(slices.Sorted(maps.Keys(nodes))) {
		terms = append(terms, preferred(largestWeight*score/extenderv1.MaxExtenderPriority, corev1.LabelHostname,
			corev1.NodeSelectorOpIn, nodes[score]))
	}
	if len(f.Unfit) > 0 {
		terms = append(terms, preferred(avoidWeight, corev1.LabelHostname, corev1.NodeSelectorOpNotIn, f.avoided()))
	}
	return terms
}

func preferred(weight int64, label string, operator corev1.NodeSelectorOperator, values []string) corev1.PreferredSchedulingTerm {
	return corev1.PreferredSchedulingTerm{Weight: int32(weight), Preference: corev1.NodeSelectorTerm{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: label, Operator: operator, Values: values}},
	}}
}

// avoided returns the names of the unfit nodes. If there are too many for a pod, those come first
// where it would write beside another process, and then those that are unfit for every pod.
func (f fitness) avoided() []string {
	rank := func(node string) int {
		switch f.Unfit[node] {
		case FaultLeftBehind:
			return 0
		case faultUnsupported, FaultNoRoom:
			return 2
		default:
			return 1
		}
	}
	names := slices.SortedFunc(maps.Keys(f.Unfit), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
	names = names[:min(len(names), mostAvoided)]
	slices.Sort(names)
	return names
}

// steer returns the patch that adds preferences to a pod, nil if there is nothing to change. It
// touches nothing but the list of preferred node affinity. The pod's own terms stay, with their
// weights in proportion, as far as whole numbers from 1 to 100 allow that.
func steer(pod *corev1.Pod, add []corev1.PreferredSchedulingTerm) []jsonpatch.Operation {
	if len(add) == 0 {
		return nil
	}
	const affinity, node, preferred = "/spec/affinity", "/nodeAffinity", "/preferredDuringSchedulingIgnoredDuringExecution"
	list := affinity + node + preferred
	switch a := pod.Spec.Affinity; {
	case a == nil:
		nodeAffinity := &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: add}
		return []jsonpatch.Operation{jsonpatch.NewOperation("add", affinity, corev1.Affinity{NodeAffinity: nodeAffinity})}
	case a.NodeAffinity == nil:
		nodeAffinity := corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: add}
		return []jsonpatch.Operation{jsonpatch.NewOperation("add", affinity+node, nodeAffinity)}
	case len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) == 0:
		return []jsonpatch.Operation{jsonpatch.NewOperation("add", list, add)}
	}
	existing := pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	reduced, valid := reduce(existing)
	if !valid {
		return nil // The API server refuses the pod, and reduced weights would hide why.
	}
	var patch []jsonpatch.Operation
	for i, weight := range reduced {
		if weight != existing[i].Weight {
			patch = append(patch, jsonpatch.NewOperation("replace", list+"/"+strconv.Itoa(i)+"/weight", weight))
		}
	}
	for _, term := range add {
		patch = append(patch, jsonpatch.NewOperation("add", list+"/-", term))
	}
	return patch
}

// reduce returns the weights of the terms, reduced in proportion so that their sum is about
// existingWeight. valid is false if the API server would not accept one of them.
func reduce(terms []corev1.PreferredSchedulingTerm) (weights []int32, valid bool) {
	var sum int32
	for _, term := range terms {
		if term.Weight < 1 || term.Weight > largestWeight {
			return nil, false
		}
		weights, sum = append(weights, term.Weight), sum+term.Weight
	}
	if sum > existingWeight {
		for i, weight := range weights {
			weights[i] = max(1, (weight*existingWeight+sum/2)/sum)
		}
	}
	return weights, true
}
