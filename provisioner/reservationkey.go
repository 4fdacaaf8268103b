package provisioner

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// ReservationKey is a key of a persistent reservation. 0 is no key. A key of this driver says under which epoch a node
// registered:
//
//	bits 63 to 56   0xAD, which tells the driver's keys from those of other programs
//	bits 55 to 16   epoch of the ownership
//	bits 15 to 1    hash of the node's name and the disk's ID
//	bit  0          fence only: the node registered to take the reservation from another one, and does not own the volume
//
// Two nodes never own a volume under one epoch, so the keys of owners differ also if their hashes are the same.
type ReservationKey uint64

const (
	keyMagic      = 0xAD
	keyMagicShift = 56
	keyEpochShift = 16
	keyOwnerShift = 1
	keyFenceOnly  = 1
	keyEpochMask  = 1<<(keyMagicShift-keyEpochShift) - 1
	keyOwnerMask  = 1<<(keyEpochShift-keyOwnerShift) - 1
)

// MaxReservationEpoch is the highest epoch that a key can carry.
const MaxReservationEpoch = int64(keyEpochMask)

// NewReservationKey returns the key of the node that owns the volume of a disk under the epoch. The disk's resource ID is part of it, in any
// case: nodes own many volumes under the same low epochs, and a key that is found on the wrong disk must prove nothing. Errors:
// InvalidArgument for an epoch below 1 or above MaxReservationEpoch, and for a node or a disk without a name.
func NewReservationKey(epoch int64, node, diskID string) (ReservationKey, error) {
	switch {
	case epoch < 1 || epoch > MaxReservationEpoch:
		return 0, Errorf(InvalidArgument, "make a reservation key: epoch %d must be within 1 and %d", epoch, MaxReservationEpoch)
	case node == "":
		return 0, Errorf(InvalidArgument, "make a reservation key for epoch %d: the name of the node must not be empty", epoch)
	case diskID == "":
		return 0, Errorf(InvalidArgument, "make a reservation key for epoch %d of node %s: the ID of the disk must not be empty", epoch, node)
	}
	return keyMagic<<keyMagicShift | ReservationKey(epoch)<<keyEpochShift | ownerHash(node, diskID)<<keyOwnerShift, nil
}

// ownerHash reduces FNV-1a to 15 bits by folding, as its authors recommend.
func ownerHash(node, diskID string) ReservationKey {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(node + " " + strings.ToLower(diskID))) // it never fails
	sum := hash.Sum32()
	return ReservationKey((sum>>15 ^ sum) & keyOwnerMask)
}

// FenceOnly returns the key under which the same node registers if it only takes the reservation from another node.
func (k ReservationKey) FenceOnly() ReservationKey { return k | keyFenceOnly }

// IsFenceOnly says whether the key is one of FenceOnly.
func (k ReservationKey) IsFenceOnly() bool { return k.IsDrivers() && k&keyFenceOnly != 0 }

// IsDrivers says whether the key can be one of this driver. Another program has registered any other key.
func (k ReservationKey) IsDrivers() bool { return k>>keyMagicShift == keyMagic && k.epoch() > 0 }

// Epoch of a key of this driver; 0 for another key.
func (k ReservationKey) Epoch() int64 {
	if !k.IsDrivers() {
		return 0
	}
	return k.epoch()
}

func (k ReservationKey) epoch() int64 { return int64(k >> keyEpochShift & keyEpochMask) }

// String is how other tools print keys, as in 0xad00000000011a2c.
func (k ReservationKey) String() string { return fmt.Sprintf("0x%016x", uint64(k)) }
