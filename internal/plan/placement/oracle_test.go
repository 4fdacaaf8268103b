package placement_test

import (
	"slices"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
)

// oracle answers, slowly and in other words than package plan, where the pods of a volume could go
// and how good that would be. It goes through all nodes, pods and terms each time that it is asked.
type oracle struct{ placement.Input }

// selects is what a label selector means.
func selects(s *metav1.LabelSelector, labels map[string]string) bool {
	if s == nil {
		return false
	}
	for k, v := range s.MatchLabels {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		got, ok := labels[e.Key]
		fits := false
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			fits = ok && slices.Contains(e.Values, got)
		case metav1.LabelSelectorOpNotIn:
			fits = !ok || !slices.Contains(e.Values, got)
		case metav1.LabelSelectorOpExists:
			fits = ok
		case metav1.LabelSelectorOpDoesNotExist:
			fits = !ok
		}
		if !fits {
			return false
		}
	}
	return true
}

// means reports whether a term of one pod speaks of another.
func (o oracle) means(owner *corev1.Pod, t corev1.PodAffinityTerm, other *corev1.Pod) bool {
	where := slices.Contains(t.Namespaces, other.Namespace) ||
		(t.NamespaceSelector != nil && selects(t.NamespaceSelector, o.Cluster.Namespaces[other.Namespace])) ||
		(len(t.Namespaces) == 0 && t.NamespaceSelector == nil && owner.Namespace == other.Namespace)
	return where && selects(t.LabelSelector, other.Labels)
}

func (o oracle) meansAll(owner, other *corev1.Pod) bool {
	for _, t := range required(owner) {
		if !o.means(owner, t, other) {
			return false
		}
	}
	return len(required(owner)) > 0
}

