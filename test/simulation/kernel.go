package simulation

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// kernel is a machine's kernel as its node plug-in uses it.
type kernel struct {
	m  *machine
	by *owner
}

func (k kernel) Devices() provisioner.Devices         { return devices{k} }
func (k kernel) Tuner() provisioner.Tuner             { return tuner{k} }
func (k kernel) Filesystems() provisioner.Filesystems { return filesystems{k} }
func (k kernel) Mounts() provisioner.Mounts           { return mounts{k} }

// enter stops before an effect on the kernel.
func (k kernel) enter(ctx context.Context, what string, ready func() bool) error {
	may := func() bool {
		return (k.m.slow == "" || !strings.HasPrefix(what, k.m.slow)) && (ready == nil || ready())
	}
	if k.m.w.yield(ctx, &access{
		by:    k.by,
		what:  what,
		over:  local,
		ready: may,
	}) == expired {
		return ctx.Err()
	}
	return nil
}

func failedDevice(path string) error {
	return provisioner.Errorf(provisioner.Unavailable, "input/output error on %s", path)
}

// device returns a device that works.
func (k kernel) device(path string) (*device, error) {
	d := k.m.devices[path]
	if d == nil || d.cut {
		return nil, failedDevice(path)
	}
	return d, nil
}

// writable returns a device that works and takes writes.
func (k kernel) writable(path string) (*device, error) {
	d, err := k.device(path)
	if err == nil && d.protected {
		k.m.w.broken("protection: %s writes to %s of %s, which it has protected", k.m.name, path, volumeOf(d.disk))
	}
	if err == nil && !k.m.takes(d) {
		return nil, failedDevice(path)
	}
	return d, err
}

type devices struct{ kernel }

// Find implements provisioner.Devices.
func (k devices) Find(ctx context.Context, lun int32) (provisioner.Device, error) {
	at := func() (string, bool) {
		disk, _ := k.diskAt(ctx, lun)
		return disk, disk != ""
	}
	if err := k.enter(ctx, fmt.Sprintf("find device at LUN %d", lun),
		func() bool { _, found := at(); return found }); err != nil {
		return provisioner.Device{}, provisioner.Errorf(provisioner.NotFound, "no device at LUN %d: %w", lun, err)
	}
	disk, _ := at()
	k.forgetOwners(volumeOf(disk))
	d := k.m.deviceOf(disk, lun)
	d.reads = 0
	return provisioner.Device{Path: d.path, SizeBytes: k.m.w.azure.sizeOf(disk), Sequence: d.sequence}, nil
}

// deviceOf returns the device of a disk that is attached at a LUN, which gets the first name that
// no device has, or one that is gone and that nothing holds: then the name means another disk.
func (m *machine) deviceOf(disk string, lun int32) *device {
	for _, d := range m.devices {
		if d.disk == disk && !d.cut {
			return d
		}
	}
	for i := 0; ; i++ {
		path := fmt.Sprintf("/dev/sd%c", 'a'+i)
		if d := m.devices[path]; d == nil || d.cut && !m.named(path) {
			m.sequence++
			m.devices[path] = &device{
				path:     path,
				disk:     disk,
				lun:      lun,
				sequence: m.sequence,
			}
			m.w.pathChanged(m, disk)
			return m.devices[path]
		}
	}
}

// Hold implements provisioner.Devices.
func (k devices) Hold(_ context.Context, path string) (release func(), err error) {
	d, err := k.device(path)
	if err != nil {
		return nil, err
	}
	k.m.open = append(k.m.open, opened{path: path, by: k.by})
	return func() {
		if i := slices.Index(k.m.open, opened{path: d.path, by: k.by}); i >= 0 {
			k.m.open = slices.Delete(k.m.open, i, i+1)
		}
	}, nil
}

// opened is a device that a process has open.
type opened struct {
	path string
	by   *owner
}

