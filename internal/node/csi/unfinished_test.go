package csi_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// interrupted is a node whose plug-in was killed inside mkfs.
func interrupted(t *testing.T) (*machine, *memoryHost) {
	t.Helper()
	for n := 1; ; n++ {
		m, host, k := bench(t)
		m.publish(nil)
		s := m.start()
		at, err := k.during(n, func() error { return m.stage(s, mountCapability("ext4")) })
		switch at {
		case "inside mkfs":
			return m, host
		case "":
			t.Fatalf("NodeStageVolume made no filesystem: %v", err)
		}
	}
}

// The kubelet was restarted, too, and does not know of the volume.
func TestAFormatThatWasCutShortIsClearedWithoutACallOfTheKubelet(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(m *machine){
		"the plug-in was restarted":                    func(*machine) {},
		"the node was restarted":                       func(m *machine) { m.bootID = "boot-2" },
		"and the volume is being taken from the node":  func(m *machine) { m.change(acquireElsewhere) },
		"the node was restarted, and the volume taken": func(m *machine) { m.bootID = "boot-2"; m.change(acquireElsewhere) },
	} {
		t.Run(name, func(t *testing.T) {
			m, host := interrupted(t)
			change(m)
			m.start().EndUnfinished(t.Context())
			m.assertClean()
			if !host.Content.Blank() {
				t.Errorf("the disk carries %+v, want nothing", host.Content)
			}
		})
	}
}

// After the restart of the node its path to the disk may be another one, whose writes the disk
// refuses.
func TestAFormatIsClearedAlthoughAFormerPathHoldsTheReservation(t *testing.T) {
	t.Parallel()
	m, host := interrupted(t)
	record, _, err := m.records.Get(volume)
	m.must(err)
	own := keyOf(t, thisNode, record.Epoch)
	record.ReservationKey = own.String()
	m.must(m.records.Put(record))
	reserveAs(t, host, "former path", own)
	m.bootID = "boot-2"
	m.start().EndUnfinished(t.Context())
	m.assertClean()
	if state := host.Shared.State(); state.Holder != own {
		t.Errorf("the disk has %s, want the reservation, as of every record of before a reboot", state)
	}
	if !host.Content.Blank() {
		t.Errorf("the disk carries %+v, want nothing", host.Content)
	}
}

func TestAFormatIsNotClearedWhileACallForTheVolumeIsAtWork(t *testing.T) {
	t.Parallel()
	m, host, _ := bench(t)
	m.publish(nil)
	var s *csinode.Server
	host.Hook = func(step string) {
		if step == "inside mkfs" {
			s.EndUnfinished(t.Context())
		}
	}
	s = m.start()
	m.must(m.stage(s, mountCapability("ext4")))
	s.EndUnfinished(t.Context())
	if entry := m.entry(); entry == nil || entry.Phase != apiv1.PhaseStaged || host.Formats != 1 {
		t.Errorf("got entry %+v after %d formats, want a staged volume after one", entry, host.Formats)
	}
}

// A disk that was detached outside the driver is attached again. Until then the node remembers what
// it has to clear.
func TestTheRemainsOfAFormatWaitForTheDisk(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(m *machine, host *memoryHost){
		"the node has no device": func(_ *machine, host *memoryHost) { host.Detach() },
		"the attachment is pending": func(m *machine, _ *memoryHost) {
			m.change(func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentPending })
		},
		"the disk is being attached": func(m *machine, _ *memoryHost) {
			m.change(func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentAttaching })
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { waitsForTheDisk(t, away) }) })
	}
}

func waitsForTheDisk(t *testing.T, away func(m *machine, host *memoryHost)) {
	m, host := interrupted(t)
	away(m, host)
	m.bootID = "boot-2"
	s := m.start()
	s.EndUnfinished(t.Context())
	if record, recorded, err := m.records.Get(volume); !recorded || record.Formatting == nil || m.entry() == nil {
		t.Fatalf("got record %+v (%v), entry %+v; want both while the disk is away", record, err, m.entry())
	}
	host.Attach("/dev/sdd", lun)
	m.change(func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentAttached })
	s.EndUnfinished(t.Context())
	m.assertClean()
	if !host.Content.Blank() {
		t.Errorf("the disk carries %+v, want nothing", host.Content)
	}
}