func required(p *corev1.Pod) []corev1.PodAffinityTerm {
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAffinity == nil {
		return nil
	}
	return p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func forbidden(p *corev1.Pod) []corev1.PodAffinityTerm {
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	return p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func preferred(p *corev1.Pod) []corev1.WeightedPodAffinityTerm {
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAffinity == nil {
		return nil
	}
	return p.Spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution
}

func disliked(p *corev1.Pod) []corev1.WeightedPodAffinityTerm {
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	return p.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
}

// near reports whether two nodes are in the same domain.
func near(key string, a, b *corev1.Node) bool {
	x, ok := a.Labels[key]
	y, also := b.Labels[key]
	return ok && also && x == y
}

// others calls f with each pod that stays when the pods of the volume leave, and its node.
func (o oracle) others(f func(*corev1.Pod, *corev1.Node)) {
	for _, p := range o.Cluster.Pods {
		if slices.ContainsFunc(o.Pods, func(u placement.PodView) bool {
			return u.Pod.Name == p.Name &&
				u.Pod.Namespace == p.Namespace
		}) {
			continue
		}
		for _, n := range o.Cluster.Nodes {
			if n.Name == p.Spec.NodeName {
				f(p, n)
			}
		}
	}
}

// allowed reports whether a node may take a new replica.
func (o oracle) allowed(n *placement.NodeView) bool {
	disk := o.Volume.Spec.Disk
	switch {
	case n.Health != nodehealth.Healthy, n.Crowded, n.FreeSlots >= 0 && n.FreeSlots-o.ReservedSlots < 1:
		return false
	case n.Capacity != nil && n.Capacity.LacksPremium: // all of these clusters' disks are Premium
		return false
	case disk.SKUName != "Premium_ZRS" && disk.Zone != n.Zone:
		return false
	}
	for _, a := range o.Attachments {
		if a.Spec.NodeName == n.Node.Name {
			return false
		}
	}
	for _, u := range o.Pods {
		if !nodeSuits(u, n.Node) || !toleratesAll(u.Pod, n.Node) || o.keptApart(u.Pod, n.Node) || o.uneven(u.Pod, n.Node) &&
			o.stayers().uneven(u.Pod, n.Node) {
			return false
		}
	}
	return o.canArrive(n.Node, nil) || o.canMoveTogether(n.Node, nil)
}

// stayers is the cluster without the pods that are on n0, which all pods leave, in the words of
// uneven.
func (o oracle) stayers() oracle {
	o.Cluster.Pods = slices.DeleteFunc(slices.Clone(o.Cluster.Pods), func(p *corev1.Pod) bool { return p.Spec.NodeName == "n0" })
	return o
}

// replicasOf are the nodes to which a companion goes because its volumes are there.
func (o oracle) replicasOf(c placement.PodView) []*corev1.Node {
	byCount := map[int][]*corev1.Node{}
	for _, n := range o.Nodes {
		if n.Node.Name == "n0" || n.Health != nodehealth.Healthy || !nodeSuits(c, n.Node) || !toleratesAll(c.Pod, n.Node) {
			continue
		}
		count := 0
		for _, v := range c.Replicated {
			if n.Volumes[v] {
				count++
			}
		}
		byCount[count] = append(byCount[count], n.Node)
	}
	for count := len(c.Replicated); count > 0; count-- {
		if len(byCount[count]) > 0 {
			return byCount[count]
		}
	}
	return nil
}

// follows reports whether a chain of pods, where each needs the next, leads from a pod to one of
// the volume's.
func (o oracle) follows(p *corev1.Pod, seen []*corev1.Pod) bool {
	for _, u := range o.Pods {
		if o.meansAll(p, u.Pod) {
			return true
		}
	}
	for _, c := range o.Companions {
		if !slices.Contains(seen, c.Pod) && o.meansAll(p, c.Pod) && o.follows(c.Pod, append(slices.Clone(seen), c.Pod)) {
			return true
		}
	}
	return false
}

func (o oracle) isAwaited(c placement.PodView) bool {
	if len(c.Replicated) == 0 || len(o.replicasOf(c)) > 0 {
		return false
	}
	for _, v := range c.Replicated {
		before := v < o.Volume.Name
		for _, u := range o.Pods {
			for _, own := range u.Replicated {
				before = before && v < own
			}
		}
		if before {
			return true
		}
	}
	return !o.follows(c.Pod, []*corev1.Pod{c.Pod})
}

// canMoveTogether tries every order in which the pods of the volume and their companions could come
// to a node, after all pods have left n0.
func (o oracle) canMoveTogether(n *corev1.Node, arrived []*corev1.Pod) bool {
	complete := true
	for _, u := range o.Pods {
		complete = complete && slices.Contains(arrived, u.Pod)
	}
	if complete {
		return true
	}
	comers := slices.Clone(o.Pods)
	for _, c := range o.Companions {
		if len(o.replicasOf(c)) == 0 && !o.isAwaited(c) && nodeSuits(c, n) && toleratesAll(c.Pod, n) {
			comers = append(comers, c)
		}
	}
	for _, c := range comers {
		if !slices.Contains(arrived, c.Pod) && o.willBeNear(c.Pod, n, arrived) &&
			o.canMoveTogether(n, append(slices.Clone(arrived), c.Pod)) {
			return true
		}
	}
	return false
}

func (o oracle) willBeNear(p *corev1.Pod, n *corev1.Node, arrived []*corev1.Pod) bool {
	all, first := true, o.meansAll(p, p)
	for _, c := range o.Companions {
		first = first && !(c.Pod != p && o.isAwaited(c) && o.meansAll(p, c.Pod))
	}
	for _, t := range required(p) {
		if _, ok := n.Labels[t.TopologyKey]; !ok {
			return false
		}
		found := false
		look := func(other *corev1.Pod, at *corev1.Node) {
			if _, ok := at.Labels[t.TopologyKey]; ok && o.meansAll(p, other) {
				first = false
				found = found || near(t.TopologyKey, n, at)
			}
		}
		o.stayers().others(func(other *corev1.Pod, at *corev1.Node) {
			if other.DeletionTimestamp == nil {
				look(other, at)
			}
		})
		for _, c := range o.Companions {
			for _, at := range o.replicasOf(c) {
				if c.Pod != p {
					look(c.Pod, at)
				}
			}
		}
		for _, other := range arrived {
			found = found || o.meansAll(p, other)
		}
		all = all && found
	}
	return all || first
}

// nodeSuits knows only the few selectors that the random clusters have.
func nodeSuits(u placement.PodView, n *corev1.Node) bool {
	for k, v := range u.Pod.Spec.NodeSelector {
		if n.Labels[k] != v {
			return false
		}
	}
	if a := u.Pod.Spec.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		if !terms(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution, n) {
			return false
		}
	}
	for _, pv := range u.PersistentVolumes {
		if pv.Spec.NodeAffinity != nil && !terms(pv.Spec.NodeAffinity.Required, n) {
			return false
		}
	}
	return true
}

func terms(s *corev1.NodeSelector, n *corev1.Node) bool {
	return slices.ContainsFunc(s.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool { return expressions(t, n) })
}

func expressions(t corev1.NodeSelectorTerm, n *corev1.Node) bool {
	for _, e := range t.MatchExpressions {
		if got, ok := n.Labels[e.Key]; !ok || !slices.Contains(e.Values, got) {
			return false
		}
	}
	for _, e := range t.MatchFields {
		if !slices.Contains(e.Values, n.Name) {
			return false
		}
	}
	return true
}

func toleratesAll(p *corev1.Pod, n *corev1.Node) bool {
	if n.Spec.Unschedulable && !toleratesOne(p, corev1.Taint{
		Key:    "node.kubernetes.io/unschedulable",
		Effect: corev1.TaintEffectNoSchedule,
	}) {
		return false
	}
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !toleratesOne(p, t) {
			return false
		}
	}
	return true
}