// named reports whether the path means a device that is gone, because a mount or a process that
// lives holds it.
func (m *machine) named(path string) bool {
	return m.holds(path) || slices.ContainsFunc(m.open, func(o opened) bool { return o.path == path && !o.by.dead })
}

// holds reports whether a mount holds the device, be it in another namespace.
func (m *machine) holds(path string) bool {
	for _, mount := range m.mounts {
		if mount.Source == path {
			return true
		}
	}
	return slices.ContainsFunc(m.leaks, func(l leak) bool { return l.path == path && !l.file && !m.ended(l) })
}

// diskAt is what instance metadata says: the disk that Azure has at a LUN, "" for none.
func (k kernel) diskAt(_ context.Context, lun int32) (string, error) {
	for _, i := range k.m.w.azure.state().Instances {
		for _, d := range i.DataDisks {
			if i.ID == vmOf(k.m.name) && d.LUN == lun {
				return d.DiskID, nil
			}
		}
	}
	return "", nil
}

// Rescan implements provisioner.Devices.
func (k devices) Rescan(ctx context.Context, path string) (provisioner.Device, error) {
	if k.believed(ctx) {
		return provisioner.Device{Path: path, SizeBytes: volumeSize}, nil
	}
	d, err := k.device(path)
	if err != nil {
		return provisioner.Device{}, err
	}
	return provisioner.Device{Path: path, SizeBytes: k.m.w.azure.sizeOf(d.disk), Sequence: d.sequence}, nil
}

// Flush implements provisioner.Devices.
func (k devices) Flush(ctx context.Context, path string) error {
	if err := k.enter(ctx, "flush "+path, nil); err != nil {
		return err
	}
	if k.m.holds(path) {
		return provisioner.Errorf(provisioner.Conflict, "%s is mounted", path)
	}
	if k.m.devices[path] == nil {
		return nil
	}
	d, err := k.device(path)
	if err != nil {
		return err
	}
	return k.flush(d)
}

// SetReadOnly implements provisioner.Devices.
func (k devices) SetReadOnly(ctx context.Context, device provisioner.Device, readOnly bool) error {
	if err := k.enter(ctx, fmt.Sprintf("protect %s: %t", device.Path, readOnly), nil); err != nil {
		return err
	}
	d := k.m.devices[device.Path]
	if d == nil || d.cut || device.Sequence != 0 && device.Sequence != d.sequence {
		return provisioner.Errorf(provisioner.NotFound, "%s is gone", device.Path)
	}
	d.protected = readOnly && k.m.w.options.Mutant != Unprotected
	return nil
}

// Writable implements provisioner.Devices.
func (k devices) Writable(context.Context) map[int32]provisioner.Device {
	found := map[int32]provisioner.Device{}
	for lun := range int32(64) {
		if disk, _ := k.diskAt(context.Background(), lun); disk != "" {
			if d := k.m.deviceOf(disk, lun); !d.cut && !d.protected {
				found[lun] = provisioner.Device{Path: d.path, SizeBytes: k.m.w.azure.sizeOf(disk), Sequence: d.sequence}
			}
		}
	}
	return found
}

// Read implements provisioner.Devices.
func (k devices) Read(ctx context.Context, path string) error {
	if k.believed(ctx) {
		return nil
	}
	_, err := k.device(path)
	return err
}

type tuner struct{ kernel }

// Partition implements provisioner.Tuner; the disks have none.
func (k tuner) Partition(_ context.Context, disk string, number int) (provisioner.Device, error) {
	return provisioner.Device{}, provisioner.Errorf(provisioner.FailedPrecondition, "disk %s has no partition %d", disk, number)
}

// Tune implements provisioner.Tuner.
func (k tuner) Tune(context.Context, string, []provisioner.DeviceSetting) error { return nil }

type filesystems struct{ kernel }

