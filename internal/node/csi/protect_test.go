package csi_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/faulty"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// usages are the ways in which one node uses a volume.
func usages() map[string]*csi.VolumeCapability {
	return map[string]*csi.VolumeCapability{
		"a filesystem":       mountCapability("ext4"),
		"a raw block volume": blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER),
	}
}

// An open file, or a loop device, does not hold a device. So the proof that a node has released a
// volume needs that the kernel refuses such writes (law 3).
func TestADeviceIsProtectedBeforeItsReleaseIsReported(t *testing.T) {
	t.Parallel()
	for name, capability := range usages() {
		t.Run(name, func(t *testing.T) {
			host := newMemoryHost()
			var steps []string
			hook := func(step string) { steps = append(steps, step) }
			host.Hook = hook
			m := newMachine(t, host, t.TempDir(), hook)
			m.publish(nil)
			s := m.start()
			host.Protected = true // as a replica
			m.must(m.stage(s, capability))
			if host.Protected {
				t.Error("the device is write-protected while the volume is staged")
			}
			steps = nil
			m.must(m.unstage(s))
			m.assertClean()
			protected, reported := slices.Index(steps, "protect true"), lastIndex(steps, "before report")
			if protected < 0 || protected > reported {
				t.Errorf("unstage has the steps %q, want the device protected before the report", steps)
			}
		})
	}
}

func lastIndex(steps []string, step string) int {
	for i, s := range slices.Backward(steps) {
		if s == step {
			return i
		}
	}
	return -1
}

func TestADeviceThatCannotBeProtectedIsNotReleased(t *testing.T) {
	t.Parallel()
	for name, capability := range usages() {
		t.Run(name, func(t *testing.T) {
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), func(string) {})
			m.publish(nil)
			s := m.start()
			m.must(m.stage(s, capability))
			host.ProtectFails = provisioner.Errorf(provisioner.Unavailable, "operation not permitted")
			err := m.unstage(s)
			if err == nil || !strings.Contains(err.Error(), "other programs on this node may write to "+memoryDevice) {
				t.Errorf("unstage: %v, want the reason", err)
			}
			if m.entry() == nil {
				t.Error("the report says that the volume was released")
			}
			host.ProtectFails = nil
			m.must(m.unstage(s))
			m.assertClean()
		})
	}
}

func TestADeviceOfARefusedStageStaysProtected(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), func(string) {})
	m.publish(func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Spec.Role, a.Spec.Epoch = apiv1.RoleReplica, 0 })
	host.Protected = true
	if err := m.stage(m.start(), mountCapability("ext4")); err == nil {
		t.Error("a replica was staged")
	}
	if !host.Protected {
		t.Error("the device of a replica is not write-protected any more")
	}
}

// A path that names another disk now must not be protected: another program uses that disk.
func TestADeviceThatIsGoneIsNotProtected(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), func(string) {})
	m.publish(nil)
	s := m.start()
	m.must(m.stage(s, blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)))
	host.Detach()
	m.must(m.unstage(s))
	m.assertClean()
	if host.Protected {
		t.Error("the path of a device that is gone was protected")
	}
}

