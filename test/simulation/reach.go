package simulation

import (
	"hash/fnv"
	"slices"
	"sync"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// States are the distinct states that histories have reached. Several may add to it at once.
//
// A state is what the protocol of one volume can tell apart: the ownership, and of each machine its
// attachment, its entry in the report, the disk at Azure, what its kernel has mounted, and whether it
// is on, in touch, ready and wanted. Names, epochs, times and the order of the machines are left out.
type States struct {
	mu   sync.Mutex
	seen map[uint64]struct{}
	// after is how many states were known after each history.
	after []int
}

// add adds what a history has reached.
func (s *States) add(reached map[uint64]struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[uint64]struct{}{}
	}
	for state := range reached {
		s.seen[state] = struct{}{}
	}
	s.after = append(s.after, len(s.seen))
}

// Count returns how many states are known, and how many of them the last histories have added.
func (s *States) Count(last int) (known, added int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.after); n > last {
		return len(s.seen), len(s.seen) - s.after[n-last-1]
	}
	return len(s.seen), len(s.seen)
}

// reach notes the states of the volumes after a step.
func (w *world) reach() {
	for _, v := range w.volumes {
		w.reached[w.state(v)] = struct{}{}
	}
}

// state is the state of a volume.
func (w *world) state(v *volumeModel) uint64 {
	record := w.volume(v.name)
	var codes []uint64
	for _, m := range w.machines {
		codes = append(codes, w.stateAt(v, record, m))
	}
	slices.Sort(codes)
	var b bits
	b.is(record != nil, record != nil && record.DeletionTimestamp != nil, w.apiDown, v.several,
		w.elsewhere != nil && w.elsewhere.volume == v.name)
	b.one(string(ownershipOf(record).State), string(apiv1.OwnershipHeld), string(apiv1.OwnershipReleasing),
		string(apiv1.OwnershipReleased))
	leaders := 0
	for _, p := range w.processes {
		if p.leads && !p.dead {
			leaders++
		}
	}
	b.is(leaders > 0, leaders > 1)
	hash := fnv.New64a()
	for _, code := range append(codes, b.code) {
		for i := range 8 {
			_, _ = hash.Write([]byte{byte(code >> (8 * i))})
		}
	}
	return hash.Sum64()
}

// stateAt is the part of a volume's state that is a machine's.
func (w *world) stateAt(v *volumeModel, record *apiv1.AzVolume, m *machine) uint64 {
	var b bits
	_, attached := w.azure.holds(vmOf(m.name), diskOf(v.name))
	b.is(m.on, m.cutOff, m.frozen != nil, m.asleep != nil, m.plugin == nil || m.plugin.dead, attached, m.mounted(v.name),
		m.writes(v.name), v.want == m.name || slices.Contains(v.wants, m.name))
	b.one(string(m.told), "True", "False", "Unknown")
	owner := ownershipOf(record)
	b.is(owner.NodeName == m.name)
	var own apiv1.AzVolumeAttachment
	for _, a := range w.attachments(v.name) {
		if a.Spec.NodeName == m.name {
			own = *a
		}
	}
	b.is(own.Name != "", own.Spec.Role == apiv1.RolePrimary, own.DeletionTimestamp != nil, own.Spec.Epoch == owner.Epoch)
	b.one(string(own.Status.State), string(apiv1.AttachmentPending), string(apiv1.AttachmentAttaching),
		string(apiv1.AttachmentAttached), string(apiv1.AttachmentFailed), string(apiv1.AttachmentDetaching),
		string(apiv1.AttachmentDetachFail))
	var entry apiv1.StagedVolume
	if d := w.report(m); d != nil {
		is := func(e apiv1.StagedVolume) bool { return e.VolumeName == v.name }
		if i := slices.IndexFunc(d.Status.StagedVolumes, is); i >= 0 {
			entry = d.Status.StagedVolumes[i]
		}
	}
	b.is(entry.VolumeName != "", entry.Epoch == owner.Epoch)
	b.one(string(entry.Phase), string(apiv1.PhaseStaging), string(apiv1.PhaseStaged), string(apiv1.PhaseUnstaging))
	return b.code
}

// ownershipOf is the ownership of a volume, empty if there is none.
func ownershipOf(record *apiv1.AzVolume) apiv1.Ownership {
	if record == nil || record.Status.Primary == nil {
		return apiv1.Ownership{}
	}
	return *record.Status.Primary
}

// bits is a code that is composed of facts.
type bits struct{ code uint64 }

func (b *bits) is(facts ...bool) {
	for _, fact := range facts {
		b.code <<= 1
		if fact {
			b.code |= 1
		}
	}
}

// one adds which of the values it is; 0 if it is another one.
func (b *bits) one(value string, of ...string) {
	b.code = b.code<<3 | uint64(slices.Index(of, value)+1)
}
