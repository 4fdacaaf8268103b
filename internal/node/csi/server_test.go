package csi_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func quiet(string) {}

func TestARefusedVolumeLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		edit func(*apiv1.AzVolume, *apiv1.AzVolumeAttachment)
		host func(*memoryHost)
		want codes.Code
	}{
		"another node is primary": {
			edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.Primary.NodeName = "a" },
			want: codes.FailedPrecondition},
		"a replica": {edit: func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Spec.Role = apiv1.RoleReplica },
			want: codes.FailedPrecondition},
		"a device of another size": {edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.SizeBytes = 2 << 30 },
			want: codes.FailedPrecondition},
		"another filesystem than recorded": {
			edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
				v.Status.Filesystem = &apiv1.FilesystemRecord{Type: "ext4", UUID: "u-1"}
			},
			host: func(h *memoryHost) {
				h.Content.FS = provisioner.Filesystem{Type: "ext4", UUID: "u-2"}
			}, want: codes.FailedPrecondition,
		},
		"a device that is neither blank nor a filesystem": {host: func(h *memoryHost) { h.Content.Garbage = true },
			want: codes.FailedPrecondition},
		"a filesystem on a volume of several nodes": {
			edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Spec.Access = apiv1.AccessMultiNode },
			want: codes.InvalidArgument},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			host := newMemoryHost()
			if test.host != nil {
				test.host(host)
			}
			before := host.Content
			m := newMachine(t, host, t.TempDir(), quiet)
			m.publish(test.edit)
			if err := m.stage(m.start(), mountCapability("ext4")); status.Code(err) != test.want {
				t.Errorf("stage: %v, want %v", err, test.want)
			}
			m.assertClean()
			if host.Content != before || host.Formats != 0 {
				t.Errorf("the device was written to: %+v", host.Content)
			}
		})
	}
}

func TestStagingWaitsForTheAttachment(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
	m.publish(func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
		a.Status = apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttaching}
	})
	waiting := m.watched()
	s := m.start()
	staged := make(chan error, 1)
	go func() { staged <- m.stage(s, mountCapability("ext4")) }()
	<-waiting
	if entry := m.entry(); entry == nil || entry.Phase != apiv1.PhaseStaging {
		t.Errorf("while it waits the entry is %+v, want Staging", entry)
	}
	// A second call for the volume is told to come again.
	if err := m.stage(s, mountCapability("ext4")); status.Code(err) != codes.Aborted {
		t.Errorf("a second call: %v, want Aborted", err)
	}
	m.change(func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
		a.Status = apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttached, LUN: ptr.To(lun)}
	})
	if err := <-staged; err != nil {
		t.Fatal(err)
	}
	if entry := m.entry(); entry == nil || entry.Phase != apiv1.PhaseStaged || entry.Epoch != 1 || entry.Filesystem == nil ||
		entry.Device != memoryDevice {
		t.Errorf("entry = %+v", entry)
	}
	if err := m.unstage(s); err != nil {
		t.Error(err)
	}
	m.assertClean()
}

func TestADeadlineWhileWaitingTakesTheAnnouncementBack(t *testing.T) {
	t.Parallel()
	waits := map[string]func(*apiv1.AzVolume, *apiv1.AzVolumeAttachment){
		"for the attachment": func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
			a.Status = apiv1.AzVolumeAttachmentStatus{
				State: apiv1.AttachmentFailed,
				Error: &apiv1.Error{Message: "no free slot", FailureTime: metav1.Now()},
			}
		},
		"for the device": func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.LUN = ptr.To(lun + 1) },
	}
	for name, edit := range waits {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
				m.publish(edit)
				// passes when the call waits, and nothing else is left to do
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := m.start().NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
					VolumeId:          volumeID,
					StagingTargetPath: m.stagingPath(),
					VolumeCapability:  mountCapability("ext4"),
				})
				if status.Code(err) != codes.DeadlineExceeded {
					t.Errorf("stage: %v, want DeadlineExceeded", err)
				}
				m.assertClean()
			})
		})
	}
}

