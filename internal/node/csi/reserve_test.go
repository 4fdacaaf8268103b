package csi_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/reservation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/fencing"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/sharedisk"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// thisCluster is the cluster of the nodes under test.
const thisCluster = provisioner.ClusterIdentity(0x1d54)

// keyOf is a node's key of the volume's disk.
func keyOf(t *testing.T, name string, epoch int64) provisioner.ReservationKey {
	t.Helper()
	key, err := provisioner.NewReservationKey(thisCluster, epoch, name, volumeID)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// reserveAs lets another node reserve the disk with a key.
func reserveAs(t *testing.T, h *memoryHost, name string, key provisioner.ReservationKey) {
	t.Helper()
	disk := h.OnNode(name)
	if err := errors.Join(disk.Register(t.Context(), memoryDevice, key),
		disk.Reserve(t.Context(), memoryDevice, key)); err != nil {
		t.Fatal(err)
	}
}

// publishShared publishes the volume under an epoch, on a disk that several VMs may attach.
func (m *machine) publishShared(epoch int64) {
	m.t.Helper()
	m.publish(func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
		v.Spec.Disk.MaxShares = 3
		v.Status.Primary.Epoch, a.Spec.Epoch = epoch, epoch
	})
}

// addAttachment makes another node's attachment of the volume.
func (m *machine) addAttachment(name string, edit func(*apiv1.AzVolumeAttachment)) *apiv1.AzVolumeAttachment {
	m.t.Helper()
	a := &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: apiv1.AttachmentName(volume, name)},
		Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: volume, NodeName: name, Role: apiv1.RoleReplica},
	}
	edit(a)
	if err := m.direct.Create(m.t.Context(), a); err != nil {
		m.t.Fatal(err)
	}
	return a
}

func TestStagingReservesTheDiskBeforeItTouchesIt(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	own := keyOf(t, thisNode, 7)
	released := func() {}
	var m *machine
	m = newMachine(t, host, t.TempDir(), func(write string) {
		if write == "after report" && m.entry() == nil {
			released()
		}
	})
	m.publishShared(7)
	host.Hook = func(step string) {
		if state := host.Shared.State(); step != "reserve" && state.Holder != own {
			t.Errorf("%s: the disk has %s, want a reservation of key %s", step, state, own)
		}
	}
	s := m.start()
	for range 2 { // the kubelet repeats the call
		if err := m.stage(s, mountCapability("ext4")); err != nil {
			t.Fatal(err)
		}
	}
	record, _, err := m.records.Get(volume)
	if entry := m.entry(); err != nil || entry == nil || entry.ReservationKey != own.String() ||
		record.ReservationKey != own.String() {
		t.Errorf("got entry %+v, record %+v, %v; want both with key %s", entry, record, err, own)
	}
	if generation := host.Shared.State().Generation; generation != 1 {
		t.Errorf("got %d changes of the registrations, want 1", generation)
	}
	host.Hook = func(step string) {
		if step == "reserve" && host.Unflushed {
			t.Error("the reservation ends before the flush")
		}
	}
	reported := false
	released = func() {
		if reported = true; len(host.Shared.State().Keys) != 0 {
			t.Error("the volume was reported unstaged before the reservation ended")
		}
	}
	if err := m.unstage(s); err != nil {
		t.Fatal(err)
	}
	if state := host.Shared.State(); !reported || len(state.Keys) != 0 {
		t.Errorf("after the unstage (reported: %t) the disk has %s, want no key", reported, state)
	}
	m.assertClean()
}

func TestTheEntryKeepsItsKeyOverARestart(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), func(string) {})
	m.publishShared(7)
	if err := m.stage(m.start(), mountCapability("ext4")); err != nil {
		t.Fatal(err)
	}
	edit(t, m, func(status *apiv1.AzDriverNodeStatus) { status.StagedVolumes[0].ReservationKey = "" })
	if err := m.stage(m.start(), mountCapability("ext4")); err != nil {
		t.Fatal(err)
	}
	if want := keyOf(t, thisNode, 7).String(); m.entry().ReservationKey != want {
		t.Errorf("got key %q after the restart, want %q", m.entry().ReservationKey, want)
	}
}

