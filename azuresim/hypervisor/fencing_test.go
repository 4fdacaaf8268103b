package hypervisor_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDetachedNodeGetsEIOAndTheNextNodeFindsAllThatWasSynced(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			requireMachine(t, "mkfs."+fsType)
			ctx, dir := t.Context(), stateDir(t)
			h := start(t, dir)
			must(t, h.CreateDisk(ctx, "d1", 512*mib, ""))
			must(t, h.Attach(ctx, "vm1", 0, "d1"))
			must(t, h.Attach(ctx, "vm2", 5, "d1"))
			run(t, "mkfs."+fsType, "-q", device(dir, "vm1", 0))

			old := mount(t, device(dir, "vm1", 0), fsType)
			must(t, writeSynced(filepath.Join(old, "acknowledged"), "one"))
			must(t, os.WriteFile(filepath.Join(old, "dirty"), []byte("never synced"), 0o600))
			open, err := os.OpenFile(filepath.Join(old, "acknowledged"), os.O_WRONLY|os.O_APPEND, 0)
			must(t, err)
			defer open.Close()

			must(t, h.Detach(ctx, "vm1", 0, "d1"))

			_, _ = open.WriteString("two")
			if err := open.Sync(); !errors.Is(err, unix.EIO) {
				t.Errorf("fsync of an open file on the detached node: %v, want EIO", err)
			}
			if err := writeSynced(filepath.Join(old, "late"), "x"); err == nil {
				t.Error("a detached node wrote a new file with fsync")
			}
			if _, err := os.Lstat(device(dir, "vm1", 0)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("device link after detach: %v, want none", err)
			}

			next := mount(t, device(dir, "vm2", 5), fsType)
			if got := read(t, filepath.Join(next, "acknowledged")); got != "one" {
				t.Errorf("the next node reads %q, want what was synced", got)
			}
			if _, err := os.Stat(filepath.Join(next, "late")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a write after the detach is on the disk: %v", err)
			}
			must(t, writeSynced(filepath.Join(next, "second"), "three"))
			must(t, open.Close())
			unmount(t, old)
			if loops := boundLoops(t, dir); len(loops) != 1 {
				t.Errorf("after the stale mount is gone the loop devices are %v, want only the second node's", loops)
			}
		})
	}
}
