package simulation

import (
	"slices"
	"strings"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Scenes are situations that rarely happen by chance, because each needs several faults that meet
// one volume in a certain order. A share of the histories plays them between the phases of settle,
// in a world that has settled, and the world has to settle again after each.

// playUsed plays the scenes of volumes that are in use.
func (w *world) playUsed(cluster *kubernetes) {
	w.playHibernation(cluster)
	w.playPauses(cluster)
	w.playNight(cluster)
	w.playTaken(cluster)
	if !w.scenes {
		return
	}
	for _, v := range w.volumes {
		if v.want != "" && w.kubelets && w.machine(v.want).well() {
			w.cutOffAndBack(v, w.machine(v.want))
			w.until("every volume is where it is wanted again", patience, cluster.place)
		}
	}
	for _, v := range w.volumes {
		if m := w.machine(v.want); v.want != "" && w.kubelets && w.reservations && v.shares > 1 && m.well() {
			w.preemptWithoutDetach(cluster, v, m)
			w.until("every volume is where it is wanted after a fence", patience, cluster.place)
		}
	}
	for _, v := range w.volumes {
		if m := w.machine(v.want); v.want != "" && w.kubelets && w.paths && m.well() {
			w.attachAgain(v, m)
			w.until("every volume is where it is wanted after another attach", patience, cluster.place)
		}
	}
	for _, v := range w.volumes {
		if m := w.machine(v.want); v.want != "" && w.kubelets && !v.several && m.well() {
			w.shutDown(v, m)
			w.until("every volume is where it is wanted after a machine shut down", patience, cluster.place)
		}
	}
	for _, v := range w.volumes {
		if m := w.machine(v.want); v.want != "" && w.kubelets && !v.several && m.well() && m != w.liar {
			w.takeLUN(v, m)
			w.until("every volume is where it is wanted after a LUN had another disk", patience, cluster.place)
		}
	}
	for _, v := range w.volumes {
		if m := w.machine(v.want); v.want != "" && w.kubelets && !v.several && m.well() {
			w.loseKubelet(cluster, v, m)
			w.until("every volume is where it is wanted after a kubelet was dead", patience, cluster.place)
		}
	}
	for _, v := range w.volumes {
		if m := w.machine(v.want); v.want != "" && w.kubelets && !v.several && m.well() {
			w.drainAndCut(cluster, v, m)
			w.until("every volume is where it is wanted after a drain and a power cut", patience, cluster.place)
		}
	}
	for _, v := range w.volumes {
		if m := w.machine(v.want); v.want != "" && w.kubelets && !v.several && m.well() {
			w.hangRuntime(cluster, v, m)
			w.until("every volume is where it is wanted after a runtime hung", patience, cluster.place)
		}
	}
	w.until("replicas and Azure are as they should be again", patience, cluster.notSettled)
	w.adopt()
}

// hangRuntime makes the container runtime of a machine hang, so that a pod does not end, and a person
// delete the pod by force. The next pod is wanted on the same machine or on another one.
func (w *world) hangRuntime(c *kubernetes, v *volumeModel, m *machine) {
	i := slices.IndexFunc(m.kubelet.pods, func(l *localPod) bool { return l.v == v && !l.deleting && !l.gone && l.runs() })
	if i < 0 {
		return
	}
	l := m.kubelet.pods[i]
	w.note("the runtime of %s hangs, and a person deletes %s by force", m.name, l.name)
	l.hung = true
	w.removePod(l.podModel)
	if next := pick(w.random, w.hosts()); next.well() && w.takesPods(next) {
		v.want = next.name
	}
	w.within(time.Duration(5+w.random.IntN(60))*time.Second, func() bool {
		if !w.apiDown {
			_ = c.place()
		}
		return false
	})
	l.hung = false
}

// playUnused plays the scenes of volumes that nothing uses.
func (w *world) playUnused(cluster *kubernetes) {
	if !w.scenes {
		return
	}
	if !w.kubelets {
		w.playDirect(cluster)
		return
	}
	for _, v := range w.volumes {
		if m := pick(w.random, w.hosts()); !v.several && m.well() && w.takesPods(m) {
			w.giveUpPod(v, m)
			w.until("every volume is released again", patience, cluster.place)
		}
	}
	for _, v := range w.volumes {
		if m := w.machines[0]; !v.several && m.well() && w.takesPods(m) {
			w.forgetUnstage(v, m)
			w.until("a volume that a kubelet has forgotten is released", patience, cluster.place)
		}
	}
	for _, v := range w.volumes {
		if m := w.machines[0]; !v.several && m.well() && w.takesPods(m) && m != w.liar {
			w.failDetach(v, m)
			w.until("a volume whose detach had failed is released", patience, cluster.place)
		}
	}
}

// playDirect plays a scene whose calls a model of a kubelet does not make.
func (w *world) playDirect(cluster *kubernetes) {
	for _, v := range w.volumes {
		if !v.several && v.replicas > 0 && w.reservations && !w.byPods {
			w.reserveLate(v)
			w.until("every volume is released after a late reservation", patience, cluster.place)
		}
	}
}

// within steps until done, and for limit at most. It returns whether done was reached.
func (w *world) within(limit time.Duration, done func() bool) bool {
	for end := w.now().Add(limit); w.violation == "" && w.now().Before(end); w.step() {
		if done() {
			return true
		}
	}
	return false
}

// waits reports whether an access of a process waits whose name begins so.
func (w *world) waits(by *owner, prefix string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.waiting, func(a *access) bool { return a.by == by && strings.HasPrefix(a.what, prefix) })
}

