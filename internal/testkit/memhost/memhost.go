// Package memhost is a node's kernel in memory, for tests of the node plug-in.
package memhost

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/sharedisk"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Host is a node's kernel in memory: one disk at one LUN, and mounts. Its steps can be
// watched, and interrupted by a panic, which stands for a kill: what has been done by then stays
// done.
type Host struct {
	mu sync.Mutex
	// Hook is called before and after every step that changes something.
	Hook func(step string)
	Size int64
	// Device and LUN of the disk; Device is "" while it is detached. Answering are the devices that
	// answer.
	Device    string
	LUN       int32
	Answering map[string]bool
	// Others are the devices of further disks, by LUN.
	Others  map[int32]string
	Content Content
	Mounted map[string]provisioner.MountPoint
	Held    bool
	// Unflushed says that the device was mounted since its last flush or sync.
	Unflushed bool
	// MountFails is what a mount fails with, TuneFails what a change of settings fails with,
	// SyncFails what a sync fails with, FlushFails what a flush of the device fails with, BindFails what a
	// bind mount fails with after it was made, and GrowFails what growing a mounted filesystem fails with.
	MountFails, TuneFails            error
	SyncFails, FlushFails, BindFails error
	GrowFails                        error
	// UnmountFails is what an unmount fails with, which then changes nothing.
	UnmountFails error
	// FrozenDevice is a device whose filesystem is frozen.
	FrozenDevice string
	// Protected is the write protection of the device, Opened whether it was removed since the device
	// was protected last, and ProtectFails what a change of it fails with. Broken is what a read of
	// the device fails with.
	Protected    bool
	Opened       bool
	ProtectFails error
	Broken       error
	// Sequence of the device, as in provisioner.Device.
	Sequence uint64
	// Holds is how many holds of devices have not ended.
	Holds int
	// Options of the last mount.
	Options string
	// Formats is how many filesystems were made, FormatOptions are those of the last one.
	Formats       int
	FormatOptions provisioner.FilesystemOptions
	// OnFind is called when the device is looked for.
	OnFind func()
	// OnCheck takes the place of a check, and OnStop is called when one is to end.
	OnCheck func(device string) error
	OnStop  func(device string)
	// Shared is what the disk knows of reservations, and Node who this is for it.
	Shared *sharedisk.Disk
	Node   string
	// Tuned are the settings that were written last.
	Tuned []provisioner.DeviceSetting
}

// Content of the disk: blank, garbage, or a filesystem.
type Content struct {
	Garbage bool
	FS      provisioner.Filesystem
}

// Blank reports whether nothing is on the disk.
func (c Content) Blank() bool { return c == Content{} }

// DevicePath is the path of the disk's device.
const DevicePath = "/dev/sdc"

// New makes the host of a node, with a blank disk at the LUN.
func New(node string, lun int32) *Host {
	return &Host{
		Hook:      func(string) {},
		Size:      1 << 30,
		Mounted:   map[string]provisioner.MountPoint{},
		Device:    DevicePath,
		LUN:       lun,
		Answering: map[string]bool{DevicePath: true},
		Others:    map[int32]string{},
		Shared:    &sharedisk.Disk{},
		Node:      node,
	}
}

// Devices implements provisioner.Host.
func (h *Host) Devices() provisioner.Devices { return devices{h} }

// Tuner implements provisioner.Host.
func (h *Host) Tuner() provisioner.Tuner { return tuner{h} }

// Filesystems implements provisioner.Host.
func (h *Host) Filesystems() provisioner.Filesystems { return filesystems{h} }

// Mounts implements provisioner.Host.
func (h *Host) Mounts() provisioner.Mounts { return mounts{h} }

// Reservations implements provisioner.Host.
func (h *Host) Reservations() provisioner.Reservations {
	return sharedisk.Node{Name: h.Node, Disk: func(_ context.Context, device string) (*sharedisk.Disk, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.Answering[device] {
			return nil, provisioner.Errorf(provisioner.NotFound, "%s is gone", device)
		}
		h.Hook("reserve")
		return h.Shared, nil
	}}
}

// OnNode returns the reservations of the disk as another node sees them.
func (h *Host) OnNode(name string) provisioner.Reservations {
	return sharedisk.Node{Name: name, Disk: func(context.Context, string) (*sharedisk.Disk, error) { return h.Shared, nil }}
}

type devices struct{ *Host }

// Detach takes the disk away. What is mounted from it stays.
func (h *Host) Detach() {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.Answering, h.Device)
	h.Device, h.Opened = "", false
}

