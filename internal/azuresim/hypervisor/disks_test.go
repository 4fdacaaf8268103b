package hypervisor_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/hypervisor"
)

func image(dir, uid string) string { return filepath.Join(dir, "disks", uid+".img") }

// writeAt writes to a device past the page cache.
func writeAt(t testing.TB, device string, data []byte, offset int64) {
	t.Helper()
	file, err := os.OpenFile(device, os.O_WRONLY|unix.O_SYNC, 0)
	must(t, err)
	_, err = file.WriteAt(data, offset)
	must(t, errors.Join(err, file.Close()))
}

func allocatedBytes(t testing.TB, path string) int64 {
	t.Helper()
	var stat unix.Stat_t
	must(t, unix.Stat(path, &stat))
	return stat.Blocks * 512
}

func TestCopyHasTheSourcesContentAndItsHoles(t *testing.T) {
	requireMachine(t)
	ctx, dir := t.Context(), stateDir(t)
	h := start(t, dir)
	must(t, h.CreateDisk(ctx, "source", 1<<30, ""))
	must(t, h.Attach(ctx, "vm1", 0, "source"))
	head, tail := bytes.Repeat([]byte("head"), mib/4), bytes.Repeat([]byte("tail"), mib/4)
	writeAt(t, device(dir, "vm1", 0), head, 0)
	writeAt(t, device(dir, "vm1", 0), tail, 1<<30-mib)

	must(t, h.CreateDisk(ctx, "copy", 2<<30, "source"))
	must(t, h.CreateDisk(ctx, "copy", 2<<30, "source"))

	file, err := os.Open(image(dir, "copy"))
	must(t, err)
	defer file.Close()
	for offset, want := range map[int64][]byte{
		0:           head,
		512 * mib:   make([]byte, mib),
		1<<30 - mib: tail,
		1 << 30:     make([]byte, mib),
	} {
		got := make([]byte, mib)
		_, err := file.ReadAt(got, offset)
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("copy differs at %d", offset)
		}
	}
	if info, err := file.Stat(); err != nil || info.Size() != 2<<30 {
		t.Errorf("copy: size %d, %v, want %d", info.Size(), err, 2<<30)
	}
	if got := allocatedBytes(t, image(dir, "copy")); got > 4*mib {
		t.Errorf("the copy of 2 MiB of data takes %d bytes on disk", got)
	}
}

func TestDiscardGivesTheSpaceBack(t *testing.T) {
	requireMachine(t, "blkdiscard")
	ctx, dir := t.Context(), stateDir(t)
	h := start(t, dir)
	must(t, h.CreateDisk(ctx, "d1", 64*mib, ""))
	must(t, h.Attach(ctx, "vm1", 0, "d1"))
	writeAt(t, device(dir, "vm1", 0), bytes.Repeat([]byte{1}, 32*mib), 0)
	if got := allocatedBytes(t, image(dir, "d1")); got < 32*mib {
		t.Fatalf("32 MiB written take %d bytes", got)
	}
	run(t, "blkdiscard", device(dir, "vm1", 0))
	if got := allocatedBytes(t, image(dir, "d1")); got > mib {
		t.Errorf("after discard the disk takes %d bytes", got)
	}
}

func TestResizeShowsOnTheDevicesOfAllAttachments(t *testing.T) {
	requireMachine(t)
	ctx, dir := t.Context(), stateDir(t)
	h := start(t, dir)
	must(t, h.CreateDisk(ctx, "d1", 16*mib, ""))
	must(t, h.Attach(ctx, "vm1", 0, "d1"))
	must(t, h.Attach(ctx, "vm2", 0, "d1"))
	must(t, h.ResizeDisk(ctx, "d1", 48*mib))
	must(t, h.ResizeDisk(ctx, "d1", 32*mib))
	for _, vm := range []string{"vm1", "vm2"} {
		if got := run(t, "blockdev", "--getsize64", device(dir, vm, 0)); got != "50331648\n" {
			t.Errorf("%s sees %q bytes, want 48 MiB", vm, got)
		}
	}
	writeAt(t, device(dir, "vm1", 0), []byte("end"), 48*mib-3)
}

func TestUnfinishedDiskOfACrashIsRemovedAtStart(t *testing.T) {
	requireMachine(t)
	dir := stateDir(t)
	p, _ := startHypervisor(t, dir)
	p.end(t, unix.SIGKILL)
	must(t, os.WriteFile(filepath.Join(dir, "disks", ".new-half"), []byte("half"), 0o600))
	h := start(t, dir)
	if disks, err := h.ListDisks(t.Context()); err != nil || len(disks) > 0 {
		t.Errorf("disks %v, %v, want none", disks, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "disks", ".new-half")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unfinished disk is still there: %v", err)
	}
}

func TestErrorsKeepTheirKindOverTheSocket(t *testing.T) {
	requireMachine(t)
	ctx, dir := t.Context(), stateDir(t)
	_, c := startHypervisor(t, dir)
	must(t, c.CreateDisk(ctx, "d1", 16*mib, ""))
	must(t, c.CreateDisk(ctx, "d2", 16*mib, ""))
	must(t, c.Attach(ctx, "vm1", 0, "d1"))
	must(t, c.Attach(ctx, "vm1", 0, "d1"))
	for name, test := range map[string]struct {
		err, want error
	}{
		"size that is no multiple of a sector": {c.CreateDisk(ctx, "d3", 1000, ""), hypervisor.ErrInvalid},
		"path as disk":                         {c.CreateDisk(ctx, "../d3", mib, ""), hypervisor.ErrInvalid},
		"path as VM":                           {c.Attach(ctx, "../vm", 0, "d1"), hypervisor.ErrInvalid},
		"LUN beyond 63":                        {c.Attach(ctx, "vm1", 64, "d2"), hypervisor.ErrInvalid},
		"source that is not there":             {c.CreateDisk(ctx, "d3", mib, "d9"), hypervisor.ErrNotFound},
		"source bigger than the disk":          {c.CreateDisk(ctx, "d3", mib, "d1"), hypervisor.ErrInvalid},
		"attach of a disk that is not there":   {c.Attach(ctx, "vm1", 1, "d9"), hypervisor.ErrNotFound},
		"resize of a disk that is not there":   {c.ResizeDisk(ctx, "d9", mib), hypervisor.ErrNotFound},
		"LUN that holds another disk":          {c.Attach(ctx, "vm1", 0, "d2"), hypervisor.ErrConflict},
		"disk at a second LUN of the VM":       {c.Attach(ctx, "vm1", 1, "d1"), hypervisor.ErrConflict},
		"delete of an attached disk":           {c.DeleteDisk(ctx, "d1"), hypervisor.ErrConflict},
		"delete of a disk that is not there":   {c.DeleteDisk(ctx, "d9"), nil},
		"detach of another disk from the LUN":  {c.Detach(ctx, "vm1", 0, "d2"), nil},
		"detach from a VM that is not known":   {c.Detach(ctx, "vm9", 0, "d2"), nil},
	} {
		if !errors.Is(test.err, test.want) {
			t.Errorf("%s: %v, want %v", name, test.err, test.want)
		}
	}
	if disks, err := c.ListDisks(ctx); err != nil || len(disks) != 2 {
		t.Errorf("after the failures the disks are %v, %v, want len(disks) = %v", disks, err, 2)
	}
}
