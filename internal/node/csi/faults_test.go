package csi_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/faulty"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func (m *machine) mounted(target string) bool {
	m.t.Helper()
	mounts, err := m.host.Mounts().List(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return slices.ContainsFunc(mounts, func(p provisioner.MountPoint) bool { return p.Target == target })
}

// part is a call of a volume's life on a node, and what it is for.
type part struct {
	name string
	// before is what happens before the call.
	before func(m *machine, host *memoryHost)
	call   func(m *machine, s *csinode.Server) error
	// done is nil for a call that only reads.
	done func(m *machine) bool
	// survives are the accesses without which the call succeeds, and has done what it is for.
	survives []string
}

func (p part) isDone(m *machine) bool { return p.done == nil || p.done(m) }

// told are the accesses of NodeUnpublishVolume without which the pod ends: the writes of a disk that fails, and of
// the report, which is written again.
var told = []string{"sync 1", "list guards 1", "patch/status AzDriverNode 1"}

func stagedAs(phase apiv1.StagePhase) func(m *machine) bool {
	return func(m *machine) bool { e := m.entry(); return e != nil && e.Phase == phase }
}

func lifeOf(capability *csi.VolumeCapability) []part {
	unpublished := func(m *machine) bool { return !m.mounted(m.target()) }
	return []part{
		{name: "stage", call: func(m *machine, s *csinode.Server) error { return m.stage(s, capability) },
			done: stagedAs(apiv1.PhaseStaged), survives: []string{"flush 1", "read the reservation 1"}},
		{name: "publish", call: func(m *machine, s *csinode.Server) error { return m.publishVolume(s, capability, false) },
			done: func(m *machine) bool { return m.mounted(m.target()) }, survives: []string{"read 1"}},
		{name: "stats", call: readStats, survives: []string{"read 1"}},
		{name: "health", call: func(m *machine, s *csinode.Server) error {
			_, err := s.NodeGetVolumeHealth(m.t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: volumeID})
			return err
		}, survives: []string{"read 1"}},
		{name: "storage health", call: func(m *machine, s *csinode.Server) error {
			_, err := s.NodeGetStorageHealth(m.t.Context(), &csi.NodeGetStorageHealthRequest{})
			return err
		}, survives: []string{"read 1"}},
		{name: "expand", before: func(_ *machine, host *memoryHost) { host.Size *= 2 },
			call: func(m *machine, s *csinode.Server) error { return m.expand(s, m.target(), 2<<30) },
			done: func(m *machine) bool {
				e := m.entry()
				return e != nil && e.SizeBytes == 2<<30 && m.record().SizeBytes == 2<<30
			}},
		{name: "unpublish", call: func(m *machine, s *csinode.Server) error { return m.unpublishVolume(s) },
			done: unpublished, survives: told},
		{name: "unstage", call: func(m *machine, s *csinode.Server) error { return m.unstage(s) },
			survives: []string{"flush 1", "flush 2"}, done: func(m *machine) bool { return m.entry() == nil }},
	}
}

// lifeAfterAFence is the life of a volume that is staged in place for its second pod.
func lifeAfterAFence(capability *csi.VolumeCapability) []part {
	stage, unstage := lifeOf(capability)[0], lifeOf(capability)[7]
	next := func(m *machine) string { return m.target() + "-next" }
	return []part{
		stage,
		{name: "publish", before: (*machine).fenced,
			call:     func(m *machine, s *csinode.Server) error { return m.publishNext(s, capability) },
			done:     func(m *machine) bool { return m.mounted(next(m)) && m.record().Epoch == 3 },
			survives: []string{"read 1", "read the reservation 1", "flush 1"}},
		{name: "unpublish", call: func(m *machine, s *csinode.Server) error {
			_, err := s.NodeUnpublishVolume(m.t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: volumeID,
				TargetPath: next(m)})
			return err
		}, done: func(m *machine) bool { return !m.mounted(next(m)) }, survives: told},
		unstage,
	}
}

