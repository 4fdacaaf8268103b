package csi_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// otherID is a disk of another resource group. The AzVolume and the record that are found by the
// name of volumeID are those of otherID, as if the two disks had the same name: by a collision of
// hashes, or because a user created an object manually.
const otherID = "/subscriptions/s/resourceGroups/another/providers/Microsoft.Compute/disks/pvc-1"

// callsFor are the calls of the kubelet for a volume ID that need the volume itself. The volume is
// in use at the path inUse.
func callsFor(t *testing.T, s *csinode.Server, id, staging, target, inUse string,
	capability *csi.VolumeCapability) map[string]func() error {
	ctx := t.Context()
	return map[string]func() error{
		"NodeStageVolume": func() error {
			_, err := s.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
				VolumeId:          id,
				StagingTargetPath: staging,
				VolumeCapability:  capability,
			})
			return err
		},
		"NodePublishVolume": func() error {
			_, err := s.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
				VolumeId:          id,
				StagingTargetPath: staging,
				TargetPath:        target,
				VolumeCapability:  capability,
			})
			return err
		},
		"NodeExpandVolume": func() error {
			_, err := s.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{VolumeId: id, VolumePath: inUse})
			return err
		},
		"NodeGetVolumeStats": func() error {
			_, err := s.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: inUse})
			return err
		},
		"NodeGetVolumeHealth": func() error {
			_, err := s.NodeGetVolumeHealth(ctx, &csi.NodeGetVolumeHealthRequest{VolumeId: id})
			return err
		},
	}
}

func TestAVolumeIsNotStagedForAnotherDiskThanItsOwn(t *testing.T) {
	t.Parallel()
	for kind, capability := range capabilities() {
		for mode, awaitPublish := range map[string]bool{"with VolumeAttachments": false, "without VolumeAttachments": true} {
			t.Run(kind+", "+mode, func(t *testing.T) {
				host := newMemoryHost()
				m := newMachine(t, host, t.TempDir(), quiet)
				m.edit = func(o *csinode.Options) { o.AwaitPublish = awaitPublish }
				m.publish(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Spec.Disk = diskOf(otherID) })
				assertRefused(t, "NodeStageVolume", m.stage(m.start(), capability), codes.FailedPrecondition)
				if len(host.Mounted) > 0 || host.Formats > 0 || m.entry() != nil {
					t.Errorf("a refused call left mounts %v, %d formats, entry %+v; want none", host.Mounted, host.Formats,
						m.entry())
				}
			})
		}
	}
}

// The other disk's call has announced its volume, and has no record yet.
func TestARefusedCallLeavesTheEntryOfAnotherDisk(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
	m.publish(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Spec.Disk = diskOf(otherID) })
	s := m.start()
	m.must(m.report.Announce(t.Context(), volume, 1, m.stagingPath()))
	assertRefused(t, "NodeStageVolume", m.stage(s, mountCapability("ext4")), codes.FailedPrecondition)
	if m.entry() == nil {
		t.Error("the report has no entry of the other disk's volume")
	}
}

// stageOther stages the volume and makes it out to otherID. It returns the path at which the V1
// driver has staged the disk of volumeID.
func (m *machine) stageOther(host *memoryHost, s *csinode.Server, capability *csi.VolumeCapability) string {
	m.t.Helper()
	m.publish(nil)
	if err := m.stage(s, capability); err != nil {
		m.t.Fatal(err)
	}
	m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Spec.Disk = diskOf(otherID) })
	record := m.record()
	record.VolumeID = otherID
	if err := m.records.Put(record); err != nil {
		m.t.Fatal(err)
	}
	path := filepath.Join(m.dir, "v1", "globalmount")
	host.Mounted[path] = provisioner.MountPoint{
		Source: "/dev/sdd",
		Target: path,
		FSType: "ext4",
	}
	return path
}

