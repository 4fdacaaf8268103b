package device_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/device"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/usage"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/faulty"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memhost"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/nodebench"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	lun      = nodebench.LUN
	secondID = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/pvc-2"
)

var second = nodebench.Handle(secondID).VolumeName()

func filesystem(t *testing.T) usage.Usage { return nodebench.Use(t, nodebench.Mount("ext4"), nil) }

// own finds the volume's device, and releases it.
func own(ctx context.Context, t *testing.T, b *nodebench.Bench, use usage.Usage, v *apiv1.AzVolume,
	a *apiv1.AzVolumeAttachment) (provisioner.Device, error) {
	t.Helper()
	found, _, release, err := b.Own(ctx, use, v, b.MayStage(v, a))
	if err == nil {
		release()
	}
	if b.Memory.Holds != 0 {
		t.Errorf("got %d devices that are still held, want none", b.Memory.Holds)
	}
	return found, err
}

// isSecond makes a record that of the second volume.
func isSecond(r *nodereport.Record) {
	r.VolumeName, r.VolumeID, r.StagingPath = second, secondID, "/second"
}

// publishSecond makes the objects of the second volume.
func publishSecond(t *testing.T, b *nodebench.Bench, edits ...nodebench.Edit) {
	t.Helper()
	nodebench.Publish(t, b.Direct, append([]nodebench.Edit{func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
		v.Name, v.Spec.Disk = second, nodebench.Disk(secondID)
		a.Name, a.Spec.VolumeName = apiv1.AttachmentName(second, nodebench.NodeName), second
	}}, edits...)...)
}

func TestAnAccessThatFailsIsTheResultOfItsCall(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, b *nodebench.Bench) func(context.Context) error{
		"Own": func(t *testing.T, b *nodebench.Bench) func(context.Context) error {
			v, a := b.Objects(t)
			return func(ctx context.Context) error { _, err := own(ctx, t, b, filesystem(t), v, a); return err }
		},
		"Own where the volume has grown": func(t *testing.T, b *nodebench.Bench) func(context.Context) error {
			v, a := b.Objects(t)
			v.Status.SizeBytes = 1
			b.Change(t, func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.SizeBytes = b.Memory.Size })
			return func(ctx context.Context) error { _, err := own(ctx, t, b, filesystem(t), v, a); return err }
		},
		"Own where another volume was staged as a raw block device": func(t *testing.T,
			b *nodebench.Bench) func(context.Context) error {
			publishSecond(t, b, func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.LUN = ptr.To(lun + 1) })
			b.Memory.AttachOther("/dev/sdd", lun+1)
			b.Staged(t, isSecond, func(r *nodereport.Record) { r.Block = true })
			v, a := b.Objects(t)
			return func(ctx context.Context) error { _, err := own(ctx, t, b, filesystem(t), v, a); return err }
		},
		"Own where the LUN has changed": func(t *testing.T, b *nodebench.Bench) func(context.Context) error {
			v, a := b.Objects(t)
			b.Change(t, func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.LUN = ptr.To(lun + 1) })
			b.Memory.AttachOther("/dev/sdd", lun+1)
			return func(ctx context.Context) error { _, err := own(ctx, t, b, filesystem(t), v, a); return err }
		},
		"Replica": func(t *testing.T, b *nodebench.Bench) func(context.Context) error {
			v, _ := b.Objects(t)
			return func(ctx context.Context) error {
				_, release, err := b.Replica(ctx, v, lun)
				if err == nil {
					release()
				}
				return err
			}
		},
		"StagedBlock": func(t *testing.T, b *nodebench.Bench) func(context.Context) error {
			record := b.Staged(t, func(r *nodereport.Record) { r.Block = true })
			return func(ctx context.Context) error { _, _, err := b.StagedBlock(ctx, record); return err }
		},
		"StagedBlock of a partition": func(t *testing.T, b *nodebench.Bench) func(context.Context) error {
			record := b.Staged(t, func(r *nodereport.Record) { r.Block, r.Partition, r.Device = true, 1, memhost.DevicePath+"1" })
			return func(ctx context.Context) error { _, _, err := b.StagedBlock(ctx, record); return err }
		},
		"MountAt": func(_ *testing.T, b *nodebench.Bench) func(context.Context) error {
			return func(ctx context.Context) error { _, _, err := b.MountAt(ctx, b.Path); return err }
		},
		"SetReadOnly": func(_ *testing.T, b *nodebench.Bench) func(context.Context) error {
			return func(ctx context.Context) error { return b.SetReadOnly(ctx, b.Record(), true) }
		},
		"Answers": func(_ *testing.T, b *nodebench.Bench) func(context.Context) error {
			return func(ctx context.Context) error { return b.Answers(ctx, memhost.DevicePath) }
		},
		"Tune": func(t *testing.T, b *nodebench.Bench) func(context.Context) error {
			v, _ := b.Objects(t)
			use := nodebench.Use(t, nodebench.Mount("ext4"), map[string]string{"perfProfile": "basic"})
			return func(ctx context.Context) error { return b.Tune(ctx, use, v, memhost.DevicePath) }
		},
		"FindSoon": func(t *testing.T, b *nodebench.Bench) func(context.Context) error {
			v, _ := b.Objects(t)
			return func(ctx context.Context) error { _, _, err := b.FindSoon(ctx, v, lun); return err }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				faulty.EachAccess(t, func(t *testing.T) (*faulty.Faults, func() error) {
					b := nodebench.New(t)
					call := prepare(t, b)
					return b.Faults, func() error { return call(t.Context()) }
				})
			})
		})
	}
}