// kept is the message of the condition GuardsFencedNodes in the node's object; "" for none.
func (m *machine) kept() string {
	m.t.Helper()
	var report apiv1.AzDriverNode
	if err := m.direct.Get(m.t.Context(), client.ObjectKey{Namespace: namespace, Name: thisNode}, &report); err != nil {
		m.t.Fatal(err)
	}
	if c := meta.FindStatusCondition(report.Status.Conditions, apiv1.NodeConditionGuards); c != nil {
		return c.Message
	}
	return ""
}

// edit changes the status of the node's object as another writer does.
func edit(t *testing.T, m *machine, change func(*apiv1.AzDriverNodeStatus)) {
	t.Helper()
	var report apiv1.AzDriverNode
	if err := m.direct.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: thisNode}, &report); err != nil {
		t.Fatal(err)
	}
	change(&report.Status)
	if err := m.direct.Status().Update(t.Context(), &report); err != nil {
		t.Fatal(err)
	}
}

func TestStagingOverWhatTheDiskHas(t *testing.T) {
	t.Parallel()
	own, before, after := keyOf(t, thisNode, 7), keyOf(t, "node-a", 6), keyOf(t, "node-c", 8)
	elsewhere, err := provisioner.NewReservationKey(thisCluster+1, 2, "node-a", volumeID)
	expect.Must(t, err)
	const otherProgram = provisioner.ReservationKey(0x6f3a0001)
	for name, test := range map[string]struct {
		holder provisioner.ReservationKey
		edit   func(*apiv1.AzVolume)
		off    bool
		asked  bool // Azure was asked after the attach
		// wanted holder, and code of the failure.
		want    provisioner.ReservationKey
		failure codes.Code
	}{
		"reserved under the epoch before": {holder: before, want: own},
		"reserved by another program":     {holder: otherProgram, want: otherProgram, failure: codes.FailedPrecondition},
		"off for the volume, and never reserved": {
			edit: func(v *apiv1.AzVolume) { v.Spec.Disk.PersistentReservations = apiv1.ReservationsDisabled }},
		"off for the volume, and reserved under the epoch before": {holder: before,
			edit: func(v *apiv1.AzVolume) { v.Spec.Disk.PersistentReservations = apiv1.ReservationsDisabled }},
		"off for the volume, and reserved by another program": {holder: otherProgram, want: otherProgram,
			edit: func(v *apiv1.AzVolume) { v.Spec.Disk.PersistentReservations = apiv1.ReservationsDisabled }},
		"off for the node, and reserved under the epoch before": {holder: before, off: true},
		"a disk for one VM": {edit: func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 1 }},
		"a disk for one VM that was taken for a shared one": {holder: after,
			edit: func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 1 }},
		"a disk for one VM that another program has reserved": {holder: otherProgram, want: otherProgram,
			edit: func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 1 }},
		"the disk of another volume": {holder: before, edit: recordFilesystem, want: before, failure: codes.FailedPrecondition},
		"another volume's, and a disk for one VM": {holder: before, edit: oneVM(recordFilesystem), want: before,
			failure: codes.FailedPrecondition},
		"another volume's, and off for the volume": {holder: before, edit: off(recordFilesystem), want: before,
			failure: codes.FailedPrecondition},
		"another volume's, which a fence keeps from a lost node": {holder: before.FenceOnly(), edit: oneVM(recordFilesystem),
			want: before.FenceOnly(), failure: codes.FailedPrecondition},
		"reserved by a node of another cluster": {
			holder: elsewhere, want: elsewhere, failure: codes.FailedPrecondition},
		"the same, and off for the volume": {
			holder: elsewhere, edit: off(), want: elsewhere, failure: codes.FailedPrecondition},
		"the same, and a disk for one VM": {
			holder: elsewhere, edit: oneVM(), want: elsewhere, failure: codes.FailedPrecondition},
		"the same, and Azure lists the disk at no other VM": {holder: elsewhere, asked: true, want: own},
		"a disk for one VM, listed at no other VM":          {holder: elsewhere, edit: oneVM(), asked: true},
		"the same, and Azure was asked before the ownership only": {holder: elsewhere,
			edit: func(v *apiv1.AzVolume) { v.Status.Primary.Exclusive = true }, want: elsewhere,
			failure: codes.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), func(string) {})
			m.edit = func(o *csinode.Options) { o.Reservations = !test.off }
			m.publishShared(7)
			m.change(func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
				a.Status.Exclusive = test.asked
				if test.edit != nil {
					test.edit(v)
				}
			})
			if test.holder != 0 {
				reserveAs(t, host, "holder", test.holder)
			}
			s := m.start()
			err := m.stage(s, mountCapability("ext4"))
			if test.failure == codes.OK && err != nil || test.failure != codes.OK &&
				(status.Code(err) != test.failure || host.Formats != 0) {
				t.Fatalf("stage: got %v and %d formats, want %v, and no format after a failure", err, host.Formats, test.failure)
			}
			if state := host.Shared.State(); state.Holder != test.want || state.Registered(own) != (test.want == own) {
				t.Errorf("the disk has %s, want holder %s", state, test.want)
			}
			if test.failure != codes.OK {
				m.assertClean()
				return
			}
			if entry := m.entry(); (entry.ReservationKey != "") != (test.want == own) {
				t.Errorf("got key %q in the report, want one only of a disk that was reserved", entry.ReservationKey)
			}
		})
	}
}

