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

// LookForTraces lists mounts, loop devices that are in use, network devices, packet filter rules,
// control groups, and the kernel settings that a playground changes. The control groups and loop
// devices of other playgrounds are left out; the settings are the same for all of them. prefixes
// are those of the names of the files under its loop devices.
func LookForTraces(stateDir string, prefixes ...string) (Traces, error) {
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
	devices, err := LoopDevices(stateDir, prefixes...)
	if err != nil {
		return nil, err
	}
	for _, device := range devices {
		t = append(t, "loop device "+device)
	}
	t.names("network device", "/sys/class/net/*")
	t.names("network namespace", "/run/netns/*")
	t.names("control group", "/sys/fs/cgroup/"+Group(stateDir), "/sys/fs/cgroup/*/"+Group(stateDir))
	t.names("folder", "/dev/disk")
	for name, value := range Machine().values() {
		t = append(t, fmt.Sprintf("setting %s %s", name, value))
	}
	if rules, err := exec.Command("nft", "list", "tables").Output(); err == nil {
		for _, line := range strings.Split(strings.TrimSpace(string(rules)), "\n") {
			t = append(t, "packet filter "+line)
		}
	}
	sort.Strings(t)
	return t, nil
}

func (t *Traces) names(kind string, patterns ...string) {
	for _, pattern := range patterns {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			*t = append(*t, kind+" "+file)
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