// The volume's objects are as the call has read them, and change while it runs.
func TestTheDeviceThatIsUsedForAVolume(t *testing.T) {
	t.Parallel()
	size := memhost.New("", 0).Size
	recorded := func(n int64) nodebench.Edit {
		return func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.SizeBytes = n }
	}
	atNextLUN := func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.LUN = ptr.To(lun + 1) }
	for name, test := range map[string]struct {
		// read is how the objects are when they are read, and change what is done to them before the call. local is
		// done to the caller's objects.
		read, change, local nodebench.Edit
		host                func(*memhost.Host)
		// find is called when the device is looked for first, and later one second after the call has begun.
		find, later func(*testing.T, *nodebench.Bench)
		metadata    []string
		refuses     error // of metadata
		block       bool
		want        string
		fails       error
		says        string
		phase       apiv1.StagePhase
	}{
		"a device with the size on record":         {read: recorded(size), want: memhost.DevicePath},
		"a device of a volume without a size":      {want: memhost.DevicePath},
		"a device that has grown as was requested": {read: grown(size-1, size), want: memhost.DevicePath},
		"a device that has grown beyond that": {read: grown(size-2, size-1), fails: provisioner.FailedPrecondition,
			says: "is recorded with"},
		"a device that is smaller": {read: grown(size+1, size+2), fails: provisioner.FailedPrecondition,
			says: "is recorded with"},
		"a device with the size on record by now": {read: recorded(size + 1), change: recorded(size), want: memhost.DevicePath},
		"a device with another size by now": {read: recorded(size + 1), change: recorded(size + 2),
			fails: provisioner.FailedPrecondition, says: "is recorded with"},
		"a device with the size on record of a volume with this name that is new": {
			read:  recorded(size),
			local: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.UID, v.Status.SizeBytes = "deleted", size+1 },
			fails: provisioner.FailedPrecondition, says: "is recorded with"},
		"a device at another LUN by now": {change: atNextLUN, want: "/dev/sdd", phase: apiv1.PhaseStaging},
		"a device whose LUN changes while it is looked for": {want: "/dev/sdd", phase: apiv1.PhaseStaging,
			find: func(t *testing.T, b *nodebench.Bench) { b.Change(t, atNextLUN) }},
		"a device that is found when the time for it is up": {want: memhost.DevicePath,
			find: func(*testing.T, *nodebench.Bench) { time.Sleep(6 * time.Second) }},
		"a device that appears late": {want: memhost.DevicePath, phase: apiv1.PhaseStaging,
			host:  (*memhost.Host).Detach,
			later: func(_ *testing.T, b *nodebench.Bench) { b.Memory.Attach(memhost.DevicePath, lun) }},
		"a device that appears at another LUN": {want: "/dev/sde", phase: apiv1.PhaseStaging,
			host: (*memhost.Host).Detach,
			later: func(t *testing.T, b *nodebench.Bench) {
				b.Memory.AttachOther("/dev/sde", lun+2)
				b.Change(t, func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.LUN = ptr.To(lun + 2) })
			}},
		"a device that never appears": {fails: context.DeadlineExceeded, says: "find device", phase: apiv1.PhaseStaging,
			host: (*memhost.Host).Detach},
		"an ownership with another epoch": {
			find: func(t *testing.T, b *nodebench.Bench) {
				b.Change(t, func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { v.Status.Primary.Epoch, a.Spec.Epoch = 2, 2 })
			}, fails: provisioner.Unavailable, says: "now holds the ownership with epoch 2"},
		"an ownership that is lost": {
			find: func(t *testing.T, b *nodebench.Bench) {
				b.Change(t, func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Spec.Role = apiv1.RoleReplica })
			}, fails: provisioner.FailedPrecondition, says: "and is not its primary"},
		"a grant that now is to read only": {want: memhost.DevicePath,
			change: func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Spec.ReadOnly = true }},
		"a device whose path names another disk before it is opened": {
			find: func(_ *testing.T, b *nodebench.Bench) {
				b.Memory.Attach("/dev/sde", lun)
				b.Memory.AttachOther(memhost.DevicePath, lun+2)
			}, fails: provisioner.Unavailable, says: memhost.DevicePath + " at LUN 3 has disappeared"},
		"metadata that names the volume's disk": {metadata: []string{nodebench.VolumeID}, want: memhost.DevicePath},
		"metadata that names it in upper case": {metadata: []string{strings.ToUpper(nodebench.VolumeID)},
			want: memhost.DevicePath},
		"metadata that names no disk": {metadata: []string{""}, want: memhost.DevicePath},
		"metadata that does not answer": {metadata: []string{secondID}, refuses: errors.New("no route"),
			want: memhost.DevicePath},
		"metadata that names another disk": {metadata: []string{secondID}, fails: provisioner.Unavailable, says: secondID},
		"metadata that names another one for a while": {metadata: []string{secondID, secondID, nodebench.VolumeID},
			want: memhost.DevicePath},
		"metadata that names another one when the last second has begun": {want: memhost.DevicePath,
			metadata: append(slices.Repeat([]string{secondID}, 15), nodebench.VolumeID)},
		"metadata that names another one after the last second": {fails: provisioner.Unavailable, says: secondID,
			metadata: append(slices.Repeat([]string{secondID}, 16), nodebench.VolumeID)},
		"metadata that names something else": {metadata: []string{"/subscriptions/s"},
			fails: provisioner.Unavailable, says: "/subscriptions/s"},
		"metadata that names another disk than a known filesystem": {read: known, metadata: []string{secondID},
			want: memhost.DevicePath},
		"metadata that names another disk than a known filesystem on a raw block device": {read: known, block: true,
			metadata: []string{secondID}, fails: provisioner.Unavailable, says: secondID},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := nodebench.New(t, test.read)
				b.Memory.AttachOther("/dev/sdd", lun+1)
				v, a := b.Objects(t)
				if test.change != nil {
					b.Change(t, test.change)
				}
				if test.local != nil {
					test.local(v, a)
				}
				if test.host != nil {
					test.host(b.Memory)
				}
				expect.Must(t, b.Report.Announce(t.Context(), nodebench.Volume, 1, b.Path))
				expect.Must(t, b.Report.Confirm(t.Context(), apiv1.StagedVolume{VolumeName: nodebench.Volume, Epoch: 1}))
				if test.find != nil {
					b.Memory.OnFind = func() {
						b.Memory.OnFind = nil
						test.find(t, b)
					}
				}
				if test.later != nil {
					go func() {
						time.Sleep(7 * time.Second)
						test.later(t, b)
					}()
				}
				if answers := test.metadata; answers != nil {
					b.DiskAt = func(_ context.Context, at int32) (string, error) {
						answer := answers[0]
						if len(answers) > 1 {
							answers = answers[1:]
						}
						if at != lun {
							t.Errorf("got LUN %d, want %d", at, lun)
						}
						return answer, test.refuses
					}
				}
				use := filesystem(t)
				use.Block = test.block
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				got, err := own(ctx, t, b, use, v, a)
				if got.Path != test.want && test.fails == nil || !errors.Is(err, test.fails) || errors.Is(err,
					provisioner.NotFound) ||
					err != nil && !strings.Contains(err.Error(), test.says) {
					t.Errorf("got %s, %v; want %s, error %v with %q", got.Path, err, test.want, test.fails, test.says)
				}
				want := test.phase
				if want == "" {
					want = apiv1.PhaseStaged
				}
				if phase := b.Phase(t, nodebench.Volume); phase != want {
					t.Errorf("the report says %q, want %q", phase, want)
				}
				if test.fails != nil {
					return
				}
				// The path is free again.
				v, a = b.Objects(t)
				if _, err := own(ctx, t, b, use, v, a); err != nil {
					t.Errorf("a second call: got %v, want success", err)
				}
			})
		})
	}
}

