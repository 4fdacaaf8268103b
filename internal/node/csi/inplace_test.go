package csi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// The kubelet takes a volume for staged as long as a pod wants it there. A node was fenced under
// epoch 1 and is primary again under epoch 3, while a pod of before is still ending; the next pod
// comes with NodePublishVolume only.

// fenced cuts the disk off the node, which was epoch 1's, and gives the volume back to the node
// under epoch 3, with a new device.
func (m *machine) fenced(host *memoryHost) {
	m.t.Helper()
	host.Detach()
	m.change(func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
		v.Status.Primary = &apiv1.Ownership{
			NodeName: thisNode,
			Epoch:    3,
			State:    apiv1.OwnershipHeld,
		}
		a.Spec.Epoch = 3
	})
	host.Attach("/dev/sdd", lun)
}

func (m *machine) publishNext(s *csinode.Server, capability *csi.VolumeCapability) error {
	m.t.Helper()
	_, err := s.NodePublishVolume(m.t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId:          volumeID,
		StagingTargetPath: m.stagingPath(),
		TargetPath:        m.target() + "-next",
		VolumeCapability:  capability,
	})
	return err
}

func kindsOfVolume() map[string]*csi.VolumeCapability {
	return map[string]*csi.VolumeCapability{
		"filesystem": mountCapability("ext4"), "raw block": blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER),
	}
}

func TestLaw2ThePodAfterAFenceDoesNotGetTheDeviceOfBefore(t *testing.T) {
	t.Parallel()
	for kind, capability := range kindsOfVolume() {
		t.Run(kind, func(t *testing.T) {
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), quiet)
			m.publish(nil)
			s := m.start()
			m.must(m.stage(s, capability))
			m.must(m.publishVolume(s, capability, false))
			m.fenced(host)
			m.must(m.publishNext(s, capability))
			if got := host.Mounted[m.target()+"-next"].Source; got != "/dev/sdd" {
				t.Errorf("the next pod got %s, want /dev/sdd", got)
			}
			if got := host.Mounted[m.target()].Source; got != memoryDevice {
				t.Errorf("the pod of before has %s, want %s as before", got, memoryDevice)
			}
			if entry := m.entry(); entry == nil || entry.Epoch != 3 || entry.Phase != apiv1.PhaseStaged ||
				entry.Device != "/dev/sdd" {
				t.Errorf("entry = %+v, want Staged under epoch 3 with /dev/sdd", entry)
			}
			if record, _, err := m.records.Get(volume); err != nil || record.Epoch != 3 || record.Device != "/dev/sdd" {
				t.Errorf("record = %+v, %v, want epoch 3 and /dev/sdd", record, err)
			}
			stats, err := s.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{
				VolumeId:   volumeID,
				VolumePath: m.target(),
			})
			m.must(err)
			if message := conditionOf(stats); !strings.Contains(message, memoryDevice) {
				t.Errorf("the condition of the pod of before = %q, want it to name %s", message, memoryDevice)
			}
			wantCode(t, m.expand(s, m.target(), 1), codes.Unavailable, "the pod must be restarted")
			m.must(m.unpublishVolume(s))
			m.unpublishAt(s, m.target()+"-next")
			m.must(m.unstage(s))
			m.assertClean()
		})
	}
}

// conditionOf returns the message of the volume condition in an answer.
func conditionOf(stats *csi.NodeGetVolumeStatsResponse) string { return fmt.Sprint(stats) }

func TestThePodAfterAFenceWaitsForTheOwnership(t *testing.T) {
	t.Parallel()
	for kind, capability := range kindsOfVolume() {
		t.Run(kind, func(t *testing.T) {
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), quiet)
			m.publish(nil)
			s := m.start()
			m.must(m.stage(s, capability))
			m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.Primary.NodeName = "node-c" })
			err := m.publishNext(s, capability)
			if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "epoch 1, which is over") {
				t.Errorf("publish: %v, want Unavailable because epoch 1 is over", err)
			}
			if entry := m.entry(); entry == nil || entry.Epoch != 1 {
				t.Errorf("entry = %+v, want that of epoch 1: the kubelet takes the volume for staged", entry)
			}
			m.must(m.unstage(s))
			m.assertClean()
		})
	}
}

// A pod that starts while the ownership is being released would keep the kubelet from unstaging,
// for which the controller waits.
func TestAVolumeThatIsBeingReleasedCanBePublishedAgain(t *testing.T) {
	t.Parallel()
	for kind, capability := range kindsOfVolume() {
		t.Run(kind, func(t *testing.T) {
			m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
			m.publish(nil)
			s := m.start()
			m.must(m.stage(s, capability))
			m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
				v.Status.Primary.State = apiv1.OwnershipReleasing
			})
			m.must(m.publishNext(s, capability))
		})
	}
}

