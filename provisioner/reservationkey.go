package provisioner

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// ReservationKey is a key of a persistent reservation. 0 is no key. A key of this driver says in
// which cluster and under which epoch a node registered:
//
//	bits 63 to 56   0xAD, which tells the driver's keys from other programs' keys
//	bits 55 to 40   identity of the cluster
//	bits 39 to 16   epoch of the ownership
//	bits 15 to 1    hash of the node's name and the disk's ID
//	bit  0          fence only: the node registered to take the reservation from another one, and does not own the volume
//
// Epochs count within one cluster: a key of another cluster says nothing about who may use the disk
// here. Two nodes of a cluster never own a volume under one epoch, so the keys of owners differ
// also if their hashes are the same.
type ReservationKey uint64

// ClusterIdentity identifies the cluster among the clusters whose drivers use one disk. 0 is none.
type ClusterIdentity uint16

const (
	keyMagic        = 0xAD
	keyMagicShift   = 56
	keyClusterShift = 40
	keyEpochShift   = 16
	keyOwnerShift   = 1
	keyFenceOnly    = 1
	keyClusterMask  = 1<<(keyMagicShift-keyClusterShift) - 1
	keyEpochMask    = 1<<(keyClusterShift-keyEpochShift) - 1
	keyOwnerMask    = 1<<(keyEpochShift-keyOwnerShift) - 1
)

// MaxReservationEpoch is the highest epoch that a key can carry. An epoch for each minute reaches
// it after 31 years.
const MaxReservationEpoch = int64(keyEpochMask)

// NewClusterIdentity returns the identity of the cluster that a UID identifies. It must be the UID
// of an object that exists as long as the cluster, and that no restore into another cluster copies.
// Two clusters have the same identity in 1 of 65,535 cases. It is 0 for an empty UID.
func NewClusterIdentity(uid string) ClusterIdentity {
	if uid == "" {
		return 0
	}
	sum := fnv32(uid)
	if identity := ClusterIdentity(sum>>16 ^ sum&keyClusterMask); identity != 0 {
		return identity
	}
	return 1
}

// NewReservationKey returns the key of the node that owns the volume of a disk under the epoch in
// the cluster. The disk's resource ID is part of it, in any case: nodes own many volumes under the
// same low epochs, and a key that is found on the wrong disk must prove nothing. Errors:
// InvalidArgument for an epoch below 1 or above MaxReservationEpoch, for a cluster without an
// identity, and for a node or a disk without a name.
func NewReservationKey(cluster ClusterIdentity, epoch int64, node, diskID string) (ReservationKey, error) {
	switch {
	case cluster == 0:
		return 0, Errorf(InvalidArgument,
			"make a reservation key for epoch %d of node %s: the identity of the cluster must not be 0", epoch, node)
	case epoch < 1 || epoch > MaxReservationEpoch:
		return 0, Errorf(InvalidArgument, "make a reservation key: epoch %d must be within 1 and %d", epoch, MaxReservationEpoch)
	case node == "":
		return 0, Errorf(InvalidArgument, "make a reservation key for epoch %d: the name of the node must not be empty", epoch)
	case diskID == "":
		return 0, Errorf(InvalidArgument, "make a reservation key for epoch %d of node %s: the ID of the disk must not be empty",
			epoch, node)
	}
	return keyMagic<<keyMagicShift | ReservationKey(cluster)<<keyClusterShift | ReservationKey(epoch)<<keyEpochShift |
		ownerHash(node, diskID)<<keyOwnerShift, nil
}

// ownerHash reduces FNV-1a to 15 bits by folding, as its authors recommend.
func ownerHash(node, diskID string) ReservationKey {
	sum := fnv32(node + " " + strings.ToLower(diskID))
	return ReservationKey((sum>>15 ^ sum) & keyOwnerMask)
}

func fnv32(text string) uint32 {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(text)) // it never fails
	return hash.Sum32()
}

// ParseReservationKey is the inverse of String.
func ParseReservationKey(text string) (ReservationKey, error) {
	key, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
	if err != nil {
		return 0, Errorf(InvalidArgument, "parse reservation key %q: %w", text, err)
	}
	return ReservationKey(key), nil
}

// FenceOnly returns the key under which the same node registers if it only takes the reservation
// from another node.
func (k ReservationKey) FenceOnly() ReservationKey { return k | keyFenceOnly }

// IsFenceOnly reports whether the key is one of FenceOnly.
func (k ReservationKey) IsFenceOnly() bool { return k.IsDrivers() && k&keyFenceOnly != 0 }

// IsDrivers reports whether the key can be one of this driver, in this cluster or another one.
// Another program has registered any other key.
func (k ReservationKey) IsDrivers() bool {
	return k>>keyMagicShift == keyMagic && k.epoch() > 0 && k.cluster() > 0
}

// SameNode reports whether both keys can be of one node of one cluster and of one disk.
func (k ReservationKey) SameNode(other ReservationKey) bool {
	const of = keyClusterMask<<keyClusterShift | keyOwnerMask<<keyOwnerShift
	return k.IsDrivers() && other.IsDrivers() && k&of == other&of
}

// Epoch of a key of this driver; 0 for another key.
func (k ReservationKey) Epoch() int64 {
	if !k.IsDrivers() {
		return 0
	}
	return k.epoch()
}

// Cluster of a key of this driver; 0 for another key.
func (k ReservationKey) Cluster() ClusterIdentity {
	if !k.IsDrivers() {
		return 0
	}
	return k.cluster()
}

func (k ReservationKey) epoch() int64 { return int64(k >> keyEpochShift & keyEpochMask) }

func (k ReservationKey) cluster() ClusterIdentity {
	return ClusterIdentity(k >> keyClusterShift & keyClusterMask)
}

// String is how other tools print keys, as in 0xad1d540000011a2c.
func (k ReservationKey) String() string { return fmt.Sprintf("0x%016x", uint64(k)) }
