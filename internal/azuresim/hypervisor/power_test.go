package hypervisor_test

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPowerOffLosesTheDirtyCacheOfEveryDisk(t *testing.T) {
	requireMachine(t, "mkfs.ext4")
	ctx, dir := t.Context(), stateDir(t)
	h := start(t, dir)
	mounts := map[int]string{}
	for lun, uid := range []string{"d0", "d1"} {
		must(t, h.CreateDisk(ctx, uid, 256*mib, ""))
		must(t, h.Attach(ctx, "vm1", lun, uid))
		run(t, "mkfs.ext4", "-q", device(dir, "vm1", lun))
		mounts[lun] = mount(t, device(dir, "vm1", lun), "ext4")
		must(t, writeSynced(filepath.Join(mounts[lun], "synced"), uid))
		must(t, os.WriteFile(filepath.Join(mounts[lun], "dirty"), []byte("lost"), 0o600))
	}

	must(t, h.PowerOff(ctx, "vm1"))
	must(t, h.PowerOff(ctx, "vm1"))
	// Unmounting writes the cache back; it must have nowhere to go.
	for _, mounted := range mounts {
		unmount(t, mounted)
	}
	if loops := boundLoops(t, dir); len(loops) > 0 {
		t.Errorf("loop devices of a VM that is off: %v", loops)
	}
	must(t, h.Detach(ctx, "vm1", 1, "d1"))
	must(t, h.Attach(ctx, "vm1", 7, "d1"))
	if loops := boundLoops(t, dir); len(loops) > 0 {
		t.Errorf("attaching to a VM that is off made a device: %v", loops)
	}

	must(t, h.PowerOn(ctx, "vm1"))
	must(t, h.PowerOn(ctx, "vm1"))
	for lun, uid := range map[int]string{0: "d0", 7: "d1"} {
		mounted := mount(t, device(dir, "vm1", lun), "ext4")
		if got := read(t, filepath.Join(mounted, "synced")); got != uid {
			t.Errorf("LUN %d: synced file has %q, want %q", lun, got, uid)
		}
		if data, err := os.ReadFile(filepath.Join(mounted, "dirty")); err == nil && len(data) > 0 {
			t.Errorf("LUN %d: the unsynced content %q survived the power cut", lun, data)
		}
		unmount(t, mounted)
	}
}