// The disk was manually detached while a pod used it. The next pod does not get the dead mount; the
// report says that the volume waits for its device, so that the controller attaches the disk again,
// at another LUN.
func TestADeviceThatIsGoneIsStagedAgain(t *testing.T) {
	t.Parallel()
	for kind, capability := range kindsOfVolume() {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { stagedAgainUnderAnotherLUN(t, capability) })
		})
	}
}

func stagedAgainUnderAnotherLUN(t *testing.T, capability *csi.VolumeCapability) {
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.publish(nil)
	s := m.start()
	m.must(m.stage(s, capability))
	host.Detach()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, err := s.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
			VolumeId:          volumeID,
			StagingTargetPath: m.stagingPath(),
			TargetPath:        m.target() + "-next",
			VolumeCapability:  capability,
		})
		result <- err
	}()
	for entry := m.entry(); entry == nil || entry.Phase != apiv1.PhaseStaging; entry = m.entry() {
		if time.Sleep(time.Second); ctx.Err() != nil {
			t.Fatalf("the entry is %+v after a minute, want the phase Staging; NodePublishVolume: %v", entry, <-result)
		}
	}
	host.Attach("/dev/sdd", lun+1)
	m.change(func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.LUN = ptr.To(lun + 1) })
	m.must(<-result)
	if got := host.Mounted[m.target()+"-next"].Source; got != "/dev/sdd" {
		t.Errorf("the pod got %s, want /dev/sdd", got)
	}
}

func TestAFilesystemThatHasShutDownIsMountedAgainAfterItsPods(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.publish(nil)
	s := m.start()
	m.must(m.stage(s, mountCapability("ext4")))
	m.must(m.publishVolume(s, mountCapability("ext4"), false))
	host.Seal(m.stagingPath())
	if err := m.publishNext(s, mountCapability("ext4")); status.Code(err) != codes.Unavailable ||
		!strings.Contains(err.Error(), m.target()) {
		t.Errorf("publish: %v, want Unavailable because of %s", err, m.target())
	}
	m.must(m.unpublishVolume(s))
	m.must(m.publishNext(s, mountCapability("ext4")))
	if host.Mounted[m.stagingPath()].Sealed {
		t.Error("the filesystem still takes no writes")
	}
}

// NodeStageVolume meets the mount of an epoch that is over after the kubelet has restarted.
func TestAStagingPathWithTheMountOfBeforeIsStagedAgain(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.publish(nil)
	s := m.start()
	m.must(m.stage(s, mountCapability("ext4")))
	m.fenced(host)
	host.Revive(memoryDevice) // as another disk under the name of before
	m.must(m.stage(s, mountCapability("ext4")))
	if got := host.Mounted[m.stagingPath()].Source; got != "/dev/sdd" {
		t.Errorf("%s is mounted, want /dev/sdd", got)
	}
}

func TestLaw5AKillWhileAVolumeIsStagedInPlaceLosesNothing(t *testing.T) {
	t.Parallel()
	for kind, capability := range kindsOfVolume() {
		t.Run(kind, func(t *testing.T) {
			for n := 1; ; n++ {
				if !killDuringStageInPlace(t, capability, n) {
					if n < 4 {
						t.Errorf("staging in place has only %d steps: the test does not reach it", n-1)
					}
					return
				}
			}
		})
	}
}

func killDuringStageInPlace(t *testing.T, capability *csi.VolumeCapability, n int) (reached bool) {
	t.Helper()
	publishedAgain := func(m *machine, host *memoryHost, s *csinode.Server) error {
		err := m.publishNext(s, capability)
		if entry := m.entry(); entry == nil || entry.Epoch != 3 || entry.Phase != apiv1.PhaseStaged {
			m.t.Errorf("entry = %+v, want Staged under epoch 3", entry)
		}
		if got := host.Mounted[m.target()+"-next"].Source; got != "/dev/sdd" {
			m.t.Errorf("the pod got %s, want /dev/sdd", got)
		}
		return err
	}
	for name, ending := range map[string]func(*machine, *memoryHost, *csinode.Server) error{
		"the kubelet publishes again": func(m *machine, host *memoryHost, _ *csinode.Server) error {
			return publishedAgain(m, host, m.start())
		},
		"the kubelet publishes again, and only the call had ended": publishedAgain,
		"the kubelet unstages": func(*machine, *memoryHost, *csinode.Server) error { return nil },
		"the node reboots": func(m *machine, host *memoryHost, _ *csinode.Server) error {
			clear(host.Mounted)
			m.bootID = "boot-2"
			return m.stage(m.start(), capability)
		},
		"the controller takes the volume back": func(m *machine, _ *memoryHost, _ *csinode.Server) error {
			m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
				v.Status.Primary.State = apiv1.OwnershipReleasing
			})
			_ = m.publishNext(m.start(), capability)
			if m.entry() == nil {
				m.t.Error("the report does not name a volume that the kubelet takes for staged")
			}
			return nil
		},
	} {
		m, host, k := bench(t)
		m.publish(nil)
		m.must(m.stage(m.start(), capability))
		made := host.Content
		m.fenced(host)
		s := m.start()
		at, err := k.during(n, func() error { return m.publishNext(s, capability) })
		if at == "" {
			if err != nil {
				t.Errorf("without a kill: %v", err)
			}
			return false
		}
		t.Run(fmt.Sprintf("killed at step %d (%s), then %s", n, at, name), func(t *testing.T) {
			m.t = t
			m.must(ending(m, host, s))
			s := m.start()
			m.unpublishAt(s, m.target()+"-next")
			m.must(m.unstage(s))
			m.assertClean()
			if host.Content != made {
				t.Errorf("the disk carries %+v, want %+v", host.Content, made)
			}
		})
		m.t = t
	}
	return true
}

