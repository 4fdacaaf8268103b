package controllerplugin

import (
	"context"
	"fmt"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// attachAsV1 attaches a disk as the V1 driver does, without custom resources.
func attachAsV1(t *testing.T, p *controlplane.ControlPlane, disk provisioner.Disk, node string) {
	t.Helper()
	p.Cloud.AddDisk(disk)
	operation, err := p.Cloud.Attachments().Attach(t.Context(), provisioner.AttachRequest{
		VMID:        controlplane.VMID(node),
		DiskID:      disk.ID,
		CachingMode: "ReadOnly",
	})
	must(t, err)
	must(t, operation.Wait(t.Context()))
}

func TestUnpublishDetachesAVolumeThatV1Published(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{Quiet: true})
	p.AddNode("fo-a", "1", size)
	p.AddNode("fo-b", "1", size)
	for name, prepare := range map[string]func(*testing.T, provisioner.Disk){
		"without an AzVolume": func(*testing.T, provisioner.Disk) {},
		"adopted by an earlier call": func(t *testing.T, disk provisioner.Disk) {
			_, err := p.CSI.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
				VolumeId: disk.ID, CapacityRange: &csi.CapacityRange{RequiredBytes: disk.SizeBytes},
			})
			must(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk := v1Disk("fo-" + map[bool]string{true: "adopted", false: "unknown"}[name != "without an AzVolume"])
			attachAsV1(t, p, disk, "fo-a")
			prepare(t, disk)
			must(t, p.Unpublish(t.Context(), disk.ID, "fo-b")) // the disk was never attached to this node
			if _, still := p.Cloud.AttachedAs(controlplane.VMID("fo-a"), disk.ID); !still {
				t.Fatal("unpublish from another node: got the disk detached, want it still attached to node fo-a")
			}
			must(t, p.Unpublish(t.Context(), disk.ID, "fo-a"))
			if _, still := p.Cloud.AttachedAs(controlplane.VMID("fo-a"), disk.ID); still {
				t.Error("unpublish: got the disk still attached, want it detached")
			}
			must(t, p.PublishWith(t.Context(), disk.ID, "fo-b", controlplane.Mounted(), nil))
		})
	}
}

func TestUnpublishDoesNotAdoptAVolumeThatIsAttachedNowhere(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{Quiet: true})
	p.AddNode("fn-a", "1", size)
	disk := v1Disk("fn-idle")
	p.Cloud.AddDisk(disk)
	must(t, p.Unpublish(t.Context(), disk.ID, "fn-a"))
	must(t, p.Unpublish(t.Context(), controlplane.DiskID("fn-gone"), "fn-a"))
	if v := p.Volume("fn-idle"); v != nil {
		t.Errorf("unpublish of a disk that is attached nowhere: got AzVolume %+v, want none", v)
	}
}

func TestUnpublishRemovesThePrimaryAttachmentOfALostAzVolume(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{Quiet: true})
	p.AddNode("fl-a", "1", size)
	disk := v1Disk("fl-lost")
	p.Cloud.AddDisk(disk)
	handle, err := volumehandle.Parse(disk.ID)
	must(t, err)
	volume := handle.VolumeName()
	a := &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  p.Namespace,
			Name:       apiv1.AttachmentName(volume, "fl-a"),
			Finalizers: []string{apiv1.Finalizer},
		},
		Spec: apiv1.AzVolumeAttachmentSpec{VolumeName: volume, NodeName: "fl-a", Role: apiv1.RolePrimary, Epoch: 1},
	}
	must(t, p.Client.Create(t.Context(), a))
	p.Eventually("unpublished", func() string {
		// The attachment reconciler writes the attachment, too. If both write at the same time, the
		// call is Aborted, and the caller repeats it.
		if err := p.Unpublish(t.Context(), disk.ID, "fl-a"); err != nil {
			if status.Code(err) != codes.Aborted {
				t.Fatal(err)
			}
			return err.Error()
		}
		return ""
	})
	if err := p.Client.Get(t.Context(), client.ObjectKeyFromObject(a), a); !apierrors.IsNotFound(err) {
		t.Errorf("got attachment %s, error %v; want no attachment", a.Name, err)
	}
}

func TestUnpublishOfAVolumeOfV1WaitsUntilTheVMOfTheNodeIsKnown(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{Quiet: true})
	p.AddNode("fp-a", "1", size)
	disk := v1Disk("fp-early")
	attachAsV1(t, p, disk, "fp-a")
	must(t, p.Client.Delete(t.Context(), &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace,
		Name:      "fp-a",
	}}))
	expectCode(t, p.Unpublish(t.Context(), disk.ID, "fp-a"), codes.Aborted)
	must(t, p.Client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "fp-a"}}))
	must(t, p.Unpublish(t.Context(), disk.ID, "fp-a"))
}

func TestUnpublishOfALostAzVolumeReadsTheVMOfTheAttachment(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{Quiet: true})
	p.AddNode("fv-a", "1", size)
	disk := v1Disk("fv-lost")
	attachAsV1(t, p, disk, "fv-a")
	handle, err := volumehandle.Parse(disk.ID)
	must(t, err)
	volume := handle.VolumeName()
	a := &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  p.Namespace,
			Name:       apiv1.AttachmentName(volume, "fv-a"),
			Finalizers: []string{apiv1.Finalizer},
		},
		Spec: apiv1.AzVolumeAttachmentSpec{VolumeName: volume, NodeName: "fv-a", Role: apiv1.RoleReplica},
	}
	must(t, p.Client.Create(t.Context(), a))
	before := a.DeepCopy()
	a.Status = apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttached, VMID: controlplane.VMID("fv-a"), UID: a.UID}
	must(t, p.Client.Status().Patch(t.Context(), a, client.MergeFrom(before)))
	must(t, p.Client.Delete(t.Context(), &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace,
		Name:      "fv-a",
	}}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Unpublish(ctx, disk.ID, "fv-a") }()
	p.Eventually("the AzVolume is adopted, and node fv-a owns it until it is fenced", func() string {
		if v := p.Volume("fv-lost"); v == nil || v.Status.Primary == nil || v.Status.Primary.NodeName != "fv-a" {
			return fmt.Sprintf("%+v", v)
		}
		return ""
	})
	cancel()
	<-ended
}
