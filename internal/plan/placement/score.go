package placement

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// The weights of what pods prefer. They are the scheduler's defaults, so that replicas are where it
// is likely to place the pod.
const (
	weightTaints       = 3
	weightNodeAffinity = 2
	weightPods         = 2
	weightSpread       = 2
)

// preferences returns how much the pods of the volume prefer each candidate. As in the scheduler,
// each kind of preference is first brought to the range from 0 to 100 over the candidates, and then
// weighed.
func preferences(s *surroundings, from []candidate) []int64 {
	sums := make([]int64, len(from))
	for _, u := range s.users {
		affinity := preferredNodes(u.pod)
		for _, kind := range []struct {
			weight int64
			score  func(*corev1.Node) int64
		}{
			{weightTaints, func(n *corev1.Node) int64 { return -int64(len(untolerated(u.pod, n, soft))) }},
			{weightNodeAffinity, affinity},
			{weightPods, u.likes},
			{weightSpread, u.evenness},
		} {
			scores := make([]int64, len(from))
			for i := range from {
				scores[i] = kind.score(from[i].Node)
			}
			for i, score := range normalized(scores) {
				sums[i] += kind.weight * score
			}
		}
	}
	return sums
}

// normalized brings scores to the range from 0 to 100; all are 0 if none differs.
func normalized(scores []int64) []int64 {
	if len(scores) == 0 {
		return nil
	}
	least, most := scores[0], scores[0]
	for _, s := range scores {
		least, most = min(least, s), max(most, s)
	}
	for i := range scores {
		if most > least {
			scores[i] = 100 * (scores[i] - least) / (most - least)
		} else {
			scores[i] = 0
		}
	}
	return scores
}

func preferredNodes(pod *corev1.Pod) func(*corev1.Node) int64 {
	none := func(*corev1.Node) int64 { return 0 }
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil {
		return none
	}
	terms, err := nodeaffinity.NewPreferredSchedulingTerms(affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	if err != nil { // an unreadable preference prefers nothing; the API server refuses such pods
		return none
	}
	return terms.Score
}

// likes sums the preferences between the user and the pods in the domains of a node.
func (u *user) likes(node *corev1.Node) int64 {
	sum := int64(0)
	for d, weight := range u.liking {
		if value, ok := node.Labels[d.key]; ok && value == d.value {
			sum += weight
		}
	}
	return sum
}

// evenness is higher if the preferred spread constraints count fewer pods near a node. A node
// outside their topology counts like the fullest.
func (u *user) evenness(node *corev1.Node) int64 {
	crowd := 0
	for _, s := range u.spread {
		if s.required {
			continue
		}
		if value, ok := node.Labels[s.key]; ok {
			crowd += s.counts[value]
			continue
		}
		fullest := 0
		for _, count := range s.counts {
			fullest = max(fullest, count)
		}
		crowd += fullest
	}
	return -int64(crowd)
}
