package host_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/host"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

// unsynced is data that a pod writes and does not sync.
var unsynced = bytes.Repeat([]byte("written and not synced "), 1000)

// mounted is a filesystem on a disk of its own that is staged and published.
type mounted struct {
	disk            *hosttest.Disk
	staging, target string
}

func newMounted(t *testing.T, sizeBytes int64) mounted {
	t.Helper()
	m := mounted{disk: hosttest.NewDisk(t, sizeBytes)}
	hosttest.Run(t, "mkfs.ext4", "-q", m.disk.Device)
	dir := hosttest.MountDir(t)
	m.staging, m.target = filepath.Join(dir, "staging"), filepath.Join(dir, "target")
	mounts := host.New(host.Options{}).Mounts()
	if err := mounts.Mount(t.Context(), m.disk.Device, m.staging, "ext4", nil); err != nil {
		t.Fatal(err)
	}
	if err := mounts.Bind(t.Context(), m.staging, m.target, false, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, path := range []string{m.target, m.staging} {
			if err := mounts.Unmount(context.WithoutCancel(t.Context()), path); err != nil {
				t.Error(err)
			}
		}
	})
	return m
}

func (m mounted) write(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.target, "file"), unsynced, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSyncWritesWhatAPodHasNotSynced(t *testing.T) {
	m := newMounted(t, 32*hosttest.MiB)
	m.write(t)
	if bytes.Contains(m.disk.Content(t), unsynced) {
		t.Fatal("the data is on the disk before the sync")
	}
	for range 2 {
		if err := host.New(host.Options{}).Mounts().Sync(t.Context(), m.target); err != nil {
			t.Errorf("Sync: got %v, want success", err)
		}
	}
	if !bytes.Contains(m.disk.Content(t), unsynced) {
		t.Error("the data is not on the disk after the sync")
	}
}

func TestSyncOfARawBlockDevice(t *testing.T) {
	disk := hosttest.NewDisk(t, hosttest.MiB)
	mounts := host.New(host.Options{}).Mounts()
	target := filepath.Join(hosttest.MountDir(t), "device")
	if err := mounts.Bind(t.Context(), disk.Device, target, false, nil); err != nil {
		t.Fatal(err)
	}
	pod, err := os.OpenFile(target, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pod.Write(unsynced); err != nil {
		t.Fatal(err)
	}
	if err := mounts.Sync(t.Context(), target); err != nil {
		t.Errorf("Sync: got %v, want success", err)
	}
	if !bytes.Contains(disk.Content(t), unsynced) {
		t.Error("the data is not on the disk after the sync")
	}
	_ = pod.Close()
	if err := mounts.Unmount(t.Context(), target); err != nil {
		t.Error(err)
	}
}

func TestSyncHasNothingToDo(t *testing.T) {
	mounts := host.New(host.Options{}).Mounts()
	if err := mounts.Sync(t.Context(), filepath.Join(t.TempDir(), "missing")); err != nil {
		t.Errorf("Sync of a missing target: got %v, want success", err)
	}
	m := newMounted(t, 32*hosttest.MiB)
	m.write(t)
	readOnly := m.target + "-ro"
	if err := mounts.Bind(t.Context(), m.staging, readOnly, true, nil); err != nil {
		t.Fatal(err)
	}
	if err := mounts.Sync(t.Context(), readOnly); err != nil {
		t.Errorf("Sync of a read-only mount: got %v, want success", err)
	}
	if bytes.Contains(m.disk.Content(t), unsynced) {
		t.Error("a pod that only reads has waited for the data of another one")
	}
	if err := mounts.Unmount(t.Context(), readOnly); err != nil {
		t.Error(err)
	}
}

// frozen runs call while the filesystem at path takes no write, as during a backup.
func frozen(t *testing.T, path string, call func()) {
	t.Helper()
	const fiFreeze, fiThaw = 0xc0045877, 0xc0045878
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.IoctlSetPointerInt(int(dir.Fd()), fiFreeze, 0); err != nil {
		t.Fatalf("freeze the filesystem at %s: %v", path, err)
	}
	defer func() {
		if err := unix.IoctlSetPointerInt(int(dir.Fd()), fiThaw, 0); err != nil {
			t.Errorf("thaw the filesystem at %s: %v", path, err)
		}
	}()
	call()
}

func TestSyncOfAFrozenFilesystemEnds(t *testing.T) {
	m := newMounted(t, 32*hosttest.MiB)
	m.write(t)
	frozen(t, m.target, func() {
		if err := host.New(host.Options{}).Mounts().Sync(t.Context(), m.target); err != nil {
			t.Errorf("Sync: got %v, want success", err)
		}
	})
}

// The disk of the volume is a file of a filesystem that is frozen: the device takes no write, and no
// write fails.
func TestSyncEndsThoughTheDeviceHangs(t *testing.T) {
	for name, test := range map[string]struct {
		// then is the kernel's file of counters after the first interval.
		then string
		want error
	}{
		"it has ended no write":                            {then: "0 0 0 0 7 0 0 0 0 0", want: provisioner.Unavailable},
		"it ends writes slowly, until the caller gives up": {then: "0 0 0 0 8 0 0 0 0 0", want: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			sys, below := t.TempDir(), newMounted(t, 64*hosttest.MiB)
			t.Setenv("TMPDIR", below.target)
			t.Run("", func(t *testing.T) { syncHanging(t, below.target, sys, test.then, test.want) })
		})
	}
}

func syncHanging(t *testing.T, below, sys, then string, want error) {
	t.Helper()
	m := newMounted(t, 16*hosttest.MiB)
	m.write(t)
	counters := filepath.Join(sys, "class/block", filepath.Base(m.disk.Device), "stat")
	if err := os.MkdirAll(filepath.Dir(counters), 0o755); err != nil {
		t.Fatal(err)
	}
	count := func(text string) {
		if err := os.WriteFile(counters, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
	count("0 0 0 0 7 0 0 0 0 0")
	clock := clocktesting.NewFakeClock(time.Time{})
	mounts := host.New(host.Options{SysRoot: sys, Clock: clock}).Mounts()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	frozen(t, below, func() {
		ended := make(chan error, 1)
		go func() { ended <- mounts.Sync(ctx, m.target) }()
		for !clock.HasWaiters() {
			time.Sleep(time.Millisecond)
		}
		count(then)
		clock.Step(host.StallTimeout)
		if errors.Is(want, context.Canceled) {
			cancel()
		}
		if err := <-ended; !errors.Is(err, want) {
			t.Errorf("Sync: got %v, want %v", err, want)
		}
		// The sync that hangs does not keep the mount. Its directory is on the frozen filesystem.
		hosttest.Run(t, "umount", m.target)
	})
}
