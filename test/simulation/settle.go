package simulation

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attachment"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// patience is how long the world may take to settle once the faults have stopped.
const patience = 10 * time.Minute

// settle ends the faults, requests what a cluster would, and checks that the driver does it, that nothing is left over, and that everything can be deleted.
func (w *world) settle() {
	w.note("the faults stop")
	w.trouble, w.apiDown = 0, false
	for _, p := range w.processes {
		if p.paused = false; !p.deposed.IsZero() && !p.dead {
			p.stop()
		}
		if p.dead {
			w.must(p.start())
		}
	}
	w.elect()
	w.restore()
	w.endLies()
	for _, v := range w.volumes {
		v.want = ""
		if m := pick(w.random, w.hosts()); m.well() {
			v.want = m.name
		}
		if v.several {
			v.want, v.wants = "", w.someNodes(v)
		}
		w.note("%s is wanted on %q %q", v.name, v.want, v.wants)
	}
	cluster := &cluster{w: w, calls: map[string]*call{}, next: map[string]time.Time{}}
	w.until("every volume is where it is wanted", patience, cluster.place)
	w.until("replicas and Azure are as they should be", patience, cluster.notSettled)
	w.until("disks are as they were asked for", patience, w.asAsked)
	w.playUsed(cluster)
	for _, v := range w.volumes {
		v.want, v.wants = "", nil
	}
	w.note("nothing is wanted any more")
	w.until("every volume is released", patience, cluster.place)
	w.playUnused(cluster)
	for _, v := range w.volumes {
		w.releasePersistentVolume(v)
	}
	w.until("replicas are cleaned up", patience, w.replicasLeft)
	if w.people {
		w.giveUp()
		w.until("what Kubernetes has given up is forgotten", patience, w.unforgotten)
		for range w.random.IntN(3) {
			cluster.remove()
			w.replaceLeader()
		}
	}
	w.until("every volume is deleted", patience, cluster.remove)
	w.until("nothing is left", patience, w.leftOvers)
}

// restore repairs the machines, except at most one, which may stay without power or without a kubelet: if more are lost at once, the driver does not fail
// over until a person acts.
func (w *world) restore() {
	dead := false
	for _, m := range w.machines {
		m.leaks = nil
		stays := !dead && w.random.IntN(2) == 0
		noKubelet := m.on && m.kubelet != nil && !m.kubelet.dead.IsZero()
		if m.on {
			m.setCutOff(false)
		}
		switch {
		case m.on && !noKubelet:
		case stays:
			dead = true
		case noKubelet:
			m.kubelet.start()
		default:
			w.power(m)
		}
	}
}

// well says that pods can run on the machine.
func (m *machine) well() bool { return m.on && m.unheard().IsZero() }

// cluster does what Kubernetes does with the driver, one call for each volume and node at a time, until it succeeds.
type cluster struct {
	w     *world
	calls map[string]*call
	next  map[string]time.Time
}

// over says that no call of that key is in progress, and that the next one is due.
func (c *cluster) over(key string) bool {
	if last := c.calls[key]; last != nil && !last.done {
		return false
	}
	return !c.next[key].After(c.w.now())
}

func (c *cluster) do(key string, begin func() *call) {
	if !c.over(key) {
		return
	}
	c.next[key] = c.w.now().Add(500 * time.Millisecond)
	c.calls[key] = begin()
}

const callTimeout = 15 * time.Second

// place publishes each volume where it is wanted, and says what is missing.
func (c *cluster) place() string {
	var missing []string
	for _, v := range c.w.volumes {
		if why := c.placeVolume(v); why != "" {
			missing = append(missing, v.name+": "+why)
		}
	}
	for _, last := range c.w.calls {
		if !last.done {
			missing = append(missing, "under way: "+last.what)
		}
	}
	if len(missing) == 0 {
		c.w.calls = nil
	}
	return strings.Join(missing, "; ")
}

func (c *cluster) placeVolume(v *volumeModel) string {
	c.intervene(v)
	switch {
	case c.w.kubelets:
		return c.placePods(v)
	case c.w.sharedDiskLargerThanRecorded(v, nil):
		// The person ends the pods until the size is recorded.
		want, wants := v.want, v.wants
		v.want, v.wants = "", nil
		defer func() { v.want, v.wants = want, wants }()
		return cmp.Or(c.placeCalls(v), "the present size of the disk is not recorded")
	}
	return c.placeCalls(v)
}

