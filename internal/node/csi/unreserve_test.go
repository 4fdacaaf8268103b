package csi_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// The way back to V1: the pods run on, and another driver attaches the disks elsewhere later.
func TestSwitchingReservationsOffEndsThoseOfStagedVolumes(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), func(string) {})
	m.publishShared(7)
	reserveAs(t, host, "node-c", keyOf(t, "node-c", 6).FenceOnly())
	s := m.start()
	expect.Must(t, m.stage(s, mountCapability("ext4")))
	s.EndReservations(t.Context())
	if own := keyOf(t, thisNode, 7); host.Shared.State().Holder != own {
		t.Fatalf("with reservations on, the disk has %s after EndReservations, want key %s", host.Shared.State(), own)
	}
	fenced := m.addAttachment("lost", func(a *apiv1.AzVolumeAttachment) {
		a.Spec.Role, a.Spec.Epoch = apiv1.RolePrimary, 6
		a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofPreempted, Epoch: 6}
	})
	m.edit = func(o *csinode.Options) { o.Reservations = false }
	s = m.start()
	s.EndReservations(t.Context())
	if host.Shared.Allows("lost", true) {
		t.Fatal("the node that was fenced can write before its disk is detached")
	}
	expect.Must(t, m.direct.Delete(t.Context(), fenced, client.GracePeriodSeconds(0)))
	for range 2 {
		s.EndReservations(t.Context())
		record, _, err := m.records.Get(volume)
		if entry := m.entry(); err != nil || entry == nil || entry.Phase != apiv1.PhaseStaged || entry.ReservationKey != "" ||
			record.ReservationKey != "" {
			t.Errorf("got entry %+v, record %+v, %v; want both staged and without a key", entry, record, err)
		}
		if state := host.Shared.State(); len(state.Keys) != 0 {
			t.Errorf("the disk has %s, want no key", state)
		}
	}
	expect.Must(t, m.unstage(s))
	m.assertClean()
}

func TestTheReservationOfAVolumeThatIsBeingStagedIsNotEnded(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.edit = func(o *csinode.Options) { o.Reservations = false }
	m.publish(nil)
	s := m.start()
	host.OnCheck = func(string) error {
		record := m.record()
		record.ReservationKey = keyOf(t, thisNode, 1).String()
		m.must(m.records.Put(record))
		s.EndReservations(t.Context())
		if got := m.record().ReservationKey; got != record.ReservationKey {
			t.Errorf("got key %q in the record, want %q", got, record.ReservationKey)
		}
		return nil
	}
	m.must(m.stage(s, mountCapability("ext4")))
}

// The plug-in was killed before it ended the reservation, and the volume has no record.
func TestTheReservationOfAVolumeWithoutARecord(t *testing.T) {
	t.Parallel()
	own := keyOf(t, thisNode, 7)
	for name, test := range map[string]struct {
		edit   func(*apiv1.AzVolumeAttachment)
		volume func(*apiv1.AzVolume)
		gone   bool // the AzVolume
		ends   bool
	}{
		"the disk is attached":       {ends: true},
		"the volume does not exist":  {gone: true},
		"the disk is for one VM":     {volume: func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 1 }},
		"the AzVolume is of another": {volume: func(v *apiv1.AzVolume) { v.Spec.Disk.ResourceGroup = "another" }},
		"there is no attachment":     {edit: func(a *apiv1.AzVolumeAttachment) { a.Name = "x" }},
		"the LUN is not known":       {edit: func(a *apiv1.AzVolumeAttachment) { a.Status.LUN = nil }},
		"the disk is being detached: its LUN may have another disk": {
			edit: func(a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentDetaching }},
		"the disk is attached to the former VM of this node's name": {
			edit: func(a *apiv1.AzVolumeAttachment) { a.Status.VMID = "another-vm" }},
		"the node has a replica, and the key may be one that fences": {
			edit: func(a *apiv1.AzVolumeAttachment) { a.Spec.Role = apiv1.RoleReplica }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), quiet)
			m.publish(func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
				v.Spec.Disk.MaxShares = 3
				v.Status.Primary.Epoch, a.Spec.Epoch = 7, 7
				if test.edit != nil {
					test.edit(a)
				}
				if test.volume != nil {
					test.volume(v)
				}
			})
			if test.gone {
				expect.Must(t, m.direct.Delete(t.Context(), &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
					Name: volume}}))
			}
			reserveAs(t, host, thisNode, own)
			expect.Must(t, m.unstage(m.start()))
			if ended := len(host.Shared.State().Keys) == 0; ended != test.ends {
				t.Errorf("the disk has %s; got the reservation ended: %t, want %t", host.Shared.State(), ended, test.ends)
			}
			m.assertClean()
		})
	}
}

// leaving is a host whose disk does not end a registration.
type leaving struct {
	*memoryHost
	fails error
}

func (h leaving) Reservations() provisioner.Reservations {
	return leavingDisk{h.memoryHost.Reservations(), h.fails}
}

type leavingDisk struct {
	provisioner.Reservations
	fails error
}

func (d leavingDisk) Unregister(context.Context, string, provisioner.ReservationKey) error {
	return d.fails
}

// The next node that stages the volume pre-empts a reservation that remains.
func TestAnUnstageWithAReservationThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	failed := provisioner.Errorf(provisioner.Unavailable, "no answer")
	for name, test := range map[string]struct {
		fails error
		// broken is what reads of the device fail with.
		broken error
		code   codes.Code
	}{
		"the disk does not know the command":        {fails: provisioner.Errorf(provisioner.Unsupported, "invalid argument")},
		"the device is gone":                        {fails: provisioner.Errorf(provisioner.NotFound, "no such device")},
		"the command fails, and reads do":           {fails: failed, broken: failed},
		"the command fails, and the device answers": {fails: failed, code: codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := newMemoryHost()
			m := newMachine(t, leaving{host, test.fails}, t.TempDir(), quiet)
			m.publishShared(7)
			s := m.start()
			m.must(m.stage(s, mountCapability("ext4")))
			host.Broken = test.broken
			wantCode(t, m.unstage(s), test.code)
			if released := m.entry() == nil; released != (test.code == codes.OK) {
				t.Errorf("got the volume released: %t, want it after success only", released)
			}
		})
	}
}
