package simulation

import (
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// A volume of several nodes is a raw block volume that as many nodes use at once as its disk has
// shares. It has no ownership and no replicas: each node's attachment says that it may use the
// volume, from the attachment's creation to its deletion.

// rawTarget is where a node has the device of a volume of several nodes for its pod.
func rawTarget(volume string) string { return "/raw/" + volume }

// attachment returns a volume's attachment to a node, which must not be changed, or nil.
func (w *world) attachment(volume, node string) *apiv1.AzVolumeAttachment {
	key := client.ObjectKey{Namespace: namespace, Name: apiv1.AttachmentName(volume, node)}
	a, _ := w.store.Look((*apiv1.AzVolumeAttachment)(nil), key).(*apiv1.AzVolumeAttachment)
	return a
}

// model returns a volume by its name.
func (w *world) model(volume string) *volumeModel {
	for _, v := range w.volumes {
		if v.name == volume {
			return v
		}
	}
	return nil
}

// mayUse holds law 2 for a volume without ownership: a pod gets a device only on a node with an
// attachment that has no proof.
func (w *world) mayUse(m *machine, volume string) {
	switch a := w.attachment(volume, m.name); {
	case a == nil && w.model(volume).erased[m.name]:
		// The grant was given before a person removed the attachment.
	case a == nil:
		w.broken("law 2: %s uses %s, which is not attached there", m.name, volume)
	case ownership.HasProof(a):
		w.broken("law 2: %s uses %s, although there is a proof (%s) that it released it", m.name, volume, a.Status.Proof.Type)
	}
}

// proved holds law 3 for a volume without ownership: when a proof is recorded, the node cannot
// write. The store is locked.
func (w *world) proved(before, after *apiv1.AzVolumeAttachment) {
	v := w.model(after.Spec.VolumeName)
	if v == nil || !v.several || ownership.HasProof(before) || !ownership.HasProof(after) {
		return
	}
	m := w.machine(after.Spec.NodeName)
	m.look()
	if m.writes(v.name) {
		w.broken("law 3: there is a proof (%[2]s) that %[1]s released %[3]s, and it can write to it", m.name,
			after.Status.Proof.Type, v.name)
	}
}

// takenFrom holds law 3 at Azure: a disk is detached, but by force, only from a VM that does not
// use it.
func (w *world) takenFrom(vm, disk string) {
	if lastOf(vm) == production {
		return // see world.undisturbed
	}
	m := w.machine(lastOf(vm))
	m.look()
	if m.writes(volumeOf(disk)) {
		w.broken("law 3: %s is detached from %s, which writes to it", lastOf(disk), m.name)
	}
}

// someNodes are nodes for a volume of several, at most as many as it has shares.
func (w *world) someNodes(v *volumeModel) []string {
	var nodes []string
	for _, i := range w.random.Perm(len(w.machines)) {
		if m := w.machines[i]; m.well() && m != w.liar && len(nodes) < v.shares && w.random.IntN(3) > 0 {
			nodes = append(nodes, m.name)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// placeSeveral brings a volume of several nodes to those that want it.
func (c *kubernetes) placeSeveral(v *volumeModel) string {
	for _, m := range c.w.machines {
		if why := c.clear(v, m); why != "" {
			return why
		}
	}
	for _, m := range c.w.machines {
		if !slices.Contains(v.wants, m.name) {
			continue
		}
		if why := c.give(v, m); why != "" {
			return why
		}
	}
	return ""
}

// clear takes a volume of several nodes from one where it is not wanted, or where it is of no use
// any more.
func (c *kubernetes) clear(v *volumeModel, m *machine) string {
	key := v.name + " on " + m.name
	a := c.w.attachment(v.name, m.name)
	used := m.mounted(v.name)
	wanted := slices.Contains(v.wants, m.name)
	if wanted && (!used || m.writes(v.name)) && (a == nil || a.DeletionTimestamp == nil) {
		return ""
	}
	if m.on && (used || c.w.entry(m, v.name) != "") {
		c.do(key, func() *call { return c.w.unstage(m, v, callTimeout) })
		return "staged on " + m.name
	}
	if wanted {
		return "" // what is being taken away there is given again
	}
	delete(v.published, m.name+" ok")
	c.lateCall(v, m)
	c.w.endPod(m, v)
	switch {
	case a == nil && (c.w.byPods || !v.published[m.name]):
		return ""
	case c.w.byPods:
	case !m.on && a != nil && a.DeletionTimestamp == nil && c.w.inUse(m, v):
		return "in use on " + m.name + ", which is dead"
	default:
		if last := c.calls[key]; last != nil && last.done && last.err == nil && last.what == "Unpublish "+v.name+" "+m.name {
			delete(v.published, m.name)
		}
		if a != nil || v.published[m.name] {
			c.do(key, func() *call { return c.w.unpublish(c.w.alive(), v, m.name, callTimeout) })
		}
	}
	return "published to " + m.name
}

// give brings a volume of several nodes to one of them.
func (c *kubernetes) give(v *volumeModel, m *machine) string {
	key := v.name + " on " + m.name
	a := c.w.attachment(v.name, m.name)
	there := a != nil && a.DeletionTimestamp == nil
	switch {
	case c.w.byPods && a != nil && ownership.MultiNodeFenceDecided(a):
		return "being fenced on " + m.name // whose taint keeps new pods away
	case c.w.byPods && !c.w.podThere(m, v):
		c.w.usePod(m, v)
		return "the pod is made on " + m.name
	case c.w.byPods && !there:
		return "not published to " + m.name
	case !c.w.byPods && (!there || !v.published[m.name+" ok"]):
		if last := c.calls[key]; there && last != nil && last.done && last.err == nil && last.what == "Publish "+v.name+" "+
			m.name {
			v.published[m.name+" ok"] = true
			return "published to " + m.name
		}
		c.do(key, func() *call { return c.w.publish(c.w.alive(), v, m.name, callTimeout) })
		return "not published to " + m.name
	}
	return c.stage(v, m)
}

// sharesAmiss says what is wrong with the attachments of a volume of several nodes.
func (w *world) sharesAmiss(v *volumeModel) string {
	for _, a := range w.attachments(v.name) {
		switch {
		case a.DeletionTimestamp != nil:
			return a.Name + " is on its way out"
		case a.Status.State != apiv1.AttachmentAttached:
			return a.Name + " is " + string(a.Status.State)
		case a.Spec.Role != apiv1.RolePrimary || a.Spec.Epoch != ownership.MultiNodeEpoch:
			return fmt.Sprintf("%s is %s of epoch %d", a.Name, a.Spec.Role, a.Spec.Epoch)
		case !slices.Contains(v.wants, a.Spec.NodeName):
			return a.Name + " is not wanted"
		}
	}
	return ""
}