// Attach gives the disk a new device at a LUN.
func (h *Host) Attach(device string, lun int32) {
	h.mu.Lock()
	h.Device, h.LUN = device, lun
	h.mu.Unlock()
	h.Revive(device)
}

// AttachOther gives another disk a device at a LUN.
func (h *Host) AttachOther(device string, lun int32) {
	h.mu.Lock()
	h.Others[lun] = device
	h.mu.Unlock()
	h.Revive(device)
}

// Revive makes a device answer.
func (h *Host) Revive(device string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Answering[device] = true
}

func (h devices) Find(ctx context.Context, number int32) (provisioner.Device, error) {
	h.mu.Lock()
	device := h.Others[number]
	if number == h.LUN && h.Device != "" {
		device = h.Device
	}
	h.mu.Unlock()
	if device == "" {
		<-ctx.Done()
		return provisioner.Device{}, provisioner.Errorf(provisioner.NotFound, "no device: %w", ctx.Err())
	}
	if h.OnFind != nil {
		h.OnFind()
	}
	return provisioner.Device{Path: device, SizeBytes: h.Size}, nil
}

func (h devices) Hold(context.Context, string) (release func(), err error) {
	add := func(n int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.Holds += n
	}
	add(1)
	return func() { add(-1) }, nil
}

func (h devices) Rescan(_ context.Context, path string) (provisioner.Device, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.Answering[diskOf(path)] {
		return provisioner.Device{}, provisioner.Errorf(provisioner.Unavailable, "no device %s", path)
	}
	return provisioner.Device{Path: path, SizeBytes: h.Size}, nil
}

func (h devices) Flush(context.Context, string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.Held || len(h.Mounted) > 0 {
		return provisioner.Errorf(provisioner.Conflict, "held").With(provisioner.DeviceHeld)
	}
	if h.FlushFails != nil {
		return h.FlushFails
	}
	h.Unflushed = false
	return nil
}

func (h devices) SetReadOnly(_ context.Context, device provisioner.Device, readOnly bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ProtectFails != nil:
		return h.ProtectFails
	case !h.Answering[diskOf(device.Path)]:
		return provisioner.Errorf(provisioner.NotFound, "%s is gone", device.Path)
	}
	h.Hook(fmt.Sprintf("protect %t", readOnly))
	h.Protected, h.Opened = readOnly, !readOnly
	return nil
}

func (h devices) Writable(context.Context) map[int32]provisioner.Device {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.Protected || h.Device == "" {
		return nil
	}
	return map[int32]provisioner.Device{h.LUN: {Path: h.Device, SizeBytes: h.Size, Sequence: h.Sequence}}
}

func (h devices) Read(_ context.Context, device string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.Answering[diskOf(device)] {
		return provisioner.Errorf(provisioner.NotFound, "no device %s", device)
	}
	return h.Broken
}

// diskOf returns the device of the disk of a partition.
func diskOf(device string) string { return strings.TrimRight(device, "0123456789") }

type filesystems struct{ *Host }

func (h filesystems) Probe(context.Context, string) (provisioner.Filesystem, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Content.FS, h.Content.Blank(), nil
}

func (h filesystems) Make(_ context.Context, _ string, fs provisioner.Filesystem,
	options provisioner.FilesystemOptions) error {
	h.Hook("before mkfs")
	if !h.Content.Blank() {
		return provisioner.Errorf(provisioner.FailedPrecondition, "not blank")
	}
	h.Content = Content{Garbage: true}
	h.Hook("inside mkfs")
	h.Content = Content{FS: fs}
	h.Formats++
	h.FormatOptions = options
	h.Hook("after mkfs")
	return nil
}

func (h filesystems) Unmake(_ context.Context, _ string, fs provisioner.Filesystem) error {
	if !h.Shared.Allows(h.Node, true) {
		return provisioner.Errorf(provisioner.Unavailable, "input/output error")
	}
	if h.Content.FS != (provisioner.Filesystem{}) && h.Content.FS != fs {
		return provisioner.Errorf(provisioner.FailedPrecondition, "something else is there")
	}
	h.Hook("before clearing")
	h.Content = Content{}
	h.Hook("after clearing")
	return nil
}

