package provisioner_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const disk = "/subscriptions/S/resourceGroups/RG/providers/Microsoft.Compute/disks/pvc-1"

func TestAKeyIsOfOneNodeAndOneDisk(t *testing.T) {
	t.Parallel()
	keys := map[provisioner.ReservationKey]string{}
	for _, of := range [][2]string{{"node-1", disk}, {"node-2", disk}, {"node-1", disk + "0"}} {
		key, err := provisioner.NewReservationKey(1, of[0], of[1])
		if other, found := keys[key]; err != nil || found {
			t.Errorf("key of %s: got %s, %v, want another one than that of %s", of, key, err, other)
		}
		keys[key] = of[0] + " " + of[1]
		if same, err := provisioner.NewReservationKey(1, of[0], strings.ToUpper(of[1])); err != nil || same != key {
			t.Errorf("key of %s with the disk's ID in upper case: got %s, %v, want %s", of, same, err, key)
		}
	}
}

// TestReservationKeysAreAFormat fails if the layout of keys changes: disks keep keys over upgrades of the driver.
func TestReservationKeysAreAFormat(t *testing.T) {
	t.Parallel()
	for epoch, want := range map[int64]string{
		1:                               "0xad000000000154f4",
		2:                               "0xad000000000254f4",
		0x12345678:                      "0xad001234567854f4",
		provisioner.MaxReservationEpoch: "0xadffffffffff54f4",
	} {
		key, err := provisioner.NewReservationKey(epoch, "node-1", disk)
		if err != nil || key.String() != want {
			t.Errorf("key of epoch %d of node-1: got %s, %v, want %s", epoch, key, err, want)
		}
		if got := key.FenceOnly(); got != key+1 {
			t.Errorf("fence-only key of %s: got %s, want %s", key, got, key+1)
		}
	}
}

func TestAReservationKeySaysWhoseItIs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		epoch := rapid.Int64Range(1, provisioner.MaxReservationEpoch).Draw(t, "epoch")
		node := rapid.StringMatching(`[a-z][a-z0-9-]{0,60}`).Draw(t, "node")
		key, err := provisioner.NewReservationKey(epoch, node, disk)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range []provisioner.ReservationKey{key, key.FenceOnly()} {
			if !k.IsDrivers() || k.Epoch() != epoch || k.IsFenceOnly() != (k != key) {
				t.Errorf("key %s: driver's %t, epoch %d, fence only %t; want it of epoch %d",
					k, k.IsDrivers(), k.Epoch(), k.IsFenceOnly(), epoch)
			}
		}
		next := rapid.Int64Range(1, provisioner.MaxReservationEpoch).Draw(t, "other epoch")
		other, err := provisioner.NewReservationKey(next, rapid.StringMatching(`[a-z]{1,20}`).Draw(t, "other node"), disk)
		if err != nil {
			t.Fatal(err)
		}
		if next != epoch && (other == key || other.FenceOnly() == key.FenceOnly() || (next > epoch) != (other > key)) {
			t.Errorf("keys %s of epoch %d and %s of epoch %d: want different ones in the order of the epochs", key, epoch, other, next)
		}
	})
}

func TestKeysOfOtherProgramsAreNotTheDrivers(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]provisioner.ReservationKey{
		"no key":                    0,
		"a small number":            0x123,
		"Pacemaker's fence_scsi":    0x6f3a0001,
		"text":                      0x4d53465400000001,
		"the first byte, no epoch":  0xAD00000000000001,
		"another byte in the front": 0xAC00000000010001,
	} {
		if key.IsDrivers() || key.IsFenceOnly() || key.Epoch() != 0 {
			t.Errorf("%s (%s) is taken for a key of the driver with epoch %d, want that it is not", name, key, key.Epoch())
		}
	}
}

func TestReservationKeysThatCannotBeMade(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		epoch      int64
		node, disk string
	}{
		"never acquired":    {0, "node-1", disk},
		"a negative epoch":  {-1, "node-1", disk},
		"too high an epoch": {provisioner.MaxReservationEpoch + 1, "node-1", disk},
		"a nameless node":   {1, "", disk},
		"a nameless disk":   {1, "node-1", ""},
	} {
		if key, err := provisioner.NewReservationKey(c.epoch, c.node, c.disk); !errors.Is(err, provisioner.InvalidArgument) {
			t.Errorf("%s: got key %s, error %v, want InvalidArgument", name, key, err)
		}
	}
}