// editVolume is an edit of a volume, on which others follow.
type editVolume = func(*apiv1.AzVolume)

func oneVM(then ...editVolume) editVolume {
	return edited(func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 1 }, then)
}

func off(then ...editVolume) editVolume {
	return edited(func(v *apiv1.AzVolume) { v.Spec.Disk.PersistentReservations = apiv1.ReservationsDisabled }, then)
}

func edited(edit editVolume, then []editVolume) editVolume {
	return func(v *apiv1.AzVolume) {
		edit(v)
		for _, e := range then {
			e(v)
		}
	}
}

// recordFilesystem records a filesystem that the device does not have.
func recordFilesystem(v *apiv1.AzVolume) {
	v.Status.Filesystem = &apiv1.FilesystemRecord{Type: "ext4", UUID: "9d3c6f0e-0000-4000-8000-000000000001"}
}

func TestADeviceWithoutReservationsIsStagedWithoutAKey(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, withoutReservations{host}, t.TempDir(), func(string) {})
	m.publishShared(7)
	s := m.start()
	if err := m.stage(s, mountCapability("ext4")); err != nil {
		t.Fatal(err)
	}
	if entry := m.entry(); entry == nil || entry.Phase != apiv1.PhaseStaged || entry.ReservationKey != "" {
		t.Errorf("got entry %+v, want it Staged without a key", entry)
	}
	if err := m.unstage(s); err != nil {
		t.Fatal(err)
	}
	m.assertClean()
}

// withoutReservations is a host whose devices have none.
type withoutReservations struct{ *memoryHost }

func (h withoutReservations) Reservations() provisioner.Reservations {
	return sharedisk.Node{Name: thisNode, Disk: func(context.Context, string) (*sharedisk.Disk, error) {
		return nil, provisioner.Errorf(provisioner.Unsupported, "no reservations")
	}}
}

func TestADiskWithoutPreemptAndAbortIsNotReserved(t *testing.T) {
	t.Parallel()
	before, otherProgram := keyOf(t, "node-a", 6), provisioner.ReservationKey(0x6f3a0001)
	for name, test := range map[string]struct {
		holder  provisioner.ReservationKey
		failure codes.Code
	}{
		"a disk that was never reserved":                   {},
		"reserved under the epoch before, by a lost owner": {holder: before},
		"reserved by another program":                      {holder: otherProgram, failure: codes.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := newMemoryHost()
			host.Shared.NoAbort = true
			m := newMachine(t, host, t.TempDir(), func(string) {})
			m.publishShared(7)
			if test.holder != 0 {
				reserveAs(t, host, "node-a", test.holder)
			}
			if err := m.stage(m.start(), mountCapability("ext4")); status.Code(err) != test.failure {
				t.Fatalf("stage: got %v, want %v", err, test.failure)
			}
			if test.failure != codes.OK {
				return
			}
			if state := host.Shared.State(); state.Type != provisioner.NoReservation || state.Registered(keyOf(t, thisNode, 7)) ||
				m.entry().ReservationKey != "" {
				t.Errorf("the disk has %s, the report key %q; want no reservation, and no key of this node", state,
					m.entry().ReservationKey)
			}
		})
	}
}

