package hypervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// DeviceDir is the directory that is a VM's /dev/disk/azure. It keeps its inode from EnsureVM to
// RemoveVM, over restarts of the hypervisor, so that it can be bind-mounted into the VM's mount
// namespace.
func DeviceDir(stateDir, vm string) string {
	return filepath.Join(stateDir, "vms", vm, "dev", "disk", "azure")
}

// devDir is the device directory of one VM. It holds the symlinks that Azure's udev rules make on a
// real VM.
type devDir struct {
	path    string // as DeviceDir says
	staging string // on the same file system, outside of what the VM sees
}

func newDevDir(stateDir, vm string) devDir {
	return devDir{path: DeviceDir(stateDir, vm), staging: filepath.Join(stateDir, "vms", vm)}
}

// links are the names of a LUN's device: those of Azure's newer and of its older udev rules.
func (d devDir) links(lun int) []string {
	return []string{
		filepath.Join(d.path, "data", "by-lun", strconv.Itoa(lun)),
		filepath.Join(d.path, "scsi1", "lun"+strconv.Itoa(lun)),
	}
}

// make makes the directories; existing ones keep their inodes.
func (d devDir) make() error {
	for _, link := range d.links(0) {
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			return fmt.Errorf("make device directory: %w", err)
		}
	}
	return nil
}

// show makes the names of a LUN point to device; each appears or changes in one step.
func (d devDir) show(lun int, device string) error {
	for _, link := range d.links(lun) {
		temporary := filepath.Join(d.staging, ".link-"+strconv.Itoa(lun))
		if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("show LUN %d: %w", lun, err)
		}
		if err := os.Symlink(device, temporary); err != nil {
			return fmt.Errorf("show LUN %d: %w", lun, err)
		}
		if err := os.Rename(temporary, link); err != nil {
			return fmt.Errorf("show LUN %d: %w", lun, err)
		}
	}
	return nil
}

// hide removes the names of a LUN.
func (d devDir) hide(lun int) error {
	for _, link := range d.links(lun) {
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("hide LUN %d: %w", lun, err)
		}
	}
	return nil
}

// hideAll removes the names that an earlier process left.
func (d devDir) hideAll() error {
	for _, link := range d.links(0) {
		entries, err := os.ReadDir(filepath.Dir(link))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read device directory: %w", err)
		}
		for _, entry := range entries {
			if err := os.Remove(filepath.Join(filepath.Dir(link), entry.Name())); err != nil {
				return fmt.Errorf("remove stale device link: %w", err)
			}
		}
	}
	return nil
}

// remove removes the VM's directory.
func (d devDir) remove() error {
	if err := os.RemoveAll(d.staging); err != nil {
		return fmt.Errorf("remove device directory: %w", err)
	}
	return nil
}
