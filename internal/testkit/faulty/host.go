package faulty

import (
	"context"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Host is a host whose accesses fail.
type Host struct {
	provisioner.Host
	*Faults
}

// Devices implements provisioner.Host.
func (h Host) Devices() provisioner.Devices { return devices{h.Host.Devices(), h.Faults} }

// Tuner implements provisioner.Host.
func (h Host) Tuner() provisioner.Tuner { return tuner{h.Host.Tuner(), h.Faults} }

// Filesystems implements provisioner.Host.
func (h Host) Filesystems() provisioner.Filesystems {
	return filesystems{h.Host.Filesystems(), h.Faults}
}

// Mounts implements provisioner.Host.
func (h Host) Mounts() provisioner.Mounts { return mounts{h.Host.Mounts(), h.Faults} }

// Reservations implements provisioner.Host.
func (h Host) Reservations() provisioner.Reservations {
	return Reservations{h.Host.Reservations(), h.Faults}
}

// result makes an access with a result, unless it is the one that fails.
func result[T any](f *Faults, name string, access func() (T, error)) (T, error) {
	if err := f.Access(name); err != nil {
		var none T
		return none, err
	}
	return access()
}

type devices struct {
	provisioner.Devices
	f *Faults
}

func (d devices) Find(ctx context.Context, lun int32) (provisioner.Device, error) {
	return result(d.f, "find", func() (provisioner.Device, error) { return d.Devices.Find(ctx, lun) })
}

func (d devices) Hold(ctx context.Context, path string) (func(), error) {
	return result(d.f, "hold", func() (func(), error) { return d.Devices.Hold(ctx, path) })
}

func (d devices) Rescan(ctx context.Context, path string) (provisioner.Device, error) {
	return result(d.f, "rescan", func() (provisioner.Device, error) { return d.Devices.Rescan(ctx, path) })
}

func (d devices) Flush(ctx context.Context, path string) error {
	return d.f.do("flush", func() error { return d.Devices.Flush(ctx, path) })
}

func (d devices) SetReadOnly(ctx context.Context, device provisioner.Device, readOnly bool) error {
	return d.f.do("set read-only", func() error { return d.Devices.SetReadOnly(ctx, device, readOnly) })
}

func (d devices) Read(ctx context.Context, path string) error {
	return d.f.do("read", func() error { return d.Devices.Read(ctx, path) })
}

type tuner struct {
	provisioner.Tuner
	f *Faults
}

func (t tuner) Partition(ctx context.Context, disk string, number int) (provisioner.Device, error) {
	return result(t.f, "partition", func() (provisioner.Device, error) { return t.Tuner.Partition(ctx, disk, number) })
}

func (t tuner) Tune(ctx context.Context, disk string, settings []provisioner.DeviceSetting) error {
	return t.f.do("tune", func() error { return t.Tuner.Tune(ctx, disk, settings) })
}

type filesystems struct {
	provisioner.Filesystems
	f *Faults
}

func (s filesystems) Probe(ctx context.Context, device string) (fs provisioner.Filesystem, blank bool, err error) {
	if err := s.f.Access("probe"); err != nil {
		return provisioner.Filesystem{}, false, err
	}
	return s.Filesystems.Probe(ctx, device)
}

func (s filesystems) Make(ctx context.Context, device string, fs provisioner.Filesystem,
	options provisioner.FilesystemOptions) error {
	return s.f.do("make", func() error { return s.Filesystems.Make(ctx, device, fs, options) })
}

func (s filesystems) Unmake(ctx context.Context, device string, fs provisioner.Filesystem) error {
	return s.f.do("unmake", func() error { return s.Filesystems.Unmake(ctx, device, fs) })
}

func (s filesystems) Renew(ctx context.Context, device string, fs provisioner.Filesystem, uuid string) error {
	return s.f.do("renew", func() error { return s.Filesystems.Renew(ctx, device, fs, uuid) })
}

func (s filesystems) Check(ctx context.Context, device string, fs provisioner.Filesystem) error {
	return s.f.do("check", func() error { return s.Filesystems.Check(ctx, device, fs) })
}

func (s filesystems) Grow(ctx context.Context, device, path string) error {
	return s.f.do("grow", func() error { return s.Filesystems.Grow(ctx, device, path) })
}

func (s filesystems) Frozen(ctx context.Context, device, fsType string) (bool, error) {
	return result(s.f, "frozen", func() (bool, error) { return s.Filesystems.Frozen(ctx, device, fsType) })
}

func (s filesystems) Stats(ctx context.Context, path string) (provisioner.FilesystemStats, error) {
	return result(s.f, "stats", func() (provisioner.FilesystemStats, error) { return s.Filesystems.Stats(ctx, path) })
}

type mounts struct {
	provisioner.Mounts
	f *Faults
}

func (m mounts) Mount(ctx context.Context, device, target, fsType string, options []string) error {
	return m.f.do("mount", func() error { return m.Mounts.Mount(ctx, device, target, fsType, options) })
}

func (m mounts) Bind(ctx context.Context, source, target string, readOnly bool, options []string) error {
	return m.f.do("bind", func() error { return m.Mounts.Bind(ctx, source, target, readOnly, options) })
}

func (m mounts) Sync(ctx context.Context, target string) error {
	return m.f.do("sync", func() error { return m.Mounts.Sync(ctx, target) })
}

func (m mounts) Unmount(ctx context.Context, target string) error {
	return m.f.do("unmount", func() error { return m.Mounts.Unmount(ctx, target) })
}

func (m mounts) List(ctx context.Context) ([]provisioner.MountPoint, error) {
	return result(m.f, "list mounts", func() ([]provisioner.MountPoint, error) { return m.Mounts.List(ctx) })
}

// Reservations are those of devices whose accesses fail.
type Reservations struct {
	provisioner.Reservations
	*Faults
}

// Read implements provisioner.Reservations.
func (r Reservations) Read(ctx context.Context, device string) (provisioner.ReservationState, error) {
	return result(r.Faults, "read the reservation",
		func() (provisioner.ReservationState, error) { return r.Reservations.Read(ctx, device) })
}

// Register implements provisioner.Reservations.
func (r Reservations) Register(ctx context.Context, device string, own provisioner.ReservationKey) error {
	return r.do("register", func() error { return r.Reservations.Register(ctx, device, own) })
}

// Unregister implements provisioner.Reservations.
func (r Reservations) Unregister(ctx context.Context, device string, own provisioner.ReservationKey) error {
	return r.do("unregister", func() error { return r.Reservations.Unregister(ctx, device, own) })
}

// Reserve implements provisioner.Reservations.
func (r Reservations) Reserve(ctx context.Context, device string, own provisioner.ReservationKey) error {
	return r.do("reserve", func() error { return r.Reservations.Reserve(ctx, device, own) })
}

// PreemptAndAbort implements provisioner.Reservations.
func (r Reservations) PreemptAndAbort(ctx context.Context, device string, own, victim provisioner.ReservationKey) error {
	return r.do("pre-empt", func() error { return r.Reservations.PreemptAndAbort(ctx, device, own, victim) })
}

// Preempt implements provisioner.Reservations.
func (r Reservations) Preempt(ctx context.Context, device string, own, victim provisioner.ReservationKey) error {
	return r.do("pre-empt", func() error { return r.Reservations.Preempt(ctx, device, own, victim) })
}

// Aborts implements provisioner.Reservations.
func (r Reservations) Aborts(ctx context.Context, device string, own provisioner.ReservationKey) (bool, error) {
	return result(r.Faults, "aborts", func() (bool, error) { return r.Reservations.Aborts(ctx, device, own) })
}

// Clear implements provisioner.Reservations.
func (r Reservations) Clear(ctx context.Context, device string, own provisioner.ReservationKey) error {
	return r.do("clear", func() error { return r.Reservations.Clear(ctx, device, own) })
}
