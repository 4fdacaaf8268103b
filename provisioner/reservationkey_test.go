package provisioner_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const disk = "/subscriptions/S/resourceGroups/RG/providers/Microsoft.Compute/disks/pvc-1"

// cluster is the identity of the cluster of the nodes.
const cluster = provisioner.ClusterIdentity(0x1d54)

func TestAKeyIsOfOneClusterAndOneNodeAndOneDisk(t *testing.T) {
	t.Parallel()
	keys := map[provisioner.ReservationKey]string{}
	for _, of := range []struct {
		cluster    provisioner.ClusterIdentity
		node, disk string
	}{{cluster, "node-1", disk}, {cluster + 1, "node-1", disk}, {cluster, "node-2", disk}, {cluster, "node-1", disk + "0"}} {
		key, err := provisioner.NewReservationKey(of.cluster, 1, of.node, of.disk)
		if other, found := keys[key]; err != nil || found {
			t.Errorf("key of %v: got %s, %v, want another one than the key of %s", of, key, err, other)
		}
		keys[key] = of.node + " " + of.disk
		if same, err := provisioner.NewReservationKey(of.cluster, 1, of.node, strings.ToUpper(of.disk)); err != nil ||
			same != key {
			t.Errorf("key of %v with the disk's ID in upper case: got %s, %v, want %s", of, same, err, key)
		}
	}
}

// TestReservationKeysAreAFormat fails if the layout of keys changes: disks keep keys over upgrades
// of the driver.
func TestReservationKeysAreAFormat(t *testing.T) {
	t.Parallel()
	for epoch, want := range map[int64]string{
		1:                               "0xad1d5400000154f4",
		2:                               "0xad1d5400000254f4",
		0x123456:                        "0xad1d5412345654f4",
		provisioner.MaxReservationEpoch: "0xad1d54ffffff54f4",
	} {
		key, err := provisioner.NewReservationKey(cluster, epoch, "node-1", disk)
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
		key, err := provisioner.NewReservationKey(cluster, epoch, node, disk)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range []provisioner.ReservationKey{key, key.FenceOnly()} {
			if !k.IsDrivers() || k.Epoch() != epoch || k.Cluster() != cluster || k.IsFenceOnly() != (k != key) {
				t.Errorf("key %s: driver's %t, cluster %#x, epoch %d, fence only %t; want it of cluster %#x and epoch %d",
					k, k.IsDrivers(), k.Cluster(), k.Epoch(), k.IsFenceOnly(), cluster, epoch)
			}
		}
		next := rapid.Int64Range(1, provisioner.MaxReservationEpoch).Draw(t, "other epoch")
		other, err := provisioner.NewReservationKey(cluster, next, rapid.StringMatching(`[a-z]{1,20}`).Draw(t, "other node"),
			disk)
		if err != nil {
			t.Fatal(err)
		}
		if next != epoch && (other == key || other.FenceOnly() == key.FenceOnly() || (next > epoch) != (other > key)) {
			t.Errorf("keys %s of epoch %d and %s of epoch %d: want different ones in the order of the epochs", key, epoch, other,
				next)
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
		"the first byte, no epoch":  0xAD1D540000000001,
		"no cluster":                0xAD00000000010001,
		"another byte in the front": 0xAC00000000010001,
	} {
		if key.IsDrivers() || key.IsFenceOnly() || key.Epoch() != 0 || key.Cluster() != 0 {
			t.Errorf("%s (%s) is taken for a key of the driver with epoch %d, want that it is not", name, key, key.Epoch())
		}
	}
}

func TestReservationKeysThatCannotBeMade(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cluster    provisioner.ClusterIdentity
		epoch      int64
		node, disk string
	}{
		"no cluster":        {0, 1, "node-1", disk},
		"never acquired":    {cluster, 0, "node-1", disk},
		"a negative epoch":  {cluster, -1, "node-1", disk},
		"too high an epoch": {cluster, provisioner.MaxReservationEpoch + 1, "node-1", disk},
		"a nameless node":   {cluster, 1, "", disk},
		"a nameless disk":   {cluster, 1, "node-1", ""},
	} {
		if key, err := provisioner.NewReservationKey(c.cluster, c.epoch, c.node, c.disk); !errors.Is(err,
			provisioner.InvalidArgument) {
			t.Errorf("%s: got key %s, error %v, want InvalidArgument", name, key, err)
		}
	}
}

func TestClusterIdentitiesDiffer(t *testing.T) {
	t.Parallel()
	if got := provisioner.NewClusterIdentity(""); got != 0 {
		t.Errorf("identity of no UID: got %#x, want 0", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		uid := rapid.StringMatching(`[0-9a-f-]{1,36}`).Draw(t, "UID")
		if got := provisioner.NewClusterIdentity(uid); got == 0 || got != provisioner.NewClusterIdentity(uid) {
			t.Errorf("identity of %q: got %#x and %#x, want one identity that is not 0", uid, got,
				provisioner.NewClusterIdentity(uid))
		}
	})
	const clusters = 200 // 0.3 pairs of 200 have one identity, if identities are random
	seen := map[provisioner.ClusterIdentity]bool{}
	for i := range clusters {
		seen[provisioner.NewClusterIdentity(fmt.Sprintf("6c1b9f1e-0000-4000-8000-%012d", i))] = true
	}
	if len(seen) < clusters-3 {
		t.Errorf("%d clusters have %d identities, want nearly one each", clusters, len(seen))
	}
}
