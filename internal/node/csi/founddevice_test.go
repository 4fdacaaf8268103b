package csi_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const secondID = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/pvc-2"

// second is the name of the AzVolume of secondID.
var second = volumehandle.Of(diskOf(secondID)).VolumeName()

// publishSecond publishes another volume to the node, whose disk is recorded at the LUN of the
// first one's.
func (m *machine) publishSecond(sizeBytes int64) {
	m.t.Helper()
	for _, o := range []client.Object{
		&apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: second},
			Spec: apiv1.AzVolumeSpec{Origin: apiv1.OriginProvisioned, Access: apiv1.AccessSingleNode, Disk: diskOf(secondID)},
			Status: apiv1.AzVolumeStatus{SizeBytes: sizeBytes, DiskID: secondID,
				Primary: &apiv1.Ownership{NodeName: thisNode, Epoch: 1, State: apiv1.OwnershipHeld}}},
		&apiv1.AzVolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: apiv1.AttachmentName(second, thisNode)},
			Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: second, NodeName: thisNode, Role: apiv1.RolePrimary, Epoch: 1},
			Status:     apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttached, LUN: ptr.To(lun)}},
	} {
		m.must(m.direct.Create(m.t.Context(), o))
	}
}

func (m *machine) stageSecond(s *csinode.Server, capability *csi.VolumeCapability) error {
	m.t.Helper()
	_, err := s.NodeStageVolume(m.t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId:          secondID,
		StagingTargetPath: filepath.Join(m.dir, "2", "globalmount"),
		VolumeCapability:  capability,
	})
	return err
}

func TestTwoVolumesAreNotStagedWithOneDeviceAtOnce(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.publish(nil)
	m.publishSecond(host.Size)
	s := m.start()
	var err error
	host.OnCheck = func(string) error {
		host.OnCheck = nil
		err = m.stageSecond(s, mountCapability("ext4"))
		return nil
	}
	m.must(m.stage(s, mountCapability("ext4")))
	if code := status.Code(err); code != codes.Aborted {
		t.Errorf("stage of %s while the other call runs: got %v, want Aborted", second, err)
	}
}

func TestLaw2AMountIsTakenAwayWhenTheGrantHasChangedDuringACheck(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*apiv1.AzVolume, *apiv1.AzVolumeAttachment){
		"another LUN":  func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.LUN = ptr.To(lun + 1) },
		"not attached": func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentPending },
		"ownership being released": func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
			v.Status.Primary.State = apiv1.OwnershipReleasing
		},
		"of a later epoch": func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { v.Status.Primary.Epoch, a.Spec.Epoch = 2, 2 },
	} {
		t.Run(name, func(t *testing.T) {
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), quiet)
			m.publish(nil)
			host.OnCheck = func(string) error { m.change(edit); return nil }
			if err := m.stage(m.start(), mountCapability("ext4")); status.Code(err) != codes.Unavailable {
				t.Errorf("stage: %v, want Unavailable", err)
			}
			m.assertClean()
		})
	}
}

// A check takes longer than the kubelet waits. Until it ends, other calls fail with its progress
// and the report names the volume. The next call returns a failure of the check.
func TestACheckThatTakesLongerThanItsCall(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		result error
		next   codes.Code
	}{
		"and succeeds": {nil, codes.OK},
		"and leaves a decision open": {provisioner.Errorf(provisioner.FailedPrecondition, "a manual repair"),
			codes.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host := newMemoryHost()
				m := newMachine(t, host, t.TempDir(), quiet)
				m.publish(nil)
				s := m.start()
				host.OnCheck = func(string) error {
					host.OnCheck = nil
					time.Sleep(10 * time.Minute)
					return test.result
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				ended := make(chan error, 1)
				go func() {
					_, err := s.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
						VolumeId:          volumeID,
						StagingTargetPath: m.stagingPath(),
						VolumeCapability:  mountCapability("ext4"),
					})
					ended <- err
				}()
				time.Sleep(5 * time.Minute)
				if err := m.stage(s, mountCapability("ext4")); status.Code(err) != codes.Aborted ||
					!strings.Contains(err.Error(), "e2fsck of "+memoryDevice) {
					t.Errorf("stage during the check: got %v, want Aborted with the progress", err)
				}
				if m.entry() == nil {
					t.Error("the report does not name the volume while its filesystem is checked")
				}
				if err := <-ended; test.result != nil && err == nil {
					t.Error("the call succeeded, and the check failed")
				}
				if err := m.stage(s, mountCapability("ext4")); status.Code(err) != test.next {
					t.Errorf("the next call: %v, want %s", err, test.next)
				}
				m.must(m.stage(s, mountCapability("ext4")))
			})
		})
	}
}

func TestAnUnstageEndsACheck(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.publish(nil)
	s := m.start()
	stop := make(chan struct{})
	checking := make(chan struct{})
	host.OnStop = func(device string) {
		if device == memoryDevice {
			close(stop)
		}
	}
	host.OnCheck = func(string) error {
		close(checking)
		<-stop
		return provisioner.Errorf(provisioner.Unavailable, "it was stopped")
	}
	ended := make(chan error, 1)
	go func() { ended <- m.stage(s, mountCapability("ext4")) }()
	<-checking
	if err := m.unstage(s); status.Code(err) != codes.Aborted {
		t.Errorf("unstage during a check: %v, want Aborted", err)
	}
	if err := <-ended; err == nil {
		t.Error("the stage succeeded though the check was stopped")
	}
	m.must(m.unstage(s))
	m.assertClean()
}