// Every read delays the start of a pod. The attachment says if the grant is the same.
func TestADeviceThatIsThereTakesOneReadAtTheAPIServer(t *testing.T) {
	t.Parallel()
	b := nodebench.New(t)
	v, a := b.Objects(t)
	var reads []string
	b.Client = interceptor.NewClient(b.Client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			reads = append(reads, key.Name)
			return c.Get(ctx, key, o, opts...)
		},
	})
	_, err := own(t.Context(), t, b, filesystem(t), v, a)
	expect.Must(t, err)
	if want := []string{a.Name}; !slices.Equal(reads, want) {
		t.Errorf("got reads %v, want %v", reads, want)
	}
}

func grown(recorded, wanted int64) nodebench.Edit {
	return func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
		v.Status.SizeBytes, v.Spec.CapacityBytes = recorded, wanted
	}
}

// known records the volume's filesystem.
func known(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
	v.Status.Filesystem = &apiv1.FilesystemRecord{Type: "ext4", UUID: "u"}
}

func TestACallThatIsCutOffWhileMetadataNamesAnotherDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := nodebench.New(t)
		b.DiskAt = func(context.Context, int32) (string, error) { return secondID, nil }
		v, a := b.Objects(t)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := own(ctx, t, b, filesystem(t), v, a); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want DeadlineExceeded", err)
		}
	})
}