func TestTheOwnershipIsReadAfterTheReportIsWritten(t *testing.T) {
	t.Parallel()
	var m *machine
	taken := false
	m = newMachine(t, newMemoryHost(), t.TempDir(), func(write string) {
		// The controller takes the volume back in the very moment in which the node announces it.
		if write == "after report" && !taken {
			taken = true
			m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
				v.Status.Primary.State = apiv1.OwnershipReleasing
			})
		}
	})
	m.publish(nil)
	if err := m.stage(m.start(), mountCapability("ext4")); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("stage: %v, want FailedPrecondition", err)
	}
	m.assertClean()
}

func TestTheReportSaysTheEpochThatWasGranted(t *testing.T) {
	t.Parallel()
	var m *machine
	moved := false
	m = newMachine(t, newMemoryHost(), t.TempDir(), func(write string) {
		if write == "after report" && !moved {
			moved = true
			m.change(func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { v.Status.Primary.Epoch, a.Spec.Epoch = 2, 2 })
		}
	})
	m.publish(nil)
	if err := m.stage(m.start(), mountCapability("ext4")); err != nil {
		t.Fatal(err)
	}
	if entry := m.entry(); entry == nil || entry.Epoch != 2 {
		t.Errorf("entry = %+v, want epoch 2", entry)
	}
}

func TestAReportThatCannotBeCorrectedIsTriedAgain(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
	m.publish(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.SizeBytes = 5 })
	writes := 0
	m.api = interceptor.NewClient(m.api, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, obj client.Object,
			patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if writes++; writes > 1 {
				return errors.New("the API server is away")
			}
			return c.Status().Patch(ctx, obj, patch, opts...)
		},
	})
	if err := m.stage(m.start(), mountCapability("ext4")); status.Code(err) != codes.Unavailable {
		t.Errorf("stage: %v, want Unavailable, for the kubelet to unstage later", err)
	}
}

func TestALeftOverEntryGoesWithARefusal(t *testing.T) {
	t.Parallel()
	m, host, k := bench(t)
	m.publish(nil)
	s := m.start()
	if at, _ := k.during(8, func() error { return m.stage(s, mountCapability("ext4")) }); at != "inside mkfs" {
		t.Fatalf("killed at %q", at)
	}
	m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
		v.Status.Primary.State = apiv1.OwnershipReleasing
	})
	if err := m.stage(m.start(), mountCapability("ext4")); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("stage: %v, want FailedPrecondition", err)
	}
	m.assertClean()
	if !host.Content.Blank() {
		t.Errorf("the next node finds %+v", host.Content)
	}
}

func TestTheRemainsOfAFormatAreLeftAloneOnceTheVolumeHasMovedOn(t *testing.T) {
	t.Parallel()
	m, host, k := bench(t)
	m.publish(nil)
	s := m.start()
	if at, _ := k.during(8, func() error { return m.stage(s, mountCapability("ext4")) }); at != "inside mkfs" {
		t.Fatalf("killed at %q", at)
	}
	k.check = nil // the half-made filesystem is not in use by this node any more
	// The node was fenced, and another node holds the ownership: this node must not change the
	// disk's content.
	m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
		v.Status.Primary = &apiv1.Ownership{NodeName: "a", Epoch: 2, State: apiv1.OwnershipHeld}
	})
	before := host.Content
	if err := m.unstage(m.start()); err != nil {
		t.Fatal(err)
	}
	m.assertClean()
	if host.Content != before {
		t.Error("the node wrote to the device without holding the ownership")
	}
}

func TestUnstageWaitsForWhateverHoldsTheDevice(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.publish(nil)
	s := m.start()
	if err := m.stage(s, mountCapability("ext4")); err != nil {
		t.Fatal(err)
	}
	host.Held = true
	if err := m.unstage(s); status.Code(err) != codes.Aborted {
		t.Errorf("unstage of a device that is held: %v, want Aborted", err)
	}
	if entry := m.entry(); entry == nil || entry.Phase != apiv1.PhaseUnstaging {
		t.Errorf("entry = %+v, want Unstaging", entry)
	}
	host.Held = false
	if err := m.unstage(m.start()); err != nil {
		t.Error(err)
	}
	m.assertClean()
}