func (h filesystems) Renew(_ context.Context, _ string, fs provisioner.Filesystem, uuid string) error {
	if len(h.Mounted) > 0 {
		return provisioner.Errorf(provisioner.Conflict, "in use")
	}
	if h.Content.FS != fs && h.Content.FS.UUID != uuid {
		return provisioner.Errorf(provisioner.FailedPrecondition, "something else is there")
	}
	h.Hook("before renewal")
	h.Content = Content{FS: provisioner.Filesystem{Type: fs.Type, UUID: uuid}}
	h.Hook("after renewal")
	return nil
}

func (h filesystems) Check(_ context.Context, device string, _ provisioner.Filesystem) error {
	if h.OnCheck == nil {
		return nil
	}
	return h.OnCheck(device)
}

func (h filesystems) Progress(device string) string { return "e2fsck of " + device }

func (h filesystems) Stop(device string) {
	if h.OnStop != nil {
		h.OnStop(device)
	}
}

func (h filesystems) Grow(_ context.Context, _, mountPath string) error {
	if mountPath == "" {
		return nil
	}
	return h.GrowFails
}

func (h filesystems) Frozen(_ context.Context, device, _ string) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return device == h.FrozenDevice, nil
}

func (h filesystems) Stats(context.Context, string) (provisioner.FilesystemStats, error) {
	return provisioner.FilesystemStats{TotalBytes: h.Size}, nil
}

type mounts struct{ *Host }

// Seal is what the kernel does to a filesystem after an error.
func (h *Host) Seal(target string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	mount := h.Mounted[target]
	mount.Sealed = true
	h.Mounted[target] = mount
}

func (h mounts) Mount(_ context.Context, device, target, fsType string, options []string) error {
	h.Hook("before mount")
	if h.MountFails != nil {
		return h.MountFails
	}
	h.mu.Lock()
	if h.Mounted[target].Source == device {
		h.mu.Unlock()
		return nil
	}
	h.Options = strings.Join(options, ",")
	h.Mounted[target] = provisioner.MountPoint{
		Source: device,
		Target: target,
		FSType: fsType,
		Sealed: slices.Contains(strings.Split(h.Options, ","), "ro"),
	}
	h.Unflushed = true
	h.mu.Unlock()
	h.Hook("after mount")
	return nil
}

func (h mounts) Bind(_ context.Context, source, target string, readOnly bool, _ []string) error {
	h.Hook("before bind")
	h.mu.Lock()
	if before, found := h.Mounted[target]; found && before.ReadOnly != readOnly {
		h.mu.Unlock()
		return provisioner.Errorf(provisioner.AlreadyExists, "%s is bound with another access", target)
	}
	device := source
	if mount, found := h.Mounted[source]; found {
		device = mount.Source
	}
	h.Mounted[target] = provisioner.MountPoint{
		Source:   device,
		Target:   target,
		ReadOnly: readOnly,
	}
	h.mu.Unlock()
	h.Hook("after bind")
	return h.BindFails
}

func (h mounts) Sync(_ context.Context, target string) error {
	h.Hook("sync")
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, found := h.Mounted[target]; !found {
		return nil
	}
	if h.SyncFails == nil {
		h.Unflushed = false
	}
	return h.SyncFails
}

func (h mounts) Unmount(_ context.Context, target string) error {
	h.Hook("before unmount")
	h.mu.Lock()
	if h.UnmountFails != nil {
		defer h.mu.Unlock()
		return h.UnmountFails
	}
	delete(h.Mounted, target)
	h.mu.Unlock()
	h.Hook("after unmount")
	return nil
}

func (h mounts) List(context.Context) ([]provisioner.MountPoint, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var points []provisioner.MountPoint
	for _, mount := range h.Mounted {
		points = append(points, mount)
	}
	return points, nil
}

type tuner struct{ *Host }

// Partition calls the device's partitions as the kernel does; the disk has two.
func (h tuner) Partition(_ context.Context, disk string, number int) (provisioner.Device, error) {
	if disk != DevicePath || number > 2 {
		return provisioner.Device{}, provisioner.Errorf(provisioner.FailedPrecondition, "disk %s has no partition %d", disk,
			number)
	}
	return provisioner.Device{Path: fmt.Sprintf("%s%d", disk, number), SizeBytes: h.Size / 2}, nil
}

func (h tuner) Tune(_ context.Context, _ string, settings []provisioner.DeviceSetting) error {
	h.Hook("before tuning")
	if h.TuneFails != nil {
		return h.TuneFails
	}
	h.mu.Lock()
	h.Tuned = settings
	h.mu.Unlock()
	h.Hook("after tuning")
	return nil
}
