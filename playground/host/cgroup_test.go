package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCgroupLayoutIsReadFromMounts(t *testing.T) {
	cases := map[string]struct {
		mounts   string
		want     Cgroups
		describe string
		unified  bool
	}{
		"version 2": {
			mounts:   "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate",
			want:     Cgroups{Hierarchies: []Hierarchy{{Mount: "/sys/fs/cgroup", Type: "cgroup2"}}},
			describe: "cgroup v2", unified: true,
		},
		"hybrid, one hierarchy per controller": {
			mounts: "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n" +
				"32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n" +
				"40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n" +
				"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
			want: Cgroups{Hierarchies: []Hierarchy{
				{Mount: "/sys/fs/cgroup/cpu", Type: "cgroup", Options: "cpu"},
				{Mount: "/sys/fs/cgroup/systemd", Type: "cgroup", Options: "none,name=systemd"},
				{Mount: "/sys/fs/cgroup/unified", Type: "cgroup2"},
			}},
			describe: "cgroup v1 (hybrid)",
		},
		"version 1 with controllers together and a release agent": {
			mounts: "35 31 0:32 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,xattr,release_agent=/lib/x,cpu,cpuacct",
			want: Cgroups{Hierarchies: []Hierarchy{
				{Mount: "/sys/fs/cgroup/cpu,cpuacct", Type: "cgroup", Options: "cpu,cpuacct"},
			}},
			describe: "cgroup v1",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseCgroups(strings.NewReader(c.mounts))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if got.Describe() != c.describe || got.Unified() != c.unified {
				t.Errorf("described as %q, unified %v, want %q, %v", got.Describe(), got.Unified(), c.describe, c.unified)
			}
		})
	}
	if _, err := parseCgroups(strings.NewReader("22 27 0:21 / /proc rw - proc proc rw")); err == nil {
		t.Error("a machine without control groups is taken")
	}
}

func TestSharesOfTheProcessorsAreSet(t *testing.T) {
	cases := map[string]struct {
		hierarchies []Hierarchy
		file, want  string
	}{
		"version 1": {
			hierarchies: []Hierarchy{{Type: "cgroup", Options: "cpuset"}, {Type: "cgroup", Options: "cpu,cpuacct"}},
			file:        "cpu.shares",
			want:        "20480",
		},
		"version 2": {hierarchies: []Hierarchy{{Type: "cgroup2"}}, file: "cpu.weight", want: "2000"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			groups := Cgroups{Group: "playground", Hierarchies: c.hierarchies}
			for i := range groups.Hierarchies {
				groups.Hierarchies[i].Mount = t.TempDir()
				if err := os.MkdirAll(filepath.Join(groups.Hierarchies[i].Mount, "playground", "supervisor"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := groups.Prefer("supervisor", 20); err != nil {
				t.Fatal(err)
			}
			last := groups.Hierarchies[len(groups.Hierarchies)-1].Mount
			if got, err := os.ReadFile(filepath.Join(last, "playground", "supervisor", c.file)); err != nil ||
				string(got) != c.want {
				t.Errorf("%s: got %q (%v), want %q", c.file, got, err, c.want)
			}
		})
	}
}

func TestOnlyLoopDevicesOverThePlaygroundsFilesAreItsOwn(t *testing.T) {
	cases := map[string]bool{
		"/state/azuresim/disk":           true,
		"/state/azuresim/disk (deleted)": true,
		"/azuresim-0123-7.node-1.lun0":   true,
		"/azuresim-4567-7.node-1.lun0":   false,
		"/another-state/disk":            false,
		"/home/disk.img":                 false,
	}
	for backing, want := range cases {
		if got := isOwn(backing, "/state", []string{"", "azuresim-0123-"}); got != want {
			t.Errorf("%s: %v, want %v", backing, got, want)
		}
	}
}

func TestTracesAreComparedBothWays(t *testing.T) {
	before, after := Traces{"mount /a", "mount /b"}, Traces{"mount /b", "mount /c"}
	if diff := cmp.Diff(Traces{"mount /c"}, after.Since(before)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Traces{"mount /a"}, before.Since(after)); diff != "" {
		t.Error(diff)
	}
}