// Probe implements provisioner.Filesystems.
func (k filesystems) Probe(ctx context.Context, path string) (provisioner.Filesystem, bool, error) {
	d, err := k.device(path)
	if err != nil {
		return provisioner.Filesystem{}, false, err
	}
	k.recordEarly(ctx, d)
	if fs, taken := k.taken(ctx, d); taken {
		return fs, false, nil
	}
	fs := k.m.w.content[d.disk]
	return fs, fs == provisioner.Filesystem{}, nil
}

// Make implements provisioner.Filesystems.
func (k filesystems) Make(ctx context.Context, path string, fs provisioner.Filesystem, _ provisioner.FilesystemOptions) error {
	if err := k.enter(ctx, "make "+fs.Type+" on "+path, nil); err != nil {
		return err
	}
	d, err := k.writable(path)
	if err != nil {
		return err
	}
	k.m.w.maysMount(k.m, volumeOf(d.disk))
	k.isReserved(d)
	if found := k.m.w.content[d.disk]; found != (provisioner.Filesystem{}) {
		k.m.w.broken("law 4: %s formats %s, which carries %s", k.m.name, path, found.UUID)
	}
	k.m.w.content[d.disk] = fs
	return nil
}

// Unmake implements provisioner.Filesystems.
func (k filesystems) Unmake(ctx context.Context, path string, fs provisioner.Filesystem) error {
	if err := k.enter(ctx, "unmake "+fs.UUID+" on "+path, nil); err != nil {
		return err
	}
	d, err := k.writable(path)
	if err != nil {
		return err
	}
	if found := k.m.w.content[d.disk]; found != (provisioner.Filesystem{}) && found != fs {
		return provisioner.Errorf(provisioner.FailedPrecondition, "%s carries %s", path, found.UUID)
	}
	delete(k.m.w.content, d.disk)
	return nil
}

// Renew implements provisioner.Filesystems.
func (k filesystems) Renew(ctx context.Context, path string, fs provisioner.Filesystem, uuid string) error {
	if err := k.enter(ctx, "renew "+fs.UUID+" on "+path, nil); err != nil {
		return err
	}
	d, err := k.writable(path)
	if err != nil {
		return err
	}
	if found := k.m.w.content[d.disk]; found != fs {
		return provisioner.Errorf(provisioner.FailedPrecondition, "%s carries %s", path, found.UUID)
	}
	k.m.w.content[d.disk] = provisioner.Filesystem{Type: fs.Type, UUID: uuid}
	return nil
}

// Check implements provisioner.Filesystems.
func (k filesystems) Check(context.Context, string, provisioner.Filesystem) error { return nil }

// Grow implements provisioner.Filesystems.
func (k filesystems) Grow(context.Context, string, string) error { return nil }

// Progress implements provisioner.Filesystems.
func (k filesystems) Progress(string) string { return "" }

// Stop implements provisioner.Filesystems.
func (k filesystems) Stop(string) {}

// Frozen implements provisioner.Filesystems.
func (k filesystems) Frozen(context.Context, string, string) (bool, error) { return false, nil }

// Stats implements provisioner.Filesystems.
func (k filesystems) Stats(context.Context, string) (provisioner.FilesystemStats, error) {
	return provisioner.FilesystemStats{}, nil
}

type mounts struct{ kernel }

// Mount implements provisioner.Mounts. It is the place where law 2 shows.
func (k mounts) Mount(ctx context.Context, path, target, fsType string, _ []string) error {
	if err := k.enter(ctx, "mount "+path, nil); err != nil {
		return err
	}
	d, err := k.writable(path)
	if err != nil {
		return err
	}
	if k.sameDisk(d, target); k.m.w.violation == "" {
		k.m.w.maysMount(k.m, volumeOf(d.disk))
		k.isReserved(d)
	}
	if !k.m.holds(path) {
		k.m.w.data.read(d)
	}
	k.add(provisioner.MountPoint{
		Source: path,
		Target: target,
		FSType: fsType,
	})
	return nil
}

