package filesystem_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/filesystem"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/usage"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/faulty"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memhost"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/nodebench"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	newUUID = "00000000-0000-4000-8000-000000000001"
	lun     = nodebench.LUN
)

// errAny stands for an error without a kind.
var errAny = errors.New("any")

var ext4 = provisioner.Filesystem{Type: "ext4", UUID: "u-1"}

func stager(b *nodebench.Bench) *filesystem.Stager {
	return &filesystem.Stager{Finder: b.Finder, NewUUID: func() string { return newUUID }}
}

// mountAt mounts a device at a path.
func mountAt(b *nodebench.Bench, path, device string, edits ...func(*provisioner.MountPoint)) {
	m := provisioner.MountPoint{Source: device, Target: path, FSType: "ext4"}
	for _, edit := range edits {
		edit(&m)
	}
	b.Memory.Mounted[path] = m
}

func sealed(m *provisioner.MountPoint) { m.Sealed = true }

func readOnly(m *provisioner.MountPoint) { m.ReadOnly = true }

func labelled(label string) func(*nodereport.Record) {
	return func(r *nodereport.Record) { r.SELinuxLabel = &label }
}

// scene is a node on which a volume is staged.
type scene struct {
	edit  nodebench.Edit
	fs    string
	flags []string
	use   func(*usage.Usage)
	// record is what is to be staged; before is the earlier record.
	record, before func(*nodereport.Record)
	// host is how the host is.
	host func(*nodebench.Bench)
	// during is what happens before the mount.
	during nodebench.Edit
}

func (s scene) prepare(t *testing.T) (*nodebench.Bench, func(context.Context) (provisioner.Filesystem, error)) {
	b := nodebench.New(t, s.edit)
	use := nodebench.Use(t, nodebench.Mount(s.fs, s.flags...), nil)
	if s.use != nil {
		s.use(&use)
	}
	record := b.Record(func(r *nodereport.Record) { r.ReadOnly = use.MountsReadOnly() })
	if s.record != nil {
		s.record(&record)
	}
	if s.before != nil {
		b.Staged(t, s.before)
	}
	if s.host != nil {
		s.host(b)
	}
	if s.during != nil {
		b.Memory.OnCheck = func(string) error { b.Change(t, s.during); return nil }
	}
	b.Memory.Protected = true
	v, _ := b.Objects(t)
	return b, func(ctx context.Context) (provisioner.Filesystem, error) { return stager(b).Stage(ctx, use, v, record) }
}

func has(fs provisioner.Filesystem) func(*nodebench.Bench) {
	return func(b *nodebench.Bench) { b.Memory.Content.FS = fs }
}

func source(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
	v.Spec.Source = &apiv1.VolumeSource{DiskID: "source"}
}

func formatting(r *nodereport.Record) {
	r.Formatting = &provisioner.Filesystem{Type: "ext4", UUID: "begun"}
}

// staged has the volume mounted at its path, and the record of it.
func staged(b *nodebench.Bench) {
	has(ext4)(b)
	mountAt(b, b.Path, memhost.DevicePath)
}