func toleratesOne(p *corev1.Pod, t corev1.Taint) bool {
	for _, x := range p.Spec.Tolerations {
		if (x.Effect == "" || x.Effect == t.Effect) && (x.Key == t.Key || x.Key == "") &&
			(x.Operator == corev1.TolerationOpExists || x.Value == t.Value) {
			return true
		}
	}
	return false
}

func (o oracle) keptApart(p *corev1.Pod, n *corev1.Node) bool {
	apart := false
	o.others(func(other *corev1.Pod, at *corev1.Node) {
		for _, t := range forbidden(p) {
			apart = apart || o.means(p, t, other) && near(t.TopologyKey, n, at)
		}
		for _, t := range forbidden(other) {
			apart = apart || o.means(other, t, p) && near(t.TopologyKey, n, at)
		}
	})
	return apart
}

// canArrive tries every order in which the pods that have not arrived could come.
func (o oracle) canArrive(n *corev1.Node, arrived []*corev1.Pod) bool {
	if len(arrived) == len(o.Pods) {
		return true
	}
	for _, u := range o.Pods {
		if !slices.Contains(arrived, u.Pod) && o.isNear(u.Pod, n, arrived) &&
			o.canArrive(n, append(slices.Clone(arrived), u.Pod)) {
			return true
		}
	}
	return false
}

func (o oracle) isNear(p *corev1.Pod, n *corev1.Node, arrived []*corev1.Pod) bool {
	all, none := true, true
	for _, t := range required(p) {
		if _, ok := n.Labels[t.TopologyKey]; !ok {
			return false
		}
		found := false
		o.others(func(other *corev1.Pod, at *corev1.Node) {
			if _, ok := at.Labels[t.TopologyKey]; ok && o.meansAll(p, other) {
				none = false
				found = found || near(t.TopologyKey, n, at)
			}
		})
		for _, other := range arrived {
			found = found || o.meansAll(p, other)
		}
		all = all && found
	}
	return all || none && o.meansAll(p, p)
}

// counted returns what a constraint counts in each domain.
func (o oracle) counted(p *corev1.Pod, c corev1.TopologySpreadConstraint) map[string]int {
	domains := map[string]int{}
	for _, n := range o.Cluster.Nodes {
		skip := false
		for _, x := range p.Spec.TopologySpreadConstraints {
			_, ok := n.Labels[x.TopologyKey]
			skip = skip || x.WhenUnsatisfiable == c.WhenUnsatisfiable && !ok
		}
		if c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor {
			skip = skip || !nodeSuits(placement.PodView{Pod: p}, n)
		}
		if c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor {
			skip = skip || !toleratesAll(p, n)
		}
		if skip {
			continue
		}
		domains[n.Labels[c.TopologyKey]] += 0
		o.others(func(other *corev1.Pod, at *corev1.Node) {
			if at == n && other.Namespace == p.Namespace && other.DeletionTimestamp == nil && spreadWith(p, c, other) {
				domains[n.Labels[c.TopologyKey]]++
			}
		})
	}
	return domains
}

func spreadWith(p *corev1.Pod, c corev1.TopologySpreadConstraint, other *corev1.Pod) bool {
	for _, k := range c.MatchLabelKeys {
		if want, ok := p.Labels[k]; ok && other.Labels[k] != want {
			return false
		}
	}
	return selects(c.LabelSelector, other.Labels)
}

