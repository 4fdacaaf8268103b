package csi_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
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
	replica := func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Spec.Role, a.Spec.Epoch = apiv1.RoleReplica, 0 }
	for name, test := range map[string]struct {
		publish  func(*apiv1.AzVolume, *apiv1.AzVolumeAttachment)
		stage    bool
		metadata string
		want     bool
	}{
		"a replica":                         {publish: replica, metadata: volumeID, want: true},
		"a primary that is not staged yet":  {metadata: volumeID},
		"a primary that is staged":          {metadata: volumeID, stage: true},
		"another disk is at the LUN":        {publish: replica, metadata: volumeID + "2"},
		"instance metadata has no disk yet": {publish: replica},
		"its attachment names another LUN": {metadata: volumeID, publish: func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			replica(v, a)
			*a.Status.LUN++
		}},
	} {
		t.Run(name, func(t *testing.T) {
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), func(string) {})
			m.edit = func(o *csinode.Options) {
				o.DiskAt = func(context.Context, int32) (string, error) { return test.metadata, nil }
			}
			m.publish(test.publish)
			s := m.start()
			if test.stage {
				m.must(m.stage(s, blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)))
			}
			s.ProtectReplicas(t.Context())
			if host.Protected != test.want {
				t.Errorf("the device is write-protected: %t, want %t", host.Protected, test.want)
			}
		})
	}
}

// The look at the devices reads the node's role at the API server. A refused NodeStageVolume is
// repeated half a second later, in the middle of a move.
func TestALookAtTheDevicesRefusesNoCall(t *testing.T) {
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
