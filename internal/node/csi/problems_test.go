package csi_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	clocktesting "k8s.io/utils/clock/testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/faulty"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Each case fails or observes something twice, eleven seconds apart, ends it, and does it once more.
func TestWhatTheNodeSeesIsInItsReport(t *testing.T) {
	t.Parallel()
	damaged := provisioner.Errorf(provisioner.FailedPrecondition, "repair it").With(provisioner.FilesystemDamaged)
	busy := provisioner.Errorf(provisioner.Conflict, "busy").With(provisioner.MountBusy)
	unmount := provisioner.Errorf(provisioner.Unavailable, "umount: exit code 1")
	for name, c := range map[string]struct {
		before func(m *machine, s *csinode.Server) error
		begin  func(*memoryHost, *machine)
		end    func(*memoryHost, *machine)
		call   func(m *machine, s *csinode.Server) error
		// code is the one of the failure; OK for a call that only observes.
		code codes.Code
		want string
	}{
		"a filesystem that needs a person": {
			begin: func(h *memoryHost, _ *machine) {
				h.Content = content{FS: provisioner.Filesystem{Type: "ext4", UUID: "u"}}
				h.OnCheck = func(string) error { return damaged }
			},
			end:  func(h *memoryHost, _ *machine) { h.OnCheck = nil },
			call: stageExt4, code: codes.FailedPrecondition, want: apiv1.ReasonFilesystemDamaged,
		},
		"a disk of the node that is full": {
			begin: func(h *memoryHost, _ *machine) { h.MountFails = syscall.ENOSPC },
			end:   func(h *memoryHost, _ *machine) { h.MountFails = nil },
			call:  stageExt4, code: codes.Internal, want: apiv1.ReasonNodeDiskFull,
		},
		"a stage of a device that is held": {
			begin: func(h *memoryHost, _ *machine) {
				h.Content, h.Held = content{FS: provisioner.Filesystem{Type: "ext4", UUID: "u"}}, true
				h.OnCheck = func(string) error { return provisioner.Errorf(provisioner.Unavailable, "in use") }
			},
			end:  func(h *memoryHost, _ *machine) { h.Held, h.OnCheck = false, nil },
			call: stageExt4, code: codes.Unavailable, want: apiv1.ReasonDeviceHeld,
		},
		"a device that is held": {
			before: stageExt4,
			begin:  func(h *memoryHost, _ *machine) { h.Held = true },
			end:    func(h *memoryHost, _ *machine) { h.Held = false },
			call:   (*machine).unstage, code: codes.Aborted, want: apiv1.ReasonDeviceHeld,
		},
		"a pod's mount that is busy": {
			before: publishExt4,
			begin:  func(h *memoryHost, _ *machine) { h.UnmountFails = busy },
			end:    func(h *memoryHost, _ *machine) { h.UnmountFails = nil },
			call:   (*machine).unpublishVolume, code: codes.Aborted, want: apiv1.ReasonMountBusy,
		},
		"an unstage while a pod has the volume": {
			before: publishExt4,
			begin:  func(*memoryHost, *machine) {},
			end:    func(h *memoryHost, m *machine) { delete(h.Mounted, m.target()) },
			call:   (*machine).unstage, code: codes.Aborted, want: apiv1.ReasonMountBusy,
		},
		"an unmount that fails": {
			before: publishExt4,
			begin:  func(h *memoryHost, _ *machine) { h.UnmountFails = unmount },
			end:    func(h *memoryHost, _ *machine) { h.UnmountFails = nil },
			call:   (*machine).unpublishVolume, code: codes.Unavailable, want: apiv1.ReasonUnmountFailed,
		},
		"a staging path that is busy": {
			before: stageExt4,
			begin:  func(h *memoryHost, _ *machine) { h.UnmountFails = busy },
			end:    func(h *memoryHost, _ *machine) { h.UnmountFails = nil },
			call:   (*machine).unstage, code: codes.Aborted, want: apiv1.ReasonMountBusy,
		},
		"an unstage that fails": {
			before: stageExt4,
			begin:  func(h *memoryHost, _ *machine) { h.UnmountFails = unmount },
			end:    func(h *memoryHost, _ *machine) { h.UnmountFails = nil },
			call:   (*machine).unstage, code: codes.Unavailable, want: apiv1.ReasonUnmountFailed,
		},
		"a device that writes slowly": {
			before: publishExt4,
			begin:  func(h *memoryHost, _ *machine) { h.SyncFails = context.DeadlineExceeded },
			end:    func(h *memoryHost, _ *machine) { h.SyncFails = nil },
			call:   (*machine).unpublishVolume, code: codes.DeadlineExceeded, want: apiv1.ReasonUnmountFailed,
		},
		"a filesystem that the kernel has stopped": {
			before: publishExt4,
			begin:  func(h *memoryHost, m *machine) { h.Seal(m.stagingPath()) },
			end: func(h *memoryHost, m *machine) {
				h.Mounted[m.stagingPath()] = provisioner.MountPoint{Source: memoryDevice, Target: m.stagingPath(), FSType: "ext4"}
			},
			call: review, want: apiv1.ReasonFilesystemTakesNoWrites,
		},
		"a frozen filesystem": {
			before: publishExt4,
			begin:  func(h *memoryHost, _ *machine) { h.FrozenDevice = memoryDevice },
			end:    func(h *memoryHost, _ *machine) { h.FrozenDevice = "" },
			call:   review, want: apiv1.ReasonFilesystemFrozen,
		},
		"a device that fails": {
			before: publishExt4,
			begin:  func(h *memoryHost, _ *machine) { h.Broken = provisioner.Errorf(provisioner.Unavailable, "EIO") },
			end:    func(h *memoryHost, _ *machine) { h.Broken = nil },
			call:   readStats, want: apiv1.ReasonReadFailed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newMemoryHost()
			m := newMachine(t, h, t.TempDir(), func(string) {})
			clock := clocktesting.NewFakeClock(time.Now())
			m.clock = clock
			m.publish(nil)
			s := m.start()
			if c.before != nil {
				if err := c.before(m, s); err != nil {
					t.Fatal(err)
				}
			}
			expect := func(when, want string) {
				t.Helper()
				m.writeReport()
				got := ""
				for _, p := range m.status().VolumeProblems {
					if got += p.Reason; p.VolumeName != volume || p.Message == "" {
						t.Errorf("%s: got %+v, want volume %s and a message", when, p, volume)
					}
				}
				if got != want {
					t.Errorf("%s: got %q, want %q", when, got, want)
				}
			}
			c.begin(h, m)
			for _, want := range []string{"", c.want} {
				if err := c.call(m, s); status.Code(err) != c.code {
					t.Fatalf("got %v, want code %s", err, c.code)
				}
				expect("it lasts", want)
				clock.Step(11 * time.Second)
			}
			c.end(h, m)
			if err := c.call(m, s); err != nil {
				t.Fatal(err)
			}
			expect("it has ended", "")
		})
	}
}