// lifeOfTwo is the life of a volume that two PersistentVolumes name.
func lifeOfTwo(capability *csi.VolumeCapability) []part {
	one := func(m *machine) user { u, _ := m.twoUsers(capability, capability); return u }
	two := func(m *machine) user { _, u := m.twoUsers(capability, capability); return u }
	has := func(path func(m *machine) string) func(m *machine) bool {
		return func(m *machine) bool { e := m.entry(); return e != nil && e.StagingPath == path(m) }
	}
	published := func(of func(*machine) user, want bool) func(m *machine) bool {
		return func(m *machine) bool { return m.mounted(of(m).target) == want }
	}
	return []part{
		{name: "start the first", call: func(m *machine, s *csinode.Server) error { return one(m).start(s) },
			done: published(one, true), survives: []string{"flush 1", "read 1", "read the reservation 1"}},
		{name: "start the second", call: func(m *machine, s *csinode.Server) error { return two(m).start(s) },
			done: published(two, true), survives: []string{"read 2", "read the reservation 1"}},
		{name: "unpublish the first", call: func(m *machine, s *csinode.Server) error { return one(m).unpublished(s) },
			done: published(one, false), survives: told},
		{name: "unstage the first", call: func(m *machine, s *csinode.Server) error { return one(m).unstage(s) },
			done: has(func(m *machine) string { return two(m).staging })},
		{name: "start the first again", call: func(m *machine, s *csinode.Server) error { return one(m).start(s) },
			done: published(one, true), survives: []string{"read 2", "read the reservation 1"}},
		{name: "unpublish both", call: func(m *machine, s *csinode.Server) error {
			if err := one(m).unpublished(s); err != nil {
				return err
			}
			return two(m).unpublished(s)
		}, done: func(m *machine) bool { return published(one, false)(m) && published(two, false)(m) },
			survives: append([]string{"sync 2"}, told...)},
		{name: "unstage both", call: func(m *machine, s *csinode.Server) error {
			if err := one(m).unstage(s); err != nil {
				return err
			}
			return two(m).unstage(s)
		}, survives: []string{"flush 1", "flush 2", "get AzVolume 1", "get AzVolumeAttachment 1"},
			done: func(m *machine) bool { return m.entry() == nil }},
	}
}

// A call one of whose accesses fails returns that failure, or it survives the failure and has done what
// it is for; its repetition succeeds; and then everything ends as without the fault.
func TestACallSurvivesTheFailureOfEachAccess(t *testing.T) {
	t.Parallel()
	ext4, block := mountCapability("ext4"), blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	for name, test := range map[string]struct {
		life   []part
		shared bool
	}{
		"filesystem":                            {life: lifeOf(ext4)},
		"raw block":                             {life: lifeOf(block)},
		"filesystem on a shared disk":           {life: lifeOf(ext4), shared: true},
		"filesystem after a fence":              {life: lifeAfterAFence(ext4)},
		"raw block after a fence":               {life: lifeAfterAFence(block)},
		"filesystem with two PersistentVolumes": {life: lifeOfTwo(ext4)},
	} {
		for failed, at := range test.life {
			t.Run(name+", "+at.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					for n := 1; n < faulty.Most && failAccess(t, test.life, failed, n, test.shared); n++ {
					}
				})
			})
		}
	}
}

// Without its records the node does not know what a call may undo.
func TestNothingIsUndoneWithoutTheRecords(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
	m.publish(nil)
	s, block := m.start(), blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	m.must(m.stage(s, block))
	m.faults.Break("read a record")
	if err := m.stage(s, block); err == nil || !strings.Contains(err.Error(), "read a record failed") {
		t.Errorf("got %v, want this failure", err)
	}
	m.faults.Break("")
	if !stagedAs(apiv1.PhaseStaged)(m) {
		t.Errorf("got entry %+v, want it Staged", m.entry())
	}
	m.must(m.unstage(s))
	m.assertClean()
}