func TestASingleWriterHasOneTarget(t *testing.T) {
	t.Parallel()
	for kind, capability := range kindsOfVolume() {
		t.Run(kind, func(t *testing.T) {
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), quiet)
			m.publish(nil)
			s := m.start()
			capability.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
			m.must(m.stage(s, capability))
			m.must(m.publishAt(s, "/pods/1", capability, false))
			// What the kubelet makes of a subPath is not another target.
			subPath := "/pods/1/volume-subpaths/pv/container/0"
			host.Mounted[subPath] = provisioner.MountPoint{Source: memoryDevice, Target: subPath}
			m.must(m.publishAt(s, "/pods/1", capability, false))
			wantCode(t, m.publishAt(s, "/pods/2", capability, false), codes.FailedPrecondition, "/pods/1")
			delete(host.Mounted, subPath)
			m.unpublishAt(s, "/pods/1")
			m.must(m.publishAt(s, "/pods/2", capability, false))
		})
	}
}

func TestNodeGetInfo(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
	info, err := m.start().NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	if err != nil || info.GetNodeId() != thisNode || info.GetMaxVolumesPerNode() != 16 {
		t.Errorf("NodeGetInfo = %v, %v", info, err)
	}
	if got := info.GetAccessibleTopology().GetSegments(); len(got) != 2 ||
		got["topology.disk.csi.azure.com/zone"] != "eastus-2" || got["topology.kubernetes.io/zone"] != "eastus-2" {
		t.Errorf("topology = %v", got)
	}
	m.edit = func(o *csinode.Options) { o.Instance.Zone = "" }
	info, err = m.start().NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	if got := info.GetAccessibleTopology().GetSegments(); err != nil || len(got) != 1 ||
		got["topology.disk.csi.azure.com/zone"] != "" {
		t.Errorf("topology without a zone = %v, %v", got, err)
	}
}

func TestTheVolumeLimitIsTheControllersLessWhatOthersTake(t *testing.T) {
	t.Parallel()
	const size = "Standard_D4s_v5"
	for name, test := range map[string]struct {
		capacity *apiv1.NodeCapacity
		reserved int64
		want     int64
	}{
		"the fallback while the controller says nothing": {nil, 0, 16},
		"all disks of the VM's size":                     {&apiv1.NodeCapacity{MaxDataDisks: 8, VMSize: size}, 0, 8},
		"less the disks from outside the driver": {
			&apiv1.NodeCapacity{MaxDataDisks: 8, VMSize: size, ForeignDisks: 3}, 0, 5},
		"less the reserve for them": {&apiv1.NodeCapacity{MaxDataDisks: 8, VMSize: size}, 2, 6},
		"disks from outside use the reserve up": {
			&apiv1.NodeCapacity{MaxDataDisks: 8, VMSize: size, ForeignDisks: 1}, 2, 6},
		"and go beyond it": {
			&apiv1.NodeCapacity{MaxDataDisks: 8, VMSize: size, ForeignDisks: 3}, 2, 5},
		"never 0, which means no limit": {
			&apiv1.NodeCapacity{MaxDataDisks: 4, VMSize: size, ForeignDisks: 4}, 0, 1},
		"what was looked up for the size that the VM had before counts no more": {
			&apiv1.NodeCapacity{MaxDataDisks: 64, VMSize: "Standard_D64s_v5"}, 0, 16},
		"a size for which Azure lists no number of disks is no limit": {&apiv1.NodeCapacity{VMSize: size}, 0, 16},
		"less the disks from outside the driver from the fallback, too": {&apiv1.NodeCapacity{VMSize: size, ForeignDisks: 3}, 0,
			13},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
			m.edit = func(o *csinode.Options) {
				o.Limit = csinode.Limit{Reserved: test.reserved, Patience: time.Millisecond, Fallback: 16}
			}
			if err := m.direct.Create(t.Context(), &apiv1.AzDriverNode{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: thisNode},
				Spec:       apiv1.AzDriverNodeSpec{VMID: "/vm", VMSize: size},
				Status:     apiv1.AzDriverNodeStatus{Capacity: test.capacity},
			}); err != nil {
				t.Fatal(err)
			}
			info, err := m.start().NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
			if err != nil || info.GetMaxVolumesPerNode() != test.want {
				t.Errorf("got %v, %v, want %d", info, err, test.want)
			}
		})
	}
}
