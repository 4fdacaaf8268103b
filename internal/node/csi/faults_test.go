package csi_test

import (
	"context"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// faults makes one access to the host or to the API server fail.
type faults struct {
	left int
	at   string // the access that failed
}

func (f *faults) access(name string) error {
	if f.left--; f.left != 0 {
		return nil
	}
	f.at = name
	return provisioner.Errorf(provisioner.Unavailable, "%s failed", name)
}

// do makes an access, unless it is the one that fails.
func (f *faults) do(name string, access func() error) error {
	if err := f.access(name); err != nil {
		return err
	}
	return access()
}

// failing is a host whose accesses fail.
type failing struct {
	provisioner.Host
	*faults
}

func (h failing) Devices() provisioner.Devices { return failingDevices{h.Host.Devices(), h.faults} }
func (h failing) Filesystems() provisioner.Filesystems {
	return failingFilesystems{h.Host.Filesystems(), h.faults}
}
func (h failing) Mounts() provisioner.Mounts { return failingMounts{h.Host.Mounts(), h.faults} }
func (h failing) Reservations() provisioner.Reservations {
	return failingReservations{h.Host.Reservations(), h.faults}
}

type failingDevices struct {
	provisioner.Devices
	*faults
}

func (d failingDevices) Find(ctx context.Context, lun int32) (provisioner.Device, error) {
	if err := d.access("find"); err != nil {
		return provisioner.Device{}, err
	}
	return d.Devices.Find(ctx, lun)
}

func (d failingDevices) Hold(ctx context.Context, path string) (func(), error) {
	if err := d.access("hold"); err != nil {
		return nil, err
	}
	return d.Devices.Hold(ctx, path)
}

func (d failingDevices) Rescan(ctx context.Context, path string) (provisioner.Device, error) {
	if err := d.access("rescan"); err != nil {
		return provisioner.Device{}, err
	}
	return d.Devices.Rescan(ctx, path)
}

func (d failingDevices) Flush(ctx context.Context, path string) error {
	return d.do("flush", func() error { return d.Devices.Flush(ctx, path) })
}

func (d failingDevices) SetReadOnly(ctx context.Context, device provisioner.Device, readOnly bool) error {
	return d.do("set read-only", func() error { return d.Devices.SetReadOnly(ctx, device, readOnly) })
}

type failingFilesystems struct {
	provisioner.Filesystems
	*faults
}

func (f failingFilesystems) Probe(ctx context.Context, device string) (provisioner.Filesystem, bool, error) {
	if err := f.access("probe"); err != nil {
		return provisioner.Filesystem{}, false, err
	}
	return f.Filesystems.Probe(ctx, device)
}

func (f failingFilesystems) Make(ctx context.Context, device string, fs provisioner.Filesystem,
	options provisioner.FilesystemOptions) error {
	return f.do("make", func() error { return f.Filesystems.Make(ctx, device, fs, options) })
}

func (f failingFilesystems) Check(ctx context.Context, device string, fs provisioner.Filesystem) error {
	return f.do("check", func() error { return f.Filesystems.Check(ctx, device, fs) })
}

func (f failingFilesystems) Grow(ctx context.Context, device, path string) error {
	return f.do("grow", func() error { return f.Filesystems.Grow(ctx, device, path) })
}

type failingMounts struct {
	provisioner.Mounts
	*faults
}

func (m failingMounts) Mount(ctx context.Context, device, target, fsType string, options []string) error {
	return m.do("mount", func() error { return m.Mounts.Mount(ctx, device, target, fsType, options) })
}

func (m failingMounts) Bind(ctx context.Context, source, target string, readOnly bool, options []string) error {
	return m.do("bind", func() error { return m.Mounts.Bind(ctx, source, target, readOnly, options) })
}

func (m failingMounts) Sync(ctx context.Context, target string) error {
	return m.do("sync", func() error { return m.Mounts.Sync(ctx, target) })
}

func (m failingMounts) Unmount(ctx context.Context, target string) error {
	return m.do("unmount", func() error { return m.Mounts.Unmount(ctx, target) })
}

func (m failingMounts) List(ctx context.Context) ([]provisioner.MountPoint, error) {
	if err := m.access("list mounts"); err != nil {
		return nil, err
	}
	return m.Mounts.List(ctx)
}

type failingReservations struct {
	provisioner.Reservations
	*faults
}

func (r failingReservations) Read(ctx context.Context, device string) (provisioner.ReservationState, error) {
	if err := r.access("read the reservation"); err != nil {
		return provisioner.ReservationState{}, err
	}
	return r.Reservations.Read(ctx, device)
}

func (r failingReservations) Register(ctx context.Context, device string, key provisioner.ReservationKey) error {
	return r.do("register", func() error { return r.Reservations.Register(ctx, device, key) })
}

func (r failingReservations) Reserve(ctx context.Context, device string, key provisioner.ReservationKey) error {
	return r.do("reserve", func() error { return r.Reservations.Reserve(ctx, device, key) })
}

func (r failingReservations) Unregister(ctx context.Context, device string, key provisioner.ReservationKey) error {
	return r.do("unregister", func() error { return r.Reservations.Unregister(ctx, device, key) })
}

// watchFaults makes the plug-in's requests to the API server fail.
func (m *machine) watchFaults(f *faults) {
	m.api = interceptor.NewClient(m.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			return f.do("get", func() error { return c.Get(ctx, key, o, options...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, o client.Object,
			patch client.Patch, options ...client.SubResourcePatchOption) error {
			return f.do("report", func() error { return c.Status().Patch(ctx, o, patch, options...) })
		},
	})
}

func (m *machine) mounted(target string) bool {
	m.t.Helper()
	mounts, err := m.host.Mounts().List(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return slices.ContainsFunc(mounts, func(p provisioner.MountPoint) bool { return p.Target == target })
}

// part is a call of a volume's life on a node, and what it is for.
type part struct {
	name string
	call func(m *machine, s *csinode.Server) error
	done func(m *machine) bool
}

func lifeOf(capability *csi.VolumeCapability) []part {
	return []part{
		{"stage", func(m *machine, s *csinode.Server) error { return m.stage(s, capability) },
			func(m *machine) bool { e := m.entry(); return e != nil && e.Phase == apiv1.PhaseStaged }},
		{"publish", func(m *machine, s *csinode.Server) error { return m.publishVolume(s, capability, false) },
			func(m *machine) bool { return m.mounted(m.target()) }},
		{"unpublish", func(m *machine, s *csinode.Server) error { return m.unpublishVolume(s) },
			func(m *machine) bool { return !m.mounted(m.target()) }},
		{"unstage", func(m *machine, s *csinode.Server) error { return m.unstage(s) },
			func(m *machine) bool { return m.entry() == nil }},
	}
}

// A call one of whose accesses fails returns an error, or has done what it is for; its repetition
// succeeds; and then everything ends as without the fault.
func TestACallSurvivesTheFailureOfEachAccess(t *testing.T) {
	t.Parallel()
	for kind, capability := range map[string]*csi.VolumeCapability{
		"filesystem": mountCapability("ext4"),
		"raw block":  blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER),
	} {
		for disk, publish := range map[string]func(m *machine){
			"a disk of its own": func(m *machine) { m.publish(nil) },
			"a shared disk":     func(m *machine) { m.publishShared(7) },
		} {
			life := lifeOf(capability)
			for failed, at := range life {
				t.Run(kind+" on "+disk+", "+at.name, func(t *testing.T) {
					for n := 1; failAccess(t, life, failed, n, publish); n++ {
					}
				})
			}
		}
	}
}

// failAccess plays a life in which the n-th access of one call fails. It reports whether the call has
// that many.
func failAccess(t *testing.T, life []part, failed, n int, publish func(*machine)) bool {
	t.Helper()
	host, f := newMemoryHost(), &faults{}
	m := newMachine(t, failing{host, f}, t.TempDir(), quiet)
	m.watchFaults(f)
	publish(m)
	s := m.start()
	for i, p := range life {
		if i == failed {
			f.left = n
			err := p.call(m, s)
			if f.left = 0; err == nil && !p.done(m) {
				t.Fatalf("access %d of %s (%s) failed: got no error, and it is not done", n, p.name, f.at)
			}
		}
		if err := p.call(m, s); err != nil || !p.done(m) {
			t.Fatalf("after access %d of %s (%s) failed: %s: got %v, done: %t", n, life[failed].name, f.at, p.name, err,
				p.done(m))
		}
	}
	if m.assertClean(); host.Unflushed || len(host.Shared.State().Keys) > 0 {
		t.Errorf("after access %d of %s (%s) failed: to be flushed: %t, reservation %s", n, life[failed].name, f.at,
			host.Unflushed, host.Shared.State())
	}
	return f.at != ""
}