// A call of the node itself does no harm if an access fails, and succeeds when it is repeated.
func TestACallOfTheNodeItselfSurvivesTheFailureOfEachAccess(t *testing.T) {
	t.Parallel()
	ext4, block := mountCapability("ext4"), blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	released := func(m *machine) {
		m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
			v.Status.Primary.State = apiv1.OwnershipReleasing
			v.Status.Primary.LastTransitionTime = ptr.To(metav1.NewTime(time.Now().Add(-time.Hour)))
		})
	}
	inUse := func(capability *csi.VolumeCapability) func(m *machine, _ *memoryHost, s *csinode.Server) {
		return func(m *machine, _ *memoryHost, s *csinode.Server) {
			m.must(m.stage(s, capability))
			m.must(m.publishVolume(s, capability, false))
			released(m)
		}
	}
	stays := func(m *machine, _ *memoryHost) bool { return stagedAs(apiv1.PhaseStaged)(m) }
	forgotten := func(m *machine, h *memoryHost) bool { return m.entry() == nil && !h.Opened && len(h.Mounted) == 0 }
	kept := func(holder provisioner.ReservationKey) func(*machine, *memoryHost) bool {
		return func(_ *machine, h *memoryHost) bool { return h.Shared.State().Holder == holder }
	}
	left := func(_ *machine, h *memoryHost) bool { return len(h.Shared.State().Keys) == 0 }
	own := keyOf(t, thisNode, 7)
	guarding := func(fenced bool) func(m *machine, _ *memoryHost, s *csinode.Server) {
		return func(m *machine, h *memoryHost, s *csinode.Server) {
			a := m.addAttachment("node-a", func(a *apiv1.AzVolumeAttachment) {
				a.Spec.Role, a.Spec.Epoch = apiv1.RolePrimary, 5
				a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofPreempted, Epoch: 5}
			})
			reserveAs(m.t, h, "node-c", keyOf(m.t, "node-c", 5).FenceOnly())
			m.must(m.stage(s, ext4))
			m.must(m.unstage(s))
			if !fenced {
				m.must(m.direct.Delete(m.t.Context(), a))
			}
		}
	}
	endUnfinished := func(m *machine, s *csinode.Server) { s.EndUnfinished(m.t.Context()) }
	endReservations := func(m *machine, s *csinode.Server) { s.EndReservations(m.t.Context()) }
	for name, test := range map[string]struct {
		shared bool
		edit   func(*csinode.Options)
		before func(*machine, *memoryHost, *csinode.Server)
		call   func(*machine, *csinode.Server)
		// during holds whatever fails, and after does when the call was repeated.
		during, after func(*machine, *memoryHost) bool
	}{
		"a filesystem in use stays":       {before: inUse(ext4), call: endUnfinished, during: stays, after: stays},
		"a raw block device in use stays": {before: inUse(block), call: endUnfinished, during: stays, after: stays},
		"a staged volume that is held stays": {call: endUnfinished, during: stays, after: stays,
			before: func(m *machine, _ *memoryHost, s *csinode.Server) { m.must(m.stage(s, block)) }},
		"a volume that is left staged is unstaged": {call: endUnfinished, after: forgotten,
			before: func(m *machine, _ *memoryHost, s *csinode.Server) { m.must(m.stage(s, ext4)); released(m) }},
		"a raw block device that is left staged is unstaged": {call: endUnfinished, after: forgotten,
			before: func(m *machine, _ *memoryHost, s *csinode.Server) { m.must(m.stage(s, block)); released(m) }},
		"an announcement that is mounted stays": {call: endUnfinished,
			during: func(m *machine, _ *memoryHost) bool { return m.entry() != nil },
			after:  func(m *machine, _ *memoryHost) bool { return m.entry() != nil },
			before: func(m *machine, h *memoryHost, _ *csinode.Server) {
				m.must(m.report.Announce(m.t.Context(), volume, 1, m.stagingPath()))
				h.Mounted[m.stagingPath()] = provisioner.MountPoint{Source: memoryDevice, Target: m.stagingPath()}
			}},
		"an announcement without a mount is removed": {call: endUnfinished, after: forgotten,
			before: func(m *machine, _ *memoryHost, _ *csinode.Server) {
				m.must(m.report.Announce(m.t.Context(), volume, 1, m.stagingPath()))
			}},
		"a format that was interrupted is cleared": {call: endUnfinished,
			after: func(m *machine, h *memoryHost) bool { return forgotten(m, h) && h.Content.Blank() },
			before: func(m *machine, h *memoryHost, _ *csinode.Server) {
				m.must(m.report.Announce(m.t.Context(), volume, 1, m.stagingPath()))
				record := m.usedIn(m.bootID)
				record.Formatting = &provisioner.Filesystem{Type: "ext4", UUID: "begun"}
				m.must(m.records.Put(record))
				h.Content.Garbage = true
			}},
		"a format under a reservation whose key cannot be read stays": {call: endUnfinished,
			during: func(m *machine, h *memoryHost) bool { return m.entry() != nil && h.Content.Garbage },
			after:  func(m *machine, h *memoryHost) bool { return m.entry() != nil && h.Content.Garbage },
			before: func(m *machine, h *memoryHost, _ *csinode.Server) {
				m.must(m.report.Announce(m.t.Context(), volume, 1, m.stagingPath()))
				record := m.usedIn(m.bootID)
				record.Formatting, record.ReservationKey = &provisioner.Filesystem{Type: "ext4", UUID: "begun"}, "nonsense"
				m.must(m.records.Put(record))
				h.Content.Garbage = true
			}},
		"a reservation that keeps a fenced node from writing stays": {shared: true, call: endReservations,
			before: guarding(true), during: kept(own.FenceOnly()), after: kept(own.FenceOnly())},
		"a reservation ends when the fenced node is detached": {shared: true, call: endReservations,
			before: guarding(false), after: left},
		"the reservations of staged volumes end": {shared: true, call: endReservations, during: stays,
			edit:   func(o *csinode.Options) { o.Reservations = false },
			before: func(m *machine, h *memoryHost, s *csinode.Server) { m.reserved(s, ext4) },
			after: func(m *machine, h *memoryHost) bool {
				return left(m, h) && m.record().ReservationKey == "" && m.entry().ReservationKey == ""
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for n, at := 1, "first"; at != "" && n < faulty.Most; n++ {
					host := newMemoryHost()
					m := newMachine(t, host, t.TempDir(), quiet)
					m.host = faulty.Host{Host: host, Faults: m.faults}
					if test.shared {
						m.publishShared(7)
					} else {
						m.publish(nil)
					}
					m.edit = test.edit
					s := m.start()
					test.before(m, host, s)
					m.faults.Arm(n)
					test.call(m, s)
					at = m.faults.Failed()
					m.faults.Arm(0)
					if test.during != nil && !test.during(m, host) {
						t.Errorf("%s failed: got entry %+v, reservation %s", at, m.entry(), host.Shared.State())
					}
					test.call(m, s)
					if !test.after(m, host) {
						t.Errorf("%s failed, and the call was repeated: got entry %+v, mounts %v, reservation %s", at, m.entry(),
							host.Mounted, host.Shared.State())
					}
				}
			})
		})
	}
}

