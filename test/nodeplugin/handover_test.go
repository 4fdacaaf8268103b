package nodeplugin

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

const (
	volumeID = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/pvc-1"
	lun      = int32(5)
)

// volume is the name of the AzVolume of volumeID.
var volume = apiv1.VolumeName("s", "rg", "pvc-1")

// publish does what ControllerPublishVolume does: the claim, and the attachment, which Azure has accepted.
func (m *machine) publish(epoch int64) (*apiv1.AzVolume, *apiv1.AzVolumeAttachment) {
	m.t.Helper()
	ctx := m.t.Context()
	v := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: volume},
		Spec: apiv1.AzVolumeSpec{
			Origin: apiv1.OriginProvisioned, Access: apiv1.AccessSingleNode, CapacityBytes: 1 << 30,
			Disk: apiv1.DiskParameters{SubscriptionID: "s", ResourceGroup: "rg", Name: "pvc-1", SKUName: "Premium_LRS", MaxShares: 1, CachingMode: "None"},
		},
	}
	a := &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: apiv1.AttachmentName(volume, nodeName)},
		Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: volume, NodeName: nodeName, Role: apiv1.RolePrimary, Epoch: epoch},
	}
	if err := m.api.Create(ctx, v); err != nil {
		m.t.Fatal(err)
	}
	if err := m.api.Create(ctx, a); err != nil {
		m.t.Fatal(err)
	}
	v.Status = apiv1.AzVolumeStatus{
		State: apiv1.VolumeCreated, DiskURI: volumeID, SizeBytes: 64 * hosttest.MiB,
		Primary: &apiv1.Ownership{NodeName: nodeName, Epoch: epoch, State: apiv1.OwnershipHeld},
	}
	a.Status.State = apiv1.AttachmentAttaching
	if err := m.api.Status().Update(ctx, v); err != nil {
		m.t.Fatal(err)
	}
	if err := m.api.Status().Update(ctx, a); err != nil {
		m.t.Fatal(err)
	}
	return v, a
}

func (m *machine) stagingPath() string {
	return filepath.Join(m.dir, "plugins/kubernetes.io/csi", driverName, "0123", "globalmount")
}

func (m *machine) stage(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := m.csi().NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: volumeID, StagingTargetPath: m.stagingPath(), VolumeCapability: capability(),
	}, grpc.WaitForReady(true))
	return err
}

func (m *machine) unstage(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := m.csi().NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: volumeID, StagingTargetPath: m.stagingPath()}, grpc.WaitForReady(true))
	return err
}

func capability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func TestThePluginStartsRegistersAndStops(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.register("")
	m.await("readiness", m.ready)
	m.await("the condition Ready", func() bool {
		return meta.IsStatusConditionTrue(m.report().Status.Conditions, apiv1.NodeConditionReady)
	})
	node := m.report()
	if want := (apiv1.AzDriverNodeSpec{VMID: vmID, VMSize: "Standard_D4s_v5", Location: "eastus", Zone: "2"}); node.Spec != want {
		t.Errorf("spec = %+v, want %+v", node.Spec, want)
	}
	if node.Status.MountsScannedTime == nil || node.Status.BootID == "" || node.Status.DriverVersion == "" {
		t.Errorf("status = %+v", node.Status)
	}
	m.await("a further heartbeat", func() bool { return m.report().Status.HeartbeatTime.After(node.Status.HeartbeatTime.Time) })
	if err := m.stop(syscall.SIGTERM); err != nil {
		t.Errorf("after SIGTERM: %v, want exit code 0", err)
	}
	for _, socket := range []string{m.socket(), m.registration()} {
		if _, err := os.Lstat(socket); !os.IsNotExist(err) {
			t.Errorf("%s is left over: %v", socket, err)
		}
	}
}

func TestARefusedRegistrationEndsTheProcess(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.register("the kubelet does not like it")
	if err := m.ended(); err == nil {
		t.Error("the exit code is 0")
	}
	raw, err := os.ReadFile(m.output.Name())
	if err != nil || !strings.Contains(string(raw), "the kubelet does not like it") {
		t.Errorf("the output does not say why: %v", err)
	}
}

func TestAVolumeSurvivesAKilledPlugin(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.register("")
	_, attachment := m.publish(1)
	disk, attach := m.newDisk(lun)
	staged := make(chan error, 1)
	go func() { staged <- m.stage(t.Context()) }()
	m.await("the announcement", func() bool { return m.entries() == volume+":1:Staging" })
	attachment.Status.State, attachment.Status.LUN = apiv1.AttachmentAttached, ptr.To(lun)
	if err := m.api.Status().Update(t.Context(), attachment); err != nil {
		t.Fatal(err)
	}
	attach()
	if err := <-staged; err != nil {
		t.Fatal(err)
	}
	if got := m.entries(); got != volume+":1:Staged" {
		t.Errorf("entries = %q", got)
	}
	if err := os.WriteFile(filepath.Join(m.stagingPath(), "file"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := m.report().Status.MountsScannedTime
	_ = m.stop(syscall.SIGKILL)
	m.start()
	m.await("the scan of the next process", func() bool { return m.report().Status.MountsScannedTime.After(before.Time) })
	if got := m.entries(); got != volume+":1:Staged" {
		t.Errorf("after the kill: entries = %q", got)
	}
	start := time.Now()
	if err := m.stage(t.Context()); err != nil {
		t.Errorf("stage again: %v", err)
	}
	if err := m.unstage(t.Context()); err != nil {
		t.Errorf("unstage: %v", err)
	}
	t.Logf("staging what is staged and unstaging took %s", time.Since(start))
	if got := m.entries(); got != "" {
		t.Errorf("after unstage: entries = %q", got)
	}
	moveOn(t, m)
	if content := disk.Content(t); !strings.Contains(string(content), "kept") {
		t.Error("what was written is not on the disk")
	}
	if err := m.stop(syscall.SIGTERM); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// moveOn stages once more on the attached disk, and then finds the claim gone.
func moveOn(t *testing.T, m *machine) {
	t.Helper()
	start := time.Now()
	if err := m.stage(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("staging an attached disk took %s", time.Since(start))
	if err := m.unstage(t.Context()); err != nil {
		t.Fatal(err)
	}
	var v apiv1.AzVolume
	if err := m.api.Get(t.Context(), client.ObjectKey{Namespace: m.namespace, Name: volume}, &v); err != nil {
		t.Fatal(err)
	}
	v.Status.Primary.State = apiv1.OwnershipReleasing
	if err := m.api.Status().Update(t.Context(), &v); err != nil {
		t.Fatal(err)
	}
	if err := m.stage(t.Context()); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("stage without the claim: %v, want FailedPrecondition", err)
	}
	if got := m.entries(); got != "" {
		t.Errorf("after the refusal: entries = %q", got)
	}
}
