package errorcodes

import (
	"context"
	"sync"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/sharedisk"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// kernel is a node's kernel in memory: one disk, blank unless a row says otherwise, and mounts.
// What is not here must not be called.
type kernel struct {
	provisioner.Host
	mu     sync.Mutex
	mounts map[string]provisioner.MountPoint
	// size of the disk, and what is on it.
	size  int64
	found provisioner.Filesystem
	other bool
	// absent says that the device does not show up.
	absent bool
	// dead says that the device does not answer.
	dead bool
	// refused is what mounting fails with.
	refused error
	// shared is what the disk knows of reservations.
	shared sharedisk.Disk
	// held makes mounting wait until it is closed.
	held chan struct{}
}

const devicePath = "/dev/sdc"

func (k *kernel) Devices() provisioner.Devices         { return kernelDevices{nil, k} }
func (k *kernel) Tuner() provisioner.Tuner             { return kernelTuner{k} }
func (k *kernel) Filesystems() provisioner.Filesystems { return kernelFilesystems{nil, k} }
func (k *kernel) Mounts() provisioner.Mounts           { return kernelMounts{k} }
func (k *kernel) Reservations() provisioner.Reservations {
	return sharedisk.Node{Name: "node", Disk: func(context.Context, string) (*sharedisk.Disk, error) { return &k.shared, nil }}
}

type kernelDevices struct {
	provisioner.Devices
	*kernel
}

func (k kernelDevices) Find(ctx context.Context, _ int32) (provisioner.Device, error) {
	if k.absent {
		<-ctx.Done()
		return provisioner.Device{}, provisioner.Errorf(provisioner.NotFound, "no device: %w", ctx.Err())
	}
	return provisioner.Device{Path: devicePath, SizeBytes: k.size}, nil
}

func (k kernelDevices) Rescan(_ context.Context, path string) (provisioner.Device, error) {
	if k.dead {
		return provisioner.Device{}, provisioner.Errorf(provisioner.Unavailable, "the device does not answer")
	}
	return provisioner.Device{Path: path, SizeBytes: k.size}, nil
}

func (k kernelDevices) Flush(context.Context, string) error             { return nil }
func (k kernelDevices) SetReadOnly(context.Context, string, bool) error { return nil }
func (k kernelDevices) Read(context.Context, string) error              { return nil }

type kernelTuner struct{ *kernel }

func (k kernelTuner) Partition(_ context.Context, disk string, number int) (provisioner.Device, error) {
	if number == 1 {
		return provisioner.Device{Path: disk + "1", SizeBytes: k.size}, nil
	}
	return provisioner.Device{}, provisioner.Errorf(provisioner.FailedPrecondition, "disk %s has no partition %d", disk, number)
}

func (k kernelTuner) Tune(context.Context, string, []provisioner.DeviceSetting) error {
	return provisioner.Errorf(provisioner.InvalidArgument, "the kernel refused the value")
}

type kernelFilesystems struct {
	provisioner.Filesystems
	*kernel
}

func (k kernelFilesystems) Probe(context.Context, string) (provisioner.Filesystem, bool, error) {
	return k.found, k.found == provisioner.Filesystem{} && !k.other, nil
}

func (k kernelFilesystems) Make(_ context.Context, _ string, fs provisioner.Filesystem, _ provisioner.FilesystemOptions) error {
	k.found = fs
	return nil
}

func (k kernelFilesystems) Check(context.Context, string, provisioner.Filesystem) error { return nil }
func (k kernelFilesystems) Progress(string) string                                      { return "" }
func (k kernelFilesystems) Stop(string)                                                 {}
func (k kernelFilesystems) Grow(context.Context, string, string) error                  { return nil }

func (k kernelFilesystems) Stats(context.Context, string) (provisioner.FilesystemStats, error) {
	return provisioner.FilesystemStats{TotalBytes: k.size}, nil
}

type kernelMounts struct{ *kernel }

func (k kernelMounts) Mount(_ context.Context, device, target, fsType string, _ []string) error {
	if k.held != nil {
		<-k.held
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refused == nil {
		k.mounts[target] = provisioner.MountPoint{
			Source: device,
			Target: target,
			FSType: fsType,
		}
	}
	return k.refused
}

func (k kernelMounts) Bind(_ context.Context, _, target string, readOnly bool, _ []string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if before, is := k.mounts[target]; is && before.ReadOnly != readOnly {
		return provisioner.Errorf(provisioner.AlreadyExists, "%s is bound with another access", target)
	}
	k.mounts[target] = provisioner.MountPoint{
		Source:   devicePath,
		Target:   target,
		ReadOnly: readOnly,
	}
	return nil
}

func (k kernelMounts) Unmount(_ context.Context, target string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.mounts, target)
	return nil
}

func (k kernelMounts) List(context.Context) ([]provisioner.MountPoint, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var points []provisioner.MountPoint
	for _, mount := range k.mounts {
		points = append(points, mount)
	}
	return points, nil
}
