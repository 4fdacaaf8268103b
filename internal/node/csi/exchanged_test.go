package csi_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const secondLUN = lun + 1

// Two raw block volumes are staged, one with /dev/sdc at LUN 3 and one with /dev/sdd at LUN 4. Both
// disks were detached, and one or both are attached again.
func TestARawBlockVolumeGetsTheDeviceThatAnotherOneHadBefore(t *testing.T) {
	t.Parallel()
	exchange := func(host *memoryHost) {
		host.Attach("/dev/sdd", lun)
		host.AttachOther(memoryDevice, secondLUN)
	}
	for name, test := range map[string]struct {
		podStays bool
		after    func(*machine, *memoryHost)
		// first and second are the devices that the next pods get; "" if their volume is refused.
		first, second string
	}{
		"their devices have exchanged their paths": {
			after: func(_ *machine, host *memoryHost) { exchange(host) }, first: "/dev/sdd", second: memoryDevice,
		},
		"the other disk is not attached": {
			after: func(m *machine, host *memoryHost) {
				host.Attach("/dev/sdd", lun)
				delete(host.Others, secondLUN)
				m.changeSecond(func(a *apiv1.AzVolumeAttachment) { a.Status.State, a.Status.LUN = apiv1.AttachmentPending, nil })
			},
			first: "/dev/sdd",
		},
		"the other disk is recorded at a LUN that has no device": {
			after: func(_ *machine, host *memoryHost) {
				host.Attach("/dev/sdd", lun)
				delete(host.Others, secondLUN)
			},
			first: "/dev/sdd",
		},
		"the other volume still has its device, and only the LUN on record of the first is out of date": {
			after: func(m *machine, _ *memoryHost) {
				m.change(func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.LUN = ptr.To(secondLUN) })
			},
			second: "/dev/sdd",
		},
		"a pod still has the device that the other volume was staged with": {
			podStays: true, after: func(_ *machine, host *memoryHost) { exchange(host) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host := newMemoryHost()
				host.AttachOther("/dev/sdd", secondLUN)
				m := newMachine(t, host, t.TempDir(), quiet)
				m.publish(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
					v.Spec.Access, v.Status.Primary = apiv1.AccessMultiNode, nil
				})
				m.publishSecond(host.Size)
				m.changeSecond(func(a *apiv1.AzVolumeAttachment) { a.Status.LUN = ptr.To(secondLUN) })
				s, capability := m.start(), blockCapability(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)
				m.must(m.stage(s, capability))
				m.must(m.stageSecond(s, capability))
				if test.podStays {
					host.Mounted["/pod-of-the-first"] = provisioner.MountPoint{Source: memoryDevice, Target: "/pod-of-the-first"}
					host.Mounted["/pod-of-the-second"] = provisioner.MountPoint{Source: "/dev/sdd", Target: "/pod-of-the-second"}
				}
				test.after(m, host)
				m.wantPublished(m.publishNext(s, capability), m.target()+"-next", test.first)
				m.wantPublished(m.publishSecondNext(s, capability), m.target()+"-second", test.second)
			})
		})
	}
}

// wantPublished fails unless a NodePublishVolume gave a pod the device, or failed for "".
func (m *machine) wantPublished(err error, target, device string) {
	m.t.Helper()
	if got := m.host.(*memoryHost).Mounted[target].Source; (err == nil) != (device != "") || got != device {
		m.t.Errorf("NodePublishVolume for %s: %v, device %q, want device %q", target, err, got, device)
	}
}

func (m *machine) changeSecond(edit func(*apiv1.AzVolumeAttachment)) {
	m.t.Helper()
	a := &apiv1.AzVolumeAttachment{}
	m.must(m.direct.Get(m.t.Context(), client.ObjectKey{Namespace: namespace, Name: apiv1.AttachmentName(second, thisNode)}, a))
	edit(a)
	m.must(m.direct.Status().Update(m.t.Context(), a))
}

func (m *machine) publishSecondNext(s *csinode.Server, capability *csi.VolumeCapability) error {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	_, err := s.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId:          secondID,
		StagingTargetPath: filepath.Join(m.dir, "2", "globalmount"),
		TargetPath:        m.target() + "-second",
		VolumeCapability:  capability,
	})
	return err
}
