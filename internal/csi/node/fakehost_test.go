package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/sharedisk"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// memoryHost is a node's kernel in memory: one disk at one LUN, and mounts. Its steps can be
// watched, and interrupted by a panic, which stands for a kill: what has been done by then stays
// done.
type memoryHost struct {
	mu sync.Mutex
	// hook is called before and after every step that changes something.
	hook func(step string)
	size int64
	// device and lun of the disk; device is "" while it is detached. answering are the devices that
	// answer.
	device    string
	lun       int32
	answering map[string]bool
	// others are the devices of further disks, by LUN.
	others  map[int32]string
	content content
	mounts  map[string]provisioner.MountPoint
	held    bool
	// unflushed says that the device was mounted since its last flush.
	unflushed bool
	// bindFails is what a bind mount fails with after it was made.
	bindFails error
	// protected device, and what a read of it fails with.
	protected bool
	broken    error
	// options of the last mount.
	options string
	formats int
	// onFind is called when the device is looked for.
	onFind func()
	// onCheck takes the place of a check, and onStop is called when one is to end.
	onCheck func(device string) error
	onStop  func(device string)
	// shared is what the disk knows of reservations, and node who this is for it.
	shared *sharedisk.Disk
	node   string
	// tuned are the settings that were written last.
	tuned []provisioner.DeviceSetting
}

// content of the disk: blank, garbage, or a filesystem.
type content struct {
	garbage bool
	fs      provisioner.Filesystem
}

func (c content) blank() bool { return c == content{} }

const memoryDevice = "/dev/sdc"

func newMemoryHost() *memoryHost {
	return &memoryHost{
		hook:      func(string) {},
		size:      1 << 30,
		mounts:    map[string]provisioner.MountPoint{},
		device:    memoryDevice,
		lun:       lun,
		answering: map[string]bool{memoryDevice: true},
		others:    map[int32]string{},
		shared:    &sharedisk.Disk{},
		node:      thisNode,
	}
}

func (h *memoryHost) Devices() provisioner.Devices         { return memoryDevices{h} }
func (h *memoryHost) Tuner() provisioner.Tuner             { return memoryTuner{h} }
func (h *memoryHost) Filesystems() provisioner.Filesystems { return memoryFilesystems{h} }
func (h *memoryHost) Mounts() provisioner.Mounts           { return memoryMounts{h} }
func (h *memoryHost) Reservations() provisioner.Reservations {
	return sharedisk.Node{Name: h.node, Disk: func(_ context.Context, device string) (*sharedisk.Disk, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.answering[device] {
			return nil, provisioner.Errorf(provisioner.NotFound, "%s is gone", device)
		}
		h.hook("reserve")
		return h.shared, nil
	}}
}

type memoryDevices struct{ *memoryHost }

// detach takes the disk away. What is mounted from it stays.
func (h *memoryHost) detach() {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.answering, h.device)
	h.device = ""
}

// attach gives the disk a new device at a LUN.
func (h *memoryHost) attach(device string, lun int32) {
	h.mu.Lock()
	h.device, h.lun = device, lun
	h.mu.Unlock()
	h.revive(device)
}

// attachOther gives another disk a device at a LUN.
func (h *memoryHost) attachOther(device string, lun int32) {
	h.mu.Lock()
	h.others[lun] = device
	h.mu.Unlock()
	h.revive(device)
}

// revive makes a device answer.
func (h *memoryHost) revive(device string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answering[device] = true
}

func (h memoryDevices) Find(ctx context.Context, number int32) (provisioner.Device, error) {
	h.mu.Lock()
	device := h.others[number]
	if number == h.lun && h.device != "" {
		device = h.device
	}
	h.mu.Unlock()
	if device == "" {
		<-ctx.Done()
		return provisioner.Device{}, provisioner.Errorf(provisioner.NotFound, "no device: %w", ctx.Err())
	}
	if h.onFind != nil {
		h.onFind()
	}
	return provisioner.Device{Path: device, SizeBytes: h.size}, nil
}

func (h memoryDevices) Rescan(_ context.Context, path string) (provisioner.Device, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.answering[path] {
		return provisioner.Device{}, provisioner.Errorf(provisioner.Unavailable, "no device %s", path)
	}
	return provisioner.Device{Path: path, SizeBytes: h.size}, nil
}

func (h memoryDevices) Flush(context.Context, string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held || len(h.mounts) > 0 {
		return provisioner.Errorf(provisioner.Conflict, "held")
	}
	h.unflushed = false
	return nil
}

func (h memoryDevices) SetReadOnly(_ context.Context, _ string, readOnly bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.protected = readOnly
	return nil
}

func (h memoryDevices) Read(_ context.Context, device string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.answering[strings.TrimRight(device, "0123456789")] {
		return provisioner.Errorf(provisioner.NotFound, "no device %s", device)
	}
	return h.broken
}

