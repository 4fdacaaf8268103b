package simulation

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Faults of one node: a disk that a person detaches, so that its LUN becomes another disk's; a
// mount namespace that keeps a filesystem mounted; a volume that another driver staged, for which
// there is no record.

// leak is a device that a mount namespace on the machine keeps mounted, and can write to.
type leak struct {
	path, volume string
	// file leaks are files of a process outside of the pod, or loop devices: they do not hold the
	// device.
	file bool
	// ends is when the namespace ends; zero if only a fault, or the end of all faults, ends it.
	ends time.Time
}

func (m *machine) ended(l leak) bool { return !l.ends.IsZero() && !l.ends.After(m.w.now()) }

// nodeFault causes one of these faults.
func (w *world) nodeFault(m *machine, v *volumeModel) {
	switch w.random.IntN(3) {
	case 0:
		w.detachManually(m, v)
	case 1:
		m.leakOrNot(v)
	default:
		m.forgetRecord(v)
	}
}

// detachManually makes a person detach a disk at Azure, in the portal.
func (w *world) detachManually(m *machine, v *volumeModel) {
	vm, disk := vmOf(m.name), diskOf(v.name)
	if _, attached := w.azure.holds(vm, disk); !attached || !w.azure.free(vm, disk, false, false) {
		return
	}
	op, err := w.cloud.Attachments().Detach(context.Background(), vm, disk)
	if err != nil {
		return
	}
	w.note("a person detaches %s from %s manually", v.name, m.name)
	w.mislaid = w.mislaid || m == w.liar
	w.byPerson[m.name+" "+disk] = true
	w.azure.changed = true
	w.azure.operations[op.Token()] = &began{
		vm:   vm,
		disk: disk,
		ends: w.now().Add(w.latency.Detach),
	}
}

// leakOrNot makes a new mount namespace copy the mounts of a volume, or ends the existing ones.
func (m *machine) leakOrNot(v *volumeModel) {
	if len(m.leaks) > 0 {
		m.w.note("the leaked mounts of %s go", m.name)
		m.leaks = nil
		return
	}
	for _, target := range m.targets() {
		if mount := m.mounts[target]; mount.volume == v.name && mount.FSType != "" {
			m.w.note("a mount namespace on %s keeps %s mounted", m.name, v.name)
			m.leaks = append(m.leaks, leak{path: mount.Source, volume: v.name})
			return
		}
	}
}

// openOrNot makes a process outside of the pod open the device of a volume that is staged, or ends
// the existing ones. The process writes whenever it can.
func (m *machine) openOrNot(v *volumeModel) {
	if len(m.leaks) > 0 && m.w.random.IntN(3) == 0 {
		m.w.note("the leaked files of %s go", m.name)
		m.leaks = nil
		return
	}
	record, found, err := m.records.Get(v.name)
	d := m.devices[record.Device]
	if err != nil || !found || !m.on || record.BootID != m.bootID() || d == nil || d.cut || volumeOf(d.disk) != v.name ||
		m.w.entry(m, v.name) != apiv1.PhaseStaged {
		return
	}
	m.w.note("a process on %s keeps %s of %s open", m.name, d.path, v.name)
	m.leaks = append(m.leaks, leak{path: d.path, volume: v.name, file: true})
}

// targets are what is mounted, in a fixed order.
func (m *machine) targets() []string {
	var targets []string
	for target := range m.mounts {
		targets = append(targets, target)
	}
	slices.Sort(targets)
	return targets
}

// forgetRecord makes a staged volume look as if the V1 driver had staged it: it has a mount and the
// kubelet's file beside it, and no record. It returns whether it did.
func (m *machine) forgetRecord(v *volumeModel) bool {
	record, found, err := m.records.Get(v.name)
	if _, staged := m.mounts[m.staging(v.name)]; err != nil || !found || !staged || record.Block || record.Formatting != nil ||
		!m.on {
		return false
	}
	m.w.note("%s forgets that it staged %s itself", m.name, v.name)
	m.stopPlugin()
	m.w.must(m.records.Delete(v.name))
	file := filepath.Join(filepath.Dir(m.staging(v.name)), "vol_data.json")
	m.w.must(os.MkdirAll(filepath.Dir(file), 0o700))
	data, err := json.Marshal(map[string]string{"volumeHandle": diskOf(v.name), "driverName": driverName})
	m.w.must(err)
	m.w.must(os.WriteFile(file, data, 0o600))
	m.startPlugin()
	return true
}

// overlap makes a standby take the lease from a leader that runs on for a while, as it does when it
// judges the leader's own node Lost.
func (w *world) overlap() {
	old := w.leader()
	for _, p := range w.processes {
		if old == nil || p == old || p.dead || p.leads || w.apiDown {
			continue
		}
		w.note("%s takes the lease from %s, which runs on", p.name, old.name)
		old.deposed = w.now().Add(time.Duration(w.random.IntN(20000)) * time.Millisecond)
		if w.random.IntN(2) == 0 {
			old.paused = true // it holds what it was about to do, and does it later
		}
		w.must(p.lead())
		return
	}
}

// endOverlap ends a leader that has lost the lease.
func (w *world) endOverlap() {
	for _, p := range w.processes {
		switch {
		case p.deposed.IsZero() || p.dead:
		case p.deposed.Before(w.now()):
			p.deposed = time.Time{}
			p.stop()
			w.must(p.start())
			w.elect()
		case p.paused && w.random.IntN(20) == 0:
			p.paused = false
		}
	}
}
