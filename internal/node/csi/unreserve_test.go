package csi_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
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

// The plug-in was killed before it ended the reservation, and the volume has no record.
func TestTheReservationOfAVolumeWithoutARecord(t *testing.T) {
	t.Parallel()
	own := keyOf(t, thisNode, 7)
	for name, test := range map[string]struct {
		edit func(*apiv1.AzVolumeAttachment)
		ends bool
	}{
		"the disk is attached": {edit: func(*apiv1.AzVolumeAttachment) {}, ends: true},
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
			m.publishShared(7)
			m.change(func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { test.edit(a) })
			reserveAs(t, host, thisNode, own)
			expect.Must(t, m.unstage(m.start()))
			if ended := len(host.Shared.State().Keys) == 0; ended != test.ends {
				t.Errorf("the disk has %s; got the reservation ended: %t, want %t", host.Shared.State(), ended, test.ends)
			}
			m.assertClean()
		})
	}
}
