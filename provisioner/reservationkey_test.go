package provisioner_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// TestReservationKeysAreAFormat fails if the layout of keys changes: disks keep keys over upgrades of the driver.
func TestReservationKeysAreAFormat(t *testing.T) {
	t.Parallel()
	for epoch, want := range map[int64]string{
		1:                               "0xad00000000013416",
		2:                               "0xad00000000023416",
		0x12345678:                      "0xad00123456783416",
		provisioner.MaxReservationEpoch: "0xadffffffffff3416",
	} {
		key, err := provisioner.NewReservationKey(epoch, "node-1")
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
		key, err := provisioner.NewReservationKey(epoch, node)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range []provisioner.ReservationKey{key, key.FenceOnly()} {
			if !k.IsDrivers() || k.Epoch() != epoch || !k.IsOfNode(node) || k.IsFenceOnly() != (k != key) {
				t.Errorf("key %s: driver's %t, epoch %d, of %s %t, fence only %t; want it of epoch %d",
					k, k.IsDrivers(), k.Epoch(), node, k.IsOfNode(node), k.IsFenceOnly(), epoch)
			}
		}
		next := rapid.Int64Range(1, provisioner.MaxReservationEpoch).Draw(t, "other epoch")
		other, err := provisioner.NewReservationKey(next, rapid.StringMatching(`[a-z]{1,20}`).Draw(t, "other node"))
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
		if key.IsDrivers() || key.IsFenceOnly() || key.Epoch() != 0 || key.IsOfNode("node-1") {
			t.Errorf("%s (%s) is taken for a key of the driver with epoch %d, want that it is not", name, key, key.Epoch())
		}
	}
}

func TestReservationKeysThatCannotBeMade(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		epoch int64
		node  string
	}{
		"never acquired":    {0, "node-1"},
		"a negative epoch":  {-1, "node-1"},
		"too high an epoch": {provisioner.MaxReservationEpoch + 1, "node-1"},
		"a nameless node":   {1, ""},
	} {
		if key, err := provisioner.NewReservationKey(c.epoch, c.node); !errors.Is(err, provisioner.InvalidArgument) {
			t.Errorf("%s: got key %s, error %v, want InvalidArgument", name, key, err)
		}
	}
}