func TestACallThatIsCutOffWhileTheReportIsWritten(t *testing.T) {
	t.Parallel()
	b := nodebench.New(t)
	v, a := b.Objects(t)
	b.WhileReporting(t, func() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := own(ctx, t, b, filesystem(t), v, a); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want Canceled", err)
		}
	})
}

// One call has the device. A call for another volume gets it when that has ended.
func TestADeviceIsUsedByOneCallAtATime(t *testing.T) {
	t.Parallel()
	b := nodebench.New(t)
	v, a := b.Objects(t)
	_, _, release, err := b.Own(t.Context(), filesystem(t), v, b.MayStage(v, a))
	expect.Must(t, err)
	if _, _, err := b.Replica(t.Context(), v, lun); !errors.Is(err, provisioner.Conflict) {
		t.Errorf("got %v, want Conflict", err)
	}
	release()
	_, release, err = b.Replica(t.Context(), v, lun)
	expect.Must(t, err)
	release()
}

// A call that fails leaves the device to others.
func TestADeviceIsFreeAfterACallThatFails(t *testing.T) {
	t.Parallel()
	for n := 1; n < faulty.Most; n++ {
		b := nodebench.New(t)
		v, a := b.Objects(t)
		b.Arm(n)
		if _, err := own(t.Context(), t, b, filesystem(t), v, a); err == nil {
			return
		}
		b.Arm(0)
		if _, err := own(t.Context(), t, b, filesystem(t), v, a); err != nil {
			t.Errorf("after access %d failed: got %v, want success", n, err)
		}
	}
}

