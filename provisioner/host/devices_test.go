package host_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/host"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

func TestFindReturnsTheDeviceBehindTheLink(t *testing.T) {
	disk := hosttest.NewDisk(t, 8*hosttest.MiB)
	links := map[string]string{
		"the link of azure-vm-utils":  "disk/azure/data/by-lun/7",
		"the link of the Linux agent": "disk/azure/scsi1/lun7",
	}
	for name, link := range links {
		t.Run(name, func(t *testing.T) {
			dev := t.TempDir()
			symlink(t, disk.Device, filepath.Join(dev, link))
			got, err := host.New(host.Options{DevRoot: dev, SysRoot: t.TempDir()}).Devices().Find(t.Context(), 7)
			want := provisioner.Device{Path: disk.Device, SizeBytes: 8 * hosttest.MiB, Sequence: got.Sequence}
			if err != nil || got != want {
				t.Errorf("Find = %+v, %v, want %+v", got, err, want)
			}
		})
	}
}

func TestFindWaitsForTheLinkByEvents(t *testing.T) {
	disk := hosttest.NewDisk(t, 8*hosttest.MiB)
	dev := t.TempDir()
	// An hour between the looks: only an event can make Find look again.
	devices := host.New(host.Options{DevRoot: dev, SysRoot: t.TempDir(), RescanInterval: time.Hour}).Devices()
	found := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go func() {
		_, err := devices.Find(ctx, 0)
		found <- err
	}()
	for _, dir := range []string{"disk", "disk/azure", "disk/azure/data", "disk/azure/data/by-lun"} {
		if err := os.Mkdir(filepath.Join(dev, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	symlink(t, "/dev/not-there-yet", filepath.Join(dev, "disk/azure/data/by-lun/0"))
	next := filepath.Join(dev, "next")
	symlink(t, disk.Device, next)
	if err := os.Rename(next, filepath.Join(dev, "disk/azure/data/by-lun/0")); err != nil {
		t.Fatal(err)
	}
	if err := <-found; err != nil {
		t.Fatal(err)
	}
}

func TestFindRescansTheBusAndGivesUpWithTheContext(t *testing.T) {
	sys := newSysfs(t)
	scan := sys.write("class/scsi_host/host5/scan", "")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := host.New(host.Options{DevRoot: t.TempDir(), SysRoot: sys.root}).Devices().Find(ctx, 3)
		ended <- err
	}()
	expect.Eventually(t, "the SCSI host is told to scan", func() bool {
		raw, _ := os.ReadFile(scan)
		return string(raw) == "- - -"
	})
	cancel()
	if err := <-ended; !errors.Is(err, provisioner.NotFound) || !errors.Is(err, context.Canceled) {
		t.Errorf("Find = %v, want NotFound because the context has ended", err)
	}
}

// untilItWaits returns a context and a clock for Find. The context ends when Find asks the clock
// for a ticker, which it does after its first look.
func untilItWaits(t *testing.T) (context.Context, clock.WithTicker) {
	ctx, cancel := context.WithCancel(t.Context())
	return ctx, cancelingClock{cancel: cancel}
}

type cancelingClock struct {
	clock.RealClock
	cancel context.CancelFunc
}

func (c cancelingClock) NewTicker(every time.Duration) clock.Ticker {
	c.cancel()
	return c.RealClock.NewTicker(every)
}

func TestFindEndsWhileAScanOfTheBusWaits(t *testing.T) {
	sys := newSysfs(t)
	scan := sys.write("class/scsi_host/host5/scan", "")
	if err := errors.Join(os.Remove(scan), unix.Mkfifo(scan, 0o600)); err != nil { // to open it for writing waits for a reader
		t.Fatal(err)
	}
	ctx, clock := untilItWaits(t)
	_, err := host.New(host.Options{DevRoot: t.TempDir(), SysRoot: sys.root, Clock: clock}).Devices().Find(ctx, 3)
	if !errors.Is(err, provisioner.NotFound) {
		t.Errorf("Find = %v, want NotFound because the context has ended", err)
	}
	if raw, err := os.ReadFile(scan); string(raw) != "- - -" { // and ends the scan
		t.Errorf("the SCSI host was told %q, %v", raw, err)
	}
}

func TestRescanShowsTheNewSizeAndTheOtherNodesData(t *testing.T) {
	disk := hosttest.NewDisk(t, 8*hosttest.MiB)
	devices := host.New(host.Options{}).Devices()
	// A reader that stays keeps the device's cache alive.
	reader, err := os.Open(disk.Device)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	before := make([]byte, 4096)
	if _, err := reader.ReadAt(before, 0); err != nil {
		t.Fatal(err)
	}
	disk.Grow(t, 16*hosttest.MiB)
	written := bytes.Repeat([]byte("other node"), 400)
	disk.WriteAt(t, written, 0)
	device, err := devices.Rescan(t.Context(), disk.Device)
	if err != nil || device.SizeBytes != 16*hosttest.MiB {
		t.Errorf("Rescan = %+v, %v", device, err)
	}
	after := make([]byte, len(written))
	if _, err := reader.ReadAt(after, 0); err != nil || !bytes.Equal(after, written) {
		t.Errorf("the cache still holds what was read before: %q, %v", after[:20], err)
	}
	if _, err := devices.Rescan(t.Context(), "/dev/not-there"); !errors.Is(err, provisioner.Unavailable) {
		t.Errorf("a device that is not there: %v, want Unavailable", err)
	}
}

func TestRescanAsksTheDeviceThatHasTheSize(t *testing.T) {
	disk := hosttest.NewDisk(t, 8*hosttest.MiB)
	for name, test := range map[string]struct{ file, link string }{
		"a SCSI disk after the 26th": {file: "devices/vmbus/block/sdab/device/rescan", link: "devices/vmbus/block/sdab"},
		"an NVMe namespace": {
			file: "devices/pci/nvme0/nvme0n9/device/rescan_controller", link: "devices/pci/nvme0/nvme0n9"},
		"the disk of a partition": {file: "devices/vmbus/block/sdc/device/rescan", link: "devices/vmbus/block/sdc/sdc1"},
		"the namespace of a partition": {file: "devices/pci/nvme0/nvme0n2/device/rescan_controller",
			link: "devices/pci/nvme0/nvme0n2/nvme0n2p1"},
		"a disk that is no link in sysfs": {file: "class/block/NAME/device/rescan"},
	} {
		t.Run(name, func(t *testing.T) {
			sys := t.TempDir()
			device := filepath.Base(disk.Device)
			file := filepath.Join(sys, strings.ReplaceAll(test.file, "NAME", device))
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if test.link != "" {
				target := filepath.Join(sys, test.link)
				if err := os.MkdirAll(target, 0o755); err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(name, "the ") {
					if err := os.WriteFile(filepath.Join(target, "partition"), []byte("1"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				symlink(t, target, filepath.Join(sys, "class/block", device))
			}
			if _, err := host.New(host.Options{SysRoot: sys}).Devices().Rescan(t.Context(), disk.Device); err != nil {
				t.Fatal(err)
			}
			if raw, err := os.ReadFile(file); err != nil || string(raw) != "1" {
				t.Errorf("it was told %q, %v", raw, err)
			}
		})
	}
}

func TestFlush(t *testing.T) {
	disk := hosttest.NewDisk(t, 64*hosttest.MiB)
	h := host.New(host.Options{})
	if err := h.Devices().Flush(t.Context(), disk.Device); err != nil {
		t.Errorf("flush of a device that nothing holds: got %v, want nil", err)
	}
	if err := h.Devices().Flush(t.Context(), "/dev/not-there"); err != nil {
		t.Errorf("a device that is gone: %v", err)
	}
	hosttest.Run(t, "mkfs.ext4", "-q", disk.Device)
	target := filepath.Join(hosttest.MountDir(t), "mnt")
	if err := h.Mounts().Mount(t.Context(), disk.Device, target, "ext4", nil); err != nil {
		t.Fatal(err)
	}
	if err := h.Devices().Flush(t.Context(), disk.Device); !errors.Is(err, provisioner.Conflict) {
		t.Errorf("a device that is mounted: %v, want Conflict", err)
	}
	if err := h.Mounts().Unmount(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	if err := h.Devices().Flush(t.Context(), disk.Device); err != nil {
		t.Errorf("after the unmount: %v", err)
	}
}

func symlink(t *testing.T, target, link string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
}

func TestReadingPastTheCache(t *testing.T) {
	disk := hosttest.NewDisk(t, hosttest.MiB)
	devices := host.New(host.Options{}).Devices()
	if err := devices.Read(t.Context(), disk.Device); err != nil {
		t.Errorf("a device that works: %v", err)
	}
	if err := devices.Read(t.Context(), "/dev/no-such-device"); !errors.Is(err, provisioner.NotFound) {
		t.Errorf("no device: %v, want NotFound", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := devices.Read(ended, disk.Device); err != nil && !errors.Is(err, provisioner.Unavailable) {
		t.Errorf("a caller without time: %v, want Unavailable", err)
	}
}