// A look that fails says nothing about a filesystem.
func TestALookThatFailsEndsNoProblem(t *testing.T) {
	t.Parallel()
	h := newMemoryHost()
	m := newMachine(t, h, t.TempDir(), func(string) {})
	m.host = faulty.Host{Host: h, Faults: m.faults}
	clock := clocktesting.NewFakeClock(time.Now())
	m.clock = clock
	m.publish(nil)
	s := m.start()
	m.must(publishExt4(m, s))
	h.FrozenDevice = memoryDevice
	for range 2 {
		s.ReviewProblems(t.Context())
		clock.Step(11 * time.Second)
	}
	for n, at := 1, "first"; at != ""; n++ {
		m.faults.Arm(n)
		s.ReviewProblems(t.Context())
		at = m.faults.Failed()
		m.faults.Arm(0)
		m.writeReport()
		if got := m.status().VolumeProblems; len(got) != 1 || got[0].Reason != apiv1.ReasonFilesystemFrozen {
			t.Errorf("%s failed: got problems %+v, want the frozen filesystem", at, got)
		}
	}
}

func stageExt4(m *machine, s *csinode.Server) error { return m.stage(s, mountCapability("ext4")) }

func publishExt4(m *machine, s *csinode.Server) error {
	if err := stageExt4(m, s); err != nil {
		return err
	}
	return m.publishVolume(s, mountCapability("ext4"), false)
}

func review(m *machine, s *csinode.Server) error {
	s.ReviewProblems(m.t.Context())
	return nil
}

func readStats(m *machine, s *csinode.Server) error {
	_, err := s.NodeGetVolumeStats(m.t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: volumeID, VolumePath: m.target()})
	return err
}

// writeReport has the report written with what the process knows, as a heartbeat does.
func (m *machine) writeReport() {
	m.t.Helper()
	if err := m.report.Fenced(m.t.Context(), apiv1.FenceResult{VolumeName: "another", NodeName: "n"}); err != nil {
		m.t.Fatal(err)
	}
	if err := m.report.ForgetFence(m.t.Context(), "another"); err != nil {
		m.t.Fatal(err)
	}
}
