package simulation

import (
	"slices"
	"sync"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// States are the distinct states that histories have reached. Several may add to it at once.
//
// A state is what the protocol of one volume and one machine can tell apart: the ownership, and the
// machine's attachment, its entry in the report, the disk at Azure, what the kernel has mounted, and
// whether the machine is on, in touch, ready and wanted. Of the other machines it has only how many
// have the disk, or use it. Names, epochs and times are left out.
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

// Share returns how many states are known, and which part of them, in percent, the last histories have
// added: 100 if there were no earlier ones.
func (s *States) Share(last int) (known int, percent float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known = len(s.seen)
	if len(s.after) <= last {
		return known, 100
	}
	return known, 100 * float64(known-s.after[len(s.after)-last-1]) / float64(max(known, 1))
}

// reach notes the states of the volumes after a step.
func (w *world) reach() {
	leaders := 0
	for _, p := range w.processes {
		if p.leads && !p.dead {
			leaders++
		}
	}
	for _, v := range w.volumes {
		record := w.volume(v.name)
		attached, using := 0, 0
		for _, m := range w.machines {
			if w.attachedTo(v, m) {
				attached++
			}
			if m.mounted(v.name) {
				using++
			}
		}
		for _, m := range w.machines {
			var b bits
			b.is(record != nil, record != nil && record.DeletionTimestamp != nil, w.apiDown, v.several,
				w.elsewhere != nil && w.elsewhere.volume == v.name, leaders > 0, leaders > 1, attached > 0, attached > 1,
				using > 0, using > 1)
			w.stateAt(&b, v, ownershipOf(record), m)
			w.reached[b.code] = struct{}{}
		}
	}
}

func (w *world) attachedTo(v *volumeModel, m *machine) bool {
	_, attached := w.azure.holds(vmOf(m.name), diskOf(v.name))
	return attached
}

// stateAt adds the part of a volume's state that is a machine's.
func (w *world) stateAt(b *bits, v *volumeModel, owner apiv1.Ownership, m *machine) {
	b.is(m.on, m.cutOff, m.frozen != nil, m.asleep != nil, m.plugin == nil || m.plugin.dead, w.attachedTo(v, m),
		m.mounted(v.name), m.writes(v.name), v.want == m.name || slices.Contains(v.wants, m.name))
	b.one(string(m.told), "True", "False", "Unknown")
	b.one(string(owner.State), string(apiv1.OwnershipHeld), string(apiv1.OwnershipReleasing), string(apiv1.OwnershipReleased))
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
