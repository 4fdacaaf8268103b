package scheduler

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"unique"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// Nodes judges nodes for a pod, all at one moment.
type Nodes interface {
	// Registered are the nodes on which a node plug-in has registered.
	Registered() iter.Seq[string]
	// Mountable judges whether a node can mount the pod's volumes, whatever they need.
	Mountable(node string) Feasibility
	// Feasible judges whether a node can mount the pod's volumes, whether its VM can take the
	// disks of the pod's volumes, and whether it is in the zone of those that are made for the pod.
	Feasible(node string) Feasibility
}

// nodeTable has the facts of each node that the decisions need. It is computed when one of the
// node's objects changes, not when a request asks about thousands of nodes. The zero value is
// empty. It is safe for concurrent use.
type nodeTable struct {
	mu    sync.RWMutex
	nodes map[string]*nodeFacts
	// published are the nodes whose report says that a volume is mounted for a pod, by volume.
	published map[string]map[string]bool
}

// nodeFacts are what follows from a node's objects alone.
type nodeFacts struct {
	// registered says that the node has an AzDriverNode. The fields until taken follow from it.
	registered bool
	fault      Feasibility
	// zone is where the VM is, as in "eastus-1"; "" for none, or if it is not known.
	zone string
	// capacity is shared with all nodes that have the same; zero if it is not known.
	capacity unique.Handle[apiv1.NodeCapacity]
	// taken is how many attachments of the node keep their slots.
	taken int
}

func (t *nodeTable) change(name string, change func(*nodeFacts)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nodes == nil {
		t.nodes = map[string]*nodeFacts{}
	}
	facts := t.nodes[name]
	if facts == nil {
		facts = &nodeFacts{}
		t.nodes[name] = facts
	}
	change(facts)
	if *facts == (nodeFacts{}) {
		delete(t.nodes, name)
	}
}

// observe records an AzDriverNode. before is its earlier state, nil if there is none.
func (t *nodeTable) observe(before, d *apiv1.AzDriverNode, driverName string) {
	t.change(d.Name, func(f *nodeFacts) {
		*f = factsOf(d, driverName, f.taken)
		t.publish(before, d)
	})
}

// publish records where volumes are mounted for pods. The caller holds mu; both may be nil.
func (t *nodeTable) publish(before, after *apiv1.AzDriverNode) {
	if before != nil {
		for _, s := range before.Status.StagedVolumes {
			if delete(t.published[s.VolumeName], before.Name); len(t.published[s.VolumeName]) == 0 {
				delete(t.published, s.VolumeName)
			}
		}
	}
	if after == nil {
		return
	}
	if t.published == nil {
		t.published = map[string]map[string]bool{}
	}
	for _, s := range after.Status.StagedVolumes {
		if s.Published {
			if t.published[s.VolumeName] == nil {
				t.published[s.VolumeName] = map[string]bool{}
			}
			t.published[s.VolumeName][after.Name] = true
		}
	}
}

// publishedAt returns the nodes whose report says that a volume is mounted for a pod.
func (t *nodeTable) publishedAt(volume string) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Collect(maps.Keys(t.published[volume]))
}

func factsOf(d *apiv1.AzDriverNode, driverName string, taken int) nodeFacts {
	f := nodeFacts{registered: true, fault: faultOf(d, driverName), taken: taken}
	if d.Spec.Location != "" && d.Spec.Zone != "" {
		f.zone = strings.ToLower(d.Spec.Location) + "-" + d.Spec.Zone
	}
	if c := d.Capacity(); c != nil {
		f.capacity = unique.Make(*c)
	}
	return f
}

// forget removes an AzDriverNode.
func (t *nodeTable) forget(d *apiv1.AzDriverNode) {
	t.change(d.Name, func(f *nodeFacts) {
		*f = nodeFacts{taken: f.taken}
		t.publish(d, nil)
	})
}

// faultOf judges by its AzDriverNode alone whether a node can mount the driver's volumes.
func faultOf(d *apiv1.AzDriverNode, driverName string) Feasibility {
	if state, c := nodehealth.Published(d); state.LostOrDown() {
		return Feasibility{faultLost, fmt.Sprintf("the controller of %s found the node lost: %s: %s", driverName, c.Reason,
			c.Message)}
	}
	ready := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionPluginReady)
	switch {
	case ready == nil:
		return Feasibility{faultNotReady, "the node plug-in of " + driverName + " has not yet said that it is ready"}
	case ready.Status != metav1.ConditionTrue:
		return Feasibility{faultNotReady,
			fmt.Sprintf("the node plug-in of %s is not ready: %s: %s", driverName, ready.Reason, ready.Message)}
	}
	return Feasibility{}
}

// moment has the inputs of the judgement of nodes for a pod.
type moment struct {
	nodes      map[string]*nodeFacts
	driverName string
	demand     demand
	// taken are the volumes of the attachments that keep their slots, of each node that is near.
	taken map[string][]string
	// near are the facts of the nodes that are near. There are few, and to compare pointers costs
	// less than to look up a name.
	near []*nodeFacts
}

// demand is what a pod's volumes need.
type demand struct {
	volumes []Volume
	// skus are the SKUs of the volumes, each once.
	skus []string
	// zones are the zones that a new disk of the pod has to be in, each once.
	zones []string
	// near are the nodes that have a disk of the pod, or that one is on its way to.
	near map[string]bool
	// leftBehind are the nodes where a process that outlived its pod may use one of the volumes, and
	// which one.
	leftBehind map[string]string
}

