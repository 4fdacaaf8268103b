package hypervisor_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/hypervisor"
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

			takesOver(t, mount(t, device(dir, "vm2", 5), fsType))
			must(t, open.Close())
			unmount(t, old)
			if loops := boundLoops(t, dir); len(loops) != 1 {
				t.Errorf("after the stale mount is gone the loop devices are %v, want only the second node's", loops)
			}
		})
	}
}

// takesOver holds that the node after a fenced one finds at its mount what was synced before the
// fence, and nothing from after it, and can write.
func takesOver(t *testing.T, next string) {
	t.Helper()
	if got := read(t, filepath.Join(next, "acknowledged")); got != "one" {
		t.Errorf("the next node reads %q, want what was synced", got)
	}
	if _, err := os.Stat(filepath.Join(next, "late")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a write after the fence is on the disk: %v", err)
	}
	must(t, writeSynced(filepath.Join(next, "second"), "three"))
}

func TestNothingReachesTheDiskAfterTheCutWhileManyWritersRun(t *testing.T) {
	requireMachine(t)
	ctx, dir := t.Context(), stateDir(t)
	h := start(t, dir)
	must(t, h.CreateDisk(ctx, "d1", 64*mib, ""))
	must(t, h.Attach(ctx, "vm1", 0, "d1"))

	const writers, block = 8, 64 << 10
	var group sync.WaitGroup
	acknowledged := make([]int64, writers) // last round that each writer was promised
	started := make(chan struct{}, writers)
	for w := range writers {
		file, err := os.OpenFile(device(dir, "vm1", 0), os.O_WRONLY|unix.O_DIRECT, 0)
		must(t, err)
		t.Cleanup(func() { _ = file.Close() })
		group.Go(func() {
			buffer := alignedBlock(t, block)
			for round := int64(1); ; round++ {
				binary.LittleEndian.PutUint64(buffer, uint64(round))
				if _, err := file.WriteAt(buffer, int64(w)*block); err != nil {
					return
				}
				acknowledged[w] = round
				if round == 20 {
					started <- struct{}{}
				}
			}
		})
	}
	for range writers {
		<-started
	}
	must(t, h.Detach(ctx, "vm1", 0, "d1"))
	atCut, err := os.ReadFile(image(dir, "d1"))
	must(t, err)
	group.Wait()
	after, err := os.ReadFile(image(dir, "d1"))
	must(t, err)
	if !bytes.Equal(atCut, after) {
		t.Error("the disk changed after the detach had returned")
	}
	for w := range writers {
		if on := int64(binary.LittleEndian.Uint64(after[w*block:])); on < acknowledged[w] {
			t.Errorf("writer %d was promised round %d, the disk has %d", w, acknowledged[w], on)
		}
	}
}

func TestWriteThatHangsInTheStorageDiesWithTheCut(t *testing.T) {
	requireMachine(t)
	ctx, dir := t.Context(), stateDir(t)
	h := start(t, dir)
	must(t, h.CreateDisk(ctx, "d1", 16*mib, ""))
	must(t, h.Attach(ctx, "vm1", 0, "d1"))
	must(t, h.SetFaults(ctx, "vm1", hypervisor.Faults{HangWrites: true}))
	file, err := os.OpenFile(device(dir, "vm1", 0), os.O_WRONLY|unix.O_DIRECT, 0)
	must(t, err)
	defer file.Close()
	result := make(chan error, 1)
	block := alignedBlock(t, 4096)
	go func() {
		_, err := file.WriteAt(block, 0)
		result <- err
	}()
	inFlight := filepath.Join("/sys/block", filepath.Base(realDevice(t, dir, "vm1", 0)), "inflight")
	eventually(t, "the write is in flight", func() bool { return strings.Fields(read(t, inFlight))[1] != "0" })

	must(t, h.Detach(ctx, "vm1", 0, "d1"))
	if err := <-result; !errors.Is(err, unix.EIO) {
		t.Errorf("the hanging write ended with %v, want EIO", err)
	}
	if got := allocatedBytes(t, image(dir, "d1")); got != 0 {
		t.Errorf("the hanging write reached the disk: %d bytes are allocated, want %d", got, 0)
	}
}

