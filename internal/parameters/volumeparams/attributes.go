package volumeparams

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	partitionKey = "partition"
	// maxPartition is the largest number of a partition in a GPT of the usual size.
	maxPartition = 128
)

// Attributes are the volume attributes that the driver uses of a PersistentVolume that it has not
// created: a PersistentVolume that a user or the V1 driver created, or Kubernetes for an in-tree
// azureDisk volume.
type Attributes struct {
	// CachingMode that is requested; "" for none.
	CachingMode string
	// FSType in lower case; "" for none.
	FSType               string
	MaxMountReplicaCount *int32
	// IOPSPerGB is 0 for none, and if the attributes name the IOPS too: one of them is of the
	// StorageClass, and the other of the VolumeAttributesClass that replaced it.
	IOPSPerGiB int64
	// Partition of the disk that is the volume; 0 for the whole disk.
	Partition int
	Tuning    Tuning
}

// ParseAttributes reads volume attributes. It ignores attributes that the disk itself shows, and
// unknown ones, because there is no StorageClass in which a user could correct them. For a raw
// block volume it ignores fsType. Keys and values are compared without regard to case, as for the
// in-tree volumes. The error is an InvalidArgument that lists every fault; the Attributes then have
// the attributes without a fault, for operations that do not use the others.
func ParseAttributes(raw map[string]string, block bool) (Attributes, error) {
	var a Attributes
	var faults []string
	refuse := func(key, value, allowed string) {
		faults = append(faults, paramtable.Fault(key, value, allowed))
	}
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		value := raw[key]
		if value == "" {
			continue
		}
		switch strings.ToLower(key) {
		case "cachingmode":
			if a.CachingMode = inCase(value, cachingModes); a.CachingMode == "" {
				refuse(key, value, strings.Join(cachingModes, ", "))
			}
		case "fstype":
			if block {
				continue
			}
			if a.FSType = inCase(value, FSTypes); a.FSType == "" {
				refuse(key, value, strings.Join(FSTypes, ", "))
			}
		case "maxmountreplicacount":
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil || n < 0 {
				refuse(key, value, "a whole number from 0")
				continue
			}
			count := int32(n)
			a.MaxMountReplicaCount = &count
		case "iopspergb":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 1 || n > maxIOPSPerGiB {
				refuse(key, value, fmt.Sprintf("a whole number from 1 to %d", maxIOPSPerGiB))
				continue
			}
			a.IOPSPerGiB = n
		case partitionKey:
			n, err := ParsePartition(value)
			if err != nil {
				refuse(key, value, allowedPartition)
			}
			a.Partition = n
		}
	}
	if slices.ContainsFunc(slices.Collect(maps.Keys(raw)), func(key string) bool { return strings.EqualFold(key, iopsKey) }) {
		a.IOPSPerGiB = 0
	}
	tuning, err := ParseTuning(raw)
	a.Tuning = tuning
	invalid := paramtable.Invalid(faults)
	if err != nil && invalid != nil {
		return a, fmt.Errorf("%w; %w", invalid, err)
	}
	return a, cmp.Or(invalid, err)
}

var allowedPartition = fmt.Sprintf("a whole number from 1 to %d", maxPartition)

// ParsePartition reads the number of a partition; 0 for "", which is the whole disk. The error is
// an InvalidArgument.
func ParsePartition(value string) (int, error) {
	if value == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > maxPartition {
		return 0, provisioner.Errorf(provisioner.InvalidArgument, "%s", paramtable.Fault(partitionKey, value, allowedPartition))
	}
	return n, nil
}

// inCase returns the one of values that equals value without regard to case, or "".
func inCase(value string, values []string) string {
	for _, v := range values {
		if strings.EqualFold(v, value) {
			return v
		}
	}
	return ""
}
