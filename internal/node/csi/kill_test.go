package csi_test

import (
	"fmt"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// killed is what a killed process panics with.
type killed struct{ at string }

// killer kills the process at the n-th step that changes something outside of it.
type killer struct {
	left  int
	armed bool
	steps []string
	check func(step string)
}

func (k *killer) hook(step string) {
	if k.check != nil {
		k.check(step)
	}
	if !k.armed {
		return
	}
	k.steps = append(k.steps, step)
	if k.left--; k.left == 0 {
		k.armed = false
		panic(killed{step})
	}
}

// during runs call and returns where it was killed, or "" if it came to its end before.
func (k *killer) during(n int, call func() error) (at string, err error) {
	k.left, k.armed = n, true
	defer func() {
		k.armed = false
		if cause := recover(); cause != nil {
			death, ok := cause.(killed)
			if !ok {
				panic(cause)
			}
			at = death.at
		}
	}()
	return "", call()
}

// bench is a machine whose plug-in can be killed, with the law that the report never says less than
// is true checked at every step.
func bench(t *testing.T) (*machine, *memoryHost, *killer) {
	t.Helper()
	host, k := newMemoryHost(), &killer{}
	host.Hook = k.hook
	m := newMachine(t, host, t.TempDir(), k.hook)
	k.check = func(step string) {
		inUse := len(host.Mounted) > 0 || host.Content.Garbage || host.Opened || step == "before mkfs" || step == "before mount"
		if inUse && m.entry() == nil {
			t.Errorf("%s: the volume is in use and the report does not name it", step)
		}
	}
	return m, host, k
}

// endings are what can happen after a kill. Each must lead to a state that is right.
func endings(m *machine, host *memoryHost, capability *csi.VolumeCapability) map[string]func(*testing.T) {
	finish := func(t *testing.T) {
		s := m.start()
		if err := m.unstage(s); err != nil {
			t.Errorf("unstage: %v", err)
		}
		m.assertClean()
		if host.Content.Garbage {
			t.Error("a half-made filesystem is left on the disk")
		}
	}
	return map[string]func(*testing.T){
		"the kubelet stages again": func(t *testing.T) {
			if err := m.stage(m.start(), capability); err != nil {
				t.Errorf("stage: %v", err)
			}
			if entry := m.entry(); entry == nil || entry.Phase != apiv1.PhaseStaged {
				t.Errorf("entry = %+v, want Staged", entry)
			}
			finish(t)
		},
		"the kubelet unstages": finish,
		"the node reboots": func(t *testing.T) {
			clear(host.Mounted)
			m.bootID = "boot-2"
			if err := m.stage(m.start(), capability); err != nil {
				t.Errorf("stage: %v", err)
			}
			finish(t)
		},
		"the controller starts the release of the ownership": func(t *testing.T) {
			m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
				v.Status.Primary.State = apiv1.OwnershipReleasing
			})
			s := m.start()
			if err := m.stage(s, capability); err == nil {
				t.Error("stage: got nil, want an error: the ownership is being released")
			}
			finish(t)
		},
	}
}

func TestLaw5AKillAtAnyStepOfStagingLosesNothing(t *testing.T) {
	t.Parallel()
	capabilities := map[string]*csi.VolumeCapability{
		"filesystem": mountCapability("ext4"),
		"raw block":  blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER),
	}
	for kind, capability := range capabilities {
		t.Run(kind, func(t *testing.T) {
			for n := 1; ; n++ {
				if !killDuringStage(t, capability, n) {
					if n < 4 {
						t.Errorf("staging has only %d steps: the test does not reach it", n-1)
					}
					return
				}
			}
		})
	}
}

func killDuringStage(t *testing.T, capability *csi.VolumeCapability, n int) (reached bool) {
	t.Helper()
	for ending := range endings(nil, nil, nil) {
		m, host, k := bench(t)
		m.publish(nil)
		s := m.start()
		at, err := k.during(n, func() error { return m.stage(s, capability) })
		if at == "" {
			if err != nil {
				t.Errorf("without a kill: %v", err)
			}
			return false
		}
		t.Run(fmt.Sprintf("killed at step %d (%s), then %s", n, at, ending), func(t *testing.T) {
			m.t = t
			endings(m, host, capability)[ending](t)
		})
		m.t = t
	}
	return true
}