func (o oracle) uneven(p *corev1.Pod, n *corev1.Node) bool {
	for _, c := range p.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		value, ok := n.Labels[c.TopologyKey]
		if !ok {
			return true
		}
		domains := o.counted(p, c)
		least := 1 << 30
		for _, count := range domains {
			least = min(least, count)
		}
		if len(domains) == 0 || (c.MinDomains != nil && len(domains) < int(*c.MinDomains)) {
			least = 0
		}
		here := domains[value]
		if spreadWith(p, c, p) {
			here++
		}
		if here-least > int(c.MaxSkew) {
			return true
		}
	}
	return false
}

// likings returns how much the pods prefer each of the nodes.
func (o oracle) likings(nodes []*placement.NodeView) []int {
	sums := make([]int, len(nodes))
	for _, u := range o.Pods {
		for weight, kind := range map[int][]func(*corev1.Pod, *corev1.Node) int{
			3: {dislikesTaints},
			2: {likesNode, o.likesPods, o.likesRoom},
		} {
			for _, f := range kind {
				scores := make([]int, len(nodes))
				for i, n := range nodes {
					scores[i] = f(u.Pod, n.Node)
				}
				for i := range scores {
					if low, high := slices.Min(scores), slices.Max(scores); high > low {
						sums[i] += weight * (100 * (scores[i] - low) / (high - low))
					}
				}
			}
		}
	}
	return sums
}

func dislikesTaints(p *corev1.Pod, n *corev1.Node) int {
	score := 0
	for _, t := range n.Spec.Taints {
		if t.Effect == corev1.TaintEffectPreferNoSchedule && !toleratesOne(p, t) {
			score--
		}
	}
	return score
}

func likesNode(p *corev1.Pod, n *corev1.Node) int {
	score := 0
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		for _, t := range a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			if expressions(t.Preference, n) {
				score += int(t.Weight)
			}
		}
	}
	return score
}

func (o oracle) likesPods(p *corev1.Pod, n *corev1.Node) int {
	score := 0
	o.others(func(other *corev1.Pod, at *corev1.Node) {
		add := func(owner, target *corev1.Pod, t corev1.PodAffinityTerm, weight int) {
			if o.means(owner, t, target) && near(t.TopologyKey, n, at) {
				score += weight
			}
		}
		for _, pair := range [][2]*corev1.Pod{{p, other}, {other, p}} {
			for _, t := range preferred(pair[0]) {
				add(pair[0], pair[1], t.PodAffinityTerm, int(t.Weight))
			}
			for _, t := range disliked(pair[0]) {
				add(pair[0], pair[1], t.PodAffinityTerm, -int(t.Weight))
			}
		}
		for _, t := range required(other) {
			add(other, p, t, 1)
		}
	})
	return score
}

func (o oracle) likesRoom(p *corev1.Pod, n *corev1.Node) int {
	score := 0
	for _, c := range p.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			continue
		}
		domains := o.counted(p, c)
		if value, ok := n.Labels[c.TopologyKey]; ok {
			score -= domains[value]
			continue
		}
		most := 0
		for _, count := range domains {
			most = max(most, count)
		}
		score -= most
	}
	return score
}

// cost of a choice among the nodes that are allowed, each part more important than the next.
func (o oracle) cost(from []*placement.NodeView, likings []int, member func(*placement.NodeView) bool) []int {
	others := map[string]bool{}
	for _, u := range o.Pods {
		for _, v := range u.Volumes {
			others[v] = true
		}
	}
	zones := map[string]int{}
	for _, n := range o.Nodes {
		if n.Node.Name == o.Volume.Status.Primary.NodeName {
			zones[n.Zone]++
		}
	}
	cost := make([]int, 7)
	for i, n := range from {
		if !member(n) {
			continue
		}
		zones[n.Zone]++
		here := 0
		for v := range others {
			if n.Volumes[v] {
				here++
			}
		}
		cost[0] -= here
		theirs := map[string]bool{}
		for _, c := range o.Companions {
			for _, v := range c.Volumes {
				if n.Volumes[v] && !others[v] {
					theirs[v] = true
				}
			}
			if nodeSuits(c, n.Node) && toleratesAll(c.Pod, n.Node) {
				cost[3]--
			}
		}
		cost[2] -= len(theirs)
		if n.FreeSlots < 0 || int(n.FreeSlots-o.ReservedSlots) >= 1+len(others)-here {
			cost[1]--
		}
		cost[5] -= likings[i]
		if n.FreeSlots < 0 {
			cost[6] -= 1000
		} else {
			cost[6] -= int(n.FreeSlots)
		}
	}
	if o.Volume.Spec.Disk.Zone == "" {
		for _, count := range zones {
			cost[4] += count * count
		}
	}
	return cost
}
