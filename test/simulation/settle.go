package simulation

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/api/meta"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// patience is how long the world may take to settle once the faults have stopped.
const patience = 10 * time.Minute

// settle ends the faults, requests what a cluster would, and checks that the driver does it, that
// nothing is left over, and that everything can be deleted.
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
	cluster := &kubernetes{
		w:     w,
		calls: map[string]*call{},
		next:  map[string]time.Time{},
	}
	w.until("every volume is where it is wanted", patience, cluster.place)
	w.until("replicas and Azure are as they should be", patience, cluster.notSettled)
	w.until("disks are as they were asked for", patience, w.asAsked)
	w.playUsed(cluster)
	for _, v := range w.volumes {
		v.want, v.wants = "", nil
	}
	w.note("nothing is wanted any more")
	w.until("every volume is released", patience, cluster.place)
	w.until("what waited for the release is changed", patience, w.asAsked)
	w.playUnused(cluster)
	w.playClusters(cluster)
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

// restore repairs the machines, except at most one, which may stay without power or without a
// kubelet: if more are lost at once, the driver does not fail over until a person acts.
func (w *world) restore() {
	dead := false
	for _, m := range w.machines {
		m.leaks = nil
		m.thaw()
		m.plugin.paused = false
		w.withdraw(m)
		stays := !dead && w.random.IntN(2) == 0 && m.asleep == nil // Azure detaches no disk from a VM that is hibernated
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

// well reports whether pods can run on the machine.
func (m *machine) well() bool { return m.on && m.unheard().IsZero() }

// notSettled says what is missing until every volume is where it is wanted and all objects are
// correct: the end of a manual detach can come late.
func (c *kubernetes) notSettled() string {
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
	if c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached); c != nil {
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
		return fmt.Sprintf("leak: %d attachments, and Azure has %d: %s", len(objects), found, w.states())
	}
	return ""
}

// waitsForBelief reports whether Azure does not have an attachment because the controller does not
// believe which VM the liar is. Nothing is attached to it until then (ADR 0013), also where an
// attach that Azure has refused was asked for before the lie, or where a person detached the disk
// and the liar says that a pod uses it.
func (w *world) waitsForBelief(a *apiv1.AzVolumeAttachment) bool {
	if w.liar == nil || a.Spec.NodeName != w.liar.name {
		return false
	}
	if a.Status.VMID == "" {
		return true // which VM it is is not known, and nothing was asked of Azure
	}
	c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached)
	_, attached := w.azure.holds(a.Status.VMID, diskOf(a.Spec.VolumeName))
	return !attached && (a.Status.State == apiv1.AttachmentPending && c != nil && c.Reason == apiv1.ReasonNodeUnknown ||
		a.Status.State == apiv1.AttachmentAttached && w.mislaid)
}

func (w *world) replicasLeft() string {
	for _, a := range w.attachments("") {
		return a.Name + " is left"
	}
	return w.differences()
}

// remove deletes the volumes.
func (c *kubernetes) remove() string {
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

// states are the attachments of all volumes with their states, for a message.
func (w *world) states() string {
	var all []string
	for _, a := range w.attachments("") {
		all = append(all, fmt.Sprintf("%s %s (%s, %v)", a.Name, a.Status.State, a.Spec.Role, a.Status.Error))
	}
	return strings.Join(all, "; ")
}
