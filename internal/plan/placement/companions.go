package placement

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// Where the pods of a volume will run is decided for two futures, and a node may have a replica if
// either allows it: the pods of the volume leave their node alone, or all pods leave that node, as
// when it is lost or drained. In the second future the pods that belong together by their required
// affinity, the companions, leave together. They go where their own volumes have replicas, or, if
// they have none, where they can run.
//
// Each volume is decided alone, so the companions need an order: a pod that others must run near
// leads, and the others follow its replicas. Of pods that need one another, the one with the first
// volume by name leads. A follower gets no replica before the pod that it follows has one. So the
// volumes of all companions come to the same nodes, in whatever order they are decided, and no
// replica has to be moved for that.

// Companions returns the pods of in.Cluster that leave together with the pods of the volume: they
// are on the same nodes, and the required affinity of one of them names another, directly or by a
// chain of such pods. A pod without claims that only needs others is none: it has no volume that
// could be ready for it. The order is the one of in.Cluster.
func Companions(in Input) []*corev1.Pod {
	leaving := leavingNodes(in)
	var candidates []*member
	linked := make([]*member, 0, len(in.Pods))
	for i := range in.Pods {
		linked = append(linked, newMember(in.Pods[i].Pod))
	}
	for _, p := range in.Cluster.Pods {
		ours := func(u PodView) bool { return nameOf(u.Pod) == nameOf(p) }
		if leaving[p.Spec.NodeName] && p.DeletionTimestamp == nil && !slices.ContainsFunc(in.Pods, ours) {
			candidates = append(candidates, newMember(p))
		}
	}
	companion := map[*corev1.Pod]bool{}
	for i := 0; i < len(linked); i++ {
		for _, c := range candidates {
			if !companion[c.pod] && (linked[i].needs(c, in) || hasClaims(c.pod) && c.needs(linked[i], in)) {
				companion[c.pod] = true
				linked = append(linked, c)
			}
		}
	}
	var found []*corev1.Pod
	for _, c := range candidates {
		if companion[c.pod] {
			found = append(found, c.pod)
		}
	}
	return found
}

func hasClaims(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil })
}

// leavingNodes are the nodes of the volume's pods, and the node of the primary.
func leavingNodes(in Input) map[string]bool {
	nodes := map[string]bool{}
	for i := range in.Pods {
		nodes[in.Pods[i].Pod.Spec.NodeName] = true
	}
	if p := in.Volume.Status.Primary; p != nil && ownership.OwnedBy(in.Volume, p.NodeName) {
		nodes[p.NodeName] = true
	}
	delete(nodes, "")
	return nodes
}

// member is one of the pods that leave together.
type member struct {
	pod      *corev1.Pod
	affinity []term
}

func newMember(pod *corev1.Pod) *member {
	affinity, _, _, _ := termsOf(pod)
	return &member{pod: pod, affinity: compileAll(pod, affinity)}
}

// needs reports whether a pod must run near pods like another one.
func (m *member) needs(other *member, in Input) bool {
	return matchesAll(m.affinity, other.pod, in.Cluster.Namespaces)
}

// companion is a pod that leaves together with the volume's pods.
type companion struct {
	*user
	view *PodView
	// at are the nodes that have the most of the pod's volumes, without the nodes that it leaves;
	// nil if none has any.
	at []*NodeView
	// awaited says that the pod leads and that its volumes have no replica yet.
	awaited bool
}

// free reports whether a companion may go to a node with the volume's pods: its volumes have no
// replicas, and it does not have to lead.
func (c *companion) free(node *corev1.Node) bool {
	return len(c.at) == 0 && !c.awaited && c.runsOn(node)
}

func (c *companion) runsOn(node *corev1.Node) bool {
	return c.view.Belongs(node) && tolerates(c.pod, node)
}