// Azure does not say what becomes of a registration when the disk is detached and attached again,
// or when the VM is moved to another host.
func TestTheKeyOfAFormerPathIsNotTheReservationOfThisNode(t *testing.T) {
	t.Parallel()
	own := keyOf(t, thisNode, 7)
	for name, test := range map[string]struct {
		// before and after the volume was staged.
		before, after bool
	}{
		"the path changed before the staging": {before: true},
		"the path changed after the staging":  {after: true},
		"it changed twice":                    {before: true, after: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), func(string) {})
			m.publishShared(7)
			if test.before {
				reserveAs(t, host, "former path", own)
			}
			s := m.start()
			expect.Must(t, m.stage(s, mountCapability("ext4")))
			if !host.Shared.Allows(thisNode, true) {
				t.Errorf("staged, and the disk refuses the writes of this node: it has %s", host.Shared.State())
			}
			if test.after {
				expect.Must(t, host.OnNode(thisNode).Clear(t.Context(), memoryDevice, own))
				reserveAs(t, host, "former path", own)
			}
			expect.Must(t, m.unstage(s))
			m.assertClean()
			if state := host.Shared.State(); len(state.Keys) != 0 {
				t.Errorf("unstaged: the disk has %s, want no key", state)
			}
		})
	}
}

// A path or a LUN names another disk if the volume's disk was detached and another one was
// attached. Only 15 bits of a key tell disks apart, so that another node's key of that disk can be
// the same.
func TestTheReservationOfAnotherDiskIsNotEnded(t *testing.T) {
	t.Parallel()
	own := keyOf(t, thisNode, 7)
	for name, staged := range map[string]bool{
		"the path of a staged volume names another disk":        true,
		"the LUN of a volume without a record has another disk": false,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), func(string) {})
			m.publishShared(7)
			s := m.start()
			if staged {
				expect.Must(t, m.stage(s, mountCapability("ext4")))
				expect.Must(t, host.OnNode(thisNode).Clear(t.Context(), memoryDevice, own))
			} else {
				m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { recordFilesystem(v) })
			}
			host.Content = content{FS: provisioner.Filesystem{Type: "ext4", UUID: "another"}}
			reserveAs(t, host, "node-x", own)
			expect.Must(t, m.unstage(s))
			m.assertClean()
			if !host.Shared.Allows("node-x", true) || host.Shared.Allows(thisNode, true) {
				t.Errorf("the disk has %s, want the reservation of the other node", host.Shared.State())
			}
		})
	}
}

func TestADiskThatDoesNotTellItsReservations(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fails   int
		edit    func(*apiv1.AzVolume)
		failure codes.Code
		want    provisioner.ReservationKey
	}{
		"it answers later":      {fails: 2, want: keyOf(t, thisNode, 7)},
		"it was never reserved": {fails: 3},
		"it was reserved before": {fails: 3, edit: func(v *apiv1.AzVolume) { v.Status.Fencing = apiv1.FencingPreemption },
			failure: codes.Unavailable},
		"its last owner was fenced by its reservation": {fails: 3, edit: lastPreempted, failure: codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := newMemoryHost()
			m := newMachine(t, &unanswering{memoryHost: host, left: test.fails}, t.TempDir(), func(string) {})
			m.publishShared(7)
			if test.edit != nil {
				m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { test.edit(v) })
			}
			if err := m.stage(m.start(), mountCapability("ext4")); status.Code(err) != test.failure {
				t.Errorf("stage: got %v, want %v", err, test.failure)
			}
			if got := host.Shared.State().Holder; got != test.want {
				t.Errorf("the disk is held by %s, want %s", got, test.want)
			}
			if entry := m.entry(); test.failure == codes.OK && (entry.UnreservedReason == "") != (test.want != 0) {
				t.Errorf("got reason %q in the report, want one only of a disk without a reservation", entry.UnreservedReason)
			}
		})
	}
}

func lastPreempted(v *apiv1.AzVolume) {
	v.Status.LastRelease = &apiv1.ReleaseRecord{
		NodeName: "node-a",
		Proof:    apiv1.ReleaseProof{Type: apiv1.ProofPreempted, Epoch: 5},
	}
}

// unanswering is a host whose disk does not answer the first questions about its reservations.
type unanswering struct {
	*memoryHost
	left int
}

