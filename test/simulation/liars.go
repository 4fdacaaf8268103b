package simulation

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// A liar is a machine whose token is in wrong hands: an attacker writes false reports into the
// machine's own AzDriverNode, which is all that the token allows. No pod is put on a liar, so that
// every volume is one of other nodes, and every law holds for all volumes as it does without a
// liar. The simulation does not check a volume that is published to the liar: the liar can write to
// it, and can report that it does not.

// hosts are the machines that pods are put on.
func (w *world) hosts() []*machine {
	if w.liar == nil {
		return w.machines
	}
	return w.machines[:len(w.machines)-1]
}

// spec is what the node plug-in of a machine says of itself.
func (m *machine) spec() apiv1.AzDriverNodeSpec {
	spec := apiv1.AzDriverNodeSpec{
		VMID:     vmOf(m.name),
		VMSize:   vmSize,
		Location: location,
		Zone:     "1",
	}
	if m.pretends != nil {
		spec.VMID = vmOf(m.pretends.name)
	}
	return spec
}

// lie has the liar write something that is not so.
func (w *world) lie() {
	m := w.liar
	if m == nil || !m.on || m.cutOff || w.apiDown || w.random.IntN(4) > 0 {
		return
	}
	if w.random.IntN(5) == 0 {
		m.pretends = pick(w.random, w.machines)
		w.note("%s says from now on that it is the VM of %s", m.name, m.pretends.name)
		m.stopPlugin()
		m.startPlugin()
		return
	}
	d := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: m.name}}
	if w.store.Get(client.ObjectKeyFromObject(d), d) != nil {
		return
	}
	v := pick(w.random, w.volumes)
	what := ""
	if w.pauses && w.random.IntN(4) == 0 {
		w.note("%s lies: Azure freezes it for ever", m.name)
		d.Status.Maintenance = &apiv1.NodeMaintenance{Events: []apiv1.MaintenanceEvent{{
			EventID: "invented", Type: apiv1.MaintenanceFreeze, Started: true,
		}}}
		w.must(w.store.Update(d, true))
		return
	}
	switch w.random.IntN(8) {
	case 0:
		other := pick(w.random, w.machines)
		what, d.Spec.VMID = "the VM of "+other.name, vmOf(other.name)
		w.must(w.store.Update(d, false))
	case 1:
		what, d.Status.StagedVolumes = "no volumes", nil
	case 2, 3, 4:
		what, d.Status.StagedVolumes = v.name+" in use", []apiv1.StagedVolume{w.inventedEntry(v)}
	case 5:
		what, d.Status.MountsScannedTime, d.Status.BootID = "no scan", nil, "another boot"
	case 6:
		what, d.Status.HeartbeatPeriodSeconds = "heartbeats for ever", 1<<30
		d.Status.HeartbeatTime = &metav1.MicroTime{Time: w.now().Add(1000 * time.Hour)}
	default:
		what, d.Status.Capacity = "room for many disks", &apiv1.NodeCapacity{MaxDataDisks: 64, VMSize: vmSize}
	}
	w.note("%s lies: %s", m.name, what)
	w.must(w.store.Update(d, true))
}

// endLies makes a person repair the liar whose attachments were edited, or whose disks were
// detached at Azure. The driver asks Azure nothing about the VM of a node that is not believed (ADR
// 0013): what only the answer of Azure about that VM shows is not noticed until the node is
// believed again.
func (w *world) endLies() {
	m := w.liar
	if m == nil || !w.mislaid {
		return
	}
	w.note("a person repairs %s", m.name)
	m.pretends = nil
	if !m.on {
		w.power(m)
		return
	}
	m.stopPlugin()
	m.startPlugin()
}

// inventedEntry is of a volume that the liar does not hold.
func (w *world) inventedEntry(v *volumeModel) apiv1.StagedVolume {
	entry := apiv1.StagedVolume{
		VolumeName:  v.name,
		Epoch:       int64(w.random.IntN(4)),
		Phase:       pick(w.random, []apiv1.StagePhase{apiv1.PhaseStaging, apiv1.PhaseStaged, apiv1.PhaseUnstaging}),
		Device:      "/dev/sdz",
		SizeBytes:   1 << uint(w.random.IntN(50)),
		StagingPath: "/nowhere",
		Filesystem:  &apiv1.FilesystemRecord{Type: "xfs", UUID: "invented"},
	}
	if o := w.volume(v.name); o != nil && o.Status.Primary != nil && w.random.IntN(2) == 0 {
		entry.Epoch = o.Status.Primary.Epoch
	}
	return entry
}