// readOrReserve is how the names of a machine's commands about reservations begin.
const readOrReserve = "reservation of"

// preemptWithoutDetach cuts off a machine that stages its volume once more, and whose device is
// slow, while Azure answers no forced detach. So the machine is fenced by a pre-emption, and has
// the disk attached while other machines use the volume and leave it.
func (w *world) preemptWithoutDetach(c *kubernetes, v *volumeModel, m *machine) {
	w.note("%s is to be fenced from %s while it has the disk attached", m.name, v.name)
	w.azure.forceWaits, m.slow = true, readOrReserve
	again := false
	w.stage(m, v, 2*time.Minute)
	w.within(5*time.Second, func() bool { return w.waits(m.plugin, readOrReserve) })
	m.setCutOff(true)
	if w.within(time.Minute, func() bool { return w.preempted[apiv1.AttachmentName(v.name, m.name)] != nil }) {
		if again = !w.byPods && w.random.IntN(3) == 0; again {
			w.publishHalf(v, m)
		}
		m.slow = ""
		w.within(3*time.Second, func() bool { return false })
		w.useBesideFenced(c, v, m)
	}
	w.azure.forceWaits, m.slow, v.want = false, "", m.name
	m.setCutOff(false)
	if again { // the model of Kubernetes does not know of that publish
		v.want = ""
		w.doNow(func() *call { return w.unpublish(w.alive(), v, m.name, callTimeout) })
		v.want = m.name
	}
}

// useBesideFenced makes other machines use a volume one after the other. One of them may be stopped
// at Azure while it holds the reservation, or its node plug-in killed.
func (w *world) useBesideFenced(c *kubernetes, v *volumeModel, fenced *machine) {
	stopped := fenced
	for _, next := range w.hosts() {
		if next == fenced || !next.well() {
			continue
		}
		v.want = next.name
		w.within(time.Minute, func() bool { return c.place() == "" })
		switch n := w.random.IntN(3); {
		case n == 0:
			next.stopPlugin()
			next.startPlugin()
		case n == 1 && stopped == fenced:
			w.azurePower(next)
			stopped = next
		}
		v.want = ""
		w.within(20*time.Second, func() bool { return c.place() == "" })
	}
	if stopped != fenced {
		w.power(stopped)
	}
}