type memoryFilesystems struct{ *memoryHost }

func (h memoryFilesystems) Probe(context.Context, string) (provisioner.Filesystem, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.content.fs, h.content.blank(), nil
}

func (h memoryFilesystems) Make(_ context.Context, _ string, fs provisioner.Filesystem, _ provisioner.FilesystemOptions) error {
	h.hook("before mkfs")
	if !h.content.blank() {
		return provisioner.Errorf(provisioner.FailedPrecondition, "not blank")
	}
	h.content = content{garbage: true}
	h.hook("inside mkfs")
	h.content = content{fs: fs}
	h.formats++
	h.hook("after mkfs")
	return nil
}

func (h memoryFilesystems) Unmake(_ context.Context, _ string, fs provisioner.Filesystem) error {
	if !h.shared.Allows(thisNode, true) {
		return provisioner.Errorf(provisioner.Unavailable, "input/output error")
	}
	if h.content.fs != (provisioner.Filesystem{}) && h.content.fs != fs {
		return provisioner.Errorf(provisioner.FailedPrecondition, "something else is there")
	}
	h.hook("before clearing")
	h.content = content{}
	h.hook("after clearing")
	return nil
}

func (h memoryFilesystems) Renew(_ context.Context, _ string, fs provisioner.Filesystem, uuid string) error {
	if len(h.mounts) > 0 {
		return provisioner.Errorf(provisioner.Conflict, "in use")
	}
	if h.content.fs != fs && h.content.fs.UUID != uuid {
		return provisioner.Errorf(provisioner.FailedPrecondition, "something else is there")
	}
	h.hook("before renewal")
	h.content = content{fs: provisioner.Filesystem{Type: fs.Type, UUID: uuid}}
	h.hook("after renewal")
	return nil
}

func (h memoryFilesystems) Check(_ context.Context, device string, _ provisioner.Filesystem) error {
	if h.onCheck == nil {
		return nil
	}
	return h.onCheck(device)
}

func (h memoryFilesystems) Progress(device string) string { return "e2fsck of " + device }

func (h memoryFilesystems) Stop(device string) {
	if h.onStop != nil {
		h.onStop(device)
	}
}

func (h memoryFilesystems) Grow(context.Context, string, string) error { return nil }

func (h memoryFilesystems) Stats(context.Context, string) (provisioner.FilesystemStats, error) {
	return provisioner.FilesystemStats{TotalBytes: h.size}, nil
}

type memoryMounts struct{ *memoryHost }

// seal is what the kernel does to a filesystem after an error.
func (h *memoryHost) seal(target string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	mount := h.mounts[target]
	mount.Sealed = true
	h.mounts[target] = mount
}

func (h memoryMounts) Mount(_ context.Context, device, target, fsType string, options []string) error {
	h.hook("before mount")
	h.mu.Lock()
	h.options = strings.Join(options, ",")
	h.mounts[target] = provisioner.MountPoint{
		Source: device,
		Target: target,
		FSType: fsType,
		Sealed: slices.Contains(strings.Split(h.options, ","), "ro"),
	}
	h.unflushed = true
	h.mu.Unlock()
	h.hook("after mount")
	return nil
}

func (h memoryMounts) Bind(_ context.Context, source, target string, readOnly bool, _ []string) error {
	h.hook("before bind")
	h.mu.Lock()
	device := source
	if mount, found := h.mounts[source]; found {
		device = mount.Source
	}
	h.mounts[target] = provisioner.MountPoint{
		Source:   device,
		Target:   target,
		ReadOnly: readOnly,
	}
	h.mu.Unlock()
	h.hook("after bind")
	return h.bindFails
}

func (h memoryMounts) Unmount(_ context.Context, target string) error {
	h.hook("before unmount")
	h.mu.Lock()
	delete(h.mounts, target)
	h.mu.Unlock()
	h.hook("after unmount")
	return nil
}

func (h memoryMounts) List(context.Context) ([]provisioner.MountPoint, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var points []provisioner.MountPoint
	for _, mount := range h.mounts {
		points = append(points, mount)
	}
	return points, nil
}

type memoryTuner struct{ *memoryHost }

// Partition calls the device's partitions as the kernel does; the disk has two.
func (h memoryTuner) Partition(_ context.Context, disk string, number int) (provisioner.Device, error) {
	if disk != memoryDevice || number > 2 {
		return provisioner.Device{}, provisioner.Errorf(provisioner.FailedPrecondition, "disk %s has no partition %d", disk,
			number)
	}
	return provisioner.Device{Path: fmt.Sprintf("%s%d", disk, number), SizeBytes: h.size / 2}, nil
}

func (h memoryTuner) Tune(_ context.Context, _ string, settings []provisioner.DeviceSetting) error {
	h.hook("before tuning")
	h.mu.Lock()
	h.tuned = settings
	h.mu.Unlock()
	h.hook("after tuning")
	return nil
}