// Something holds the device when the kubelet unstages the volume. The kubelet is restarted, and
// does not call again.
func TestAnUnstageThatWasBegunIsEndedWithoutACallOfTheKubelet(t *testing.T) {
	t.Parallel()
	block := blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	for name, test := range map[string]struct {
		capability *csi.VolumeCapability
		restart    bool
	}{
		"a filesystem":                          {capability: mountCapability("ext4")},
		"a filesystem, and a restarted plug-in": {capability: mountCapability("ext4"), restart: true},
		"a raw block volume":                    {capability: block},
		"a raw block volume, restarted plug-in": {capability: block, restart: true},
	} {
		t.Run(name, func(t *testing.T) {
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), quiet)
			m.publish(nil)
			s := m.start()
			m.must(m.stage(s, test.capability))
			host.Held = true
			wantCode(t, m.unstage(s), codes.Aborted, "held")
			if test.restart {
				s = m.start()
			}
			s.EndUnfinished(t.Context())
			if entry := m.entry(); entry == nil || entry.Phase != apiv1.PhaseUnstaging {
				t.Fatalf("the device is held, and the report has the entry %+v, want it Unstaging", entry)
			}
			host.Held = false
			s.EndUnfinished(t.Context())
			m.assertClean()
			if host.Unflushed {
				t.Error("the report says unstaged, and the device was not flushed")
			}
			m.must(m.unstage(s)) // a kubelet that calls again
			m.must(m.stage(s, test.capability))
			m.must(m.unstage(s))
			m.assertClean()
		})
	}
}

// The pod returns to the node while its volume is being unstaged.
func TestAVolumeThatIsStagedAgainIsNotUnstaged(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.publish(nil)
	s := m.start()
	m.must(m.stage(s, mountCapability("ext4")))
	host.Held = true
	wantCode(t, m.unstage(s), codes.Aborted, "held")
	host.Held = false
	host.Hook = func(step string) {
		if step == "before mount" {
			s.EndUnfinished(t.Context())
		}
	}
	m.must(m.stage(s, mountCapability("ext4")))
	s.EndUnfinished(t.Context())
	m.wantStagedAt(m.stagingPath())
	if _, mounted := host.Mounted[m.stagingPath()]; !mounted {
		t.Error("nothing is mounted at the staging path, want the device")
	}
}

// A write of the report fails in a NodeStageVolume, and in its clean-up. The kubelet is restarted,
// and does not call again.
func TestAStageThatNeverSucceededIsEndedWithoutACallOfTheKubelet(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		capability *csi.VolumeCapability
		// fails reports whether writes of the report fail.
		fails func(*machine, *memoryHost) bool
		held  bool
	}{
		"a filesystem that is mounted": {capability: mountCapability("ext4"),
			fails: func(_ *machine, h *memoryHost) bool { return len(h.Mounted) > 0 }},
		"a filesystem that another mount holds": {capability: mountCapability("ext4"),
			fails: func(_ *machine, h *memoryHost) bool { return len(h.Mounted) > 0 }, held: true},
		"a raw block volume": {capability: blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER),
			fails: func(m *machine, _ *memoryHost) bool { return m.used() }},
		"a volume that was only announced": {capability: mountCapability("ext4"),
			fails: func(m *machine, _ *memoryHost) bool { return m.entry() != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), quiet)
			m.publish(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
				if name == "a volume that was only announced" {
					v.Status.Filesystem = &apiv1.FilesystemRecord{Type: "ext4", UUID: "of another disk"}
				}
			})
			away := true
			m.failReports(func() error {
				if away && test.fails(m, host) {
					return errors.New("the API server is away")
				}
				return nil
			})
			s := m.start()
			if err := m.stage(s, test.capability); err == nil {
				t.Fatal("NodeStageVolume succeeded, want a failure")
			}
			s.EndUnfinished(t.Context())
			if m.entry() == nil {
				t.Fatal("the report could not be written, and has no entry")
			}
			away, host.Held = false, test.held
			s.EndUnfinished(t.Context())
			if entry := m.entry(); (entry != nil) != test.held {
				t.Errorf("held: %t, and the report has the entry %+v", test.held, entry)
			}
			host.Held = false
			s.EndUnfinished(t.Context())
			m.assertClean()
		})
	}
}