func TestAVolumeIsStaged(t *testing.T) {
	t.Parallel()
	failed := provisioner.Errorf(provisioner.Unavailable, "it failed")
	toRead := func(u *usage.Usage) { u.Sealed = true }
	same := func(*nodereport.Record) {}
	other := func(path string) func(*nodereport.Record) {
		return func(r *nodereport.Record) { r.OtherPaths = []string{path} }
	}
	noCheck := func(b *nodebench.Bench) {
		has(ext4)(b)
		b.Memory.OnCheck = func(string) error { return failed }
	}
	for name, test := range map[string]struct {
		scene
		want  provisioner.Filesystem
		fails error
		says  string
		not   string // in the error
		// mounts are the devices at paths, "-" stands for the staging path.
		mounts   map[string]string
		options  string
		formats  int
		unmounts int
		// again: the mount stays, so that the grant is not read again.
		again bool
		// readOnly is what the record says of the filesystem.
		readOnly bool
		inodes   int64 // size of each, of a new filesystem
		writable bool  // the device is not write-protected
		// survived are the accesses whose failure changes nothing.
		survived []string
	}{
		"on a blank device": {want: provisioner.Filesystem{Type: "ext4", UUID: newUUID}, formats: 1, writable: true,
			mounts: map[string]string{"-": memhost.DevicePath}, survived: []string{"flush 1"}},
		"on a blank device, as xfs": {scene: scene{fs: "xfs"}, want: provisioner.Filesystem{Type: "xfs", UUID: newUUID},
			formats: 1, writable: true, mounts: map[string]string{"-": memhost.DevicePath}, options: "nouuid",
			survived: []string{"flush 1"}},
		"on a blank device, as its volume says": {want: provisioner.Filesystem{Type: "xfs", UUID: newUUID},
			scene: scene{edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
				v.Spec.Filesystem = &apiv1.Filesystem{Type: "xfs"}
			}},
			formats: 1, writable: true, mounts: map[string]string{"-": memhost.DevicePath}, options: "nouuid",
			survived: []string{"flush 1"}},
		"on a blank device that it may only read": {scene: scene{use: toRead}, fails: provisioner.FailedPrecondition,
			says: "is blank, and the volume was published read-only", survived: []string{"read a record 3"}},
		"with its filesystem": {scene: scene{host: has(ext4)}, want: ext4, writable: true,
			mounts: map[string]string{"-": memhost.DevicePath}, survived: []string{"flush 1"}},
		"with its filesystem, to read it": {scene: scene{use: toRead, host: has(ext4)}, want: ext4, writable: true,
			mounts: map[string]string{"-": memhost.DevicePath}, options: "ro", readOnly: true, survived: []string{"flush 1"}},
		"with its filesystem, to read it, which is not checked": {want: ext4, writable: true, options: "ro", readOnly: true,
			survived: []string{"flush 1"}, mounts: map[string]string{"-": memhost.DevicePath},
			scene: scene{use: toRead, host: noCheck}},
		"with options for its filesystem": {want: provisioner.Filesystem{Type: "ext4", UUID: newUUID}, formats: 1, writable: true,
			inodes: 512, mounts: map[string]string{"-": memhost.DevicePath}, survived: []string{"flush 1"},
			scene: scene{edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
				v.Spec.Filesystem = &apiv1.Filesystem{FilesystemOptions: apiv1.FilesystemOptions{InodeSizeBytes: 512}}
			}}},
		"with its filesystem, which is not checked": {want: ext4, writable: true, survived: []string{"flush 1"},
			scene: scene{flags: []string{"directmount"}, host: noCheck}, mounts: map[string]string{"-": memhost.DevicePath},
			options: ""},
		"with another filesystem": {scene: scene{fs: "xfs", host: has(ext4)}, fails: provisioner.FailedPrecondition,
			says: "it holds ext4", survived: []string{"read a record 3"}},
		"with a copy of another volume's": {scene: scene{edit: source, host: has(ext4)}, writable: true,
			want:   provisioner.Filesystem{Type: "ext4", UUID: "705eedb2-bf51-54df-a043-134a4aaa5e83"},
			mounts: map[string]string{"-": memhost.DevicePath}, survived: []string{"flush 1"}},
		"after a format that was interrupted": {want: provisioner.Filesystem{Type: "ext4", UUID: newUUID}, formats: 1,
			writable: true,
			scene:    scene{before: formatting, host: func(b *nodebench.Bench) { b.Memory.Content.Garbage = true }},
			mounts:   map[string]string{"-": memhost.DevicePath}, survived: []string{"flush 1"}},
		"after a format that was interrupted under another epoch": {fails: provisioner.FailedPrecondition, says: "is not blank",
			survived: []string{"read a record 3", "read 1", "list mounts 2"},
			scene: scene{before: func(r *nodereport.Record) { formatting(r); r.Epoch = 0 },
				host: func(b *nodebench.Bench) { b.Memory.Content.Garbage = true }}},
		"where it is staged, without a check": {want: ext4, writable: true, again: true,
			scene:  scene{before: same, host: func(b *nodebench.Bench) { noCheck(b); mountAt(b, b.Path, memhost.DevicePath) }},
			mounts: map[string]string{"-": memhost.DevicePath}},
		"where it is staged beside its other path": {want: ext4, writable: true, again: true,
			scene: scene{record: other("/second"), before: other("/second"),
				host: func(b *nodebench.Bench) { staged(b); mountAt(b, "/second", memhost.DevicePath) }},
			mounts: map[string]string{"-": memhost.DevicePath, "/second": memhost.DevicePath}},
		"where it is mounted for writing, to read it": {want: ext4, writable: true, options: "ro", unmounts: 1, readOnly: true,
			scene:  scene{flags: []string{"ro"}, before: same, host: staged},
			mounts: map[string]string{"-": memhost.DevicePath}, survived: []string{"flush 1"}},
		"beside a path that is mounted for writing, to read it only": {want: ext4, writable: true, options: "ro", unmounts: 1,
			scene: scene{use: toRead, record: other("/first"), before: same,
				host: func(b *nodebench.Bench) { has(ext4)(b); mountAt(b, "/first", memhost.DevicePath) }},
			readOnly: true, mounts: map[string]string{"-": memhost.DevicePath}, survived: []string{"flush 1"}},
		"where its filesystem has shut down and another device is mounted elsewhere": {want: ext4, writable: true, unmounts: 1,
			scene: scene{before: same, host: func(b *nodebench.Bench) {
				has(ext4)(b)
				mountAt(b, b.Path, memhost.DevicePath, sealed)
				mountAt(b, "/other", "/dev/sdx")
			}}, mounts: map[string]string{"-": memhost.DevicePath, "/other": "/dev/sdx"}, survived: []string{"flush 1"}},
		"while its disk is detached from LUN 0": {scene: scene{
			edit:   func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.LUN = ptr.To(int32(0)) },
			record: func(r *nodereport.Record) { r.LUN = 0 }, host: has(ext4),
			during: func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentPending }},
			fails: provisioner.Unavailable, says: "the grant changed", writable: true, survived: []string{"flush 1"},
			unmounts: 1},
		"where it is staged": {again: true, scene: scene{before: same, host: staged}, want: ext4, writable: true,
			mounts: map[string]string{"-": memhost.DevicePath}},
		"where it is staged and its filesystem is a copy": {again: true, want: ext4, writable: true,
			scene:  scene{edit: source, before: same, host: staged},
			mounts: map[string]string{"-": memhost.DevicePath}},
		"where it is staged, and a format is on record": {again: true, want: ext4, writable: true,
			scene: scene{before: formatting, host: staged}, mounts: map[string]string{"-": memhost.DevicePath}},
		"where it is staged with another label": {scene: scene{before: labelled("a"), host: staged},
			fails: provisioner.AlreadyExists, says: "SELinux", mounts: map[string]string{"-": memhost.DevicePath}},
		"where it was staged with another label before a reboot": {scene: scene{before: labelled("a"), host: has(ext4)},
			want:     ext4,
			writable: true, mounts: map[string]string{"-": memhost.DevicePath}, survived: []string{"flush 1"}},
		"where its filesystem does not grow while it is mounted": {again: true, want: ext4, writable: true,
			scene: scene{before: same, host: func(b *nodebench.Bench) {
				staged(b)
				b.Memory.GrowFails = provisioner.Errorf(provisioner.FailedPrecondition, "not online")
			}}, mounts: map[string]string{"-": memhost.DevicePath}},
		"where its filesystem fails to grow": {again: true, fails: provisioner.Unavailable, says: "grow filesystem: it failed",
			scene:  scene{before: same, host: func(b *nodebench.Bench) { staged(b); b.Memory.GrowFails = failed }},
			mounts: map[string]string{"-": memhost.DevicePath}, writable: true},
		"read-only, where its filesystem would fail to grow": {again: true, readOnly: true, want: ext4, writable: true,
			scene: scene{flags: []string{"ro"}, before: func(r *nodereport.Record) { r.ReadOnly = true },
				host: func(b *nodebench.Bench) {
					has(ext4)(b)
					mountAt(b, b.Path, memhost.DevicePath, sealed)
					b.Memory.GrowFails = failed
				}}, mounts: map[string]string{"-": memhost.DevicePath}},
		"where a removed device is mounted": {unmounts: 1, want: ext4, writable: true, survived: []string{"flush 1", "read 1"},
			scene: scene{before: func(r *nodereport.Record) { r.Device = "/dev/sdb" },
				host: func(b *nodebench.Bench) { has(ext4)(b); mountAt(b, b.Path, "/dev/sdb") }},
			mounts: map[string]string{"-": memhost.DevicePath}},
		"where the device of an earlier boot's record is mounted": {fails: provisioner.FailedPrecondition,
			says:     "/dev/sdb is mounted there",
			survived: []string{"read 1"},
			scene: scene{before: func(r *nodereport.Record) { r.Device, r.Epoch, r.BootID = "/dev/sdb", 0, "boot-0" },
				host: func(b *nodebench.Bench) { has(ext4)(b); mountAt(b, b.Path, "/dev/sdb"); b.Memory.Revive("/dev/sdb") }},
			mounts: map[string]string{"-": "/dev/sdb"}},
		"where the device of an earlier epoch is mounted": {unmounts: 1, want: ext4, writable: true, survived: []string{"flush 1",
			"read 1"},
			scene: scene{before: func(r *nodereport.Record) { r.Device, r.Epoch = "/dev/sdb", 0 },
				host: func(b *nodebench.Bench) { has(ext4)(b); mountAt(b, b.Path, "/dev/sdb"); b.Memory.Revive("/dev/sdb") }},
			mounts: map[string]string{"-": memhost.DevicePath}},
		"where another device is mounted": {fails: provisioner.FailedPrecondition, says: "/dev/sdb is mounted there",
			survived: []string{"read 1"},
			scene: scene{host: func(b *nodebench.Bench) {
				has(ext4)(b)
				mountAt(b, b.Path,
					"/dev/sdb")
				b.Memory.Revive("/dev/sdb")
			}},
			mounts: map[string]string{"-": "/dev/sdb"}},
		"where its filesystem has shut down and a pod has it": {fails: provisioner.Unavailable, says: "still mounted at /pod",
			scene: scene{before: same, host: func(b *nodebench.Bench) {
				has(ext4)(b)
				mountAt(b, b.Path, memhost.DevicePath, sealed)
				mountAt(b, "/pod", memhost.DevicePath)
			}}, mounts: map[string]string{"-": memhost.DevicePath, "/pod": memhost.DevicePath}},
		"where its filesystem has shut down and its other path is mounted": {unmounts: 1, want: ext4, writable: true,
			scene: scene{record: other("/second"), before: other("/second"), host: func(b *nodebench.Bench) {
				has(ext4)(b)
				mountAt(b, b.Path, memhost.DevicePath, sealed)
				mountAt(b, "/second", memhost.DevicePath)
			}}, mounts: map[string]string{"-": memhost.DevicePath, "/second": memhost.DevicePath}},
		"where its device does not answer": {fails: provisioner.Unavailable, says: "does not answer a read: it failed",
			scene:  scene{before: same, host: func(b *nodebench.Bench) { staged(b); b.Memory.Broken = failed }},
			mounts: map[string]string{"-": memhost.DevicePath}},
		"at a second path": {want: ext4, writable: true,
			scene: scene{record: other("/first"), before: same, host: func(b *nodebench.Bench) {
				has(ext4)(b)
				mountAt(b, "/first",
					memhost.DevicePath)
			}},
			mounts: map[string]string{"-": memhost.DevicePath, "/first": memhost.DevicePath}},
		"at a second path, to read what the first one writes": {want: ext4, writable: true,
			scene: scene{flags: []string{"ro"}, record: other("/first"), before: same,
				host: func(b *nodebench.Bench) { has(ext4)(b); mountAt(b, "/first", memhost.DevicePath) }},
			mounts: map[string]string{"-": memhost.DevicePath + " bound", "/first": memhost.DevicePath}},
		"again at a second path that reads what the first one writes": {again: true, want: ext4, writable: true,
			scene: scene{flags: []string{"ro"}, record: other("/first"), before: same,
				host: func(b *nodebench.Bench) {
					has(ext4)(b)
					mountAt(b, "/first", memhost.DevicePath)
					mountAt(b, b.Path, memhost.DevicePath, readOnly)
				}},
			mounts: map[string]string{"-": memhost.DevicePath + " bound", "/first": memhost.DevicePath}},
		"at a second path, to read what the first one reads": {readOnly: true, want: ext4, writable: true, options: "ro",
			scene: scene{flags: []string{"ro"}, record: other("/first"), before: func(r *nodereport.Record) { r.ReadOnly = true },
				host: func(b *nodebench.Bench) { has(ext4)(b); mountAt(b, "/first", memhost.DevicePath, sealed) }},
			mounts: map[string]string{"-": memhost.DevicePath, "/first": memhost.DevicePath}},
		"where a check fails": {fails: provisioner.Unavailable, says: "check filesystem: it failed", not: "held", writable: true,
			survived: []string{"flush 1"},
			scene:    scene{host: noCheck}},
		"where a check fails, and something holds the device": {fails: provisioner.Unavailable,
			says:     "check filesystem: it failed; held",
			writable: true, survived: []string{"flush 1"},
			scene: scene{host: func(b *nodebench.Bench) {
				has(ext4)(b)
				b.Memory.Held, b.Memory.OnCheck = true, func(string) error { return failed }
			}}},
		"where the mount fails, and something holds the device": {fails: provisioner.Unavailable,
			says:     "mount volume: it failed; held",
			writable: true, survived: []string{"flush 1"},
			scene: scene{host: func(b *nodebench.Bench) { has(ext4)(b); b.Memory.Held, b.Memory.MountFails = true, failed }}},
		"where the device cannot be flushed and the mount fails": {fails: provisioner.Unavailable,
			says:     "mount volume: it failed",
			not:      "no flush",
			writable: true, survived: []string{"flush 1"},
			scene: scene{host: func(b *nodebench.Bench) {
				has(ext4)(b)
				b.Memory.FlushFails, b.Memory.MountFails = errors.New("no flush"), failed
			}}},
		"while its LUN changes": {unmounts: 1, scene: scene{host: has(ext4), during: func(_ *apiv1.AzVolume,
			a *apiv1.AzVolumeAttachment) {
			a.Status.LUN = ptr.To(lun + 1)
		}},
			fails: provisioner.Unavailable, says: "the grant changed", writable: true, survived: []string{"flush 1"}},
		"while its epoch changes": {unmounts: 1, scene: scene{host: has(ext4),
			during: func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { v.Status.Primary.Epoch, a.Spec.Epoch = 2, 2 }},
			fails: provisioner.Unavailable, says: "the grant changed", writable: true, survived: []string{"flush 1"}},
		"while its disk is detached": {unmounts: 1, scene: scene{host: has(ext4),
			during: func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentPending }},
			fails: provisioner.Unavailable, says: "the grant changed", writable: true, survived: []string{"flush 1"}},
		"while its ownership is being released": {unmounts: 1, scene: scene{host: has(ext4),
			during: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
				v.Status.Primary.State = apiv1.OwnershipReleasing
			}},
			fails: provisioner.Unavailable, says: "the grant changed", writable: true, survived: []string{"flush 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, stage := test.prepare(t)
			reads, unmounts := 0, 0
			b.Client = interceptor.NewClient(b.Client, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
					opts ...client.GetOption) error {
					reads++
					return c.Get(ctx, key, o, opts...)
				},
			})
			b.Memory.Hook = func(step string) {
				if step == "before unmount" {
					unmounts++
				}
			}
			got, err := stage(t.Context())
			if test.fails == nil && got != test.want || !errors.Is(err, test.fails) || err != nil &&
				(!strings.Contains(err.Error(), test.says) || test.not != "" && strings.Contains(err.Error(), test.not)) {
				t.Errorf("got %+v, %v; want %+v, error %v with %q and without %q", got, err, test.want, test.fails, test.says,
					test.not)
			}
			if confirmed := reads > 0; test.fails == nil && confirmed == test.again || unmounts != test.unmounts {
				t.Errorf("got the grant read again: %t, %d unmounts; want %t, %d", confirmed, unmounts, !test.again,
					test.unmounts)
			}
			h, mounts := b.Memory, map[string]string{}
			for path, m := range h.Mounted {
				if path == b.Path {
					path = "-"
				}
				if mounts[path] = m.Source; m.ReadOnly {
					mounts[path] += " bound"
				}
			}
			if !maps.Equal(mounts, test.mounts) {
				t.Errorf("got mounts %v, want %v", mounts, test.mounts)
			}
			if h.Formats != test.formats || h.Options != test.options || h.Protected == test.writable {
				t.Errorf("got %d formats, options %q, protected %t; want %d, %q, %t", h.Formats, h.Options, h.Protected,
					test.formats,
					test.options, !test.writable)
			}
			record, found, err := b.Records.Get(nodebench.Volume)
			if test.fails == nil && (err != nil || !found || record.Formatting != nil || record.Device != memhost.DevicePath ||
				record.ReadOnly != test.readOnly || h.FormatOptions.InodeSizeBytes != test.inodes) {
				t.Errorf("got record %+v, %v, options %+v; want that of the device, read-only: %t, inodes of %d", record, err,
					h.FormatOptions, test.readOnly, test.inodes)
			}
			faulty.EachAccess(t, func(t *testing.T) (*faulty.Faults, func() error) {
				b, stage := test.prepare(t)
				return b.Faults, func() error { _, err := stage(t.Context()); return err }
			}, test.survived...)
		})
	}
}