func TestLaw5AKillAtAnyStepOfUnstagingLosesNothing(t *testing.T) {
	t.Parallel()
	for name, boot := range map[string]string{"the record is of this boot": "boot-1", "of an earlier one": "boot-2"} {
		t.Run(name, func(t *testing.T) {
			for n := 1; killDuringUnstage(t, n, boot) != ""; n++ {
			}
		})
	}
}

// killDuringUnstage kills the n-th step of an unstage on a machine that has that boot ID since the
// volume was staged, repeats the call, and returns where it was killed.
func killDuringUnstage(t *testing.T, n int, boot string) string {
	t.Helper()
	m, host, k := bench(t)
	m.publish(nil)
	if err := m.stage(m.start(), mountCapability("ext4")); err != nil {
		t.Fatal(err)
	}
	made := host.Content
	m.bootID = boot
	s := m.start()
	at, err := k.during(n, func() error { return m.unstage(s) })
	if err != nil {
		t.Fatalf("killed at step %d (%s): %v", n, at, err)
	}
	if err := m.unstage(m.start()); err != nil {
		t.Errorf("after a kill at %q: %v", at, err)
	}
	m.assertClean()
	if host.Content != made || host.Formats != 1 || host.Unflushed {
		t.Errorf("after a kill at %q the disk carries %+v (formatted %d times, to be flushed: %t), want %+v", at, host.Content,
			host.Formats, host.Unflushed, made)
	}
	return at
}

// A filesystem that pods have used is never made again, whatever is killed.
func TestLaw4AKillNeverLeadsToASecondFormat(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		m, host, k := bench(t)
		m.publish(nil)
		if err := m.stage(m.start(), mountCapability("ext4")); err != nil {
			t.Fatal(err)
		}
		made := host.Content
		for range 3 {
			s := m.start()
			_, _ = k.during(n, func() error { return m.unstage(s) })
			s = m.start()
			_, _ = k.during(n, func() error { return m.stage(s, mountCapability("ext4")) })
		}
		if host.Content != made {
			t.Fatalf("n = %d: the disk carries %+v, want %+v", n, host.Content, made)
		}
		if n > 20 {
			return
		}
	}
}

// A copy carries its source's UUID at first. Whatever is killed, and however late the record comes,
// the device carries the source's UUID or the one that every stage comes to, and the record is of
// what the device carries.
func TestLaw5AKillWhileACopyGetsItsUUIDLosesNothing(t *testing.T) {
	t.Parallel()
	source := provisioner.Filesystem{Type: "ext4", UUID: "11111111-1111-1111-1111-111111111111"}
	for n := 1; ; n++ {
		m, host, k := bench(t)
		host.Content = content{FS: source}
		m.publish(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
			v.UID, v.Spec.Source = "volume-1", &apiv1.VolumeSource{DiskID: "source"}
		})
		s := m.start()
		at, err := k.during(n, func() error { return m.stage(s, mountCapability("ext4")) })
		if err != nil {
			t.Fatalf("without a kill: %v", err)
		}
		if err := m.unstage(m.start()); err != nil {
			t.Fatalf("after a kill at %q: %v", at, err)
		}
		if err := m.stage(m.start(), mountCapability("ext4")); err != nil {
			t.Fatalf("after a kill at %q: %v", at, err)
		}
		made := host.Content.FS
		if made.Type != "ext4" || made.UUID == source.UUID || host.Formats != 0 {
			t.Fatalf("after a kill at %q the copy carries %+v (formatted %d times)", at, made, host.Formats)
		}
		if entry := m.entry(); entry == nil || entry.Filesystem == nil || entry.Filesystem.UUID != made.UUID {
			t.Fatalf("after a kill at %q the report says %+v, and the device carries %s", at, entry, made.UUID)
		}
		// The record is written from the first report after the second stage has begun.
		m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
			v.Status.Filesystem = &apiv1.FilesystemRecord{Type: made.Type, UUID: made.UUID}
		})
		if err := m.unstage(m.start()); err != nil {
			t.Fatal(err)
		}
		if err := m.stage(m.start(), mountCapability("ext4")); err != nil || host.Content.FS != made {
			t.Fatalf("after the record: %v; the device carries %+v", err, host.Content.FS)
		}
		if at == "" {
			return
		}
	}
}