// reserved stages the volume with a server that reserves its disk.
func (m *machine) reserved(s *csinode.Server, capability *csi.VolumeCapability) {
	m.t.Helper()
	edit, report := m.edit, m.report
	m.edit = func(o *csinode.Options) { o.Report = report }
	m.must(m.stage(m.start(), capability))
	m.edit, m.report = edit, report
}

// failAccess plays a life in which the n-th access of one call fails. It reports whether the call has
// that many.
func failAccess(t *testing.T, life []part, failed, n int, shared bool) bool {
	t.Helper()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.host = faulty.Host{Host: host, Faults: m.faults}
	if shared {
		m.publishShared(1)
	} else {
		m.publish(nil)
	}
	s, fault := m.start(), ""
	for i, p := range life {
		if p.before != nil {
			p.before(m, host)
		}
		if i == failed {
			m.faults.Arm(n)
			err := p.call(m, s)
			fault = m.faults.Failed()
			m.faults.Arm(0)
			switch {
			case fault == "":
			case slices.Contains(p.survives, fault) && (err != nil || !p.isDone(m)):
				t.Fatalf("%s: %s failed: got %v, done: %t; want success", p.name, fault, err, p.isDone(m))
			case !slices.Contains(p.survives, fault) && (err == nil || !strings.Contains(err.Error(), fault+" failed")):
				t.Errorf("%s: %s failed: got %v, want this failure", p.name, fault, err)
			}
		}
		if err := p.call(m, s); err != nil || !p.isDone(m) {
			t.Fatalf("after %s of %s failed: %s: got %v, done: %t", fault, life[failed].name, p.name, err, p.isDone(m))
		}
	}
	if m.assertClean(); host.Unflushed || len(host.Shared.State().Keys) > 0 {
		t.Errorf("after %s of %s failed: to be flushed: %t, reservation %s", fault, life[failed].name, host.Unflushed,
			host.Shared.State())
	}
	return fault != ""
}
