package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// holders describes what holds a device although it is not mounted in this namespace: state of the
// kernel that outlives the program that made it. It reads sysfs, and a few files of procfs.
func (h *Host) holders(path string) string {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return "what holds it cannot be read: " + err.Error()
	}
	held := h.mapperHolders(path)
	held = append(held, h.loopHolders(stat.Rdev)...)
	held = append(held, listed("/proc/swaps", "swap on", path, stat.Rdev)...)
	held = append(held, listed("/proc/fs/nfs/exports", "the NFS server's export of", path, stat.Rdev)...)
	if len(held) == 0 {
		return fmt.Sprintf("most likely a mount in another mount namespace; on the node, this names its processes: "+
			"grep -l ' %d:%d ' /proc/*/mountinfo", unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
	}
	return "by " + strings.Join(held, ", ")
}

// mapperHolders are the devices of the device mapper and of software RAID over the device.
func (h *Host) mapperHolders(path string) []string {
	var held []string
	blocks := filepath.Join(h.options.SysRoot, "class/block")
	entries, _ := os.ReadDir(filepath.Join(blocks, filepath.Base(path), "holders")) // without the directory there are none
	for _, entry := range entries {
		name := "the device " + filepath.Join(h.options.DevRoot, entry.Name())
		if mapped := attribute(filepath.Join(blocks, entry.Name()), "dm/name"); mapped != "" {
			name += " (" + mapped + ")"
		}
		held = append(held, name)
	}
	return held
}

// loopHolders are the loop devices over files on the device, or over the device itself.
func (h *Host) loopHolders(device uint64) []string {
	var held []string
	// The pattern is a constant, so that there is no error.
	files, _ := filepath.Glob(filepath.Join(h.options.SysRoot, "class/block/loop*/loop/backing_file"))
	for _, file := range files {
		name := filepath.Base(filepath.Dir(filepath.Dir(file)))
		loop := filepath.Join(h.options.DevRoot, name)
		opened, err := openDevice(loop, os.O_RDONLY)
		if err != nil {
			continue
		}
		status, err := unix.IoctlLoopGetStatus64(int(opened.Fd()))
		_ = opened.Close()
		if err == nil && (status.Device == device || status.Rdevice == device) {
			held = append(held, fmt.Sprintf("the loop device %s over %s", loop, attribute(filepath.Dir(file), "backing_file")))
		}
	}
	return held
}

// listed are the paths that a list of the kernel begins its lines with, if they are the device, or on
// it. A path that does not exist in this namespace may be on it.
func listed(file, what, path string, device uint64) []string {
	raw, _ := os.ReadFile(file) // without the file there are none
	var held []string
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || !strings.HasPrefix(fields[0], "/") {
			continue
		}
		name := unescape(fields[0])
		var stat unix.Stat_t
		switch err := unix.Stat(name, &stat); {
		case name == path, err == nil && (stat.Dev == device || stat.Rdev == device):
			held = append(held, what+" "+name)
		case err != nil:
			held = append(held, "perhaps "+what+" "+name)
		}
	}
	return held
}
