package node_test

import (
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/csi/node"
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
	for name, change := range map[string]func(m *machine){
		"the plug-in was restarted":                    func(*machine) {},
		"the node was restarted":                       func(m *machine) { m.bootID = "boot-2" },
		"and the volume is being taken from the node":  func(m *machine) { m.change(acquireElsewhere) },
		"the node was restarted, and the volume taken": func(m *machine) { m.bootID = "boot-2"; m.change(acquireElsewhere) },
	} {
		t.Run(name, func(t *testing.T) {
			m, host := interrupted(t)
			change(m)
			m.start().ClearFormats(t.Context())
			m.assertClean()
			if !host.content.blank() {
				t.Errorf("the disk carries %+v, want nothing", host.content)
			}
		})
	}
}

func TestAFormatIsNotClearedWhileACallForTheVolumeIsAtWork(t *testing.T) {
	m, host, _ := bench(t)
	m.publish(nil)
	var s *node.Server
	host.hook = func(step string) {
		if step == "inside mkfs" {
			s.ClearFormats(t.Context())
		}
	}
	s = m.start()
	m.must(m.stage(s, mountCapability("ext4")))
	s.ClearFormats(t.Context())
	if entry := m.entry(); entry == nil || entry.Phase != apiv1.PhaseStaged || host.formats != 1 {
		t.Errorf("got entry %+v after %d formats, want a staged volume after one", entry, host.formats)
	}
}

// A disk that was detached outside the driver is attached again. Until then the node remembers what it has to clear.
func TestTheRemainsOfAFormatWaitForTheDisk(t *testing.T) {
	for name, away := range map[string]func(m *machine, host *memoryHost){
		"the node has no device": func(_ *machine, host *memoryHost) { host.detach() },
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

// The fence has proved that the disk is detached, and it is not attached again under this epoch.
func TestTheRemainsOfAFormatAreLeftToTheNextNodeAfterAFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, host := interrupted(t)
		host.detach()
		host.content.garbage = false // what is on the disk is no longer the node's concern
		m.change(func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			a.Status.State = apiv1.AttachmentPending
			a.Status.Proof = &apiv1.ReleaseProof{Kind: apiv1.ProofDetached, Epoch: a.Spec.Epoch}
		})
		m.bootID = "boot-2"
		m.start().ClearFormats(t.Context())
		m.assertClean()
	})
}

// A person detached the disk and deleted its attachment. The controller attaches it no more, and waits for the node's report.
func TestTheRemainsOfAFormatAreLeftBehindWithADeletedAttachment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, host := interrupted(t)
		host.detach()
		host.content.garbage = false
		m.change(func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Finalizers = []string{apiv1.Finalizer} })
		attachment := &apiv1.AzVolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: apiv1.AttachmentName(volume, thisNode)}}
		m.must(m.direct.Delete(t.Context(), attachment))
		m.bootID = "boot-2"
		m.start().ClearFormats(t.Context())
		m.assertClean()
	})
}

func waitsForTheDisk(t *testing.T, away func(m *machine, host *memoryHost)) {
	m, host := interrupted(t)
	away(m, host)
	m.bootID = "boot-2"
	s := m.start()
	s.ClearFormats(t.Context())
	if record, recorded, err := m.records.Get(volume); !recorded || record.Formatting == nil || m.entry() == nil {
		t.Fatalf("got record %+v (%v), entry %+v; want both while the disk is away", record, err, m.entry())
	}
	host.attach("/dev/sdd", lun)
	m.change(func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentAttached })
	s.ClearFormats(t.Context())
	m.assertClean()
	if !host.content.blank() {
		t.Errorf("the disk carries %+v, want nothing", host.content)
	}
}
