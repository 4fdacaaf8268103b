package placement

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Cluster has the nodes and pods to which the rules between pods are applied.
type Cluster struct {
	// Pods that have a node and have not ended: the pods in the namespace of the volume's pods, and
	// pods with rules in other namespaces; all pods if SelectsOtherNamespaces. The pods that use
	// the volume may be among them.
	Pods []*corev1.Pod
	// Nodes of the cluster, also those without the node plug-in.
	Nodes []*corev1.Node
	// Namespaces has the labels of the namespaces; it is used only if SelectsNamespaces.
	Namespaces map[string]labels.Set
}

// SelectsNamespaces reports whether a rule of one of the pods chooses namespaces by their labels.
func SelectsNamespaces(pods []*corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
		return anyTerm(p, func(t *corev1.PodAffinityTerm) bool {
			s := t.NamespaceSelector
			return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
		})
	})
}

// SelectsOtherNamespaces reports whether a rule of one of the pods names pods of other namespaces
// than its own.
func SelectsOtherNamespaces(pods []*corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
		return anyTerm(p, func(t *corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
	})
}

// HasRules reports whether a pod has any rule about other pods, by which it may keep them away.
func HasRules(p *corev1.Pod) bool {
	return anyTerm(p, func(*corev1.PodAffinityTerm) bool { return true })
}

func anyTerm(p *corev1.Pod, is func(*corev1.PodAffinityTerm) bool) bool {
	affinity, anti, preferred, preferredAnti := termsOf(p)
	for _, list := range [][]corev1.PodAffinityTerm{affinity, anti} {
		for i := range list {
			if is(&list[i]) {
				return true
			}
		}
	}
	for _, list := range [][]corev1.WeightedPodAffinityTerm{preferred, preferredAnti} {
		for i := range list {
			if is(&list[i].PodAffinityTerm) {
				return true
			}
		}
	}
	return false
}

func termsOf(p *corev1.Pod) (affinity, anti []corev1.PodAffinityTerm, preferred, preferredAnti []corev1.WeightedPodAffinityTerm) {
	a := p.Spec.Affinity
	if a == nil {
		return nil, nil, nil, nil
	}
	if a.PodAffinity != nil {
		affinity = a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		preferred = a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	}
	if a.PodAntiAffinity != nil {
		anti = a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		preferredAnti = a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	}
	return affinity, anti, preferred, preferredAnti
}

// domain is a part of the cluster: the nodes with this label.
type domain struct{ key, value string }

// term is a rule between pods, prepared for many lookups.
type term struct {
	selector, namespaceSelector labels.Selector
	namespaces                  []string
	key                         string
}

// compile prepares a term of owner. matchLabelKeys and mismatchLabelKeys are in the selector
// already: the API server adds them.
func compile(owner *corev1.Pod, t *corev1.PodAffinityTerm) term {
	c := term{
		selector:          selectorOf(t.LabelSelector),
		namespaceSelector: selectorOf(t.NamespaceSelector),
		namespaces:        t.Namespaces,
		key:               t.TopologyKey,
	}
	if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
		c.namespaces = []string{owner.Namespace}
	}
	return c
}

func compileAll(owner *corev1.Pod, terms []corev1.PodAffinityTerm) []term {
	compiled := make([]term, 0, len(terms))
	for i := range terms {
		compiled = append(compiled, compile(owner, &terms[i]))
	}
	return compiled
}

