package nodereport

import (
	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// InUse is a volume that the node uses.
type InUse struct {
	// Device path as in "/dev/sdc".
	Device string
	// Volume as it was read last, some minutes ago at most, unless the API server did not answer. It
	// must not be changed.
	Volume *apiv1.AzVolume
}

// InUse returns the volumes that are in use on this node. It reads nothing and waits for nothing:
// volumes that were not read yet, and those that are just being staged, are missing.
func (r *Reporter) InUse() []InUse {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []InUse
	for _, entry := range r.staged {
		known, read := r.observed[entry.VolumeName]
		// The device of a volume that is being staged may be another disk's by now.
		if read && entry.Device != "" && entry.Phase != apiv1.PhaseStaging {
			found = append(found, InUse{Device: entry.Device, Volume: known.volume})
		}
	}
	return found
}

// KnownCapacity returns the capacity of the node's VM as it was seen last, or nil. It reads nothing.
func (r *Reporter) KnownCapacity() *apiv1.NodeCapacity {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		return nil
	}
	return r.known.Capacity().DeepCopy()
}
