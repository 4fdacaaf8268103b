package controllerplugin

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// Azure deletes a disk that is being attached, and the VM keeps a disk that does not exist
// (kubernetes/kubernetes#82714).
func TestDeleteVolumeWaitsForTheAttachThatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t,
			controlplane.Options{Latency: fake.Latency{Attach: time.Second, Detach: 50 * time.Millisecond}})
		p.AddNode("dl-a", "1", size)
		p.AddNode("dl-b", "1", size)
		handle := p.Create("vol", map[string]string{"skuName": "Premium_LRS", "maxShares": "2"})
		must(t, p.Publish(t.Context(), handle, "dl-a"))
		p.Eventually("the primary is attached", func() string {
			if a := p.Attachment("vol", "dl-a"); a.Status.State != apiv1.AttachmentAttached {
				return string(a.Status.State)
			}
			return ""
		})
		p.Eventually("Azure has accepted the attach of the replica", func() string {
			a := p.Attachment("vol", "dl-b")
			if a == nil || a.Status.State != apiv1.AttachmentAttaching {
				return "not yet"
			}
			return ""
		})
		must(t, p.Unpublish(t.Context(), handle, "dl-a"))
		if a := p.Attachment("vol", "dl-b"); a == nil || a.Status.State != apiv1.AttachmentAttaching {
			t.Fatalf("the replica is %+v, want one that is being attached", a)
		}
		_, err := p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
		must(t, err)
		state := p.Cloud.State()
		if len(state.Disks) != 0 {
			t.Errorf("disks after DeleteVolume: %v, want none", state.Disks)
		}
		for _, vm := range state.Instances {
			if len(vm.DataDisks) != 0 {
				t.Errorf("VM %s has %v, want no disks: the disk was deleted during its attach", vm.Name, vm.DataDisks)
			}
		}
	})
}
