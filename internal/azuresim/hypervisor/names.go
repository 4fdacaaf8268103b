package hypervisor

import (
	"fmt"
	"regexp"
)

// maxLUN is the highest logical unit number that Azure gives to a data disk.
const maxLUN = 63

// namePattern keeps slashes and leading dots out of names, because they become file names in the
// state directory and in the FUSE file system.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

func checkDisk(uid string) error {
	if !namePattern.MatchString(uid) {
		return fmt.Errorf("%w: disk UID %q must match %s", ErrInvalid, uid, namePattern)
	}
	return nil
}

func checkVM(vm string) error {
	if !namePattern.MatchString(vm) {
		return fmt.Errorf("%w: VM key %q must match %s", ErrInvalid, vm, namePattern)
	}
	return nil
}

func checkSlot(vm string, lun int, uid string) error {
	if lun < 0 || lun > maxLUN {
		return fmt.Errorf("%w: LUN %d is not within 0 and %d", ErrInvalid, lun, maxLUN)
	}
	if err := checkVM(vm); err != nil {
		return err
	}
	return checkDisk(uid)
}