// What the kubelet publishes, and the node has not staged.
func TestWhatIsNotStagedCannotBePublished(t *testing.T) {
	t.Parallel()
	ext4, block := kindsOfVolume()["filesystem"], kindsOfVolume()["raw block"]
	reboot := func(m *machine, host *memoryHost) {
		clear(host.Mounted)
		m.bootID = "boot-2"
	}
	elsewhere := func(m *machine, host *memoryHost) {
		record := m.record()
		record.StagingPath = "/another"
		m.must(m.records.Put(record))
		clear(host.Mounted)
	}
	for name, test := range map[string]struct {
		staged, published *csi.VolumeCapability
		then              func(*machine, *memoryHost)
	}{
		"a raw block device of a filesystem":    {staged: ext4, published: block},
		"a filesystem of a raw block device":    {staged: block, published: ext4},
		"a raw block device of before a reboot": {staged: block, published: block, then: reboot},
		"a filesystem of before a reboot":       {staged: ext4, published: ext4, then: reboot},
		"a filesystem that is staged elsewhere": {staged: ext4, published: ext4, then: elsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), quiet)
			m.publish(nil)
			m.must(m.stage(m.start(), test.staged))
			if test.then != nil {
				test.then(m, host)
			}
			wantCode(t, m.publishVolume(m.start(), test.published, false), codes.FailedPrecondition, "is not staged")
		})
	}
}

// The V1 driver has mounted the volume, and there may be a record that a call of this driver has begun.
func TestAVolumeOfV1IsPublishedWithoutTheAPIServer(t *testing.T) {
	t.Parallel()
	for name, recorded := range map[string]bool{"without a record": false, "with a record": true} {
		t.Run(name, func(t *testing.T) {
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), quiet)
			host.Mounted[m.stagingPath()] = provisioner.MountPoint{Source: memoryDevice, Target: m.stagingPath()}
			if recorded {
				record := m.usedIn(m.bootID)
				record.Epoch = 0
				m.must(m.records.Put(record))
			}
			m.must(m.publishVolume(m.start(), mountCapability("ext4"), false))
		})
	}
}

// A mount that another one excludes is tried again by the kubelet, as is a call that is cut off.
func TestTheCodesOfStagingInPlace(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fails error
		want  codes.Code
	}{
		"a conflict":             {provisioner.Errorf(provisioner.Conflict, "busy"), codes.Aborted},
		"the time is up":         {context.DeadlineExceeded, codes.DeadlineExceeded},
		"the call was cancelled": {context.Canceled, codes.Canceled},
		"a refusal":              {provisioner.Errorf(provisioner.FailedPrecondition, "repair it"), codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), quiet)
			m.publish(nil)
			s := m.start()
			m.must(m.stage(s, mountCapability("ext4")))
			delete(host.Mounted, m.stagingPath())
			host.MountFails = test.fails
			wantCode(t, m.publishVolume(s, mountCapability("ext4"), false), test.want, "in place")
		})
	}
}

// What cannot be staged in place yet is not the kubelet's to forget: no code is final.
func TestAFailureToStageInPlaceIsNotFinal(t *testing.T) {
	t.Parallel()
	for name, breakIt := range map[string]func(*machine, *memoryHost){
		"another filesystem on the device": func(m *machine, host *memoryHost) {
			m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
				v.Status.Filesystem = &apiv1.FilesystemRecord{Type: "ext4", UUID: "another"}
			})
		},
		"a device of another size": func(m *machine, host *memoryHost) {
			m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.SizeBytes = host.Size + 1 })
		},
		"the volume is gone": func(m *machine, _ *memoryHost) {
			v := &apiv1.AzVolume{}
			v.Namespace, v.Name = namespace, volume
			m.must(m.direct.Delete(context.Background(), v))
		},
	} {
		t.Run(name, func(t *testing.T) {
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), quiet)
			m.publish(nil)
			s := m.start()
			m.must(m.stage(s, mountCapability("ext4")))
			m.fenced(host)
			breakIt(m, host)
			if err := m.publishNext(s, mountCapability("ext4")); status.Code(err) != codes.Unavailable {
				t.Errorf("publish: %v, want Unavailable", err)
			}
			if m.entry() == nil {
				t.Error("the report does not name a volume that the kubelet takes for staged")
			}
		})
	}
}
