package csi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	csistatus "github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// failReports makes every write of the report fail for which fails returns an error.
func (m *machine) failReports(fails func() error) {
	m.api = interceptor.NewClient(m.api, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object,
			patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := fails(); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	})
}

// used reports whether a mount or a record tells that the volume is in use.
func (m *machine) used() bool {
	records, _ := m.records.List()
	mounts, _ := m.host.Mounts().List(context.Background())
	return len(records)+len(mounts) > 0
}

func acquireElsewhere(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
	v.Status.Primary.State = apiv1.OwnershipReleasing
}

// After a final code the kubelet forgets a volume, and does not call NodeUnstageVolume when the pod
// is deleted.
func TestAStageThatLeavesSomethingBehindHasNoFinalCode(t *testing.T) {
	t.Parallel()
	const label = `context="system_u:object_r:container_file_t:s0:c1"`
	const other = `context="system_u:object_r:container_file_t:s0:c2"`
	filesystem, block := mountCapability("ext4", label), blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	tests := map[string]struct {
		capability, second *csi.VolumeCapability
		// between the first call, which succeeds, and the second one, which fails; nil for a first
		// call that fails.
		between func(*machine, *memoryHost)
		// fails is what a write of the report fails with while the volume is in use.
		fails error
	}{
		"the connection is lost after the mount": {capability: filesystem,
			fails: &url.Error{Op: "Put", Err: errors.New("http2: client connection lost")}},
		"the connection is lost after the record": {capability: block,
			fails: &url.Error{Op: "Put", Err: errors.New("http2: client connection lost")}},
		"an error of no kind after the mount": {capability: filesystem, fails: errors.New("odd")},
		"another node acquires a mounted volume": {capability: filesystem,
			between: func(m *machine, _ *memoryHost) { m.change(acquireElsewhere) }},
		"another node acquires a raw block volume": {capability: block,
			between: func(m *machine, _ *memoryHost) { m.change(acquireElsewhere) }},
		"the capability is missing on a mounted volume": {capability: filesystem, second: &csi.VolumeCapability{},
			between: func(*machine, *memoryHost) {}},
		"another SELinux label than that of the mount": {capability: filesystem, second: mountCapability("ext4", other),
			between: func(*machine, *memoryHost) {}},
		"something holds the device after the unmount": {capability: filesystem, between: unmountedAndHeld},
		"the AzVolume is gone and the volume is mounted": {capability: filesystem,
			between: func(m *machine, _ *memoryHost) { m.remove() }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), quiet)
			m.failReports(func() error {
				if m.used() {
					return test.fails
				}
				return nil
			})
			m.publish(nil)
			s := m.start()
			if test.between != nil {
				m.must(m.stage(s, test.capability))
				test.between(m, host)
			}
			capability := test.capability
			if test.second != nil {
				capability = test.second
			}
			err := m.stage(s, capability)
			if err == nil || csistatus.Final(csistatus.Code(err)) {
				t.Errorf("the volume is in use (%v), and NodeStageVolume ends with %v, want a code that is not final",
					host.Mounted, err)
			}
			if m.entry() == nil {
				t.Error("the report has no entry of the volume, which is in use")
			}
		})
	}
}

// unmountedAndHeld is a NodeUnstageVolume that finds the device in use in another mount namespace.
// After that another node acquires the ownership.
func unmountedAndHeld(m *machine, host *memoryHost) {
	host.Held = true
	wantCode(m.t, m.unstage(m.start()), codes.Aborted, "held")
	m.change(acquireElsewhere)
}

// remove deletes the volume's objects by force.
func (m *machine) remove() {
	m.t.Helper()
	v, a := &apiv1.AzVolume{}, &apiv1.AzVolumeAttachment{}
	v.Namespace, v.Name, a.Namespace, a.Name = namespace, volume, namespace, apiv1.AttachmentName(volume, thisNode)
	m.must(errors.Join(m.direct.Delete(m.t.Context(), v), m.direct.Delete(m.t.Context(), a)))
}

// A call that was killed leaves an entry. Even if the next call fails early, it removes the entry,
// or its code is not final.
func TestAnEarlyFailureRemovesWhatAKilledCallLeft(t *testing.T) {
	t.Parallel()
	for _, reachable := range []bool{true, false} {
		m, _, k := bench(t)
		m.publish(nil)
		m.must(m.stage(m.start(), mountCapability("ext4"))) // the AzDriverNode exists
		m.must(m.unstage(m.start()))
		s := m.start()
		if at, _ := k.during(2, func() error { return m.stage(s, mountCapability("ext4")) }); m.entry() == nil || m.used() {
			t.Fatalf("killed at %q with entry %+v, want a kill right after the announcement", at, m.entry())
		}
		if !reachable {
			m.failReports(func() error { return errors.New("the API server is away") })
		}
		err := m.stage(m.start(), &csi.VolumeCapability{AccessMode: mountCapability("ext4").GetAccessMode()})
		if reachable {
			wantCode(t, err, codes.InvalidArgument)
			m.assertClean()
		} else {
			wantCode(t, err, codes.Unavailable)
		}
	}
}

func TestAPublishThatLeavesAMountBehindHasNoFinalCode(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.publish(nil)
	s := m.start()
	m.must(m.stage(s, mountCapability("ext4")))
	host.BindFails = errors.New("remount read-only: exit code 32")
	wantCode(t, m.publishVolume(s, mountCapability("ext4"), true), codes.Unavailable, "exit code 32", m.target())
	m.must(m.unpublishVolume(s))
	wantCode(t, m.publishVolume(s, &csi.VolumeCapability{}, true), codes.InvalidArgument)
}

