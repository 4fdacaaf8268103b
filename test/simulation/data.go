package simulation

import (
	"math"
	"math/rand/v2"

	"github.com/anishathalye/porcupine"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Data: what pods write to a filesystem and read from it. A volume is a register: a pod writes a
// number into the page cache of its machine, and the kernel writes it to the disk at some time, at a
// sync, at an unmount or at a flush. At the end porcupine tells whether the reads and the writes of a
// volume can have happened in one order. So no write that was acknowledged is lost, and none reaches
// the disk after the proof that its machine cannot write.

// data are the disks, and what was done with them.
type data struct {
	// random has numbers of its own, so that the histories do not depend on it.
	random *rand.Rand
	// on are the numbers on the disks, by volume.
	on map[string]int
	// transfers by volume, in the order in which they began.
	transfers map[string][]*transfer
	last      int
	time      int64
}

// transfer is a read, or a write of one number.
type transfer struct {
	machine string
	number  int
	read    bool
	began   int64
	ended   int64 // 0 while it goes on
	// unfinished says that its page will not reach the disk, maybe, that it has reached it or not.
	unfinished, maybe bool
}

func newData(seed uint64) *data {
	return &data{random: rand.New(rand.NewPCG(seed, 1)), on: map[string]int{}, transfers: map[string][]*transfer{}}
}

func (d *data) now() int64 { d.time++; return d.time }

// use lets a pod write, or a kernel write back, after a step.
func (w *world) use() {
	random := w.data.random
	if random.IntN(4) != 0 {
		return
	}
	m := pick(random, w.machines)
	if len(m.mounts) == 0 || !m.on || m.frozen != nil {
		return
	}
	mount := m.mounts[pick(random, m.targets())]
	dev, v := m.devices[mount.Source], w.model(mount.volume)
	if mount.FSType == "" || dev == nil || v.several {
		return
	}
	switch random.IntN(6) {
	case 0:
		w.data.writeBack(m, dev, false)
	case 1:
		w.data.writeBack(m, dev, true) // the pod calls fsync
	default:
		if m.kubelet == nil || m.kubelet.runs(v) {
			w.data.write(m.name, v.name, dev)
		}
	}
}

// write puts a number into the page cache. A pod waits for the end of its last write.
func (d *data) write(machine, volume string, dev *device) {
	if dev.page != nil {
		return
	}
	d.last++
	dev.page = &transfer{machine: machine, number: d.last, began: d.now()}
	d.transfers[volume] = append(d.transfers[volume], dev.page)
}

// writeBack writes the page cache to the disk, if that takes it, and ends the write if a process
// waits for that.
func (d *data) writeBack(m *machine, dev *device, acknowledge bool) {
	if dev.page == nil || !m.works(dev.path) || dev.protected {
		return
	}
	d.on[volumeOf(dev.disk)] = dev.page.number
	if acknowledge {
		dev.page.acknowledge(d)
		dev.page = nil
	}
}

func (o *transfer) acknowledge(d *data) {
	if o.ended == 0 {
		o.ended = d.now()
	}
}

// podGone holds that what the pods of a machine have written to a volume is on the disk before the
// object of the last of them is gone, because the machine may be deleted then (ADR 0057).
func (d *data) podGone(m *machine, v *volumeModel) {
	for _, target := range m.targets() {
		dev := m.devices[m.mounts[target].Source]
		if m.mounts[target].volume == v.name && dev != nil && dev.page != nil && m.works(dev.path) {
			dev.page.acknowledge(d)
		}
	}
}

// unmount writes the page cache back, or drops it if the disk does not take it.
func (d *data) unmount(m *machine, dev *device) {
	d.writeBack(m, dev, true)
	if dev.page != nil && !m.works(dev.path) {
		dev.lose()
		dev.page = nil
	}
}

// lose says that what waits for the disk will not reach it.
func (dev *device) lose() {
	if dev.page != nil {
		dev.page.unfinished = true
	}
}

// read is what a filesystem that is mounted again has.
func (d *data) read(dev *device) {
	volume := volumeOf(dev.disk)
	d.transfers[volume] = append(d.transfers[volume],
		&transfer{read: true, number: d.on[volume], began: d.now(), ended: d.now()})
}

// end ends the writes of a machine that has released a volume: those that it has flushed are on the
// disk, and those of a machine that was fenced are or are not, and do not come later.
func (d *data) end(volume, machine string, kind apiv1.ProofType) {
	for _, o := range d.transfers[volume] {
		if o.machine == machine && o.ended == 0 {
			o.ended, o.maybe = d.now(), kind != apiv1.ProofUnstaged || o.unfinished
		}
	}
}

// register is a number that reads return as the last write left it.
var register = porcupine.NondeterministicModel{
	Init: func() []any { return []any{0} },
	Step: func(state, input, output any) []any {
		o := input.(*transfer)
		switch {
		case o.read && o.number == state:
			return []any{state}
		case o.read:
			return nil
		case o.maybe || o.ended == 0:
			return []any{state, o.number}
		}
		return []any{o.number}
	},
	Equal: func(a, b any) bool { return a == b },
}

// kept reports whether the reads and writes of a volume can have happened in one order.
func (d *data) kept(volume string) bool {
	all := make([]porcupine.Operation, len(d.transfers[volume]))
	for i, o := range d.transfers[volume] {
		all[i] = porcupine.Operation{ClientId: i, Input: o, Call: o.began, Return: o.ended}
		if o.ended == 0 {
			all[i].Return = math.MaxInt64
		}
	}
	return porcupine.CheckOperations(register.ToModel(), all)
}

// dataIsKept holds that each volume is a register, unless a person has edited its objects.
func (w *world) dataIsKept() {
	for _, v := range w.volumes {
		if !v.edited && !w.data.kept(v.name) {
			w.broken("data: no order of the reads and writes of %s explains what was read", v.name)
		}
	}
}