// The second volume has a record of the device, or an entry in the report.
func TestADeviceOfAnotherVolumeIsNotUsed(t *testing.T) {
	t.Parallel()
	over := func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.Primary.State = apiv1.OwnershipReleased }
	isBlock := func(r *nodereport.Record) { r.Block = true }
	for name, test := range map[string]struct {
		record func(*nodereport.Record)
		// own is the volume's own record.
		own      func(*nodereport.Record)
		edit     nodebench.Edit
		missing  bool // there is no AzVolume of the second volume
		mountsAt []string
		source   string // of these mounts, if it is another device
		forget   bool   // the record of the second volume
		want     error
	}{
		"it is staged there":                       {want: provisioner.Unavailable},
		"it is staged there as a raw block device": {record: isBlock, want: provisioner.Unavailable},
		"it is staged with another device":         {record: func(r *nodereport.Record) { r.Device = "/dev/sdd" }},
		"it is staged with a partition of the device": {record: func(r *nodereport.Record) {
			r.Partition, r.Device = 1,
				memhost.DevicePath+"1"
		}, want: provisioner.Unavailable},
		"it was staged with a partition that is gone": {record: func(r *nodereport.Record) {
			r.Partition, r.Device = 3,
				memhost.DevicePath
		}},
		"it was staged with a partition that is gone and not recorded": {
			record: func(r *nodereport.Record) { r.Partition, r.Device = 3, "" }},
		"it is mounted from another device": {record: func(r *nodereport.Record) { r.Device = "/dev/sdd" }, source: "/dev/sdd",
			mountsAt: []string{"/second"}},
		"it was staged there before a reboot":              {record: func(r *nodereport.Record) { r.BootID = "boot-0" }},
		"its epoch is over":                                {edit: over},
		"its epoch is over, and it was a raw block device": {record: isBlock, edit: over},
		"its disk was detached, and it was a raw block device": {record: isBlock,
			edit: func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentPending }},
		"its disk was detached, and it is a filesystem": {want: provisioner.Unavailable,
			edit: func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentPending }},
		"it has no AzVolume": {missing: true},
		"its AzVolume is another disk's": {want: provisioner.Unavailable,
			edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Spec.Disk.Name = "pvc-3" }},
		"its record has no disk": {record: func(r *nodereport.Record) { r.VolumeID = "none" }, want: provisioner.Unavailable},
		"it is mounted at its staging path, and its epoch is over": {edit: over, mountsAt: []string{"/second"},
			want: provisioner.Unavailable},
		"it is mounted at its other staging path, and its epoch is over": {edit: over, mountsAt: []string{"/third"},
			record: func(r *nodereport.Record) { r.OtherPaths = []string{"/third"} }, want: provisioner.Unavailable},
		"it is mounted, and only the report has it": {forget: true, mountsAt: []string{"/second"}, want: provisioner.Unavailable},
		"its epoch is over, and a pod has the device": {edit: over, mountsAt: []string{"/pod"},
			want: provisioner.Unavailable},
		"its epoch is over, and a pod of this volume has the device": {edit: over, mountsAt: []string{"/pod"},
			own: func(*nodereport.Record) {}},
		"its epoch is over, and a pod has the device that this volume had before a reboot": {edit: over,
			mountsAt: []string{"/pod"}, own: func(r *nodereport.Record) { r.BootID = "boot-0" }, want: provisioner.Unavailable},
		"its epoch is over, and a pod has it while this volume is staged elsewhere": {edit: over,
			mountsAt: []string{"/pod"}, own: func(r *nodereport.Record) { r.Device = "/dev/sdd" }, want: provisioner.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := nodebench.New(t)
			if !test.missing {
				publishSecond(t, b, test.edit)
			}
			record := []func(*nodereport.Record){isSecond}
			if test.record != nil {
				record = append(record, test.record)
			}
			b.Staged(t, record...)
			if test.own != nil {
				b.Staged(t, test.own)
			}
			if test.forget {
				expect.Must(t, b.Records.Delete(second))
			}
			for _, path := range test.mountsAt {
				b.Memory.Mounted[path] = provisioner.MountPoint{Source: cmp.Or(test.source, memhost.DevicePath), Target: path}
			}
			v, a := b.Objects(t)
			_, err := own(t.Context(), t, b, filesystem(t), v, a)
			if !errors.Is(err, test.want) || err != nil && !strings.Contains(err.Error(), second) {
				t.Errorf("got %v, want %v that names %s", err, test.want, second)
			}
		})
	}
}