func TestHangingWritesGoOnWhenTheFaultIsLifted(t *testing.T) {
	requireMachine(t)
	ctx, dir := t.Context(), stateDir(t)
	h := start(t, dir)
	must(t, h.CreateDisk(ctx, "d1", 16*mib, ""))
	must(t, h.Attach(ctx, "vm1", 0, "d1"))
	must(t, h.SetFaults(ctx, "vm1", hypervisor.Faults{HangWrites: true}))
	inFlight := filepath.Join("/sys/block", filepath.Base(realDevice(t, dir, "vm1", 0)), "inflight")
	done := make(chan struct{})
	go func() {
		defer close(done)
		writeAt(t, device(dir, "vm1", 0), []byte("late but there"), 0)
	}()
	eventually(t, "the write is in flight", func() bool { return strings.Fields(read(t, inFlight))[1] != "0" })
	must(t, h.SetFaults(ctx, "vm1", hypervisor.Faults{WriteDelayMillis: 1}))
	<-done
	if data := read(t, image(dir, "d1")); !strings.HasPrefix(data, "late but there") {
		t.Error("the write did not reach the disk")
	}
}

func TestFortyDisksAttachAtOnceAndDetachAtOnce(t *testing.T) {
	requireMachine(t)
	ctx, dir := t.Context(), stateDir(t)
	_, c := startHypervisor(t, dir)
	each := func(op func(n int) error) {
		t.Helper()
		var group sync.WaitGroup
		for n := range 40 {
			group.Go(func() {
				if err := op(n); err != nil {
					t.Errorf("disk %d: %v", n, err)
				}
			})
		}
		group.Wait()
	}
	uid := func(n int) string { return fmt.Sprintf("disk-%d", n) }
	vm := func(n int) string { return fmt.Sprintf("vm-%d", n%2) }
	each(func(n int) error { return c.CreateDisk(ctx, uid(n), 16*mib, "") })
	begin := time.Now()
	each(func(n int) error { return c.Attach(ctx, vm(n), n, uid(n)) })
	t.Logf("40 attaches took %v", time.Since(begin))
	devices := map[string]bool{}
	for n := range 40 {
		real := realDevice(t, dir, vm(n), n)
		devices[real] = true
		writeAt(t, real, []byte(uid(n)), 0)
	}
	if len(devices) != 40 {
		t.Errorf("40 attachments have %d devices, want %d", len(devices), 40)
	}
	for n := range 40 {
		if data := read(t, image(dir, uid(n))); !strings.HasPrefix(data, uid(n)) {
			t.Errorf("disk %d has another disk's content", n)
		}
	}
	begin = time.Now()
	each(func(n int) error { return c.Detach(ctx, vm(n), n, uid(n)) })
	t.Logf("40 detaches took %v", time.Since(begin))
	each(func(n int) error { return c.DeleteDisk(ctx, uid(n)) })
	if loops := boundLoops(t, dir); len(loops) > 0 {
		t.Errorf("loop devices after all detaches: %v", loops)
	}
}

func TestDeviceDirectoryCanBeBoundBeforeAnythingIsAttached(t *testing.T) {
	requireMachine(t)
	ctx, dir := t.Context(), stateDir(t)
	h := start(t, dir)
	must(t, h.EnsureVM(ctx, "vm1"))
	bound := t.TempDir()
	must(t, unix.Mount(hypervisor.DeviceDir(dir, "vm1"), bound, "", unix.MS_BIND, ""))
	t.Cleanup(func() { unmount(t, bound) })
	must(t, h.CreateDisk(ctx, "d1", 16*mib, ""))
	must(t, h.Attach(ctx, "vm1", 2, "d1"))
	for _, link := range []string{"data/by-lun/2", "scsi1/lun2"} {
		target, err := os.Readlink(filepath.Join(bound, link))
		if err != nil || !strings.HasPrefix(target, "/dev/loop") {
			t.Errorf("%s points to %q, %v, want it to begin with %q", link, target, err, "/dev/loop")
		}
	}
	must(t, h.PowerOff(ctx, "vm1"))
	must(t, h.PowerOn(ctx, "vm1"))
	if _, err := os.Stat(filepath.Join(bound, "data/by-lun/2")); err != nil {
		t.Errorf("the bound directory does not show the device after a power cycle: %v", err)
	}
	unmount(t, bound)
	must(t, h.RemoveVM(ctx, "vm1"))
	if _, err := os.Stat(hypervisor.DeviceDir(dir, "vm1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("device directory of a removed VM: %v", err)
	}
	if list, err := h.List(ctx); err != nil || len(list) > 0 {
		t.Errorf("attachments of a removed VM: %v, %v", list, err)
	}
}
