package simulation

import (
	"slices"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// SwitchedOffUnseen: Azure does not tell the controller about nodes that have no primary.
const SwitchedOffUnseen Mutant = "switched-off nodes are not seen"

// playNight switches all machines off at Azure except two, as an autoscaler does for a night, in a
// world that has settled. Then one of the two loses its power, and the other one must get its
// volumes although so few nodes are left. In some of the nights the leader changes before that.
func (w *world) playNight(c *kubernetes) {
	if !w.nights {
		return
	}
	for _, v := range w.volumes {
		m, next := w.machine(v.want), pick(w.random, w.hosts())
		off := slices.DeleteFunc(slices.Clone(w.hosts()), func(o *machine) bool { return o == m || o == next })
		if v.want == "" || next == m || len(off) == 0 || !w.allWell() || slices.ContainsFunc(w.machines, w.severalOn) {
			continue
		}
		w.note("%s and %s are to run for a night", m.name, next.name)
		w.until("every volume leaves the machines of the day", patience, func() string { w.move(off, next); return c.place() })
		for _, o := range off {
			w.switchOff(o, provisioner.PowerDeallocated)
			w.stepFor(time.Duration(w.random.IntN(90)) * time.Second)
		}
		w.stepFor(2 * time.Minute)
		if w.random.IntN(2) == 0 {
			w.replaceLeader()
		}
		m.die()
		w.move([]*machine{m}, next)
		w.until("a volume leaves a machine that dies while others are switched off", patience, c.place)
		for _, o := range append(off, m) {
			w.power(o)
		}
		w.until("every volume is where it is wanted in the morning", patience, c.place)
		return
	}
}

// move makes the volumes that are wanted on some machines be wanted on another one.
func (w *world) move(from []*machine, to *machine) {
	for _, v := range w.volumes {
		if slices.ContainsFunc(from, func(m *machine) bool { return m.name == v.want }) {
			v.want = to.name
		}
	}
}

// unseen reports whether a mutant hides a VM from the controller.
func (i azureInstances) unseen(vm string) bool {
	return i.w.options.Mutant == SwitchedOffUnseen && !slices.ContainsFunc(i.w.attachments(""),
		func(a *apiv1.AzVolumeAttachment) bool {
			return a.Spec.Role == apiv1.RolePrimary && vmOf(a.Spec.NodeName) == vm
		})
}