func (h *unanswering) Reservations() provisioner.Reservations {
	return unansweringReads{h.memoryHost.Reservations(), h}
}

type unansweringReads struct {
	provisioner.Reservations
	h *unanswering
}

func (r unansweringReads) Read(ctx context.Context, device string) (provisioner.ReservationState, error) {
	if r.h.left > 0 {
		r.h.left--
		return provisioner.ReservationState{},
			provisioner.Errorf(provisioner.Unavailable, "read the reservations of %s: no answer", device)
	}
	return r.Reservations.Read(ctx, device)
}

func TestAGrantThatIsLostWhileTheDiskIsReserved(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), func(string) {})
	m.publishShared(7)
	lost := false
	host.Hook = func(step string) {
		switch {
		case step == "reserve" && !lost && host.Shared.State().Holder == keyOf(t, thisNode, 7):
			lost = true
			m.change(func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
				a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofDetached, Epoch: 7}
			})
		case step != "reserve":
			t.Errorf("%s, after the grant was lost", step)
		}
	}
	if err := m.stage(m.start(), mountCapability("ext4")); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want Unavailable", err)
	}
	if state := host.Shared.State(); !lost || len(state.Keys) != 0 {
		t.Errorf("the disk has %s, want no key", state)
	}
	m.assertClean()
}

func TestAStagingThatFailsAfterTheReservationLeavesNone(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(*memoryHost){
		"before the record": func(h *memoryHost) { h.Content = content{Garbage: true} },
		"after the record": func(h *memoryHost) {
			h.OnCheck = func(string) error { return provisioner.Errorf(provisioner.FailedPrecondition, "repair it") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := newMemoryHost()
			broken(host)
			if host.Content.Blank() {
				host.Content = content{FS: provisioner.Filesystem{Type: "ext4", UUID: "u"}}
			}
			m := newMachine(t, host, t.TempDir(), func(string) {})
			m.publishShared(7)
			if err := m.stage(m.start(), mountCapability("ext4")); err == nil {
				t.Fatal("got nil, want an error")
			}
			if state := host.Shared.State(); len(state.Keys) != 0 {
				t.Errorf("the disk has %s, want no key", state)
			}
			m.assertClean()
		})
	}
}