func TestCallsForAnotherDiskLeaveAStagedVolumeAlone(t *testing.T) {
	t.Parallel()
	for kind, capability := range capabilities() {
		t.Run(kind, func(t *testing.T) {
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), quiet)
			s := m.start()
			path := m.stageOther(host, s, capability)
			entry, record := *m.entry(), m.record()
			for name, call := range callsFor(t, s, volumeID, path, m.target(), path, capability) {
				want := codes.FailedPrecondition
				if name == "NodeStageVolume" {
					want = codes.Unavailable // the mount of the V1 driver stays, and has to be unstaged
				}
				assertRefused(t, name, call(), want)
			}
			elsewhere := callsFor(t, s, volumeID, filepath.Join(m.dir, "never"), m.target(), path, capability)
			assertRefused(t, "NodeStageVolume where nothing is mounted", elsewhere["NodeStageVolume"](), codes.FailedPrecondition)
			if err := m.stageWith(s, capability,
				map[string]string{"partition": "one"}); status.Code(err) != codes.InvalidArgument &&
				record.Block {
				t.Errorf("NodeStageVolume with a bad attribute: got %v, want InvalidArgument", err)
			}
			if err := m.unstage(s); status.Code(err) != codes.FailedPrecondition {
				t.Errorf("unstage at the staging path of the other disk: %v, want FailedPrecondition", err)
			}
			if _, err := s.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{
				VolumeId:          volumeID,
				StagingTargetPath: filepath.Join(m.dir, "never"),
			}); err != nil {
				t.Errorf("unstage where nothing is mounted: %v", err)
			}
			if got := m.entry(); got == nil || got.Phase != entry.Phase || got.StagingPath != entry.StagingPath {
				t.Errorf("entry %+v, want %+v", got, entry)
			}
			if got := m.record(); got.VolumeID != record.VolumeID || got.StagingPath != record.StagingPath {
				t.Errorf("record %+v, want %+v", got, record)
			}
			if _, mounted := host.Mounted[m.stagingPath()]; mounted == record.Block {
				t.Errorf("mounted at the staging path: %t, want %t", mounted, !record.Block)
			}
		})
	}
}

func TestADiskOfV1UnderARecordOfAnotherCanBeUnstaged(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	s := m.start()
	path := m.stageOther(host, s, blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER))
	if _, err := s.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{
		VolumeId:          volumeID,
		StagingTargetPath: path,
	}); err != nil {
		t.Fatal(err)
	}
	if _, mounted := host.Mounted[path]; mounted || m.entry() == nil || m.entry().Phase != apiv1.PhaseStaged {
		t.Errorf("mounted %t, entry %+v; want false and the other disk's entry as it was", mounted, m.entry())
	}
}

func TestAVolumeIDIsComparedWithoutRegardToCase(t *testing.T) {
	t.Parallel()
	for kind, capability := range capabilities() {
		t.Run(kind, func(t *testing.T) {
			m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
			m.publish(nil)
			s := m.start()
			if err := m.stage(s, capability); err != nil {
				t.Fatal(err)
			}
			if err := m.publishVolume(s, capability, false); err != nil {
				t.Fatal(err)
			}
			for name, call := range callsFor(t, s, strings.ToUpper(volumeID), m.stagingPath(), m.target(), m.target(),
				capability) {
				if err := call(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

func capabilities() map[string]*csi.VolumeCapability {
	return map[string]*csi.VolumeCapability{
		"filesystem": mountCapability("ext4"), "raw block": blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER),
	}
}

// assertRefused fails unless a call was refused with a message that names both disks.
func assertRefused(t *testing.T, call string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want || !strings.Contains(err.Error(), volumeID) || !strings.Contains(err.Error(), otherID) {
		t.Errorf("%s: %v, want %s and both disks in the message", call, err, want)
	}
}

// record returns the node's record of the volume.
func (m *machine) record() nodereport.Record {
	m.t.Helper()
	record, found, err := m.records.Get(volume)
	if err != nil || !found {
		m.t.Fatalf("record of the volume: found %t, %v", found, err)
	}
	return record
}