// selectorOf selects nothing without a selector, and with a selector that the API server would have
// refused.
func selectorOf(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

func (t term) matches(pod *corev1.Pod, namespaces map[string]labels.Set) bool {
	there := slices.Contains(t.namespaces, pod.Namespace)
	return (there || t.namespaceSelector.Matches(namespaces[pod.Namespace])) && t.selector.Matches(labels.Set(pod.Labels))
}

func matchesAll(terms []term, pod *corev1.Pod, namespaces map[string]labels.Set) bool {
	for _, t := range terms {
		if !t.matches(pod, namespaces) {
			return false
		}
	}
	return len(terms) > 0
}

// user is a pod that uses the volume, with the counts of each domain.
type user struct {
	pod            *corev1.Pod
	affinity, anti []term
	// attracted counts, by the domains of the affinity terms, the pods that match all of them.
	attracted map[domain]int
	// later is attracted after all pods have left the user's node: it counts the pods that stay,
	// and the companions where their volumes have replicas. awaits says that a companion that
	// matches all terms leads and has no replicas yet.
	later  map[domain]int
	awaits bool
	// repelled holds the domains of pods that the user's anti-affinity names, and of pods whose
	// anti-affinity names the user.
	repelled map[domain]bool
	// liking is the sum of the preferences, of the user for the pods there and of the pods there
	// for the user.
	liking map[domain]int64
	spread []spread
	// spreadLater is spread after all pods have left the user's node.
	spreadLater []spread
}

func newUser(pod *corev1.Pod) *user {
	affinity, anti, _, _ := termsOf(pod)
	return &user{
		pod:       pod,
		affinity:  compileAll(pod, affinity),
		anti:      compileAll(pod, anti),
		attracted: map[domain]int{},
		later:     map[domain]int{},
		repelled:  map[domain]bool{},
		liking:    map[domain]int64{},
	}
}

// attractedLater counts a pod that will be on a node.
func (u *user) attractedLater(node *corev1.Node) {
	for _, t := range u.affinity {
		if d, ok := domainOf(node, t.key); ok {
			u.later[d]++
		}
	}
}

// surroundings are the pods of the volume among those of the cluster, with one count for each
// domain. The time to count them grows with the number of pods and of nodes of the cluster, and not
// with their product.
type surroundings struct {
	users      []*user
	companions []*companion
	namespaces map[string]labels.Set
}

// look counts the surroundings. All pods of the volume leave their nodes together, so that none of
// them counts there.
func look(in Input) *surroundings {
	s := &surroundings{namespaces: in.Cluster.Namespaces}
	ours := map[types.NamespacedName]bool{}
	for _, p := range in.Pods {
		ours[nameOf(p.Pod)] = true
		s.users = append(s.users, newUser(p.Pod))
	}
	if len(s.users) == 0 {
		return s
	}
	leaving := leavingNodes(in)
	s.bring(in, leaving)
	nodes := make(map[string]*corev1.Node, len(in.Cluster.Nodes))
	for _, n := range in.Cluster.Nodes {
		nodes[n.Name] = n
	}
	var others, staying []*corev1.Pod
	for _, p := range in.Cluster.Pods {
		node := nodes[p.Spec.NodeName]
		if node == nil || ours[nameOf(p)] {
			continue
		}
		others = append(others, p)
		s.meet(p, node)
		if !leaving[node.Name] {
			staying = append(staying, p)
			s.stay(p, node)
		}
	}
	s.expect()
	for _, u := range s.users {
		u.spread = spreads(u.pod, others, in.Cluster.Nodes)
		if u.spreadLater = u.spread; len(staying) < len(others) {
			u.spreadLater = spreads(u.pod, staying, in.Cluster.Nodes)
		}
	}
	return s
}

func nameOf(p *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// stay counts a pod that is still on its node after the volume's pods have left theirs.
func (s *surroundings) stay(other *corev1.Pod, node *corev1.Node) {
	if other.DeletionTimestamp != nil {
		return
	}
	for _, u := range s.users {
		if matchesAll(u.affinity, other, s.namespaces) {
			u.attractedLater(node)
		}
	}
	for _, c := range s.companions {
		if matchesAll(c.affinity, other, s.namespaces) {
			c.attractedLater(node)
		}
	}
}

// meet counts a pod on a node.
func (s *surroundings) meet(other *corev1.Pod, node *corev1.Node) {
	affinity, anti, preferred, preferredAnti := termsOf(other)
	theirAffinity, theirAnti := compileAll(other, affinity), compileAll(other, anti)
	for _, u := range s.users {
		if matchesAll(u.affinity, other, s.namespaces) {
			for _, t := range u.affinity {
				if d, ok := domainOf(node, t.key); ok {
					u.attracted[d]++
				}
			}
		}
		for _, t := range u.anti {
			if d, ok := domainOf(node, t.key); ok && t.matches(other, s.namespaces) {
				u.repelled[d] = true
			}
		}
		for _, t := range theirAnti {
			if d, ok := domainOf(node, t.key); ok && t.matches(u.pod, s.namespaces) {
				u.repelled[d] = true
			}
		}
		for _, t := range theirAffinity { // as in the scheduler: what they require counts as a preference of weight 1
			if d, ok := domainOf(node, t.key); ok && t.matches(u.pod, s.namespaces) {
				u.liking[d]++
			}
		}
		_, _, mine, mineAnti := termsOf(u.pod)
		s.like(u, node, wish{u.pod, mine, 1}, other)
		s.like(u, node, wish{u.pod, mineAnti, -1}, other)
		s.like(u, node, wish{other, preferred, 1}, u.pod)
		s.like(u, node, wish{other, preferredAnti, -1}, u.pod)
	}
}

// wish is a pod's preference to be near others, or with sign -1 to be away from them.
type wish struct {
	owner *corev1.Pod
	terms []corev1.WeightedPodAffinityTerm
	sign  int64
}

// like adds to the preference for the domains of a node: the weights of the wish's terms that match
// target.
func (s *surroundings) like(u *user, node *corev1.Node, w wish, target *corev1.Pod) {
	for i := range w.terms {
		t := compile(w.owner, &w.terms[i].PodAffinityTerm)
		if d, ok := domainOf(node, t.key); ok && t.matches(target, s.namespaces) {
			u.liking[d] += w.sign * int64(w.terms[i].Weight)
		}
	}
}

func domainOf(node *corev1.Node, key string) (domain, bool) {
	value, ok := node.Labels[key]
	return domain{key, value}, ok
}

// forbids says why the pods of the volume, once they have left, could not run on a node because of
// other pods, or "".
func (s *surroundings) forbids(node *corev1.Node) string {
	for _, u := range s.users {
		for d := range u.repelled {
			if node.Labels[d.key] == d.value && hasLabel(node, d.key) {
				return "pod " + u.pod.Name + " and a pod that runs there must not share a domain"
			}
		}
		if !allAllow(u.spread, node) && !allAllow(u.spreadLater, node) {
			return "pod " + u.pod.Name + " would not be spread evenly"
		}
	}
	if s.lonely(node) == nil {
		return ""
	}
	u := s.meetTogether(node)
	switch awaited := s.awaitedPods(); {
	case u == nil:
		return ""
	case awaited != "":
		return "pod " + u.pod.Name + " must be near pods that will have replicas first: " + awaited
	}
	return "pod " + u.pod.Name + " must be near pods that do not run there and will not move there"
}

func hasLabel(node *corev1.Node, key string) bool {
	_, ok := node.Labels[key]
	return ok
}

// lonely returns a pod whose required affinity a node does not satisfy, or nil. The pods of the
// volume are placed one after the other, in any possible order, and each pod that is placed counts
// for the next.
func (s *surroundings) lonely(node *corev1.Node) *user {
	missing := s.come(s.users, func(u *user, come []*user) bool { return s.accompanied(u, node, come, u.attracted, false) })
	if len(missing) > 0 {
		return missing[0]
	}
	return nil
}

// come lets pods come one after the other, and returns those that cannot. may reports whether a pod
// can come after others.
func (s *surroundings) come(waiting []*user, may func(u *user, come []*user) bool) (missing []*user) {
	var come []*user
	for {
		var still []*user
		for _, u := range waiting {
			if may(u, come) {
				come = append(come, u)
			} else {
				still = append(still, u)
			}
		}
		if len(still) == len(waiting) {
			return still
		}
		waiting = still
	}
}

// accompanied reports whether the required affinity of a pod is satisfied on a node, where some
// pods have come. attracted are the others, by their domains. A pod that follows others is never
// the first of them.
func (s *surroundings) accompanied(u *user, node *corev1.Node, come []*user, attracted map[domain]int, follows bool) bool {
	found := true
	for _, t := range u.affinity {
		d, ok := domainOf(node, t.key)
		if !ok {
			return false
		}
		found = found && attracted[d] > 0
	}
	if found {
		return true
	}
	for _, c := range come {
		if matchesAll(u.affinity, c.pod, s.namespaces) {
			return true
		}
	}
	// The first of a set of pods that must be near each other may run anywhere.
	return len(attracted) == 0 && !follows && matchesAll(u.affinity, u.pod, s.namespaces)
}