// reserveLate has a machine reserve a disk long after it was granted the volume: its first command
// takes so long that it is fenced, gets a replica, and another machine uses the volume. The command
// comes while that machine unstages the volume, and before it has flushed its device.
func (w *world) reserveLate(v *volumeModel) {
	late, next := pick(w.random, w.hosts()), pick(w.random, w.hosts())
	if late == next || !late.well() || !next.well() || !w.publishNow(v, late) {
		return
	}
	w.note("%s reserves the disk of %s late", late.name, v.name)
	late.slow = readOrReserve
	stage := w.stage(late, v, 4*time.Minute)
	waiting := func() bool { return w.waits(late.plugin, readOrReserve) }
	if w.within(20*time.Second, waiting) {
		late.setCutOff(true)
		w.within(time.Minute, func() bool { return ownership.FenceDecided(w.volume(v.name), late.name) })
		w.doNow(func() *call { return w.unpublish(w.alive(), v, late.name, callTimeout) })
		late.setCutOff(false)
		w.letOverlap(v, late, next, stage)
	}
	late.slow, next.slow = "", ""
}

// letOverlap lets the next machine use the volume while the late one waits to reserve the disk in a
// call.
func (w *world) letOverlap(v *volumeModel, late, next *machine, stage *call) {
	if !w.publishNow(v, next) || !w.doNow(func() *call { return w.stage(next, v, callTimeout) }) {
		return
	}
	w.within(time.Minute, func() bool { _, attached := w.azure.holds(vmOf(late.name), diskOf(v.name)); return attached })
	if lun, attached := w.azure.holds(vmOf(late.name), diskOf(v.name)); attached {
		late.deviceOf(diskOf(v.name), lun) // the new device gets the name of the one that is gone
	}
	next.slow = "flush"
	unstage := w.unstage(next, v, time.Minute)
	w.within(20*time.Second, func() bool { return unstage.done || w.waits(next.plugin, next.slow) })
	late.slow = ""
	w.within(3*time.Second, func() bool {
		disk := w.sharedDisk(diskOf(v.name))
		return stage.done || disk.State().Type != provisioner.NoReservation && disk.Allows(late.name, true)
	})
	late.slow, next.slow = readOrReserve, ""
	w.within(time.Minute, func() bool { return unstage.done })
}

func (w *world) publishNow(v *volumeModel, m *machine) bool {
	return w.doNow(func() *call { return w.publish(w.alive(), v, m.name, callTimeout) })
}

// doNow repeats a call until it succeeds, for two minutes at most.
func (w *world) doNow(begin func() *call) bool {
	last := begin()
	return w.within(2*time.Minute, func() bool {
		if last.done && last.err != nil {
			last = begin()
		}
		return last.done && last.err == nil
	})
}

// cutOffAndBack cuts a machine off for long enough to be fenced, and reconnects it without a
// reboot, with the next pod of the volume.
func (w *world) cutOffAndBack(v *volumeModel, m *machine) {
	m.setCutOff(true)
	for end := w.now().Add(time.Duration(15+w.random.IntN(15)) * time.Second); w.violation == "" && w.now().Before(end); {
		w.step()
	}
	m.setCutOff(false)
	w.nextPodOn(v, m)
}

// shutDown makes the kubelet of a machine shut it down in good order while much is to be flushed:
// its node plug-in lives, and releases the volume for longer than a deserted node is waited for.
func (w *world) shutDown(v *volumeModel, m *machine) {
	w.note("%s shuts down while %s is flushed", m.name, v.name)
	m.slow, m.shutsDown = "flush", true
	for _, p := range w.podsOf(v) {
		if !p.deleting {
			w.endPodModel(p)
		}
	}
	if w.within(time.Minute, func() bool { return w.entry(m, v.name) == apiv1.PhaseUnstaging }) {
		w.within(40*time.Second, func() bool { return false })
	}
	m.slow = ""
	w.within(time.Minute, func() bool { return w.entry(m, v.name) == "" })
	m.shutsDown = false
}