// The node that was fenced has the disk attached until Azure has detached it, which takes hours if
// its host is dead: if the reservation ended, it could write again, and if the unstage waited, no
// node could have the volume.
func TestAReservationIsKeptWhileAFencedNodeHasTheDisk(t *testing.T) {
	t.Parallel()
	fencedUnder5 := func(m *machine, host *memoryHost) {
		reserveAs(m.t, host, "node-c", keyOf(m.t, "node-c", 5).FenceOnly())
	}
	for name, test := range map[string]struct {
		// before is called before the volume is staged, and after after that.
		before, after func(*machine, *memoryHost)
		// staysHere: the volume is staged on this node again, and not on another one.
		staysHere bool
	}{
		"the node that fenced holds the reservation": {before: fencedUnder5},
		"this node fenced": {
			before: func(m *machine, host *memoryHost) {
				reserveAs(m.t, host, thisNode, keyOf(m.t, thisNode, 5).FenceOnly())
			}},
		"its next owner left the reservation behind": {staysHere: true,
			before: func(m *machine, host *memoryHost) { reserveAs(m.t, host, "node-d", keyOf(m.t, "node-d", 6)) }},
		"this node was killed after it had reserved the disk": {
			before: func(m *machine, host *memoryHost) { reserveAs(m.t, host, thisNode, keyOf(m.t, thisNode, 7)) }},
		"the reservation was lost before the staging": {before: func(m *machine, _ *memoryHost) {
			m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
				v.Status.LastRelease = &apiv1.ReleaseRecord{
					NodeName: "node-a",
					Proof:    apiv1.ReleaseProof{Type: apiv1.ProofPreempted, Epoch: 5},
				}
			})
		}},
		"the reservation was lost after the staging": {before: fencedUnder5, after: func(m *machine, host *memoryHost) {
			expect.Must(m.t, host.OnNode(thisNode).Clear(m.t.Context(), memoryDevice, keyOf(m.t, thisNode, 7)))
		}},
		"whether the reservation is unfenced is not known": {before: fencedUnder5, after: func(m *machine, _ *memoryHost) {
			record, _, err := m.records.Get(volume)
			record.Unfenced = false
			expect.Must(m.t, errors.Join(err, m.records.Put(record)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), func(string) {})
			m.publishShared(7)
			fenced := m.addAttachment("node-a", func(a *apiv1.AzVolumeAttachment) {
				a.Spec.Role, a.Spec.Epoch = apiv1.RolePrimary, 5
				a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofPreempted, Epoch: 5}
			})
			test.before(m, host)
			expect.Must(t, m.stage(m.start(), mountCapability("ext4")))
			if test.after != nil {
				test.after(m, host)
			}
			s := m.start()
			expect.Must(t, m.stage(s, mountCapability("ext4"))) // as after each start of the kubelet
			expect.Must(t, m.unstage(s))
			m.assertClean()
			s = m.start()
			s.EndReservations(t.Context())
			if got := m.kept(); !strings.Contains(got, volume) {
				t.Errorf("got %q in the condition GuardsFencedNodes, want the volume", got)
			}
			if got, want := host.Shared.State().Holder, keyOf(t, thisNode, 7).FenceOnly(); got != want ||
				host.Shared.Allows("node-a", true) {
				t.Errorf("the disk is held by %s and takes writes of the fenced node: %t; want key %s, and no writes", got,
					host.Shared.Allows("node-a", true), want)
			}
			if test.staysHere {
				expect.Must(t, m.stage(s, mountCapability("ext4"))) // under the same epoch
				expect.Must(t, m.unstage(s))
			} else {
				takeOver(t, host, keyOf(t, "node-c", 8))
				expect.Must(t, host.OnNode("node-c").Unregister(t.Context(), memoryDevice, keyOf(t, "node-c", 8)))
			}
			expect.Must(t, m.direct.Delete(t.Context(), fenced))
			s.EndReservations(t.Context())
			if state := host.Shared.State(); len(state.Keys) != 0 {
				t.Errorf("the disk has %s, want no key", state)
			}
			if got := m.kept(); got != "" {
				t.Errorf("got %q in the condition GuardsFencedNodes, want no such condition", got)
			}
			if kept, err := m.records.Guards(); err != nil || len(kept) > 0 {
				t.Errorf("got records of kept reservations %v, %v, want none", kept, err)
			}
		})
	}
}

// The API server compares all attachments of the cluster for a list of those of one volume.
func TestWhenNoNodeWasFencedTheAttachmentsAreNotListed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		after func(*machine, *csinode.Server) error
	}{
		"an unstage": {after: (*machine).unstage},
		"an unstage after a restart and a repeated staging": {after: func(m *machine, _ *csinode.Server) error {
			s := m.start()
			return errors.Join(m.stage(s, mountCapability("ext4")), m.unstage(s))
		}},
		"an unstage after the reservation was cleared and a staging in place": {after: func(m *machine, s *csinode.Server) error {
			host := m.host.(*memoryHost)
			err := host.OnNode(thisNode).Clear(m.t.Context(), memoryDevice, keyOf(m.t, thisNode, 7))
			return errors.Join(err, m.stage(s, mountCapability("ext4")), m.unstage(s))
		}},
		"the end of all reservations": {after: func(m *machine, _ *csinode.Server) error {
			m.edit = func(o *csinode.Options) { o.Reservations = false }
			s := m.start()
			s.EndReservations(m.t.Context())
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), func(string) {})
			m.publishShared(7)
			m.api = interceptor.NewClient(m.api, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					t.Errorf("%T is listed", list)
					return c.List(ctx, list, opts...)
				},
			})
			s := m.start()
			expect.Must(t, m.stage(s, mountCapability("ext4")))
			if own := keyOf(t, thisNode, 7); host.Shared.State().Holder != own {
				t.Fatalf("staged: the disk has %s, want key %s", host.Shared.State(), own)
			}
			expect.Must(t, test.after(m, s))
			if state := host.Shared.State(); len(state.Keys) != 0 {
				t.Errorf("the disk has %s, want no key", state)
			}
		})
	}
}

