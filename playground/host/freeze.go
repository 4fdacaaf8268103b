package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// standstill bounds how long the processes of a group may take to stand still. One that waits for a
// disk or for another machine in a call of the kernel does so before it stands still.
const standstill = 3 * time.Second

// Freeze stops all processes in and below the playground's control group of that name, wherever
// they are, and returns when they stand still. They can be killed, but do not end on their own. If
// one of them does not stand still, all go on, and that is an error.
//
// It uses version 2, also on a machine that has both: processes that version 1 has frozen cannot be
// killed, so that the end of the supervisor would not be the end of all.
func (c Cgroups) Freeze(name string) error {
	dir, err := c.version2(name)
	if err != nil {
		return err
	}
	if err := writeFreeze(dir, "1"); err != nil {
		return err
	}
	for deadline := time.Now().Add(standstill); ; time.Sleep(time.Millisecond) {
		events, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
		switch {
		case err == nil && strings.Contains(string(events), "frozen 1"):
			return nil
		case err == nil && time.Now().After(deadline):
			err = fmt.Errorf("freeze control group %s: a process of it does not stand still within %s", dir, standstill)
		}
		if err != nil {
			return errors.Join(err, writeFreeze(dir, "0"))
		}
	}
}

// Thaw ends Freeze. Processes that are not frozen are left alone.
func (c Cgroups) Thaw(name string) error {
	dir, err := c.version2(name)
	if err != nil {
		return err
	}
	return writeFreeze(dir, "0")
}

func writeFreeze(dir, value string) error {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte(value), 0o644); err != nil {
		return fmt.Errorf("freeze or thaw control group %s: %w", dir, err)
	}
	return nil
}

// version2 is the folder of the playground's control group of that name in the hierarchy of
// version 2.
func (c Cgroups) version2(name string) (string, error) {
	for _, h := range c.Hierarchies {
		if h.Type == "cgroup2" {
			return filepath.Join(h.Mount, c.Group, name), nil
		}
	}
	return "", errors.New("nothing can be frozen on this machine: no control groups of version 2 are mounted under /sys/fs/cgroup")
}
