package simulation

import (
	"context"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// wakes is how a machine that is hibernated is reported by Azure: as Azure's own hibernation, or as
// the stop of a VM whose guest hibernates by itself.
type wakes struct {
	// deallocatedUntil is until when Azure reports the VM as deallocated, before it reports it as
	// hibernated; zero for never.
	deallocatedUntil time.Time
}

// hibernate takes the power of a machine, which starts again with its mounts and dirty pages.
func (w *world) hibernate(m *machine) {
	m.on, m.silentSince, m.asleep, m.frozen = false, w.now(), &wakes{}, nil
	m.stopPlugin() // what pauses in the middle of a call is another fault
	w.note("%s hibernates", m.name)
	switch w.random.IntN(3) {
	case 0:
		w.note("Azure reports %s as stopped: the guest hibernates by itself", m.name)
		w.cloud.SetPower(vmOf(m.name), provisioner.PowerStopped)
	case 1:
		w.note("Azure reports %s as deallocated at first", m.name)
		m.asleep.deallocatedUntil = w.now().Add(time.Duration(w.random.IntN(10000)) * time.Millisecond)
		w.cloud.SetPower(vmOf(m.name), provisioner.PowerDeallocated)
	default:
		w.cloud.SetPower(vmOf(m.name), provisioner.PowerHibernated)
	}
}

// followHibernation makes Azure report a VM as hibernated after it reported it as deallocated.
func (w *world) followHibernation() {
	for _, m := range w.machines {
		if m.asleep != nil && !m.asleep.deallocatedUntil.IsZero() && !m.asleep.deallocatedUntil.After(w.now()) {
			m.asleep.deallocatedUntil = time.Time{}
			w.note("Azure reports %s as hibernated", m.name)
			w.cloud.SetPower(vmOf(m.name), provisioner.PowerHibernated)
		}
	}
}

// endedAsleep holds: the pods of other drivers are not ended on a machine that Azure reports as stopped,
// and that continues with them.
func (w *world) endedAsleep(before *corev1.Node, changed any) {
	m := w.machine(before.Name)
	after, stays := changed.(*corev1.Node)
	if !stays || m.asleep == nil || nodehealth.HasTaint(before, corev1.TaintNodeOutOfService) ||
		!nodehealth.HasTaint(after, corev1.TaintNodeOutOfService) {
		return
	}
	vm, err := w.cloud.Instances().Get(context.Background(), vmOf(m.name))
	if err == nil && vm.Power == provisioner.PowerStopped {
		w.broken("%s is out of service, although it only hibernates", m.name)
	}
}

// wake gives a machine that is hibernated its power back.
func (m *machine) wake() {
	m.w.note("%s wakes up with its mounts", m.name)
	m.asleep, m.on, m.cutOff, m.silentSince = nil, true, false, time.Time{}
	m.w.azure.changed = true
	maps.DeleteFunc(m.w.spared, func(at string, _ bool) bool { return strings.HasPrefix(at, vmOf(m.name)+prefix) })
	m.startPlugin()
}

// playHibernation hibernates the machine of each volume in a world that has settled, for long
// enough that another machine uses the volume if the driver lets it, and wakes it.
func (w *world) playHibernation(c *kubernetes) {
	if !w.hibernates {
		return
	}
	for _, v := range w.volumes {
		m, next := w.machine(v.want), pick(w.random, w.hosts())
		if v.want == "" || next == m || !m.well() || !next.well() {
			continue
		}
		w.note("%s is to be used on %s while %s is hibernated", v.name, next.name, m.name)
		w.hibernate(m)
		v.want = next.name
		w.within(time.Minute, func() bool { return c.place() == "" })
		w.power(m)
		w.until("every volume is where it is wanted after a hibernation", patience, c.place)
	}
}
