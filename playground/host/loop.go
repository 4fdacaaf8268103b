package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// LoopDevices lists the loop devices whose backing file is inside the folder, or has
// a name that begins with one of the prefixes.
func LoopDevices(dir string, prefixes ...string) ([]string, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var devices []string
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err == nil && isOwn(strings.TrimSpace(string(backing)), dir, prefixes) {
			devices = append(devices, "/dev/"+strings.Split(file, "/")[3])
		}
	}
	return devices, nil
}

// isOwn judges the backing file as the kernel shows it: a deleted file is marked, and a
// file of a filesystem that is not mounted here has its path within that filesystem.
func isOwn(backing, dir string, prefixes []string) bool {
	if strings.HasPrefix(backing, strings.TrimSuffix(dir, "/")+"/") {
		return true
	}
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		return prefix != "" && strings.HasPrefix(filepath.Base(backing), prefix)
	})
}

// DetachLoopDevices detaches the loop devices that LoopDevices lists.
func DetachLoopDevices(dir string, prefixes ...string) error {
	devices, err := LoopDevices(dir, prefixes...)
	if err != nil {
		return err
	}
	var failures []error
	for _, name := range devices {
		device, err := os.Open(name)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
			failures = append(failures, fmt.Errorf("detach %s: %w", name, err))
		}
		device.Close()
	}
	return errors.Join(failures...)
}
