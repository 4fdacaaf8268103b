//go:build vm

package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/host"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
	"github.com/azuredisk-csi/azuredisk/test/vm/kernel"
)

const small = 64 * hosttest.MiB

// find waits for the device at the LUN, and expects that it is the wanted one.
func find(t *testing.T, lun int32, want string, size int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err := host.New(host.Options{}).Devices().Find(ctx, lun)
	if err != nil || got.Path != want || got.SizeBytes != size || got.Sequence == 0 {
		t.Fatalf("Find LUN %d: got %+v, %v, want %s of %d bytes with a sequence number", lun, got, err, want, size)
	}
}

// findNone expects that no device is found at the LUN, also after the buses were scanned.
func findNone(t *testing.T, lun int32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if got, err := host.New(host.Options{}).Devices().Find(ctx, lun); !errors.Is(err, provisioner.NotFound) {
		t.Fatalf("Find LUN %d: got %+v, %v, want NotFound", lun, got, err)
	}
}

func TestADiskIsFoundAtItsLUN(t *testing.T) {
	find := func(t *testing.T, d *disk) {
		t.Helper()
		device := make(chan string, 1)
		go func() { // Find begins before the kernel has the disk
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			found, err := host.New(host.Options{}).Devices().Find(ctx, d.lun)
			if err != nil {
				t.Error(err)
			}
			device <- found.Path
		}()
		if got, want := <-device, d.device(t); got != want {
			t.Errorf("Find LUN %d: got %s, want %s", d.lun, got, want)
		}
	}
	t.Run("announced, and without links", func(t *testing.T) {
		d := plug(t, dataHost, 7, azure, small)
		find(t, d)
		d.unplug(t)
		expect.Eventually(t, "the kernel to remove the disk", d.gone)
		findNone(t, 7)
	})
	t.Run("by a scan of the bus", func(t *testing.T) {
		d := plug(t, dataHost, 63, azure, small)
		d.device(t)
		kernel.Write(t, "/sys/bus/scsi/devices/"+d.address+"/delete", "1")
		expect.Eventually(t, "the kernel to remove the disk", d.gone)
		find(t, d)
	})
	t.Run("by a link of udev", func(t *testing.T) {
		udevRules(t, linkByLUN(fmt.Sprintf("%d:0:0:9", dataHost), 9))
		// Without the link it is no disk of Azure.
		d := plug(t, dataHost, 9, other, small)
		find(t, d)
		if _, err := os.Lstat("/dev/disk/azure/data/by-lun/9"); err != nil {
			t.Error(err)
		}
		d.unplug(t)
		expect.Eventually(t, "the kernel to remove the disk", d.gone)
		hosttest.Run(t, "udevadm", "settle", "--timeout=30")
		findNone(t, 9)
	})
	t.Run("not that of another vendor", func(t *testing.T) {
		plug(t, dataHost, 10, other, small).device(t)
		findNone(t, 10)
	})
	t.Run("not one of the boot controllers", func(t *testing.T) {
		plug(t, bootHost, 0, azure, small).device(t)
		findNone(t, 0)
	})
}

func TestADiskThatIsUnpluggedUnderItsUser(t *testing.T) {
	h := host.New(host.Options{})
	d := plug(t, dataHost, 12, azure, small)
	device := d.device(t)
	expect.Must(t, h.Devices().Read(t.Context(), device))
	open, err := os.Open(device)
	expect.Must(t, err)
	defer open.Close()
	d.unplug(t)
	expect.Eventually(t, "the kernel to remove the disk", d.gone)
	if err := h.Devices().Read(t.Context(), device); !errors.Is(err, provisioner.NotFound) {
		t.Errorf("Read: got %v, want NotFound", err)
	}
	if err := h.Devices().Flush(t.Context(), device); err != nil {
		t.Errorf("Flush: got %v, want success: there is nothing to flush", err)
	}
}

func TestADeviceThatIsHeldKeepsItsName(t *testing.T) {
	for _, tt := range []struct {
		name string
		held bool
	}{
		{"not held: the next disk gets the name", false},
		{"held: the next disk gets another name", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			first := plug(t, dataHost, 13, azure, small)
			name := first.device(t)
			if tt.held {
				release, err := host.New(host.Options{}).Devices().Hold(t.Context(), name)
				expect.Must(t, err)
				defer release()
			}
			first.unplug(t)
			expect.Eventually(t, "the kernel to remove the disk", first.gone)
			next := plug(t, dataHost, 14, azure, small).device(t)
			if (next == name) == tt.held {
				t.Errorf("the first disk was %s, the next one is %s", name, next)
			}
		})
	}
}

func TestAFilesystemGrowsWithItsDiskWhileItIsMounted(t *testing.T) {
	const before, after = 320 * hosttest.MiB, 640 * hosttest.MiB
	h := host.New(host.Options{})
	for i, fsType := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fsType, func(t *testing.T) {
			d := plug(t, dataHost, int32(20+i), azure, before)
			device := d.device(t)
			fs := provisioner.Filesystem{Type: fsType, UUID: "0b6a2c3e-9f11-4f0b-8a53-0d4f6a1c7e55"}
			expect.Must(t, h.Filesystems().Make(t.Context(), device, fs, provisioner.FilesystemOptions{}))
			if got, blank, err := h.Filesystems().Probe(t.Context(), device); err != nil || blank || got != fs {
				t.Fatalf("Probe: got %+v, blank %t, %v, want %+v", got, blank, err, fs)
			}
			expect.Must(t, h.Filesystems().Check(t.Context(), device, fs))
			dir := filepath.Join(hosttest.MountDir(t), "mount")
			expect.Must(t, h.Mounts().Mount(t.Context(), device, dir, fsType, nil))
			t.Cleanup(func() { expect.Must(t, h.Mounts().Unmount(context.WithoutCancel(t.Context()), dir)) })
			expect.Must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o600))

			resize(t, d.image, after)
			got, err := h.Devices().Rescan(t.Context(), device)
			if err != nil || got.SizeBytes != after {
				t.Fatalf("Rescan: got %+v, %v, want %d bytes", got, err, int64(after))
			}
			expect.Must(t, h.Filesystems().Grow(t.Context(), device, dir))
			stats, err := h.Filesystems().Stats(t.Context(), dir)
			if err != nil || stats.TotalBytes < after*8/10 {
				t.Errorf("the filesystem has %d bytes, %v, want nearly %d", stats.TotalBytes, err, int64(after))
			}
			if content, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(content) != "content" {
				t.Errorf("the file has %q, %v, want its content", content, err)
			}
		})
	}
}