// placeCalls makes the calls of a history without kubelets for a volume.
func (c *cluster) placeCalls(v *volumeModel) string {
	if v.several {
		return c.placeSeveral(v)
	}
	if why := c.takeFromAll(v); why != "" || v.want == "" {
		return why
	}
	m, key := c.w.machine(v.want), v.name+" on "+v.want
	object := c.w.record(v)
	switch {
	case c.w.byPods && ownership.BeingFenced(object, v.want):
		return "being fenced on " + v.want // whose taint keeps new pods away
	case c.w.byPods && !c.w.podThere(m, v):
		c.w.usePod(m, v)
		return "the pod is made on " + v.want
	case c.w.byPods && (!c.isPrimary(object, v.want) || object.Status.Primary.State != apiv1.OwnershipHeld):
		return "not published to " + v.want
	case c.isPrimary(object, v.want) && object.Status.Primary.State == apiv1.OwnershipReleasing:
		c.do(key, func() *call { return c.w.unpublish(c.w.alive(), v, v.want, callTimeout) })
		return "being taken from " + v.want
	case object.Status.Primary == nil || object.Status.Primary.NodeName != v.want || object.Status.Primary.State != apiv1.OwnershipHeld || !v.published[v.want+" ok"] && !c.w.byPods:
		c.do(key, func() *call {
			last := c.w.publish(c.w.alive(), v, v.want, callTimeout)
			return last
		})
		if last := c.calls[key]; last != nil && last.done && last.err == nil && strings.HasPrefix(last.what, "Publish") {
			v.published[v.want+" ok"] = true
		}
		return "not published to " + v.want
	case !m.writes(v.name) || c.entry(m, v.name) != apiv1.PhaseStaged:
		c.w.usePod(m, v)
		c.do(key, func() *call { return c.w.stage(m, v, callTimeout) })
		return "not staged on " + v.want
	}
	return ""
}

func (c *cluster) takeFromAll(v *volumeModel) string {
	for _, m := range c.w.machines {
		if why := c.takeFrom(v, m); why != "" {
			return why
		}
	}
	return ""
}

// takeFrom unpublishes a volume from a node where it is not wanted, or where it cannot be used any more.
func (c *cluster) takeFrom(v *volumeModel, m *machine) string {
	key := v.name + " on " + m.name
	mounted := m.mounted(v.name)
	object := c.w.record(v)
	leaving := c.isPrimary(object, m.name) && object.Status.Primary.State == apiv1.OwnershipReleasing || c.w.beingDeleted(v, m)
	if v.want == m.name && !leaving {
		return ""
	}
	// The pod is gone, or will be as soon as the failover has deleted it.
	if m.on && (mounted || c.entry(m, v.name) != "") {
		c.do(key, func() *call { return c.w.unstage(m, v, callTimeout) })
		return "staged on " + m.name
	}
	if v.want == m.name && !c.w.beingDeleted(v, m) {
		return ""
	}
	delete(v.published, m.name+" ok")
	c.w.endPod(m, v)
	switch {
	case c.w.byPods && c.isPrimary(object, m.name):
		return "published to " + m.name
	case c.w.byPods:
		return ""
	case !m.on && c.isPrimary(object, m.name) && object.Status.Primary.Cause != apiv1.CauseUnpublished && c.w.inUse(m, v):
		// Once Kubernetes has begun to unpublish, it goes on.
		return "in use on " + m.name + ", which is dead"
	}
	if v.published[m.name] || c.isPrimary(object, m.name) {
		last := c.calls[key]
		if last != nil && last.done && last.err == nil && last.what == "Unpublish "+v.name+" "+m.name {
			delete(v.published, m.name)
		}
		if v.published[m.name] || c.isPrimary(object, m.name) {
			c.do(key, func() *call { return c.w.unpublish(c.w.alive(), v, m.name, callTimeout) })
			return "published to " + m.name
		}
	}
	return ""
}

func (c *cluster) isPrimary(v *apiv1.AzVolume, node string) bool {
	p := v.Status.Primary
	return p != nil && p.State != apiv1.OwnershipReleased && p.NodeName == node
}

// entry is the phase of a volume in the report of a node.
func (c *cluster) entry(m *machine, volume string) apiv1.StagePhase {
	d, found := c.w.store.Look((*apiv1.AzDriverNode)(nil), client.ObjectKey{Namespace: namespace, Name: m.name}).(*apiv1.AzDriverNode)
	if !found {
		return ""
	}
	for _, e := range d.Status.StagedVolumes {
		if e.VolumeName == volume {
			return e.Phase
		}
	}
	return ""
}

// notSettled says what is missing until every volume is where it is wanted and all objects are correct: the end of a manual detach can come late.
func (c *cluster) notSettled() string {
	return cmp.Or(c.place(), c.w.notSettled())
}

