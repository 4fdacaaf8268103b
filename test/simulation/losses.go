package simulation

import (
	"context"
	"slices"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// loseKubelet ends the kubelet of a machine that runs a pod of a volume, and wants the volume on
// another machine. A person deletes the pod by force. The volume stays mounted for it, so that the
// node plug-in does not unstage it by itself.
func (w *world) loseKubelet(c *kubernetes, v *volumeModel, m *machine) {
	next := pick(w.random, w.hosts())
	if next == m || !m.kubelet.runs(v) || !m.kubelet.mayDie() || !next.well() || !w.takesPods(next) {
		return
	}
	w.note("the kubelet of %s is to die, and %s to be used on %s", m.name, v.name, next.name)
	m.kubelet.die()
	v.want = next.name
	w.until("a volume is used on another machine although a kubelet is dead", patience, c.place)
	m.kubelet.start()
}

// drainAndCut wants a volume on another machine, and cuts the power of its machine as soon as the object
// of its last pod there is gone.
func (w *world) drainAndCut(c *kubernetes, v *volumeModel, m *machine) {
	next := pick(w.random, w.hosts())
	if next == m || !m.kubelet.runs(v) || !next.well() || !w.takesPods(next) {
		return
	}
	w.note("%s moves to %s, and the power of %s is cut when its pod is gone", v.name, next.name, m.name)
	v.want = next.name
	if !w.within(patience, func() bool {
		c.place()
		return !slices.ContainsFunc(w.podsOf(v), func(p *podModel) bool { return p.m == m })
	}) {
		return
	}
	w.power(m)
	w.until("a volume moves although its machine dies when its pod is gone", patience, func() string {
		if complaint := c.place(); !next.mounted(v.name) {
			return complaint
		}
		return ""
	})
	w.power(m)
}

// takeLUN makes a person detach the disk of a volume from the machine that uses it, and attach the
// disk of another volume in its place. The machine stages the volume once more while no controller
// has noticed: the recorded LUN has the other disk.
func (w *world) takeLUN(v *volumeModel, m *machine) {
	vm := vmOf(m.name)
	lun, attached := w.azure.holds(vm, diskOf(v.name))
	i := slices.IndexFunc(w.volumes, func(o *volumeModel) bool {
		_, here := w.azure.holds(vm, diskOf(o.name))
		return o != v && o.shares > len(w.having(o)) && o.shares > 1 && !here
	})
	if !attached || i < 0 {
		return
	}
	other := w.volumes[i]
	w.note("%s is to be staged on %s while its LUN has the disk of %s", v.name, m.name, other.name)
	w.pauseControllers(true)
	w.detachManually(m, v)
	off := w.within(patience, func() bool { _, has := w.azure.holds(vm, diskOf(v.name)); return !has })
	if off && w.attachManually(m, other) {
		w.within(patience, func() bool { at, has := w.azure.holds(vm, diskOf(other.name)); return has && at == lun })
		stage := w.stage(m, v, callTimeout)
		w.within(patience, func() bool { return stage.done })
		w.detachManually(m, other)
		w.within(patience, func() bool { _, has := w.azure.holds(vm, diskOf(other.name)); return !has })
	}
	w.pauseControllers(false)
	if w.takesPods(m) {
		w.addPod(v, m)
	}
}

// failDetach makes a person attach a disk and detach it, and the detach fails: Azure attaches the disk
// to that machine only after another detach. Then a pod of the volume comes there.
func (w *world) failDetach(v *volumeModel, m *machine) {
	vm, disk := vmOf(m.name), diskOf(v.name)
	if _, attached := w.azure.holds(vm, disk); attached || !w.attachManually(m, v) {
		return
	}
	w.within(patience, func() bool { _, has := w.azure.holds(vm, disk); return has })
	succeed := w.cloud.Inject(fake.Fault{
		Method:       fake.AttachmentsDetach,
		ID:           disk,
		OperationErr: provisioner.Errorf(provisioner.Unavailable, "the detach failed"),
	})
	w.note("a person detaches %s from %s, and the detach fails", v.name, m.name)
	w.detachManually(m, v)
	w.within(w.latency.Detach+time.Second, func() bool { return false })
	succeed()
	w.addPod(v, m)
	w.until("a pod has the volume whose detach had failed", patience, func() string {
		if !m.mounted(v.name) {
			return v.name + " is not mounted on " + m.name
		}
		return ""
	})
	for _, p := range w.podsOf(v) {
		if !p.deleting {
			w.endPodModel(p)
		}
	}
}

// pauseControllers gives the controllers no time, or time again.
func (w *world) pauseControllers(paused bool) {
	for _, p := range w.processes {
		p.paused = paused && !p.dead
	}
}

// attachManually makes a person attach a disk at Azure, at the first free LUN, and reports whether
// Azure accepts that.
func (w *world) attachManually(m *machine, v *volumeModel) bool {
	vm, disk := vmOf(m.name), diskOf(v.name)
	if !w.azure.free(vm, disk, true, v.shares > 1) {
		return false
	}
	op, err := w.cloud.Attachments().Attach(context.Background(), provisioner.AttachRequest{
		VMID:        vm,
		DiskID:      disk,
		CachingMode: "None",
		Shared:      v.shares > 1,
	})
	if err != nil {
		return false
	}
	w.note("a person attaches %s to %s manually", v.name, m.name)
	w.azure.changed = true
	w.azure.operations[op.Token()] = &began{
		vm:     vm,
		disk:   disk,
		attach: true,
		ends:   w.now().Add(w.latency.Attach),
	}
	return true
}