// TestLaw5AKillAtAnyStepWithAReservationLosesNothing kills the plug-in in each call of the kubelet
// in turn.
func TestLaw5AKillAtAnyStepWithAReservationLosesNothing(t *testing.T) {
	t.Parallel()
	own, next := keyOf(t, thisNode, 7), keyOf(t, "node-c", 8)
	for n := 1; ; n++ {
		m, host, k := bench(t)
		m.publishShared(7)
		s := m.start()
		inStage, _ := k.during(n, func() error { return m.stage(s, mountCapability("ext4")) })
		if err := m.stage(m.start(), mountCapability("ext4")); err != nil {
			t.Fatalf("killed at %q, then staged: %v", inStage, err)
		}
		if state := host.Shared.State(); state.Holder != own || m.entry().ReservationKey != own.String() {
			t.Errorf("killed at %q, then staged: the disk has %s, the report key %q; want both with key %s", inStage, state,
				m.entry().ReservationKey, own)
		}
		s = m.start()
		inUnstage, _ := k.during(n, func() error { return m.unstage(s) })
		if err := m.unstage(m.start()); err != nil {
			t.Fatalf("killed at %q, then unstaged: %v", inUnstage, err)
		}
		m.assertClean()
		if state := host.Shared.State(); len(state.Keys) != 0 {
			t.Errorf("killed at %q, then unstaged: the disk has %s, want no key", inUnstage, state)
		}
		takeOver(t, host, next)
		if inStage == "" && inUnstage == "" {
			return
		}
	}
}

// takeOver lets the next owner stage.
func takeOver(t *testing.T, host *memoryHost, key provisioner.ReservationKey) {
	t.Helper()
	reserver := reservation.Reserver{Disk: host.OnNode("node-c")}
	if _, _, err := reserver.Reserve(t.Context(), memoryDevice, host.Shared.State(), fencing.Owner{Key: key}); err != nil ||
		!host.Shared.Allows("node-c", true) {
		t.Errorf("the next owner cannot reserve the disk: %v; it has %s", err, host.Shared.State())
	}
}

// The replicas of a raw block volume's disk stay attached after a move, so that its disk has to refuse
// the writes of their nodes, too.
func TestARawBlockVolumeIsReserved(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), func(string) {})
	m.publishShared(7)
	reserveAs(t, host, "node-a", keyOf(t, "node-a", 6)) // by the last owner, and not by the application
	s := m.start()
	m.must(m.stage(s, blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)))
	own := keyOf(t, thisNode, 7)
	if state := host.Shared.State(); state.Holder != own {
		t.Errorf("the disk has %s, want a reservation of key %s", state, own)
	}
	m.must(m.unstage(s))
	if state := host.Shared.State(); state.Type != provisioner.NoReservation || len(state.Keys) > 0 {
		t.Errorf("after unstage the disk has %s, want nothing", state)
	}
	m.assertClean()
}

// Several nodes write to such a disk, or the driver does not know what else is on it.
func TestAVolumeOfSeveralNodesAndAPartitionAreNotReserved(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		capability *csi.VolumeCapability
		several    bool
		context    map[string]string
	}{
		"a volume of several nodes": {capability: blockCapability(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER),
			several: true},
		"a partition": {capability: mountCapability("ext4"), context: map[string]string{"partition": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), quiet)
			m.publishShared(7)
			m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
				if test.several {
					v.Spec.Access, v.Status.Primary = apiv1.AccessMultiNode, nil
				}
			})
			m.must(m.stageWith(m.start(), test.capability, test.context))
			if state := host.Shared.State(); state.Generation != 0 || m.entry().ReservationKey != "" {
				t.Errorf("the disk has %s, the report key %q, want none", state, m.entry().ReservationKey)
			}
		})
	}
}

func TestTheReservationOfAnApplicationStays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		capability *csi.VolumeCapability
		want       codes.Code
	}{
		"raw block is left to its application": {
			blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER), codes.OK},
		"a filesystem is not used by another one": {mountCapability("ext4"), codes.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := newMemoryHost()
			reserveAs(t, host, "node-a", 0x1234)
			before := host.Shared.State()
			m := newMachine(t, host, t.TempDir(), func(string) {})
			m.publishShared(7)
			if err := m.stage(m.start(), test.capability); status.Code(err) != test.want {
				t.Errorf("stage: %v, want %s", err, test.want)
			}
			if state := host.Shared.State(); state.Holder != before.Holder || state.Generation != before.Generation {
				t.Errorf("the disk has %s, want %s as before", state, before)
			}
		})
	}
}
