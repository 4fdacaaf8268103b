package whatif

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/plan/claimstatus"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/scheduler"
)

// remove takes pods from their nodes.
func (w *world) remove(pods []*corev1.Pod) {
	gone := map[*corev1.Pod]bool{}
	for _, p := range pods {
		gone[p] = true
		w.use(p, (*resource.Quantity).Sub)
	}
	w.Pods = slices.DeleteFunc(w.Pods, func(p *corev1.Pod) bool { return gone[p] })
}

// use changes what is used of a pod's node by what the pod requests.
func (w *world) use(p *corev1.Pod, change func(*resource.Quantity, resource.Quantity)) {
	if p.Spec.NodeName == "" {
		return
	}
	used := w.used[p.Spec.NodeName]
	if used == nil {
		used = corev1.ResourceList{}
		w.used[p.Spec.NodeName] = used
	}
	for name, quantity := range requests(p) {
		sum := used[name]
		change(&sum, quantity)
		used[name] = sum
	}
}

// requests are what a pod takes of its node.
func requests(p *corev1.Pod) corev1.ResourceList {
	all := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	all[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return all
}

// lacks says what a node lacks of a pod's requests, or "". A node that does not say what it has is
// taken for large enough.
func (w *world) lacks(wanted corev1.ResourceList, n *corev1.Node) string {
	var missing []string
	for name, quantity := range wanted {
		free, ok := n.Status.Allocatable[name]
		if len(n.Status.Allocatable) == 0 || quantity.IsZero() {
			continue
		}
		free = free.DeepCopy()
		free.Sub(w.used[n.Name][name])
		if !ok || free.Cmp(quantity) < 0 {
			missing = append(missing, string(name))
		}
	}
	if len(missing) == 0 {
		return ""
	}
	slices.Sort(missing)
	return "too little " + strings.Join(missing, ", ") + " is free"
}

// place chooses a node for the successor of a pod, and puts the pod there.
func (w *world) place(old *corev1.Pod) Row {
	p := old.DeepCopy()
	p.Spec.NodeName, p.DeletionTimestamp, p.Status = "", nil, corev1.PodStatus{}
	row := Row{Namespace: p.Namespace, Pod: p.Name, From: old.Spec.NodeName}
	c := w.choose(p)
	if len(c.best) == 0 {
		row.Result, row.Cause, row.Why = Stuck, c.cause, c.why
		row.Next = cause.Of(row.Cause).Next
		return row
	}
	row.To, row.Or = c.best[0], c.best[1:]
	row.Result, row.Seconds, row.Why = w.expect(c)
	w.settle(p, row.To, c.volumes)
	return row
}

// expect says what a pod finds on its node, and how long it takes. A lost node is fenced by a
// reservation at once, and otherwise by a detach at Azure, for which a replica is no help.
func (w *world) expect(c choice) (result string, seconds int, why string) {
	figures := AfterLoss
	if w.Drained {
		figures = InADrain
	}
	for _, node := range c.best {
		if cold := c.coldAt(node); len(cold) > 0 {
			return Cold, int(figures.Cold.Seconds()), "no replica there of " + strings.Join(cold, ", ")
		}
	}
	if message := w.changes(c.volumes); message != "" && w.Drained {
		return Cold, int(figures.Cold.Seconds()), message
	}
	if slow := w.byDetach(c.volumes); len(slow) > 0 && !w.Drained {
		return Warm, int(figures.ByDetach.Seconds()), "Azure has to detach the lost node from " + strings.Join(slow, ", ")
	}
	return Warm, int(figures.Warm.Seconds()), ""
}

// changes says which disk is changed before its volume is used again; "" for none. A node loss does not
// begin such a change.
func (w *world) changes(volumes []scheduler.Volume) string {
	for _, v := range volumes {
		if az := w.volumes[v.Name]; az != nil {
			if message, pending := disk.Pending(az); pending {
				return "the disk of " + w.claimOf(v.Name) + " is changed first: " + message
			}
		}
	}
	return ""
}

// byDetach names the volumes from which Azure has to detach a lost node.
func (w *world) byDetach(volumes []scheduler.Volume) []string {
	var names []string
	for _, v := range volumes {
		az := w.volumes[v.Name]
		if az != nil && az.Status.Fencing != apiv1.FencingPreemption && slices.ContainsFunc(w.Gone, func(node string) bool {
			return ownership.OwnedBy(az, node)
		}) {
			names = append(names, w.claimOf(v.Name))
		}
	}
	return names
}

// claimOf names a volume by its claim.
func (w *world) claimOf(volume string) string {
	if az := w.volumes[volume]; az != nil && az.Claim().Name != "" {
		return "claim " + az.Claim().Name
	}
	return "volume " + volume
}

// choice is where a pod can go.
type choice struct {
	volumes []scheduler.Volume
	names   map[string]string
	// best are the nodes with the best score, by name; none if no node can have the pod.
	best  []string
	cause string
	why   string
}

// coldAt names the volumes that are not attached at a node.
func (c choice) coldAt(node string) []string {
	var names []string
	for _, v := range c.volumes {
		if v.Nodes[node] < scheduler.Replica {
			names = append(names, c.names[v.Name])
		}
	}
	return names
}

// unknownScores is how far kube-scheduler's scores for free resources, for their balance and for
// images can be apart, which are not known here.
const unknownScores = 300

// choose decides where a pod can go.
func (w *world) choose(p *corev1.Pod) choice {
	view, c := placement.PodView{Pod: p}, choice{names: map[string]string{}}
	for _, v := range w.volumesOf(p) {
		if v.pv != nil {
			view.PersistentVolumes = append(view.PersistentVolumes, v.pv)
		}
		if v.name == "" || c.names[v.name] != "" {
			continue
		}
		volume := scheduler.Volume{Name: v.name, Nodes: w.states(v.name)}
		if v.claim != nil && claimstatus.MayChange(v.claim) {
			volume.Release()
		}
		for _, node := range w.leftBehind(v.name) {
			volume.Avoid(node)
		}
		if v.pv != nil {
			volume.SKU = scheduler.SKUOf(v.pv)
		}
		c.volumes, c.names[v.name] = append(c.volumes, volume), w.claimOf(v.name)
	}
	nodes := make([]*corev1.Node, 0, len(w.Nodes))
	for _, n := range w.Nodes {
		nodes = append(nodes, w.nodes[n.Name])
	}
	wanted := requests(p)
	choices := placement.ChoicesOf(view, placement.Cluster{Pods: w.Pods, Nodes: nodes, Namespaces: w.Namespaces})
	judged := w.lists.Nodes(c.volumes)
	closed := choices.Closed
	var open []string
	preference := map[string]int64{}
	for i, n := range choices.Open {
		if lacks := w.lacks(wanted, n); lacks != "" {
			closed[n.Name] = lacks
			continue
		}
		open, preference[n.Name] = append(open, n.Name), choices.Preference[i]
	}
	passed, failed, faults := scheduler.Filter(open, judged)
	if len(passed) == 0 {
		maps.Copy(closed, failed)
		c.cause, c.why = w.nowhere(view.PersistentVolumes, closed, faults)
		return c
	}
	score := map[string]int64{}
	if !w.Unsteered {
		for _, s := range scheduler.Prioritize(passed, c.volumes, judged) {
			score[s.Host] = s.Score
		}
	}
	c.best = best(passed, score, preference)
	return c
}

// states returns the state of a volume's disk on each node.
func (w *world) states(volume string) map[string]scheduler.DiskState {
	states, _ := scheduler.DiskStates(volume, w.at[volume], func(node string) (*apiv1.AzDriverNode, error) {
		return w.reports[node], nil
	})
	return states
}

// leftBehind returns the nodes where a process that outlived its pod may use a volume.
func (w *world) leftBehind(volume string) []string {
	if az := w.volumes[volume]; az != nil && az.Spec.Access == apiv1.AccessMultiNode {
		return nil
	}
	var nodes []string
	for _, d := range w.DriverNodes {
		used := slices.ContainsFunc(w.on[d.Name], func(p *corev1.Pod) bool {
			return slices.ContainsFunc(w.volumesOf(p), func(v podVolume) bool { return v.name == volume })
		})
		if ownership.LeftBehind(d, volume, used) {
			nodes = append(nodes, d.Name)
		}
	}
	return nodes
}

// nowhere says why a pod has no node.
func (w *world) nowhere(pvs []*corev1.PersistentVolume, closed map[string]string, faults map[scheduler.Fault]int) (string,
	string) {
	somePod := placement.PodView{Pod: &corev1.Pod{}, PersistentVolumes: pvs}
	inZone := func(n *corev1.Node) bool { return !slices.Contains(w.Gone, n.Name) && somePod.Belongs(n) }
	why := map[string][]string{}
	for node, reason := range closed {
		if !slices.Contains(w.Gone, node) {
			why[reason] = append(why[reason], node)
		}
	}
	text := listed(why)
	switch {
	case !slices.ContainsFunc(w.Nodes, inZone):
		return apiv1.ReasonWrongZone, "no node is left that its volumes can be attached to"
	case faults[scheduler.FaultNoRoom] > 0:
		return apiv1.ReasonNoNodeWithSlot, text
	case faults[scheduler.FaultLeftBehind] > 0:
		return apiv1.ReasonProcessLeftBehind, text
	}
	return apiv1.ReasonUnschedulable, text
}

// listed is a text for reasons with their nodes.
func listed(why map[string][]string) string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(why)) {
		parts = append(parts, few(slices.Sorted(slices.Values(why[reason])), ", ")+": "+reason)
	}
	if len(parts) == 0 {
		return "there is no other node"
	}
	return strings.Join(parts, "; ")
}