// notSettled compares the objects with what is wanted and with Azure.
func (w *world) notSettled() string {
	for _, v := range w.volumes {
		if why := w.primaryAmiss(v); why != "" {
			return v.name + ": " + why
		}
		replicas, wanted := len(w.replicasOf(v.name)), int(w.record(v).Spec.MaxMountReplicaCount)
		switch room := w.room(v); {
		case v.want == "":
		case replicas > wanted:
			return fmt.Sprintf("%s has %d replicas, and %d are wanted", v.name, replicas, wanted)
		case replicas < min(wanted, room):
			return fmt.Sprintf("%s has %d replicas, and %d are wanted and have room", v.name, replicas, wanted)
		}
	}
	return w.differences()
}

// room is how many nodes can take a replica of a volume whatever the other volumes do.
func (w *world) room(v *volumeModel) int {
	n := 0
	for _, m := range w.machines {
		if m.well() && m != w.liar && m.name != v.want && len(w.volumes) <= slots-reservedSlots {
			n++
		}
	}
	return n
}

func (w *world) primaryAmiss(v *volumeModel) string {
	if v.several {
		return w.sharesAmiss(v)
	}
	o := w.record(v).Status.Primary
	if o == nil {
		o = &apiv1.Ownership{}
	}
	for _, a := range w.attachments(v.name) {
		switch {
		case w.liar != nil && a.Spec.NodeName == w.liar.name:
			// If the VM of the liar is not known, the replica waits.
		case a.DeletionTimestamp != nil:
			return a.Name + " is being deleted"
		case a.Status.State != apiv1.AttachmentAttached:
			return a.Name + " is " + string(a.Status.State) + why(a)
		case a.Spec.Role == apiv1.RolePrimary && (a.Spec.NodeName != v.want || a.Spec.Epoch != o.Epoch):
			return a.Name + " is primary"
		case a.Spec.Role == apiv1.RoleReplica && a.Spec.NodeName == v.want:
			return a.Name + " is a replica"
		}
	}
	return ""
}

// why is what an attachment's condition says of its state.
func why(a *apiv1.AzVolumeAttachment) string {
	if c := meta.FindStatusCondition(a.Status.Conditions, attachment.ConditionAttached); c != nil {
		return ": " + c.Reason + ": " + c.Message
	}
	return ""
}

// differences compares Azure with the objects.
func (w *world) differences() string {
	objects, found := map[string]bool{}, 0
	for _, a := range w.attachments("") {
		if w.waitsForBelief(a) {
			continue
		}
		objects[vmOf(a.Spec.NodeName)+" "+diskOf(a.Spec.VolumeName)] = true
	}
	for _, i := range w.azure.state().Instances {
		for _, d := range i.DataDisks {
			if !objects[i.ID+" "+d.DiskID] {
				return "leak: Azure has " + lastOf(d.DiskID) + " attached to " + i.Name + ", and there is no object"
			}
			found++
		}
	}
	if found != len(objects) {
		return fmt.Sprintf("leak: %d attachments, and Azure has %d", len(objects), found)
	}
	return ""
}

// waitsForBelief says that Azure does not have an attachment because the controller does not believe which VM the liar is. Nothing is attached to it until then (ADR 0013),
// also where an attach that Azure has refused was asked for before the lie.
func (w *world) waitsForBelief(a *apiv1.AzVolumeAttachment) bool {
	if w.liar == nil || a.Spec.NodeName != w.liar.name {
		return false
	}
	if a.Status.VMID == "" {
		return true // which VM it is is not known, and nothing was asked of Azure
	}
	c := meta.FindStatusCondition(a.Status.Conditions, attachment.ConditionAttached)
	_, attached := w.azure.holds(a.Status.VMID, diskOf(a.Spec.VolumeName))
	return !attached && a.Status.State == apiv1.AttachmentPending && c != nil && c.Reason == identity.ReasonNodeUnknown
}

func (w *world) replicasLeft() string {
	for _, a := range w.attachments("") {
		return a.Name + " is left"
	}
	return w.differences()
}

// remove deletes the volumes.
func (c *cluster) remove() string {
	var left []string
	for _, v := range c.w.volumes {
		if c.w.volume(v.name) == nil && !c.w.diskThere(v) {
			continue
		}
		v.mayGo = true
		left = append(left, v.name)
		p := c.w.alive()
		c.do(v.name, func() *call {
			return c.w.begin(p.owner, "DeleteVolume "+v.name, callTimeout, func(ctx context.Context) error {
				_, err := p.csi.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: diskOf(v.name)})
				return err
			})
		})
	}
	return strings.Join(left, ", ")
}

func (w *world) leftOvers() string {
	state := w.azure.state()
	if len(state.Disks) > 0 {
		return "leak: Azure has disk " + state.Disks[0].ID
	}
	return w.differences()
}
