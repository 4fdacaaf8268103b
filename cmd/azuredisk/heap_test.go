package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheMemoryLimitOfTheContainerIsThatOfItsCgroup(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		file string
		want int64
	}{
		"a limit of 512 MiB": {"536870912\n", 512 << 20},
		"no limit":           {"max\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "memory.max")
			if err := os.WriteFile(file, []byte(test.file), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := containerLimit(file); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
	if got := containerLimit(filepath.Join(t.TempDir(), "none")); got != 0 {
		t.Errorf("without a cgroup: got %d, want 0", got)
	}
}