// stagedByV1 is a volume that the V1 driver has staged: a mount that the kubelet's file names, and
// no record.
func stagedByV1(m *machine, host *memoryHost) (path string) {
	m.t.Helper()
	path = filepath.Join(m.dir, "plugins/kubernetes.io/csi", driverName, "abc", "globalmount")
	m.must(os.MkdirAll(path, 0o750))
	data, err := json.Marshal(map[string]string{"volumeHandle": volumeID, "driverName": driverName})
	m.must(err)
	m.must(os.WriteFile(filepath.Join(filepath.Dir(path), "vol_data.json"), data, 0o600))
	host.Mounted[path] = provisioner.MountPoint{Source: memoryDevice, Target: path, FSType: "ext4"}
	host.Unflushed = true
	return path
}

func (m *machine) unstageAt(path string) error {
	_, err := m.start().NodeUnstageVolume(m.t.Context(), &csi.NodeUnstageVolumeRequest{
		VolumeId:          volumeID,
		StagingTargetPath: path,
	})
	return err
}

// No report says that a volume without a record is unstaged while something holds its device,
// whether the plug-in is the same or has been started again, and wherever it was killed.
func TestLaw3AVolumeWithoutARecordIsUnstagedAfterTheFlush(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		m, host, k := bench(t)
		k.check = nil // until the scan the report does not name the volume, and proves nothing
		m.publish(nil)
		path := stagedByV1(m, host)
		host.Held = true
		at, _ := k.during(n, func() error { return m.unstageAt(path) })
		for range 2 {
			wantCode(t, m.unstageAt(path), codes.Aborted, "held")
			if m.entry() == nil {
				t.Fatalf("killed at step %d (%s): the report does not name the volume, and its device is held", n, at)
			}
		}
		s := m.start()
		for range 2 {
			_, err := s.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: volumeID, StagingTargetPath: path})
			wantCode(t, err, codes.Aborted, "held")
		}
		host.Held = false
		m.must(m.unstageAt(path))
		m.assertClean()
		if host.Unflushed {
			t.Errorf("killed at step %d (%s): the report says unstaged, and the device was not flushed", n, at)
		}
		if at == "" {
			return
		}
	}
}

// The kubelet does not call NodeUnstageVolume again for a raw block volume whose staging path is
// gone.
func TestTheStagingPathOfARawBlockVolumeGoesLast(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.publish(nil)
	s := m.start()
	m.must(m.stage(s, blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)))
	var steps []string
	host.Hook = func(step string) { steps = append(steps, step) }
	host.Held = true
	wantCode(t, m.unstage(s), codes.Aborted, "held")
	if slices.Contains(steps, "before unmount") {
		t.Errorf("the staging path was removed by a call that failed: steps %v", steps)
	}
	host.Held = false
	m.must(m.unstage(s))
	if want := []string{"protect true", "before unmount", "after unmount"}; fmt.Sprint(steps) != fmt.Sprint(want) {
		t.Errorf("steps = %v, want %v", steps, want)
	}
	m.assertClean()
}

// A pod continues to use a raw block volume that the V1 driver has staged and that was never
// published with this driver.
func TestLaw3ARawBlockVolumeOfV1IsUnstagedAfterTheFlush(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.publish(acquireElsewhere)
	blocks := filepath.Join(m.dir, "plugins/kubernetes.io/csi/volumeDevices")
	staging, target := filepath.Join(blocks, "staging", "pv-1"), filepath.Join(blocks, "publish", "pv-1", "uid-1")
	m.must(os.MkdirAll(filepath.Join(blocks, "pv-1", "data"), 0o750))
	data, err := json.Marshal(map[string]string{"volumeHandle": volumeID, "driverName": driverName})
	m.must(err)
	m.must(os.WriteFile(filepath.Join(blocks, "pv-1", "data", "vol_data.json"), data, 0o600))
	host.Mounted[target] = provisioner.MountPoint{Source: memoryDevice, Target: target}
	s := m.start()
	_, err = s.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{ // as a kubelet that was started again does
		VolumeId:          volumeID,
		StagingTargetPath: staging,
		VolumeCapability:  blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER),
	})
	wantCode(t, err, codes.Unavailable, "Releasing", "raw block device")
	if m.entry() == nil {
		t.Error("the report does not name the volume, which a pod uses")
	}
	_, err = s.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: volumeID, TargetPath: target})
	m.must(err)
	host.Held, host.Unflushed = true, true
	for range 2 {
		wantCode(t, m.unstageAt(staging), codes.Aborted, "held")
		if m.entry() == nil {
			t.Fatal("the report does not name the volume, and its device is held")
		}
	}
	host.Held = false
	m.must(m.unstageAt(staging))
	m.assertClean()
	if host.Unflushed {
		t.Error("the report says unstaged, and the device was not flushed")
	}
}

// The disk of a raw block volume was detached, and the kernel gave its path to the disk of another
// volume, which is mounted.
func TestAVolumeIsUnstagedAlthoughItsPathIsAnotherVolumesDevice(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.publish(nil)
	s := m.start()
	m.must(m.stage(s, blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)))
	path := filepath.Join(m.dir, "2", "globalmount")
	m.must(m.records.Put(nodereport.Record{
		VolumeName:  second,
		VolumeID:    secondID,
		BootID:      m.bootID,
		StagingPath: path,
		Device:      memoryDevice,
	}))
	host.Mounted[path] = provisioner.MountPoint{Source: memoryDevice, Target: path, FSType: "ext4"}
	m.must(m.unstage(s))
	if entry := m.entry(); entry != nil {
		t.Errorf("got the entry %+v in the report, want none", entry)
	}
}
