package csi_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// A staged volume's disk was manually detached, and another disk has its LUN. The controller
// attaches the disk again only if the report does not say Staged.
func TestAVolumeThatLostItsDeviceToAnotherDiskIsReportedAsStaging(t *testing.T) {
	t.Parallel()
	const reserved = "the owner of another volume has reserved the device"
	refusals := map[string]func(*machine, *memoryHost, *csinode.Options){
		"the device has another size": func(m *machine, host *memoryHost, _ *csinode.Options) {
			m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.SizeBytes = host.Size + 1 })
		},
		"another volume is staged with the device": func(m *machine, host *memoryHost, _ *csinode.Options) {
			record := m.record()
			record.VolumeName, record.VolumeID, record.StagingPath = second, secondID, filepath.Join(m.dir, "2", "globalmount")
			m.must(m.records.Put(record))
			host.Mounted[record.StagingPath] = provisioner.MountPoint{Source: "/dev/sdd", Target: record.StagingPath}
		},
		"instance metadata names another disk": func(_ *machine, _ *memoryHost, options *csinode.Options) {
			options.DiskAt = func(context.Context, int32) (string, error) { return secondID, nil }
		},
		reserved: func(m *machine, host *memoryHost, _ *csinode.Options) {
			m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Spec.Disk.MaxShares = 3 })
			reserveAs(t, host, "node-c", keyOf(t, "node-c", 9))
		},
	}
	calls := map[string]func(*machine, *csinode.Server, *csi.VolumeCapability) error{
		"NodeStageVolume":   (*machine).stage,
		"NodePublishVolume": (*machine).publishNext,
	}
	for kind, capability := range kindsOfVolume() {
		for why, refuse := range refusals {
			if why == reserved && capability.GetBlock() != nil {
				continue // the driver reserves no disk of a raw block volume
			}
			for name, call := range calls {
				t.Run(kind+", "+name+", "+why, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						host := newMemoryHost()
						m := newMachine(t, host, t.TempDir(), quiet)
						m.publish(nil)
						m.must(m.stage(m.start(), capability))
						host.Detach()
						host.Attach("/dev/sdd", lun)
						m.edit = func(options *csinode.Options) { refuse(m, host, options) }
						if err := call(m, m.start(), capability); status.Code(err) != codes.Unavailable {
							t.Errorf("%s: %v, want Unavailable", name, err)
						}
						if entry := m.entry(); entry == nil || entry.Phase != apiv1.PhaseStaging {
							t.Errorf("entry = %+v, want the phase Staging", entry)
						}
					})
				})
			}
		}
	}
}

// Nothing is mounted any more, so that nothing held the path of the device, and the disk that has
// the LUN got the path as well. Its filesystem tells the disks apart.
func TestAVolumeWithoutDeviceAndPathIsReportedAsStaging(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.publish(nil)
	s, capability := m.start(), mountCapability("ext4")
	m.must(m.stage(s, capability))
	m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
		v.Status.Filesystem = &apiv1.FilesystemRecord{Type: "ext4", UUID: host.Content.FS.UUID}
	})
	delete(host.Mounted, m.stagingPath())
	host.Content.FS.UUID = "another"
	if err := m.publishNext(s, capability); status.Code(err) != codes.Unavailable {
		t.Errorf("NodePublishVolume: got %v, want Unavailable", err)
	}
	if entry := m.entry(); entry == nil || entry.Phase != apiv1.PhaseStaging {
		t.Errorf("entry: got %+v, want the phase Staging", entry)
	}
}

// The LUN on record is out of date, and the volume still has its device: attaching its disk again
// repairs nothing.
func TestAVolumeWhoseDeviceAnswersStaysStaged(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.publish(nil)
	s := m.start()
	m.must(m.stage(s, mountCapability("ext4")))
	host.Attach("/dev/sdd", lun)
	m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.SizeBytes = host.Size + 1 })
	if err := m.stage(s, mountCapability("ext4")); status.Code(err) != codes.Unavailable {
		t.Errorf("NodeStageVolume: %v, want Unavailable", err)
	}
	if entry := m.entry(); entry == nil || entry.Phase != apiv1.PhaseStaged {
		t.Errorf("entry = %+v, want the phase Staged", entry)
	}
}

// The kernel gave the path of the device that is gone to the other disk, so that LUN and path are
// as recorded. Only instance metadata tells the disks apart.
func TestARawBlockVolumeGetsNoOtherDiskWithItsLUNAndPath(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		host := newMemoryHost()
		m := newMachine(t, host, t.TempDir(), quiet)
		m.publish(nil)
		at := volumeID
		m.edit = func(options *csinode.Options) {
			options.DiskAt = func(context.Context, int32) (string, error) { return at, nil }
		}
		s, capability := m.start(), kindsOfVolume()["raw block"]
		m.must(m.stage(s, capability))
		at = secondID
		if err := m.publishNext(s, capability); status.Code(err) != codes.Unavailable {
			t.Errorf("NodePublishVolume: %v, want Unavailable", err)
		}
		if got := host.Mounted[m.target()+"-next"].Source; got != "" {
			t.Errorf("the pod got %s, want no device", got)
		}
		if entry := m.entry(); entry == nil || entry.Phase != apiv1.PhaseStaging {
			t.Errorf("entry = %+v, want the phase Staging", entry)
		}
		// The other volume is staged with the device, and the first volume's record of that device
		// is out of date.
		m.publishSecond(host.Size)
		m.must(m.stageSecond(s, capability))
	})
}