// ReadOnly of the record is about the filesystem itself.
func TestTheRecordOfAReadOnlyPathBesideAWritableOneIsWritable(t *testing.T) {
	t.Parallel()
	for writable, mount := range map[bool][]func(*provisioner.MountPoint){true: nil, false: {sealed}} {
		b, stage := scene{flags: []string{"ro"}, record: func(r *nodereport.Record) { r.OtherPaths = []string{"/first"} },
			host: func(b *nodebench.Bench) { has(ext4)(b); mountAt(b, "/first", memhost.DevicePath, mount...) }}.prepare(t)
		_, err := stage(t.Context())
		expect.Must(t, err)
		record, _, err := b.Records.Get(nodebench.Volume)
		if expect.Must(t, err); record.ReadOnly == writable {
			t.Errorf("the first path is writable: %t; got read-only %t in the record", writable, record.ReadOnly)
		}
	}
}

// A device with content that is not the volume's may be another disk.
func TestAStageThatRefusesItsDeviceReportsAVolumeThatHasLostIt(t *testing.T) {
	t.Parallel()
	b, stage := scene{edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
		v.Status.Filesystem = &apiv1.FilesystemRecord{Type: "ext4", UUID: "another"}
	}, before: func(*nodereport.Record) {}, host: has(ext4)}.prepare(t)
	if _, err := stage(t.Context()); !errors.Is(err, provisioner.FailedPrecondition) {
		t.Errorf("got %v, want FailedPrecondition", err)
	}
	if got := b.Phase(t, nodebench.Volume); got != apiv1.PhaseStaging {
		t.Errorf("the report says %q, want Staging", got)
	}
}

