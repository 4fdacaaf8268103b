package controllerplugin

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
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
	for name, prepare := range map[string]func(*controlplane.ControlPlane, provisioner.Disk) error{
		"without an AzVolume": func(*controlplane.ControlPlane, provisioner.Disk) error { return nil },
		"adopted by an earlier call": func(p *controlplane.ControlPlane, disk provisioner.Disk) error {
			_, err := p.CSI.ControllerExpandVolume(context.Background(), &csi.ControllerExpandVolumeRequest{
				VolumeId: disk.ID, CapacityRange: &csi.CapacityRange{RequiredBytes: disk.SizeBytes},
			})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
				p.AddNode("fo-a", "1", size)
				p.AddNode("fo-b", "1", size)
				disk := v1Disk("fo-" + map[bool]string{true: "adopted", false: "unknown"}[name != "without an AzVolume"])
				attachAsV1(t, p, disk, "fo-a")
				must(t, prepare(p, disk))
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
		})
	}
}