// sameDisk holds that a device is that of the volume that the target is for.
func (k mounts) sameDisk(d *device, target string) {
	if volume := volumeAt(target); volumeOf(d.disk) != volume {
		k.m.w.broken("identity: %s mounts the disk %s for volume %s", k.m.name, lastOf(d.disk), volume)
	}
}

func (k mounts) add(point provisioner.MountPoint) {
	k.m.mounts[point.Target] = mount{point, volumeAt(point.Target)}
}

// Bind implements provisioner.Mounts: a pod gets a filesystem that is mounted, whether its device
// works or not, or the device of a raw block volume.
func (k mounts) Bind(ctx context.Context, source, target string, _ bool, _ []string) error {
	what := source
	if filepath.IsAbs(source) && filepath.Base(source) == stagingName {
		what = volumeAt(source)
	}
	if err := k.enter(ctx, "give "+what+" to a pod", nil); err != nil {
		return err
	}
	if staged, found := k.m.mounts[source]; found {
		k.add(provisioner.MountPoint{
			Source: staged.Source,
			Target: target,
			FSType: staged.FSType,
		})
		return nil
	}
	d, err := k.device(source)
	if err != nil {
		return err
	}
	if k.sameDisk(d, target); k.m.w.violation == "" {
		k.m.w.mayUse(k.m, volumeOf(d.disk))
	}
	k.add(provisioner.MountPoint{Source: source, Target: target})
	return nil
}

// Sync implements provisioner.Mounts.
func (k mounts) Sync(ctx context.Context, target string) error {
	if err := k.enter(ctx, "sync "+volumeAt(target), nil); err != nil {
		return err
	}
	mount, found := k.m.mounts[target]
	if !found || k.m.w.options.Mutant == Unsynced {
		return nil
	}
	d, err := k.device(mount.Source)
	if err != nil {
		return err
	}
	return k.flush(d)
}

// Unmount implements provisioner.Mounts.
func (k mounts) Unmount(ctx context.Context, target string) error {
	if err := k.enter(ctx, "unmount "+volumeAt(target), nil); err != nil {
		return err
	}
	k.dropAdopted(target)
	k.releaseEarly(target)
	source := k.m.mounts[target].Source
	delete(k.m.mounts, target)
	if d := k.m.devices[source]; d != nil && !k.m.holds(source) {
		k.m.w.data.unmount(k.m, d)
	}
	return nil
}

// List implements provisioner.Mounts.
func (k mounts) List(context.Context) ([]provisioner.MountPoint, error) {
	points := make([]provisioner.MountPoint, 0, len(k.m.mounts))
	for _, mount := range k.m.mounts {
		points = append(points, mount.MountPoint)
	}
	slices.SortFunc(points, func(a, b provisioner.MountPoint) int { return strings.Compare(a.Target, b.Target) })
	return points, nil
}

// gatedClock is the bubble's clock. A caller that stops a timer, because something else happened
// first, waits for its turn: the other event is still in progress in another goroutine, and Go's
// scheduler must not decide the order of the two.
type gatedClock struct{ k kernel }

func (c gatedClock) Now() time.Time                         { return time.Now() }
func (c gatedClock) Since(t time.Time) time.Duration        { return time.Since(t) }
func (c gatedClock) After(d time.Duration) <-chan time.Time { return time.After(d) }
func (c gatedClock) Tick(d time.Duration) <-chan time.Time  { return bubbleClock.Tick(d) }
func (c gatedClock) Sleep(d time.Duration)                  { time.Sleep(d) }
func (c gatedClock) NewTicker(d time.Duration) clock.Ticker { return bubbleClock.NewTicker(d) }
func (c gatedClock) NewTimer(d time.Duration) clock.Timer {
	return gatedTimer{bubbleClock.NewTimer(d), c.k}
}

type gatedTimer struct {
	clock.Timer
	k kernel
}

// Stop implements clock.Timer.
func (t gatedTimer) Stop() bool {
	_ = t.k.enter(context.Background(), "report wakes", nil)
	return t.Timer.Stop()
}
