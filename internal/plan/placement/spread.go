package placement

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// spread is a topology spread constraint of a pod, with the pods that it counts in each domain.
type spread struct {
	key      string
	required bool
	// maxSkew less the pod itself, if the constraint counts it: how many more pods a domain may
	// have than the emptiest.
	slack int
	// least is the count of the emptiest domain, or 0 while there are too few domains.
	least int
	// counts of all domains that the pod may be spread over.
	counts map[string]int
}

// spreads prepares the spread constraints of a pod. Only nodes count that have the keys of all
// constraints of the same severity.
func spreads(pod *corev1.Pod, others []*corev1.Pod, nodes []*corev1.Node) []spread {
	if len(pod.Spec.TopologySpreadConstraints) == 0 {
		return nil
	}
	here := map[string][]*corev1.Pod{}
	for _, p := range others {
		// As in the scheduler, a pod that is being deleted does not count.
		if p.Namespace == pod.Namespace && p.DeletionTimestamp == nil {
			here[p.Spec.NodeName] = append(here[p.Spec.NodeName], p)
		}
	}
	made := make([]spread, 0, len(pod.Spec.TopologySpreadConstraints))
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		counted := slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return !counts(pod, c, n) })
		made = append(made, newSpread(pod, c, counted, here))
	}
	return made
}

func newSpread(pod *corev1.Pod, c *corev1.TopologySpreadConstraint, nodes []*corev1.Node, here map[string][]*corev1.Pod) spread {
	selector := spreadSelector(pod, c)
	s := spread{
		key:      c.TopologyKey,
		required: c.WhenUnsatisfiable == corev1.DoNotSchedule,
		slack:    int(c.MaxSkew),
		counts:   map[string]int{},
	}
	for _, n := range nodes {
		count := 0
		for _, p := range here[n.Name] {
			if selector.Matches(labels.Set(p.Labels)) {
				count++
			}
		}
		s.counts[n.Labels[c.TopologyKey]] += count
	}
	if selector.Matches(labels.Set(pod.Labels)) {
		s.slack--
	}
	domains := 1
	if c.MinDomains != nil {
		domains = max(int(*c.MinDomains), domains)
	}
	if len(s.counts) >= domains {
		s.least = slices.Min(slices.Collect(maps.Values(s.counts)))
	}
	return s
}

// spreadSelector adds the values that the pod has for the constraint's matchLabelKeys. New API
// servers have done so already; adding them twice changes nothing.
func spreadSelector(pod *corev1.Pod, c *corev1.TopologySpreadConstraint) labels.Selector {
	if c.LabelSelector == nil {
		return selectorOf(nil)
	}
	narrowed := c.LabelSelector.DeepCopy()
	for _, key := range c.MatchLabelKeys {
		if value, ok := pod.Labels[key]; ok {
			narrowed.MatchExpressions = append(narrowed.MatchExpressions, metav1.LabelSelectorRequirement{
				Key:      key,
				Operator: metav1.LabelSelectorOpIn,
				Values:   []string{value},
			})
		}
	}
	return selectorOf(narrowed)
}

// counts reports whether a constraint of a pod counts the pods on a node.
func counts(pod *corev1.Pod, c *corev1.TopologySpreadConstraint, node *corev1.Node) bool {
	for i := range pod.Spec.TopologySpreadConstraints {
		other := &pod.Spec.TopologySpreadConstraints[i]
		if other.WhenUnsatisfiable == c.WhenUnsatisfiable && !hasLabel(node, other.TopologyKey) {
			return false
		}
	}
	if c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor {
		if matches, _ := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); !matches {
			return false
		}
	}
	return c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyIgnore || tolerates(pod, node)
}

// allows reports whether the pod may go to a node.
func (s *spread) allows(node *corev1.Node) bool {
	if !s.required {
		return true
	}
	value, ok := node.Labels[s.key]
	return ok && s.counts[value]-s.least <= s.slack
}

func allAllow(all []spread, node *corev1.Node) bool {
	for i := range all {
		if !all[i].allows(node) {
			return false
		}
	}
	return true
}