// The volume's own mounts at its staging paths do not keep it from its device.
func TestTheDeviceOfAVolumeThatIsMountedIsUsedAgain(t *testing.T) {
	t.Parallel()
	b := nodebench.New(t)
	b.Staged(t)
	b.Memory.Mounted[b.Path] = provisioner.MountPoint{Source: memhost.DevicePath, Target: b.Path}
	v, a := b.Objects(t)
	_, err := own(t.Context(), t, b, filesystem(t), v, a)
	expect.Must(t, err)
}

// block is the record of a raw block volume.
func TestTheDeviceOfARawBlockVolume(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit     nodebench.Edit
		host     func(*memhost.Host)
		record   func(*nodereport.Record)
		metadata string
		within   time.Duration
		why      string
		fails    error
	}{
		"is the one of its record": {},
		"is no longer granted": {edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.Primary.Epoch = 2 },
			why: "epoch 1, which is over"},
		"is not attached": {edit: func(_ *apiv1.AzVolume,
			a *apiv1.AzVolumeAttachment) {
			a.Status.State = apiv1.AttachmentPending
		},
			why: "its disk is not attached"},
		"has no LUN": {edit: func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.LUN = nil },
			why: "its disk is not attached"},
		"has no attachment": {edit: func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Name = "x" },
			why: "its disk is not attached"},
		"is gone": {host: func(h *memhost.Host) { h.Detach() }, why: "there is no device at LUN 3"},
		"is found when the time for it is up": {
			host: func(h *memhost.Host) { h.OnFind = func() { time.Sleep(6 * time.Second) } }},
		"is gone, and the call is cut off": {host: func(h *memhost.Host) { h.Detach() }, within: time.Second,
			fails: context.DeadlineExceeded},
		"has another path": {host: func(h *memhost.Host) { h.Attach("/dev/sdd", lun) },
			why: "it was staged as /dev/sdc and is now /dev/sdd"},
		"is a partition": {record: func(r *nodereport.Record) { r.Partition, r.Device = 1, memhost.DevicePath+"1" }},
		"is a partition that is gone": {record: func(r *nodereport.Record) { r.Partition, r.Device = 3, memhost.DevicePath+"3" },
			fails: provisioner.FailedPrecondition},
		"is named by metadata":              {metadata: nodebench.VolumeID},
		"is another disk, as metadata says": {metadata: secondID, why: secondID + " is at LUN 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := nodebench.New(t, test.edit)
				records := []func(*nodereport.Record){func(r *nodereport.Record) { r.Block = true }}
				if test.record != nil {
					records = append(records, test.record)
				}
				record := b.Staged(t, records...)
				if test.host != nil {
					test.host(b.Memory)
				}
				if test.metadata != "" {
					b.DiskAt = func(context.Context, int32) (string, error) { return test.metadata, nil }
				}
				ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(test.within, time.Minute))
				defer cancel()
				got, why, err := b.StagedBlock(ctx, record)
				if !errors.Is(err, test.fails) || (why == "") != (test.why == "") || !strings.Contains(why, test.why) ||
					(got == record.Device) != (test.why == "" && test.fails == nil) {
					t.Errorf("got %s, %q, %v; want reason %q, error %v", got, why, err, test.why, test.fails)
				}
			})
		})
	}
}

