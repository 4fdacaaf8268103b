package csi_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// published returns a machine on which a pod has written to the volume.
func published(t *testing.T) (*machine, *memoryHost) {
	t.Helper()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.publish(nil)
	s, capability := m.start(), mountCapability("ext4")
	if err := m.stage(s, capability); err != nil {
		t.Fatal(err)
	}
	if err := m.publishVolume(s, capability, false); err != nil {
		t.Fatal(err)
	}
	return m, host
}

// The kubelet deletes the pod's object after NodeUnpublishVolume, and autoscalers delete the VM
// then.
func TestUnpublishWritesThePodsDataToTheDiskFirst(t *testing.T) {
	t.Parallel()
	m, host := published(t)
	host.Hook = func(step string) {
		if step == "before unmount" && host.Unflushed {
			t.Error("the data is not on the disk before the unmount")
		}
	}
	for range 2 {
		if err := m.unpublishVolume(m.start()); err != nil {
			t.Errorf("unpublish: got %v, want success", err)
		}
	}
	if host.Unflushed {
		t.Error("the data is not on the disk after the unpublish")
	}
}

func TestUnpublishWhenTheDataCannotBeWritten(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fails     error
		want      codes.Code
		unmounted bool
	}{
		"the device fails or hangs: its last writes are lost, as at unstage": {
			fails:     provisioner.Errorf(provisioner.Unavailable, "input/output error"),
			want:      codes.OK,
			unmounted: true,
		},
		"the device is still writing: the kubelet repeats the call": {
			fails: context.DeadlineExceeded,
			want:  codes.DeadlineExceeded,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, host := published(t)
			host.SyncFails = test.fails
			if err := m.unpublishVolume(m.start()); status.Code(err) != test.want {
				t.Errorf("unpublish: got %v, want %v", err, test.want)
			}
			lost := m.status().LostWrites
			if (len(lost) == 1) != test.unmounted || test.unmounted && (lost[0].VolumeName != volume ||
				!strings.Contains(lost[0].Message, "input/output error")) {
				t.Errorf("got lost writes %+v in the report, want one of the volume: %t", lost, test.unmounted)
			}
			if _, mounted := host.Mounted[m.target()]; mounted == test.unmounted {
				t.Errorf("mounted at the target: got %t, want %t", mounted, !test.unmounted)
			}
		})
	}
}

// Another pod of the node may start to use the volume while the data of one that has ended is
// written.
func TestASyncDoesNotDelayOtherCallsForTheVolume(t *testing.T) {
	t.Parallel()
	m, host := published(t)
	s := m.start()
	var steps []string
	host.Hook = func(step string) {
		steps = append(steps, step)
		if step == "sync" {
			if err := m.publishVolume(s, mountCapability("ext4"), false); err != nil {
				t.Errorf("publish during the sync: got %v, want success", err)
			}
		}
	}
	if err := m.unpublishVolume(s); err != nil {
		t.Errorf("unpublish: got %v, want success", err)
	}
	if !slices.Contains(steps, "before bind") {
		t.Errorf("steps: got %q, want a bind", steps)
	}
}

// The proof of the release and the loss are one write.
func TestALossAtUnstageIsInTheReportThatProvesTheRelease(t *testing.T) {
	t.Parallel()
	m, host := published(t)
	s := m.start()
	if err := m.unpublishVolume(s); err != nil {
		t.Fatal(err)
	}
	host.FlushFails = provisioner.Errorf(provisioner.Unavailable, "input/output error")
	if err := m.unstage(s); err != nil {
		t.Errorf("unstage: got %v, want success", err)
	}
	lost := m.status().LostWrites
	if m.entry() != nil || len(lost) != 1 || lost[0].VolumeName != volume ||
		!strings.Contains(lost[0].Message, "input/output error") {
		t.Errorf("got entry %+v, lost writes %+v; want no entry and one loss", m.entry(), lost)
	}
}