// flushing holds: the fence of a node that shuts down in good order waits for its flush.
func (w *world) flushing(vm, disk string) {
	for _, m := range w.machines {
		if m.shutsDown && m.slow != "" && vmOf(m.name) == vm && w.entry(m, volumeOf(disk)) == apiv1.PhaseUnstaging {
			w.broken("a flush is cut off: %s is detached by force from %s, which shuts down in good order", volumeOf(disk), m.name)
		}
	}
}

// attachAgain makes a person detach a disk that is in use, and another pod come to the machine, so
// that the volume is staged in place when the disk is attached again: under the same epoch, and by
// another path.
func (w *world) attachAgain(v *volumeModel, m *machine) {
	w.detachManually(m, v)
	if w.within(time.Minute, func() bool { return !m.writes(v.name) }) && w.takesPods(m) {
		w.addPod(v, m)
	}
}

// giveUpPod makes a pod start while many requests to the API server and to Azure fail, and deletes
// it as soon as its volume is mounted and a call has failed.
func (w *world) giveUpPod(v *volumeModel, m *machine) {
	w.note("trouble while a pod of %s starts on %s", v.name, m.name)
	w.addPod(v, m)
	l := m.kubelet.volume(v)
	for end := w.now().Add(time.Minute); w.violation == "" && w.now().Before(end) &&
		(l.busy || l.failures == 0 || !m.mounted(v.name)); w.step() {
		// Until it is mounted no request fails.
		if w.trouble = 0; m.mounted(v.name) {
			w.trouble = 60
		}
	}
	w.trouble = 0
	for _, p := range w.podsOf(v) {
		if !p.deleting {
			w.endPodModel(p)
		}
	}
}

// forgetUnstage makes a pod end while a mount namespace keeps its volume mounted, and restarts the
// kubelet after the NodeUnstageVolume that failed, or before it.
func (w *world) forgetUnstage(v *volumeModel, m *machine) {
	w.addPod(v, m)
	l := m.kubelet.volume(v)
	w.within(time.Minute, func() bool { return l.device == mounted && !l.busy })
	if staged, found := m.mounts[m.staging(v.name)]; found && staged.FSType != "" {
		w.note("a mount namespace on %s keeps %s mounted while its pod ends", m.name, v.name)
		m.leaks = append(m.leaks, leak{path: staged.Source, volume: v.name})
	}
	for _, p := range w.podsOf(v) {
		w.endPodModel(p)
	}
	early := w.random.IntN(2) == 0
	if w.within(time.Minute, func() bool {
		return (early || l.failures > 0) && len(w.podsOf(v)) == 0 && !m.kubelet.calls() && w.entry(m, v.name) != ""
	}) {
		w.note("the kubelet of %s starts, and has forgotten %s", m.name, v.name)
		m.kubelet.start()
	}
	m.leaks = nil
}

// lateCall sends a node plug-in a call to stage a volume of several nodes after the proof that it
// is unused there, once for each volume and node.
func (c *kubernetes) lateCall(v *volumeModel, m *machine) {
	key := v.name + " late on " + m.name
	a := c.w.attachment(v.name, m.name)
	if !c.w.scenes || !m.on || a == nil || !ownership.HasProof(a) || c.calls[key] != nil {
		return
	}
	c.do(key, func() *call { return c.w.stage(m, v, callTimeout/3) })
}

// adopt makes all staged volumes look as if the V1 driver had staged them, so that the driver
// adopts them. The mount namespace of a container that is older than that often keeps a volume
// mounted until the container ends.
func (w *world) adopt() {
	for _, m := range w.machines {
		for _, v := range w.volumes {
			staged, found := m.mounts[m.staging(v.name)]
			if !found || !m.forgetRecord(v) || w.random.IntN(4) == 0 {
				continue
			}
			ends := w.now().Add(time.Duration(1+w.random.IntN(60)) * time.Second)
			w.note("a mount namespace on %s keeps %s mounted until %s", m.name, v.name, ends.Sub(w.began))
			m.leaks = append(m.leaks, leak{path: staged.Source, volume: v.name, ends: ends})
		}
	}
}
