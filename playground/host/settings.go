package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

// settings are kernel settings as they were before the first playground came up, and
// the other changes that playgrounds make on the machine.
type settings struct {
	Sysctl map[string]string `json:"sysctl"`
	// MadeDevDisk means that the folder /dev/disk was made: a mount point
	// that every machine with udev has.
	MadeDevDisk bool `json:"madeDevDisk"`
}

// Shared is what all playgrounds of a machine have in common: the settings of its kernel. The first
// of them to come up records them, and the clean-up after the last one puts them back.
type Shared struct {
	// dir holds the record, and the files whose locks show which playgrounds use the machine. Like
	// the settings, it does not survive the machine's next boot.
	dir string
	// sysctl and devDisk are /proc/sys and /dev/disk.
	sysctl, devDisk string
}

// Machine is this machine.
func Machine() Shared {
	return Shared{
		dir:     "/run/azuredisk-playground",
		sysctl:  "/proc/sys",
		devDisk: "/dev/disk",
	}
}

func (m Shared) record() string { return filepath.Join(m.dir, "settings.json") }

// Use changes what must be changed on the machine, after writing down how to change it back. The
// machine is in use until release is called or this process ends, however it does. The notes are
// sentences for the user.
func (m Shared) Use() (release func(), notes []string, err error) {
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return nil, nil, err
	}
	users, err := m.open("users")
	if err != nil {
		return nil, nil, err
	}
	err = m.oneAtATime(func() error {
		switch first, err := tryLock(users); {
		case err != nil:
			return err
		case first:
			// The last playground was killed, and its settings have not been put back.
			if err := m.putBack(); err != nil {
				return err
			}
			if err := m.writeRecord(); err != nil {
				return err
			}
		}
		// This releases the lock of the first user. No other process can take it now.
		if err := lock(users, unix.LOCK_SH); err != nil {
			return err
		}
		if err := os.Mkdir(m.devDisk, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		notes = m.raiseInotify()
		return nil
	})
	if err != nil {
		users.Close()
		return nil, nil, fmt.Errorf("prepare the machine: %w", err)
	}
	return func() { users.Close() }, notes, nil
}

// Restore undoes what Use has changed, unless a playground uses the machine. It is idempotent.
func (m Shared) Restore() error {
	users, err := m.open("users")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer users.Close()
	return m.oneAtATime(func() error {
		unused, err := tryLock(users)
		if err != nil || !unused {
			return err
		}
		return m.putBack()
	})
}

// values are the settings that playgrounds change, as they are now.
func (m Shared) values() map[string]string {
	values := map[string]string{}
	for _, name := range append([]string{inotifySetting}, changedByKubelet...) {
		if value, err := os.ReadFile(filepath.Join(m.sysctl, name)); err == nil {
			values[name] = strings.TrimSpace(string(value))
		}
	}
	return values
}

func (m Shared) writeRecord() error {
	before := settings{Sysctl: m.values()}
	if _, err := os.Stat(m.devDisk); errors.Is(err, fs.ErrNotExist) {
		before.MadeDevDisk = true
	}
	data, err := json.MarshalIndent(before, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(m.record(), data, 0o644); err != nil {
		return fmt.Errorf("record the machine's settings: %w", err)
	}
	return nil
}

func (m Shared) putBack() error {
	data, err := os.ReadFile(m.record())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var before settings
	if err := json.Unmarshal(data, &before); err != nil {
		return fmt.Errorf("read %s: %w", m.record(), err)
	}
	var failures []error
	for name, value := range before.Sysctl {
		path := filepath.Join(m.sysctl, name)
		if now, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(now)) == value {
			continue
		}
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			failures = append(failures, fmt.Errorf("restore a kernel setting: %w", err))
		}
	}
	if before.MadeDevDisk {
		if err := os.Remove(m.devDisk); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failures = append(failures, err)
		}
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	return os.Remove(m.record())
}

func (m Shared) raiseInotify() []string {
	path := filepath.Join(m.sysctl, inotifySetting)
	now, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var instances int
	if _, err := fmt.Sscan(string(now), &instances); err != nil || instances >= inotifyInstances {
		return nil
	}
	if err := os.WriteFile(path, []byte(fmt.Sprint(inotifyInstances)), 0o644); err != nil {
		return []string{fmt.Sprintf("inotify instances are limited to %d and this cannot be raised (%v): kubelets may fail",
			instances, err)}
	}
	return []string{fmt.Sprintf("raised the limit of inotify instances from %d to %d until `playground down`", instances,
		inotifyInstances)}
}

// oneAtATime runs f while no other playground begins or ceases to use the machine.
func (m Shared) oneAtATime(f func() error) error {
	gate, err := m.open("gate")
	if err != nil {
		return err
	}
	defer gate.Close()
	if err := lock(gate, unix.LOCK_EX); err != nil {
		return err
	}
	return f()
}

func (m Shared) open(name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(m.dir, name), os.O_CREATE|os.O_RDWR, 0o644)
}

// tryLock locks the file for this process alone, and reports whether it could.
func tryLock(file *os.File) (bool, error) {
	err := lock(file, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// lock does what flock(2) says.
func lock(file *os.File, how int) error {
	for {
		err := unix.Flock(int(file.Fd()), how)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return &fs.PathError{
				Op:   "lock",
				Path: file.Name(),
				Err:  err,
			}
		}
		return nil
	}
}