func demandOf(volumes []Volume) demand {
	d := demand{volumes: volumes, near: map[string]bool{}}
	for _, volume := range volumes {
		if !slices.Contains(d.skus, volume.SKU) {
			d.skus = append(d.skus, volume.SKU)
		}
		if volume.Zone != "" && !slices.Contains(d.zones, volume.Zone) {
			d.zones = append(d.zones, volume.Zone)
		}
		for node := range volume.Nodes {
			d.near[node] = true
		}
		for node := range volume.leftBehind {
			if d.leftBehind == nil {
				d.leftBehind = map[string]string{}
			}
			d.leftBehind[node] = volume.Name
		}
	}
	return d
}

// Registered implements Nodes.
func (m *moment) Registered() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name, facts := range m.nodes {
			if facts.registered && !yield(name) {
				return
			}
		}
	}
}

// Mountable implements Nodes.
func (m *moment) Mountable(name string) Feasibility { return m.mountable(name, m.nodes[name]) }

// Feasible implements Nodes.
func (m *moment) Feasible(name string) Feasibility {
	facts := m.nodes[name]
	if h := m.mountable(name, facts); !h.feasible() {
		return h
	}
	for _, zone := range m.demand.zones {
		if facts.zone != "" && facts.zone != zone {
			return Feasibility{faultZone, fmt.Sprintf(
				"the pod's new disk is a clone and has to be in zone %s, where its source is, and the VM is in zone %s", zone, facts.zone)}
		}
	}
	return m.room(name, facts)
}

// mountable judges a node. facts is nil if nothing is known about it.
func (m *moment) mountable(name string, facts *nodeFacts) Feasibility {
	switch volume := m.demand.leftBehind[name]; {
	case volume != "":
		return Feasibility{FaultLeftBehind, fmt.Sprintf(ownership.LeftBehindText, name, volume)}
	case facts == nil || !facts.registered:
		return Feasibility{faultNoPlugin, "the node plug-in of " + m.driverName + " has not registered on this node"}
	case !facts.fault.feasible():
		return facts.fault
	}
	return Feasibility{}
}

// room judges whether the VM of a registered node can take the disks of the pod's volumes. Only a
// node that has disks of the pod is looked at in detail.
func (m *moment) room(name string, facts *nodeFacts) Feasibility {
	if facts.capacity == (unique.Handle[apiv1.NodeCapacity]{}) {
		return Feasibility{}
	}
	capacity := facts.capacity.Value()
	if slices.Contains(m.near, facts) {
		return Room(name, &capacity, m.taken[name], m.demand.volumes)
	}
	for _, sku := range m.demand.skus {
		if !capacity.Takes(sku) {
			return unsupported(sku)
		}
	}
	return roomFor(&capacity, facts.taken, len(m.demand.volumes))
}

// Nodes calls use with the judgement of nodes for a pod with the volumes. use must not keep it.
func (v *View) Nodes(ctx context.Context, volumes []Volume, use func(Nodes)) error {
	m := &moment{
		driverName: v.DriverName,
		demand:     demandOf(volumes),
	}
	var err error
	if m.taken, err = v.takenAt(ctx, m.demand.near); err != nil {
		return err
	}
	v.table.mu.RLock()
	defer v.table.mu.RUnlock()
	m.nodes = v.table.nodes
	for node := range m.demand.near {
		m.near = append(m.near, m.nodes[node])
	}
	use(m)
	return nil
}

// Lists judge nodes as View does, by lists of objects instead of a cache.
type Lists struct {
	driverName string
	nodes      map[string]*nodeFacts
	// taken are the volumes of the attachments that keep their slots, of each node.
	taken map[string][]string
}

// NewLists makes Lists of all AzDriverNodes and attachments.
func NewLists(driverName string, drivers map[string]*apiv1.AzDriverNode, attachments []*apiv1.AzVolumeAttachment) *Lists {
	l := &Lists{driverName: driverName, nodes: make(map[string]*nodeFacts, len(drivers)), taken: map[string][]string{}}
	for name, d := range drivers {
		facts := factsOf(d, driverName, 0)
		l.nodes[name] = &facts
	}
	for _, a := range attachments {
		l.Change(nil, a)
	}
	return l
}

// Change takes note of a change of an attachment. before is nil for a new one.
func (l *Lists) Change(before, after *apiv1.AzVolumeAttachment) {
	if before != nil && attaching.KeepsSlot(before) {
		node := before.Spec.NodeName
		l.taken[node] = slices.DeleteFunc(l.taken[node], func(volume string) bool { return volume == before.Spec.VolumeName })
	}
	if attaching.KeepsSlot(after) {
		l.taken[after.Spec.NodeName] = append(l.taken[after.Spec.NodeName], after.Spec.VolumeName)
	}
	if facts := l.nodes[after.Spec.NodeName]; facts != nil {
		facts.taken = len(l.taken[after.Spec.NodeName])
	}
}

// Nodes returns the judgement of nodes for a pod with the volumes. It is not to be used after a
// Change.
func (l *Lists) Nodes(volumes []Volume) Nodes {
	m := &moment{driverName: l.driverName, demand: demandOf(volumes), nodes: l.nodes, taken: l.taken}
	for node := range m.demand.near {
		m.near = append(m.near, l.nodes[node])
	}
	return m
}