// A volume that was staged and has lost its device is reported as being staged again.
func TestWhatIsReportedOfAVolumeWhoseDeviceCannotBeUsed(t *testing.T) {
	t.Parallel()
	isBlock := func(r *nodereport.Record) { r.Block = true }
	mountAt := func(source string) func(*nodebench.Bench) {
		return func(b *nodebench.Bench) {
			b.Memory.Mounted[b.Path] = provisioner.MountPoint{Source: source, Target: b.Path}
		}
	}
	for name, test := range map[string]struct {
		record     func(*nodereport.Record)
		unrecorded bool
		host       func(*nodebench.Bench)
		cancelled  bool
		fault      int
		want       apiv1.StagePhase
		says       string
	}{
		"its device answers, and is mounted": {host: mountAt(memhost.DevicePath), want: apiv1.PhaseStaged},
		"its device does not answer": {host: func(b *nodebench.Bench) { b.Memory.Detach() },
			want: apiv1.PhaseStaging},
		"its device does not answer to a call that ends": {host: func(b *nodebench.Bench) { b.Memory.Detach() }, cancelled: true,
			want: apiv1.PhaseStaged},
		"its device answers, and is not mounted": {want: apiv1.PhaseStaging},
		"another device is mounted":              {host: mountAt("/dev/sdd"), want: apiv1.PhaseStaging},
		"it is a raw block device with its path": {record: isBlock, want: apiv1.PhaseStaged},
		"it is a raw block device, whose disk has another path": {record: isBlock,
			host: func(b *nodebench.Bench) { b.Memory.Attach("/dev/sdd", lun) }, want: apiv1.PhaseStaging},
		"it was staged before a reboot": {record: func(r *nodereport.Record) { r.BootID = "boot-0" }, want: apiv1.PhaseStaged},
		"it has no record":              {unrecorded: true, want: apiv1.PhaseStaged},
		"its record cannot be read":     {fault: 1, want: apiv1.PhaseStaged},
		"the mounts cannot be read":     {fault: 3, want: apiv1.PhaseStaged},
		"the report cannot be written":  {fault: 4, want: apiv1.PhaseStaged, says: "being staged again: list guards 1 failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := nodebench.New(t)
			var records []func(*nodereport.Record)
			if test.record != nil {
				records = append(records, test.record)
			}
			b.Staged(t, records...)
			if test.unrecorded {
				expect.Must(t, b.Records.Delete(nodebench.Volume))
			}
			if test.host != nil {
				test.host(b)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.cancelled {
				cancel()
			}
			failure := errors.New("the device cannot be used")
			b.Arm(test.fault)
			err := b.ReportLost(ctx, filesystem(t), failure)
			if !errors.Is(err, failure) || !strings.Contains(err.Error(), test.says) || test.says == "" &&
				err != failure { //nolint:errorlint // the same
				t.Errorf("got %v, want the failure, and %q", err, test.says)
			}
			b.Arm(0)
			if got := b.Phase(t, nodebench.Volume); got != test.want {
				t.Errorf("the report says %q, want %q", got, test.want)
			}
		})
	}
}

func TestTheWriteProtectionOfARecordsDevice(t *testing.T) {
	t.Parallel()
	b := nodebench.New(t)
	for _, want := range []bool{true, false} {
		expect.Must(t, b.SetReadOnly(t.Context(), b.Record(), want))
		if b.Memory.Protected != want {
			t.Errorf("protected: got %t, want %t", b.Memory.Protected, want)
		}
	}
}

func TestTheTopmostMountAtAPath(t *testing.T) {
	t.Parallel()
	b := nodebench.New(t)
	stack := mounts{b.Host.Mounts(), []provisioner.MountPoint{{Source: "/dev/1", Target: "/p"}, {Source: "/dev/2", Target: "/p"},
		{Source: "/dev/3", Target: "/q"}}}
	f := &device.Finder{Reader: b.Reader, Host: mountsHost{b.Host, stack}}
	for path, want := range map[string]string{"/p": "/dev/2", "/q": "/dev/3", "/r": ""} {
		mount, found, err := f.MountAt(t.Context(), path)
		expect.Must(t, err)
		if mount.Source != want || found != (want != "") {
			t.Errorf("%s: got %s, %t; want %q", path, mount.Source, found, want)
		}
	}
}

type mountsHost struct {
	provisioner.Host
	mounts provisioner.Mounts
}

func (h mountsHost) Mounts() provisioner.Mounts { return h.mounts }

