// Package problem decides what a node plug-in tells users of the volumes of its node: which failures of
// the kubelet's calls, and which states of a mounted filesystem, and for how long one must have lasted.
//
// A failure to mount is an event of the kubelet on the pod. A failure to unmount is in the kubelet's log
// alone, and the states are nowhere.
package problem

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Reasons are the causes that nodes report. If a volume has several, the first one counts: it may be the
// cause of the others.
var Reasons = []string{
	apiv1.ReasonFilesystemFrozen, apiv1.ReasonFilesystemTakesNoWrites, apiv1.ReasonDeviceGone, apiv1.ReasonReadFailed,
	apiv1.ReasonFilesystemDamaged, apiv1.ReasonNodeDiskFull, apiv1.ReasonDeviceHeld, apiv1.ReasonMountBusy,
	apiv1.ReasonUnmountFailed,
}

// byFault are the causes of the faults of a node.
var byFault = map[provisioner.Fault]string{
	provisioner.DeviceHeld:        apiv1.ReasonDeviceHeld,
	provisioner.MountBusy:         apiv1.ReasonMountBusy,
	provisioner.FilesystemDamaged: apiv1.ReasonFilesystemDamaged,
}

// OfCall returns the cause with which a call has failed; "" if it has succeeded, or has failed in a way that
// users learn of otherwise. unmounts says that the call was to unmount the volume, or to release its device.
// ok is false if the end of the call says nothing about the volume: another call is running, or its caller
// has stopped waiting.
func OfCall(unmounts bool, err error) (reason string, ok bool) {
	for fault, reason := range byFault {
		if errors.Is(err, fault) {
			return reason, true
		}
	}
	for _, full := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS} {
		if errors.Is(err, full) {
			return apiv1.ReasonNodeDiskFull, true
		}
	}
	switch {
	case errors.Is(err, provisioner.Conflict), errors.Is(err, context.Canceled),
		!unmounts && errors.Is(err, context.DeadlineExceeded):
		return "", false
	case err == nil, !unmounts, errors.Is(err, provisioner.InvalidArgument):
		return "", true
	}
	return apiv1.ReasonUnmountFailed, true
}

// Filesystem is what was seen of a filesystem that is mounted for writing.
type Filesystem struct {
	Type, Device, Path string
	// Sealed and Frozen are as in provisioner.MountPoint and provisioner.Filesystems.
	Sealed, Frozen bool
}

// OfFilesystem returns the cause for which a filesystem takes no writes, and what was seen; "" if it takes
// them.
func OfFilesystem(f Filesystem) (reason, message string) {
	switch {
	case f.Sealed:
		return apiv1.ReasonFilesystemTakesNoWrites, fmt.Sprintf(
			"the %s on %s is read-only; the kernel makes a filesystem read-only after an error", f.Type, f.Device)
	case f.Frozen:
		return apiv1.ReasonFilesystemFrozen, fmt.Sprintf("the %s on %s is frozen, mounted at %s", f.Type, f.Device, f.Path)
	}
	return "", ""
}