// settle puts a pod on a node, with its disks.
func (w *world) settle(p *corev1.Pod, node string, volumes []scheduler.Volume) {
	p.Spec.NodeName = node
	w.Pods = append(w.Pods, p)
	w.use(p, (*resource.Quantity).Add)
	for _, v := range volumes {
		there := &apiv1.AzVolumeAttachment{Spec: apiv1.AzVolumeAttachmentSpec{VolumeName: v.Name, NodeName: node}}
		there.Status.State = apiv1.AttachmentAttaching
		var before *apiv1.AzVolumeAttachment
		others := []*apiv1.AzVolumeAttachment{}
		for _, a := range w.at[v.Name] {
			if a.Spec.NodeName == node {
				before, there = a, a.DeepCopy()
			} else {
				others = append(others, a)
			}
		}
		there.Spec.Role = apiv1.RolePrimary
		w.at[v.Name] = append(others, there)
		w.lists.Change(before, there)
	}
}

// best returns the nodes with the best score of the extender that the pod prefers as much, as far as
// what is not known of kube-scheduler's scores could decide between them; the most preferred first.
func best(names []string, score, preference map[string]int64) []string {
	most := int64(0)
	for _, name := range names {
		most = max(most, score[name])
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return score[name] < most })
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(preference[b], preference[a]), cmp.Compare(a, b))
	})
	first := preference[names[0]]
	return slices.DeleteFunc(names, func(name string) bool { return first-preference[name] > unknownScores })
}