// A disk that was attached since, or that a reboot has made writable again, is protected without a
// call of the kubelet.
func TestTheDeviceOfAReplicaIsProtected(t *testing.T) {
	t.Parallel()
	replica := func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Spec.Role, a.Spec.Epoch = apiv1.RoleReplica, 0 }
	for name, test := range map[string]struct {
		publish  func(*apiv1.AzVolume, *apiv1.AzVolumeAttachment)
		stage    bool
		metadata string
		refuses  error // of instance metadata
		// before is done before the call.
		before func(*machine, *memoryHost)
		want   bool
	}{
		"a replica": {publish: replica, metadata: volumeID, want: true},
		"a replica that was staged before a reboot": {publish: replica, metadata: volumeID, want: true,
			before: func(m *machine, _ *memoryHost) { m.must(m.records.Put(m.usedIn("boot-0"))) }},
		"a replica that the report says is staged": {publish: replica, metadata: volumeID,
			before: func(m *machine, _ *memoryHost) { m.must(m.report.Announce(m.t.Context(), volume, 1, m.stagingPath())) }},
		"a replica with a record of another device": {publish: replica, metadata: volumeID,
			before: func(m *machine, _ *memoryHost) {
				record := m.usedIn(m.bootID)
				record.Device = "/dev/sdd"
				m.must(m.records.Put(record))
			}},
		"a replica with a partition that is used": {publish: replica, metadata: volumeID,
			before: func(m *machine, _ *memoryHost) {
				record := m.usedIn(m.bootID)
				record.Device, record.Partition = memoryDevice+"1", 1
				m.must(m.records.Put(record))
			}},
		"a replica that is not attached": {metadata: volumeID, publish: func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			replica(v, a)
			a.Status.State = apiv1.AttachmentPending
		}},
		"a replica without a LUN": {metadata: volumeID, publish: func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			replica(v, a)
			a.Status.LUN = nil
		}},
		"a replica that was attached to another VM": {metadata: volumeID, publish: func(v *apiv1.AzVolume,
			a *apiv1.AzVolumeAttachment) {
			replica(v, a)
			a.Status.VMID = "vm-before"
		}},
		"a volume that is not published to this node": {metadata: volumeID, publish: func(_ *apiv1.AzVolume,
			a *apiv1.AzVolumeAttachment) {
			a.Name = "x"
		}},
		"an AzVolume of another disk": {metadata: volumeID, publish: func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			replica(v, a)
			v.Spec.Disk = diskOf(otherID)
		}},
		"instance metadata fails":              {publish: replica, metadata: volumeID, refuses: errors.New("out of date")},
		"instance metadata has something else": {publish: replica, metadata: "/subscriptions/s"},
		"a primary that is not staged yet":     {metadata: volumeID},
		"a primary that is staged":             {metadata: volumeID, stage: true},
		"another disk is at the LUN":           {publish: replica, metadata: volumeID + "2"},
		"instance metadata has no disk yet":    {publish: replica},
		"its attachment names another LUN": {metadata: volumeID, publish: func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			replica(v, a)
			*a.Status.LUN++
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for n, at := 0, "none"; at != "" && n < faulty.Most; n++ { // the access that fails
				host := newMemoryHost()
				m := newMachine(t, host, t.TempDir(), func(string) {})
				m.host = faulty.Host{Host: host, Faults: m.faults}
				m.edit = func(o *csinode.Options) {
					o.DiskAt = func(context.Context, int32) (string, error) {
						return test.metadata, errors.Join(test.refuses, m.faults.Access("metadata"))
					}
				}
				m.publish(test.publish)
				s := m.start()
				m.must(m.report.EnsureScanned(t.Context()))
				if test.stage {
					m.must(m.stage(s, blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)))
				}
				if test.before != nil {
					test.before(m, host)
				}
				m.faults.Arm(n)
				s.ProtectReplicas(t.Context())
				if at = m.faults.Failed(); at == "" && n == 0 {
					at = "nothing"
				}
				protected := host.Protected
				m.faults.Arm(0)
				s.ProtectReplicas(t.Context())
				if protected && !test.want || host.Protected != test.want {
					t.Errorf("%s failed: the device is write-protected: %t, then %t, want %t", at, protected, host.Protected,
						test.want)
				}
			}
		})
	}
}

// Such a disk stays another driver's as long as it has this device.
func TestTheDiskOfAnotherDriverIsAskedAboutOnce(t *testing.T) {
	t.Parallel()
	for sequence, want := range map[uint64]int{0: 2, 7: 1} {
		host := newMemoryHost()
		host.Sequence = sequence
		m := newMachine(t, host, t.TempDir(), quiet)
		m.edit = func(o *csinode.Options) {
			o.DiskAt = func(context.Context, int32) (string, error) { return secondID, nil }
		}
		reads := 0
		m.api = interceptor.NewClient(m.api, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				if key.Name == second {
					reads++
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
		s := m.start()
		s.ProtectReplicas(t.Context())
		s.ProtectReplicas(t.Context())
		if reads != want || host.Protected {
			t.Errorf("sequence %d: got %d reads, protected: %t; want %d, and no protection", sequence, reads, host.Protected,
				want)
		}
	}
}

// usedIn is the record of the volume in a boot.
func (m *machine) usedIn(boot string) nodereport.Record {
	return nodereport.Record{VolumeName: volume, VolumeID: volumeID, Epoch: 1, BootID: boot, StagingPath: m.stagingPath(),
		Device: memoryDevice, LUN: lun}
}

// The kernel forgot the write protections at the reboot, and gave the path to another disk.
func TestThePathOfADeviceOfAnEarlierBootIsNotProtected(t *testing.T) {
	t.Parallel()
	m, host := interrupted(t)
	m.bootID = "boot-2"
	protected := 0
	host.Hook = func(step string) {
		if step == "protect true" {
			protected++
		}
	}
	m.start().EndUnfinished(t.Context())
	m.assertClean()
	if protected != 1 {
		t.Errorf("got %d devices protected, want only the one whose format was cleared", protected)
	}
}

// The look at the devices reads the node's role at the API server. A refused NodeStageVolume is
// repeated half a second later, in the middle of a move.
func TestALookAtTheDevicesRefusesNoCall(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), func(string) {})
	m.edit = func(o *csinode.Options) {
		o.DiskAt = func(context.Context, int32) (string, error) { return volumeID, nil }
	}
	m.publish(nil)
	during := m.beforeNextRead()
	s := m.start()
	staged := false
	*during = func() {
		m.must(m.stage(s, blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)))
		staged = true
	}
	s.ProtectReplicas(t.Context())
	if !staged || host.Protected {
		t.Errorf("staged during the look: %t, protected: %t; want it staged and writable", staged, host.Protected)
	}
}
