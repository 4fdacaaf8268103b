package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// inotifyInstances is how many inotify instances a playground needs: every
// kubelet, containerd and controller takes several.
const inotifyInstances = 2048

// changedByKubelet are the settings of the whole machine that a kubelet changes
// when it starts.
var changedByKubelet = []string{
	"kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
	"vm/overcommit_memory", "vm/panic_on_oom",
}

const inotifySetting = "fs/inotify/max_user_instances"

// Settings are kernel settings as they were before the playground came up, and
// what else of the machine it will have changed.
type Settings struct {
	Sysctl map[string]string `json:"sysctl"`
	// MadeDevDisk means that the playground made the folder /dev/disk: a mount point
	// that every machine with udev has.
	MadeDevDisk bool `json:"madeDevDisk"`
}

// Prepare changes what must be changed on the machine and writes to file, before it
// does, how to change it back. It returns sentences for the user.
func Prepare(file string) ([]string, error) {
	settings := Settings{Sysctl: map[string]string{}}
	for _, name := range append([]string{inotifySetting}, changedByKubelet...) {
		if value, err := os.ReadFile("/proc/sys/" + name); err == nil {
			settings.Sysctl[name] = strings.TrimSpace(string(value))
		}
	}
	if _, err := os.Stat("/dev/disk"); errors.Is(err, os.ErrNotExist) {
		settings.MadeDevDisk = true
	}
	data, err := json.MarshalIndent(settings, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return nil, fmt.Errorf("record the machine's settings: %w", err)
	}
	if settings.MadeDevDisk {
		if err := os.Mkdir("/dev/disk", 0o755); err != nil {
			return nil, err
		}
	}
	return raiseInotify(settings.Sysctl[inotifySetting]), nil
}

func raiseInotify(now string) []string {
	var instances int
	if _, err := fmt.Sscan(now, &instances); err != nil || instances >= inotifyInstances {
		return nil
	}
	if err := os.WriteFile("/proc/sys/"+inotifySetting, []byte(fmt.Sprint(inotifyInstances)), 0o644); err != nil {
		return []string{fmt.Sprintf("inotify instances are limited to %d and this cannot be raised (%v): kubelets may fail", instances, err)}
	}
	return []string{fmt.Sprintf("raised the limit of inotify instances from %d to %d until `playground down`", instances, inotifyInstances)}
}

// Restore undoes Prepare. It is idempotent, and without the file there is nothing to undo.
func Restore(file string) error {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var settings Settings
	if err := json.Unmarshal(data, &settings); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	var failures []error
	for name, value := range settings.Sysctl {
		path := "/proc/sys/" + name
		if now, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(now)) == value {
			continue
		}
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			failures = append(failures, fmt.Errorf("restore a kernel setting: %w", err))
		}
	}
	if settings.MadeDevDisk {
		if err := os.Remove("/dev/disk"); err != nil && !errors.Is(err, os.ErrNotExist) {
			failures = append(failures, err)
		}
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	return os.Remove(file)
}

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