// The kubelet holds such a volume as staged, and publishes it for the next pod.
func TestAVolumeThatTheKubeletHoldsAsStagedIsNotUnstaged(t *testing.T) {
	t.Parallel()
	block := blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	for name, test := range map[string]struct {
		capability *csi.VolumeCapability
		change     func(*csinode.Server, *machine, *memoryHost)
	}{
		"a filesystem":                     {mountCapability("ext4"), func(*csinode.Server, *machine, *memoryHost) {}},
		"a raw block volume without a pod": {block, func(*csinode.Server, *machine, *memoryHost) {}},
		"a filesystem that a user unmounted": {mountCapability("ext4"),
			func(_ *csinode.Server, m *machine, h *memoryHost) { delete(h.Mounted, m.stagingPath()) }},
		"a filesystem that is staged again, and waits for its disk": {mountCapability("ext4"),
			func(s *csinode.Server, m *machine, h *memoryHost) {
				delete(h.Mounted, m.stagingPath())
				h.Detach()
				ctx, cancel := context.WithTimeout(m.t.Context(), 5*time.Second)
				defer cancel()
				_, err := s.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
					VolumeId:          volumeID,
					StagingTargetPath: m.stagingPath(),
					TargetPath:        m.target(),
					VolumeCapability:  mountCapability("ext4"),
				})
				wantCode(m.t, err, codes.DeadlineExceeded)
				h.Attach(memoryDevice, lun)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host := newMemoryHost()
				m := newMachine(t, host, t.TempDir(), quiet)
				m.publish(nil)
				s := m.start()
				m.must(m.stage(s, test.capability))
				test.change(s, m, host)
				s.EndUnfinished(t.Context())
				if m.entry() == nil {
					t.Error("the report has no entry of the volume")
				}
				m.must(m.publishVolume(s, test.capability, false))
				m.must(m.unpublishVolume(s))
				m.must(m.unstage(s))
				m.assertClean()
			})
		})
	}
}

// The node's records are lost, or the V1 driver has mounted the volume.
func TestAStageThatNeverSucceededIsNotEndedWhileItsPathIsMounted(t *testing.T) {
	t.Parallel()
	m, host, k := bench(t)
	m.publish(nil)
	s := m.start()
	for n := 1; m.entry() == nil; n++ {
		_, _ = k.during(n, func() error { return m.stage(s, mountCapability("ext4")) })
	}
	m.must(m.records.Delete(volume))
	host.Mounted[m.stagingPath()] = provisioner.MountPoint{Source: memoryDevice, Target: m.stagingPath(), FSType: "ext4"}
	s.EndUnfinished(t.Context())
	if m.entry() == nil {
		t.Error("the report does not name the volume, which is mounted")
	}
	delete(host.Mounted, m.stagingPath())
	s.EndUnfinished(t.Context())
	m.assertClean()
}

// The kubelet is restarted after the unpublish, and does not call NodeUnstageVolume.
func TestAVolumeThatTheKubeletHasLeftStagedIsUnstaged(t *testing.T) {
	t.Parallel()
	for kind, capability := range kindsOfVolume() {
		t.Run(kind, func(t *testing.T) {
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), quiet)
			m.publish(nil)
			s := m.start()
			m.must(m.stage(s, capability))
			m.must(m.publishVolume(s, capability, false))
			release := func(ago time.Duration) {
				m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
					v.Status.Primary.State = apiv1.OwnershipReleasing
					v.Status.Primary.LastTransitionTime = ptr.To(metav1.NewTime(time.Now().Add(-ago)))
				})
			}
			stays := func(why string) {
				t.Helper()
				s.EndUnfinished(t.Context())
				if entry := m.entry(); entry == nil || entry.Phase != apiv1.PhaseStaged {
					t.Errorf("%s: got entry %+v, want it Staged", why, entry)
				}
			}
			release(time.Hour)
			stays("a pod uses the volume")
			m.must(m.unpublishVolume(s))
			release(0)
			stays("the release has just begun")
			release(time.Hour)
			s.EndUnfinished(t.Context())
			m.assertClean()
			m.must(m.unstage(s)) // a kubelet that calls nevertheless
			m.assertClean()
		})
	}
}

// beforeNextRead returns where to put what is to be done once, before the next read of an AzVolume at
// the API server.
func (m *machine) beforeNextRead() *func() {
	var next func()
	m.api = interceptor.NewClient(m.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object,
			opts ...client.GetOption) error {
			if _, is := obj.(*apiv1.AzVolume); is && next != nil {
				do := next
				next = nil
				do()
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	return &next
}

// The look at what is left reads at the API server. The kubelet would repeat a refused call half a
// second later, in the middle of a move.
func TestALookAtWhatIsLeftRefusesNoCall(t *testing.T) {
	t.Parallel()
	for kind, capability := range kindsOfVolume() {
		t.Run(kind, func(t *testing.T) {
			m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
			m.publish(nil)
			during := m.beforeNextRead()
			s := m.start()
			m.must(m.stage(s, capability))
			looked := false
			*during = func() {
				looked = true
				m.must(m.unstage(s))
			}
			s.EndUnfinished(t.Context())
			if !looked {
				t.Error("the look did not read the volume")
			}
			m.assertClean()
		})
	}
}