// lying is a host on whose devices a format leaves something else.
type lying struct{ provisioner.Host }

func (h lying) Filesystems() provisioner.Filesystems { return lies{h.Host.Filesystems()} }

type lies struct{ provisioner.Filesystems }

func (f lies) Make(ctx context.Context, device string, fs provisioner.Filesystem, o provisioner.FilesystemOptions) error {
	fs.UUID = "another"
	return f.Filesystems.Make(ctx, device, fs, o)
}

func TestAFormatIsConfirmedByARead(t *testing.T) {
	t.Parallel()
	b, stage := scene{}.prepare(t)
	b.Finder.Host = lying{b.Finder.Host}
	if _, err := stage(t.Context()); !errors.Is(err, provisioner.Unavailable) || !strings.Contains(err.Error(),
		"a read after that found") {
		t.Errorf("got %v, want Unavailable that says what was read", err)
	}
}

// A call that ends while it reads the device judges no mount.
func TestACallThatIsCutOffKeepsTheMounts(t *testing.T) {
	t.Parallel()
	b, stage := scene{before: func(*nodereport.Record) {}, host: func(b *nodebench.Bench) {
		has(ext4)(b)
		mountAt(b, b.Path, "/dev/sdb")
	}}.prepare(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := stage(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
	if _, mounted := b.Memory.Mounted[b.Path]; !mounted {
		t.Error("the mount was taken away")
	}
}

func TestAVolumeIsUsedWithOneSELinuxLabel(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before func(*nodereport.Record)
		want   error
	}{
		"there is no record":           {},
		"the record has no label":      {before: func(*nodereport.Record) {}},
		"the record has this label":    {before: labelled("a")},
		"the record has another label": {before: labelled("b"), want: provisioner.AlreadyExists},
		"it was mounted without one":   {before: labelled(""), want: provisioner.AlreadyExists},
		"the record is another disk's": {before: func(r *nodereport.Record) { r.VolumeID += "x" }, want: nodereport.ErrOtherDisk},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := nodebench.New(t)
			if test.before != nil {
				b.Staged(t, test.before)
			}
			use := nodebench.Use(t, nodebench.Mount("ext4", "context=a"), nil)
			if err := stager(b).CheckLabel(use); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestADeviceIsIdentifiedByTheFilesystemOnRecord(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		record  *apiv1.FilesystemRecord
		content memhost.Content
		want    error
	}{
		"none is on record": {content: memhost.Content{Garbage: true}},
		"the device has it": {record: &apiv1.FilesystemRecord{Type: "ext4", UUID: "u-1"}, content: memhost.Content{FS: ext4}},
		"the device has another": {record: &apiv1.FilesystemRecord{Type: "ext4", UUID: "u-2"}, content: memhost.Content{FS: ext4},
			want: provisioner.FailedPrecondition},
		"the device is blank": {record: &apiv1.FilesystemRecord{Type: "ext4", UUID: "u-1"}, want: provisioner.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prepare := func(t *testing.T) (*faulty.Faults, func() error) {
				b := nodebench.New(t)
				b.Memory.Content = test.content
				v, _ := b.Objects(t)
				v.Status.Filesystem = test.record
				return b.Faults, func() error { return stager(b).Identify(t.Context(), v, memhost.DevicePath) }
			}
			if _, identify := prepare(t); !errors.Is(identify(), test.want) {
				t.Errorf("got %v, want %v", identify(), test.want)
			}
			faulty.EachAccess(t, prepare)
		})
	}
}

// Each case is what is left of a format that was interrupted.
func TestTheRestOfAFormatIsClearedByTheOwner(t *testing.T) {
	t.Parallel()
	garbage := memhost.Content{Garbage: true}
	begun := memhost.Content{FS: provisioner.Filesystem{Type: "ext4", UUID: "begun"}}
	other := memhost.Content{FS: ext4}
	gone := metav1.Now()
	deleting := func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
		a.Finalizers, a.DeletionTimestamp = []string{apiv1.FinalizerAttachment}, &gone
	}
	for name, test := range map[string]struct {
		edit    nodebench.Edit
		record  func(*nodereport.Record)
		host    func(*memhost.Host)
		content memhost.Content
		// missing: there is no AzVolume.
		missing bool
		// reserve fails with it; reserved says that it is called.
		reserve  error
		reserved bool
		cleared  bool
		fails    error
		says     string
		survived []string
	}{
		"as garbage":      {content: garbage, reserved: true, cleared: true},
		"as a filesystem": {content: begun, reserved: true, cleared: true},
		"as a filesystem that is recorded": {content: begun, edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
			v.Status.Filesystem = &apiv1.FilesystemRecord{Type: "ext4", UUID: "begun"}
		}},
		"of no format": {content: garbage, record: func(r *nodereport.Record) { r.Formatting = nil }},
		"of a record without a disk": {content: garbage, record: func(r *nodereport.Record) { r.VolumeID = "none" },
			fails: errAny,
			says:  "read record of volume"},
		"of a volume that is gone": {content: garbage, missing: true},
		"of a volume that is another disk's": {content: garbage, edit: func(v *apiv1.AzVolume,
			_ *apiv1.AzVolumeAttachment) {
			v.Spec.Disk.Name = "x"
		},
			fails: nodereport.ErrOtherDisk},
		"on another volume's device": {content: other},
		"on another volume's device, with a partition": {content: other,
			record: func(r *nodereport.Record) { r.Partition = 1 }},
		"in a partition": {content: begun, reserved: true, cleared: true,
			record: func(r *nodereport.Record) { r.Partition = 1 }},
		"in a partition that is gone": {content: begun, record: func(r *nodereport.Record) { r.Partition = 3 }},
		"on a disk that refuses the reservation": {content: garbage, reserved: true,
			reserve: provisioner.Errorf(provisioner.FailedPrecondition, "held")},
		"on a disk that cannot be reserved": {content: garbage, reserved: true,
			reserve: provisioner.Errorf(provisioner.Unavailable,
				"no answer"),
			fails: provisioner.Unavailable, says: "no answer"},
		"while the ownership is being released": {content: garbage, reserved: true, cleared: true,
			edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
				v.Status.Primary.State = apiv1.OwnershipReleasing
			}},
		"after the ownership was released": {content: garbage,
			edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.Primary.State = apiv1.OwnershipReleased }},
		"after the ownership was lost": {content: garbage,
			edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.Primary.NodeName = "node-a" }},
		"after the ownership was acquired again": {content: garbage,
			edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.Primary.Epoch = 2 }},
		"without an owner": {content: garbage, edit: func(v *apiv1.AzVolume,
			_ *apiv1.AzVolumeAttachment) {
			v.Status.Primary = nil
		}},
		"without an attachment": {content: garbage, edit: func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Name = "x" }},
		"while the disk is to be attached again": {content: garbage, fails: provisioner.Unavailable,
			says: "waiting for its disk to be attached",
			edit: func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentPending }},
		"while the disk is being attached again": {content: garbage, fails: provisioner.Unavailable,
			says: "waiting for its disk to be attached",
			edit: func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentAttaching }},
		"while the disk is to be attached to a node that is not the owner": {content: garbage,
			edit: func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
				v.Status.Primary.NodeName, a.Status.State = "node-a", apiv1.AttachmentPending
			}},
		"while the disk is to be attached, and a filesystem is recorded": {content: begun,
			edit: func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
				v.Status.Filesystem = &apiv1.FilesystemRecord{Type: "ext4", UUID: "begun"}
				a.Status.State = apiv1.AttachmentPending
			}},
		"after the node was fenced": {content: garbage, edit: func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			a.Status.State, a.Status.Proof = apiv1.AttachmentPending, &apiv1.ReleaseProof{Type: apiv1.ProofDetached, Epoch: 1}
		}},
		"while the disk is being detached": {content: garbage,
			edit: func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentDetaching }},
		"while the attachment that is not attached is being deleted": {content: garbage,
			edit: func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
				deleting(v, a)
				a.Status.State = apiv1.AttachmentPending
			}},
		"at a LUN that is not known": {content: garbage, edit: func(_ *apiv1.AzVolume,
			a *apiv1.AzVolumeAttachment) {
			a.Status.LUN = nil
		}},
		"on a device that is not there": {content: garbage, host: (*memhost.Host).Detach,
			fails: provisioner.Unavailable, says: "waiting for a device at LUN 3"},
		"on a device that is not there while the attachment is being deleted": {content: garbage, host: (*memhost.Host).Detach,
			edit: deleting},
		"while the attachment is being deleted": {content: garbage, edit: deleting, reserved: true,
			cleared: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reserved := false
				prepare := func(t *testing.T) (*nodebench.Bench, func() error) {
					b := nodebench.New(t, test.edit)
					b.Memory.Content, b.Memory.Protected = test.content, true
					record := b.Record(formatting)
					if test.record != nil {
						test.record(&record)
					}
					if test.missing {
						v, _ := b.Objects(t)
						expect.Must(t, b.Direct.Delete(t.Context(), v))
					}
					if test.host != nil {
						test.host(b.Memory)
					}
					return b, func() error {
						return stager(b).UndoFormat(t.Context(), nodebench.Volume, record, func(_ context.Context,
							device string) error {
							if reserved = true; device != memhost.DevicePath {
								t.Errorf("got %s to reserve, want the disk %s", device, memhost.DevicePath)
							}
							return test.reserve
						})
					}
				}
				b, undo := prepare(t)
				began := time.Now()
				err := undo()
				if !errors.Is(err, test.fails) && (!errors.Is(test.fails, errAny) || err == nil) ||
					err != nil && !strings.Contains(err.Error(), test.says) || reserved != test.reserved ||
					b.Memory.Content.Blank() != test.cleared {
					t.Errorf("got %v, reserved %t, content %+v; want error %v with %q, reserved %t, cleared %t", err, reserved,
						b.Memory.Content, test.fails, test.says, test.reserved, test.cleared)
				}
				if !b.Memory.Protected {
					t.Error("the device is not write-protected any more")
				}
				if waited := time.Since(began); waited > 10*time.Second {
					t.Errorf("it waited %s, want some seconds", waited)
				}
				faulty.EachAccess(t, func(t *testing.T) (*faulty.Faults, func() error) {
					b, undo := prepare(t)
					return b.Faults, undo
				}, test.survived...)
			})
		})
	}
}