type mounts struct {
	provisioner.Mounts
	points []provisioner.MountPoint
}

func (m mounts) List(context.Context) ([]provisioner.MountPoint, error) { return m.points, nil }

func TestAVolumeWithoutAProfileIsNotTuned(t *testing.T) {
	t.Parallel()
	b := nodebench.New(t)
	b.Memory.TuneFails = errors.New("the device takes no setting")
	v, _ := b.Objects(t)
	for _, profile := range []map[string]string{nil, {"perfProfile": "none", "device-setting/queue/scheduler": "none"}} {
		expect.Must(t, b.Tune(t.Context(), nodebench.Use(t, nodebench.Mount("ext4"), profile), v, memhost.DevicePath))
	}
}

func TestTheAdvancedProfileIsWrittenAsItIs(t *testing.T) {
	t.Parallel()
	b := nodebench.New(t)
	v, _ := b.Objects(t)
	use := nodebench.Use(t, nodebench.Mount("ext4"), map[string]string{"perfProfile": "advanced",
		"device-setting/queue/scheduler": "none"})
	expect.Must(t, b.Tune(t.Context(), use, v, memhost.DevicePath))
	if want := []provisioner.DeviceSetting{{Path: "queue/scheduler", Value: "none"}}; !slices.Equal(b.Memory.Tuned, want) {
		t.Errorf("got settings %+v, want %+v", b.Memory.Tuned, want)
	}
}

func TestTheBasicProfileFollowsFromTheDisk(t *testing.T) {
	t.Parallel()
	ultra := func(iops, mbps int64) apiv1.DiskSettings {
		return apiv1.DiskSettings{SKUName: "UltraSSD_LRS", DiskIOPSReadWrite: &iops, DiskMBpsReadWrite: &mbps}
	}
	for name, test := range map[string]struct {
		disk          apiv1.DiskSettings
		gib, recorded int64
		want          string
	}{
		"a small Premium SSD": {apiv1.DiskSettings{SKUName: "Premium_LRS"}, 10, 0, "mq-deadline 212 8 16 8"},
		"a large Premium SSD": {apiv1.DiskSettings{SKUName: "Premium_LRS"}, 1024, 0,
			"mq-deadline 40 20 40 8"},
		"a Premium SSD that is larger than asked": {apiv1.DiskSettings{SKUName: "Premium_LRS"}, 10, 1024,
			"mq-deadline 40 20 40 8"},
		"a small one with a tier": {apiv1.DiskSettings{SKUName: "Premium_ZRS", Tier: "P30"}, 10, 0,
			"mq-deadline 40 20 40 8"},
		"a Standard SSD":                       {apiv1.DiskSettings{SKUName: "StandardSSD_LRS"}, 10, 0, "mq-deadline 200 8 16 8"},
		"a Premium SSD v2 as it comes":         {apiv1.DiskSettings{SKUName: "PremiumV2_LRS"}, 10, 0, "mq-deadline 44 12 24 8"},
		"an Ultra disk as was provisioned":     {ultra(160000, 4000), 1024, 0, "mq-deadline 28 256 512 8"},
		"an Ultra disk without IOPS":           {ultra(0, 4000), 1024, 0, ""},
		"an Ultra disk without throughput":     {ultra(160000, 0), 1024, 0, ""},
		"an Ultra disk with the least of both": {ultra(1, 1), 1024, 0, "mq-deadline 1000 8 16 8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := nodebench.New(t)
			v, _ := b.Objects(t)
			v.Spec.Disk.DiskSettings, v.Spec.CapacityBytes, v.Status.SizeBytes = test.disk, test.gib<<30, test.recorded<<30
			use := nodebench.Use(t, nodebench.Mount("ext4"), map[string]string{"PerfProfile": "Basic"})
			expect.Must(t, b.Tune(t.Context(), use, v, memhost.DevicePath))
			var values []string
			for _, setting := range b.Memory.Tuned {
				values = append(values, setting.Value)
			}
			if got := strings.Join(values, " "); got != test.want {
				t.Errorf("settings %s, want %s: %+v", got, test.want, b.Memory.Tuned)
			}
		})
	}
}
