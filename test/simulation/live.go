package simulation

import (
	"math/rand/v2"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// live is the middle of a history: operations and faults, with some steps after each.
func (w *world) live() {
	for range 30 + w.random.IntN(31) {
		w.act()
		if w.edits {
			w.moments = append(w.moments, w.store.Now())
		}
		w.lie()
		w.edit()
		w.restoreAll()
		if w.faults && w.random.IntN(10) == 0 {
			w.nodeFault(w.user())
		}
		if w.openers && w.random.IntN(4) == 0 {
			m, v := w.user()
			m.openOrNot(v)
		}
		if w.pauses && w.random.IntN(8) == 0 {
			w.stall(pick(w.random, w.hosts()))
		}
		for range w.random.IntN(25) {
			if w.violation != "" {
				return
			}
			w.step()
		}
		if w.random.IntN(4) == 0 {
			w.pass(time.Duration(w.random.IntN(4000)) * time.Millisecond)
			w.check()
		}
	}
}

// user returns a volume and the machine that owns it, or any machine if none does.
func (w *world) user() (*machine, *volumeModel) {
	m, v := pick(w.random, w.machines), pick(w.random, w.volumes)
	if o := w.volume(v.name); o != nil && o.Status.Primary != nil && o.Status.Primary.NodeName != "" {
		m = w.machine(o.Status.Primary.NodeName)
	}
	return m, v
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// alive returns a process that serves.
func (w *world) alive() *process {
	if p := pick(w.random, w.processes); !p.dead {
		return p
	}
	for _, p := range w.processes {
		if !p.dead {
			return p
		}
	}
	return nil
}

func (w *world) leader() *process {
	for _, p := range w.processes {
		if p.leads && !p.dead && p.deposed.IsZero() {
			return p
		}
	}
	return nil
}

// act does one thing that users, hardware or bad luck do.
func (w *world) act() {
	if w.kubelets {
		w.actOnPods()
		return
	}
	v, m, p := pick(w.random, w.volumes), pick(w.random, w.hosts()), w.alive()
	// Where something can happen.
	if object := w.volume(v.name); object != nil && object.Status.Primary != nil && object.Status.Primary.NodeName != "" &&
		w.random.IntN(2) == 0 {
		m = w.machine(object.Status.Primary.NodeName)
	}
	if shares := w.attachments(v.name); v.several && len(shares) > 0 && w.random.IntN(4) > 0 {
		m = w.machine(pick(w.random, shares).Spec.NodeName)
	}
	if m == w.liar {
		m = w.machines[0]
	}
	timeout := time.Duration(1+w.random.IntN(15)) * time.Second
	switch n := w.random.IntN(100); {
	case n < 22:
		switch {
		case w.byPods && m.on:
			w.usePod(m, v)
		case !w.byPods && p != nil:
			w.publish(p, v, m.name, timeout)
		}
	case n < 42:
		if m.on {
			w.usePod(m, v)
			w.stage(m, v, timeout)
		}
	case n < 52:
		if m.on {
			w.unstage(m, v, timeout)
		}
	case n < 70:
		switch {
		case w.byPods:
			w.endPod(m, v)
		case p != nil:
			w.unpublish(p, v, m.name, timeout)
		}
	case n < 75:
		w.loseUser()
	case n < 81:
		if p != nil {
			w.change(p, v, timeout)
		}
	default:
		w.misfortune(m)
	}
}

// actOnPods does one thing in a history with kubelets.
func (w *world) actOnPods() {
	m := pick(w.random, w.machines)
	if v := w.volume(pick(w.random, w.volumes).name); v != nil && v.Status.Primary != nil && v.Status.Primary.NodeName != "" &&
		w.random.IntN(2) == 0 {
		m = w.machine(v.Status.Primary.NodeName)
	}
	switch n := w.random.IntN(100); {
	case n < 70:
		w.usePods()
	case n < 75:
		w.loseUser()
	case n < 79:
		if p := w.alive(); p != nil {
			w.change(p, pick(w.random, w.volumes), 15*time.Second)
		}
	case n < 87:
		w.kubeletFails(m)
	default:
		w.misfortune(m)
	}
}

// kubeletFails restarts a kubelet, or ends it for some time.
func (w *world) kubeletFails(m *machine) {
	k := m.kubelet
	switch {
	case !m.on:
	case !k.dead.IsZero() || k.mayDie() && w.random.IntN(2) == 0:
		w.note("the kubelet of %s starts", m.name)
		k.start()
	case k.mayDie():
		k.die()
	}
}

// loseUser takes a machine away that writes to a volume, for long enough to be noticed, and has the
// volume unpublished, as Kubernetes would.
func (w *world) loseUser() {
	v := pick(w.random, w.volumes)
	writers := w.writers(v.name)
	if len(writers) == 0 || w.apiDown {
		return
	}
	m := w.machine(writers[0])
	if w.hibernates && w.random.IntN(2) == 0 && !m.unreported {
		w.hibernate(m)
	} else if w.random.IntN(3) == 0 {
		m.die()
	} else {
		m.setCutOff(true)
	}
	for end := w.now().Add(time.Duration(12+w.random.IntN(12)) * time.Second); w.violation == "" && w.now().Before(end); {
		w.step()
	}
	if m.on && w.random.IntN(2) == 0 {
		m.setCutOff(false)
		w.nextPodOn(v, m)
	}
	if p := w.alive(); p != nil && !w.byPods && !w.kubelets {
		w.unpublish(p, v, m.name, 15*time.Second)
	}
}

func (w *world) machine(name string) *machine {
	for _, m := range w.machines {
		if m.name == name {
			return m
		}
	}
	return w.machines[0]
}

// misfortune is a fault, or the end of one.
func (w *world) misfortune(m *machine) {
	switch n := w.random.IntN(30); {
	case n < 6:
		w.crash()
	case n < 7:
		w.changeLeader()
	case n < 8 && w.overlaps:
		w.overlap()
	case n < 8:
	case n < 11:
		w.power(m)
	case n < 13:
		w.azurePower(m)
	case n < 15:
		if m.on { // a reboot
			m.die()
			m.boot()
		}
	case n < 19:
		if m.on {
			m.setCutOff(!m.cutOff)
		}
	case n < 23:
		w.trouble = pick(w.random, []int{0, 0, 5, 30})
		w.note("trouble: %d %%", w.trouble)
	case n < 25:
		w.apiDown = !w.apiDown
		w.note("API server down: %t", w.apiDown)
	case n < 28:
		if m.on && m.frozen == nil {
			w.note("the plug-in of %s is killed", m.name)
			m.stopPlugin()
			m.startPlugin()
		}
	default:
		p := pick(w.random, w.processes)
		p.paused = !p.paused && !p.dead
		w.note("%s is paused: %t", p.name, p.paused)
	}
}

// crash kills a process, or starts those that were killed.
func (w *world) crash() {
	for _, p := range w.processes {
		if p.dead {
			w.must(p.start())
			w.elect()
			return
		}
	}
	pick(w.random, w.processes).stop()
	w.elect()
}

// elect makes a process lead if none does. An API server is needed for that.
func (w *world) elect() {
	if w.leader() != nil {
		return
	}
	for _, p := range w.processes {
		if !p.dead && !p.leads {
			w.must(p.lead())
			return
		}
	}
}

// changeLeader takes the lease from the leader, which ends itself, as controller-runtime has it.
func (w *world) changeLeader() {
	p := w.leader()
	if p == nil {
		w.elect()
		return
	}
	p.stop()
	w.elect()
	w.must(p.start())
	w.elect()
}

// power cuts the power of a machine, which Azure does not notice at first, or gives it back.
func (w *world) power(m *machine) {
	if m.on {
		m.die()
		return
	}
	w.cloud.SetPower(vmOf(m.name), provisioner.PowerRunning)
	if m.asleep != nil {
		m.wake()
		return
	}
	m.boot()
}

// azurePower stops or hibernates a VM at Azure, or starts it.
func (w *world) azurePower(m *machine) {
	if m.on && w.hibernates && w.random.IntN(2) == 0 && !m.unreported {
		w.hibernate(m)
		return
	}
	if m.on {
		w.switchOff(m, pick(w.random, []provisioner.PowerState{provisioner.PowerStopped, provisioner.PowerDeallocated}))
		return
	}
	w.power(m)
}

// switchOff makes Azure stop or deallocate a VM.
func (w *world) switchOff(m *machine, power provisioner.PowerState) {
	m.die()
	w.note("Azure stops %s", m.name)
	w.cloud.SetPower(vmOf(m.name), power)
	if power == provisioner.PowerDeallocated {
		w.forgetDeallocated(m)
	}
}