// bring adds the companions to the surroundings.
func (s *surroundings) bring(in Input, leaving map[string]bool) {
	members := make([]*member, 0, len(in.Pods)+len(in.Companions))
	for i := range in.Pods {
		members = append(members, newMember(in.Pods[i].Pod))
	}
	for i := range in.Companions {
		members = append(members, newMember(in.Companions[i].Pod))
	}
	for i := range in.Companions {
		c := &companion{user: newUser(in.Companions[i].Pod), view: &in.Companions[i]}
		c.at = c.replicas(in, leaving)
		c.awaited = len(c.view.Replicated) > 0 && len(c.at) == 0 && c.leads(in, members, members[len(in.Pods)+i])
		s.companions = append(s.companions, c)
	}
}

// replicas returns the nodes that have the most of the companion's volumes and where it can run.
func (c *companion) replicas(in Input, leaving map[string]bool) []*NodeView {
	var at []*NodeView
	most := 1
	for i := range in.Nodes {
		n := &in.Nodes[i]
		here := 0
		for _, v := range c.view.Replicated {
			if n.Volumes[v] {
				here++
			}
		}
		if here < most || leaving[n.Node.Name] || n.Health != nodehealth.Healthy || !c.runsOn(n.Node) {
			continue
		}
		if here > most {
			at, most = nil, here
		}
		at = append(at, n)
	}
	return at
}

// leads reports whether a companion's volumes get their replicas before the volume: it does not
// need the volume's pods, not even by a chain of pods, or it has the first volume by name. All
// volumes of a pod give the same answer.
func (c *companion) leads(in Input, members []*member, self *member) bool {
	own := in.Volume.Name
	for i := range in.Pods {
		own = slices.Min(append([]string{own}, in.Pods[i].Replicated...))
	}
	if slices.Min(c.view.Replicated) < own {
		return true
	}
	reached, users := []*member{self}, members[:len(in.Pods)]
	for i := 0; i < len(reached); i++ {
		for _, m := range members {
			if !slices.Contains(reached, m) && reached[i].needs(m, in) {
				if slices.Contains(users, m) {
					return false
				}
				reached = append(reached, m)
			}
		}
	}
	return true
}

// expect counts the companions in the domains where their volumes have replicas.
func (s *surroundings) expect() {
	for _, u := range s.arrivals() {
		for _, c := range s.companions {
			if !matchesAll(u.affinity, c.pod, s.namespaces) {
				continue
			}
			u.awaits = u.awaits || c.awaited
			for _, n := range c.at {
				u.attractedLater(n.Node)
			}
		}
	}
}

// arrivals are the pods of the volume and their companions.
func (s *surroundings) arrivals() []*user {
	all := slices.Clone(s.users)
	for _, c := range s.companions {
		all = append(all, c.user)
	}
	return all
}

// meetTogether returns a pod of the volume whose required affinity a node does not satisfy when all
// pods have left their node, or nil. The pods of the volume and the companions that are free come
// one after the other, in any possible order.
func (s *surroundings) meetTogether(node *corev1.Node) *user {
	waiting := slices.Clone(s.users)
	for _, c := range s.companions {
		if c.free(node) {
			waiting = append(waiting, c.user)
		}
	}
	missing := s.come(waiting, func(u *user, come []*user) bool { return s.accompanied(u, node, come, u.later, u.awaits) })
	if i := slices.IndexFunc(missing, func(u *user) bool { return slices.Contains(s.users, u) }); i >= 0 {
		return missing[i]
	}
	return nil
}

// company counts the companions that could run on a node.
func (s *surroundings) company(node *corev1.Node) int {
	n := 0
	for _, c := range s.companions {
		if c.runsOn(node) {
			n++
		}
	}
	return n
}

// awaitedPods names the companions without replicas that the volume's pods follow; "" if there are
// none.
func (s *surroundings) awaitedPods() string {
	var names []string
	for _, c := range s.companions {
		if c.awaited {
			names = append(names, c.pod.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names[:min(len(names), fewNodes)], ", ")
}
