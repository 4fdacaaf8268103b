// Package host knows the machine that a playground runs on: whether it can run
// there, how its control groups are laid out, and what has to be put back in order
// afterwards.
package host

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Group is the name of the control group under which everything of the playground in that state
// folder is.
func Group(stateDir string) string {
	sum := sha256.Sum256([]byte(stateDir))
	return fmt.Sprintf("azpg-%x", sum[:4])
}

// Hierarchy is one mounted hierarchy of control groups.
type Hierarchy struct {
	// Mount is where it is mounted.
	Mount string `json:"mount"`
	// Type is cgroup (version 1) or cgroup2.
	Type string `json:"type"`
	// Options are the mount options that select a version 1 hierarchy again.
	Options string `json:"options"`
}

// Cgroups are the control groups of a playground.
type Cgroups struct {
	// Group is that of the whole playground, in each hierarchy.
	Group string `json:"group"`
	// Hierarchies is the layout of the machine's control groups.
	Hierarchies []Hierarchy `json:"hierarchies"`
}

// DetectCgroups reads the layout from the mounts that this process sees. The playground is the one
// in that state folder.
func DetectCgroups(stateDir string) (Cgroups, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return Cgroups{}, err
	}
	defer file.Close()
	c, err := parseCgroups(file)
	c.Group = Group(stateDir)
	return c, err
}

func parseCgroups(mountinfo io.Reader) (Cgroups, error) {
	var c Cgroups
	scanner := bufio.NewScanner(mountinfo)
	for scanner.Scan() {
		before, after, found := strings.Cut(scanner.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !found || len(left) < 5 || len(right) < 3 || !strings.HasPrefix(left[4], "/sys/fs/cgroup") {
			continue
		}
		switch right[0] {
		case "cgroup":
			c.Hierarchies = append(c.Hierarchies, Hierarchy{
				Mount:   left[4],
				Type:    "cgroup",
				Options: selecting(right[2]),
			})
		case "cgroup2":
			c.Hierarchies = append(c.Hierarchies, Hierarchy{Mount: left[4], Type: "cgroup2"})
		}
	}
	if err := scanner.Err(); err != nil {
		return c, err
	}
	if len(c.Hierarchies) == 0 {
		return c, errors.New("no control groups are mounted under /sys/fs/cgroup")
	}
	return c, nil
}

// selecting keeps those options of a version 1 hierarchy that say which it is.
func selecting(superOptions string) string {
	var keep []string
	for _, option := range strings.Split(superOptions, ",") {
		generic := slices.Contains([]string{"rw", "ro", "xattr", "noprefix", "clone_children", "cpuset_v2_mode"}, option)
		if !generic && !strings.HasPrefix(option, "release_agent=") {
			keep = append(keep, option)
		}
	}
	// A named hierarchy has no controller and needs "none" to be mounted again.
	if len(keep) == 1 && strings.HasPrefix(keep[0], "name=") {
		keep = append([]string{"none"}, keep...)
	}
	return strings.Join(keep, ",")
}

// Unified reports whether the machine has control groups of version 2 only.
func (c Cgroups) Unified() bool {
	return len(c.Hierarchies) == 1 && c.Hierarchies[0].Type == "cgroup2"
}

// Describe says in a few words which version the machine has.
func (c Cgroups) Describe() string {
	switch {
	case c.Unified():
		return "cgroup v2"
	case slices.ContainsFunc(c.Hierarchies, func(h Hierarchy) bool { return h.Type == "cgroup2" }):
		return "cgroup v1 (hybrid)"
	}
	return "cgroup v1"
}

// Join makes the playground's control group of that name in every hierarchy and
// moves this process there.
func (c Cgroups) Join(name string) error {
	for _, h := range c.Hierarchies {
		top := filepath.Join(h.Mount, c.Group)
		dir := filepath.Join(top, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make control group: %w", err)
		}
		switch {
		case h.Type == "cgroup2" && c.Unified():
			enableControllers(h.Mount)
			enableControllers(top)
			// Only a group without processes of its own may hand controllers on, and
			// the group that the node calls its root must: so the node starts in a leaf.
			dir = filepath.Join(dir, "init")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("make control group: %w", err)
			}
		case strings.Contains(h.Options, "cpuset"):
			if err := inheritCPUSet(top, dir); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("join control group: %w", err)
		}
	}
	return nil
}

// Prefer sets how many shares of the processors the playground's control group of that name has,
// when there is not enough for all. The group of a machine has one.
func (c Cgroups) Prefer(name string, shares int) error {
	const oneShare, oneWeight = 1024, 100 // the kernel's defaults, of version 1 and 2
	for _, h := range c.Hierarchies {
		file, value := "", 0
		switch {
		case h.Type == "cgroup2" && c.Unified():
			file, value = "cpu.weight", shares*oneWeight
		case h.Type == "cgroup" && slices.Contains(strings.Split(h.Options, ","), "cpu"):
			file, value = "cpu.shares", shares*oneShare
		default:
			continue
		}
		err := os.WriteFile(filepath.Join(h.Mount, c.Group, name, file), []byte(strconv.Itoa(value)), 0o644)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // version 2 without the controller
			return fmt.Errorf("set the processor shares of control group %s: %w", name, err)
		}
	}
	return nil
}

// enableControllers hands all controllers of a version 2 group on to its children.
// What cannot be handed on is left: the playground needs no limits to work.
func enableControllers(dir string) {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	for _, controller := range strings.Fields(string(data)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
	}
}

// inheritCPUSet fills in what the kernel leaves empty in a new cpuset, and without
// which no process may join it.
func inheritCPUSet(dirs ...string) error {
	for _, dir := range dirs {
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			parent, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, name), parent, 0o644); err != nil {
				return fmt.Errorf("set up control group: %w", err)
			}
		}
	}
	return nil
}

// Remove removes all of the playground's control groups, which must be empty of
// processes. The kernel may take a moment to remove the last of them.
func (c Cgroups) Remove(under string) error {
	var failures []error
	for _, h := range c.Hierarchies {
		top := filepath.Join(h.Mount, c.Group, under)
		var dirs []string
		_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		slices.Reverse(dirs)
		for _, dir := range dirs {
			failures = append(failures, removeGroup(dir))
		}
	}
	return errors.Join(failures...)
}

func removeGroup(dir string) error {
	for deadline := time.Now().Add(3 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := syscall.Rmdir(dir)
		if err == nil || err == syscall.ENOENT {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove control group %s: %w", dir, err)
		}
	}
}
