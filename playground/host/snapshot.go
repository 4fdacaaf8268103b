package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// Traces is what a playground could leave on the machine, as lines of text.
type Traces []string

// LookForTraces lists mounts, loop devices that are in use, network devices, packet
// filter rules, control groups, processes by their command lines, and the kernel
// settings that a playground changes. stateDir and cacheDir are where to look for
// processes.
func LookForTraces(stateDir, cacheDir string) (Traces, error) {
	var t Traces
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(string(mounts), "\n") {
		if fields := strings.Fields(line); len(fields) > 4 {
			t = append(t, "mount "+fields[4])
		}
	}
	t.glob("loop device", "/sys/block/loop*/loop/backing_file", stateDir)
	t.names("network device", "/sys/class/net/*")
	t.names("network namespace", "/run/netns/*")
	t.names("control group", "/sys/fs/cgroup/"+cgroupName, "/sys/fs/cgroup/*/"+cgroupName)
	t.names("folder", "/dev/disk")
	for _, name := range append([]string{inotifySetting}, changedByKubelet...) {
		if value, err := os.ReadFile("/proc/sys/" + name); err == nil {
			t = append(t, fmt.Sprintf("setting %s %s", name, strings.TrimSpace(string(value))))
		}
	}
	t.processes(stateDir, filepath.Join(cacheDir, "programs"))
	if rules, err := exec.Command("nft", "list", "tables").Output(); err == nil {
		for _, line := range strings.Split(strings.TrimSpace(string(rules)), "\n") {
			t = append(t, "packet filter "+line)
		}
	}
	sort.Strings(t)
	return t, nil
}

// glob adds the files whose content names the folder.
func (t *Traces) glob(kind, pattern, dir string) {
	files, _ := filepath.Glob(pattern)
	for _, file := range files {
		if content, err := os.ReadFile(file); err == nil && strings.Contains(string(content), dir) {
			*t = append(*t, kind+" "+file+" "+strings.TrimSpace(string(content)))
		}
	}
}

func (t *Traces) names(kind string, patterns ...string) {
	for _, pattern := range patterns {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			*t = append(*t, kind+" "+file)
		}
	}
}

// processes adds the processes whose program is of the playground.
func (t *Traces) processes(dirs ...string) {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		program, err := os.Readlink(link)
		if err != nil {
			continue
		}
		if slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(program, dir+"/") }) {
			*t = append(*t, "process "+filepath.Dir(link)+" "+program)
		}
	}
}

// Since lists what is in t and was not in before.
func (t Traces) Since(before Traces) Traces {
	var added Traces
	for _, trace := range t {
		if !slices.Contains(before, trace) {
			added = append(added, trace)
		}
	}
	return added
}
