package controllerplugin

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// sharedVolume is a raw block volume that both nodes have.
func sharedVolume(t *testing.T, p *controlplane.ControlPlane, nodes ...string) (handle string) {
	t.Helper()
	request := controlplane.CreateRequest("vol", replicated)
	request.VolumeCapabilities = []*csi.VolumeCapability{controlplane.Shared()}
	response, err := p.CSI.CreateVolume(t.Context(), request)
	must(t, err)
	handle = response.GetVolume().GetVolumeId()
	for _, node := range nodes {
		must(t, publishShared(t, p, handle, node, time.Minute))
	}
	p.Eventually("attached", attachedTo(p, "vol", nodes...))
	return handle
}

func publishShared(t *testing.T, p *controlplane.ControlPlane, handle, node string, patience time.Duration) error {
	t.Helper()
	_, err := p.CSI.ControllerPublishVolume(shortly(t, patience), &csi.ControllerPublishVolumeRequest{
		VolumeId:         handle,
		NodeId:           node,
		VolumeCapability: controlplane.Shared(),
	})
	return err
}

func TestMultiNodeVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		p.AddNode("mn-a", "1", size)
		p.AddNode("mn-b", "1", size)
		handle := sharedVolume(t, p, "mn-a", "mn-b")
		_, err := p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
		expectCode(t, err, codes.FailedPrecondition)
		must(t, p.Unpublish(t.Context(), handle, "mn-a"))
		p.Eventually("one", attachedTo(p, "vol", "mn-b"))
		must(t, publishShared(t, p, handle, "mn-a", time.Minute))
		p.Eventually("both again", attachedTo(p, "vol", "mn-a", "mn-b"))
		must(t, p.Unpublish(t.Context(), handle, ""))
		p.Eventually("none", attachedTo(p, "vol"))
		_, err = p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
		must(t, err)
	})
}

func TestLaw3ANodeThatIsAnotherVMNowDoesNotSpeakForTheOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		for _, n := range []string{"vm-a", "vm-b", "vm-new"} {
			p.AddNode(n, "1", size)
		}
		handle := p.Create("vol", replicated)
		p.StageOn(handle, "vol", "vm-a")
		// The VM runs on without its node, whose name another one has got: that one has nothing
		// mounted, and says so.
		d := &apiv1.AzDriverNode{}
		must(t, p.Client.Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: "vm-a"}, d))
		d.Spec.VMID = controlplane.VMID("vm-new")
		must(t, p.Client.Update(t.Context(), d))
		p.Unstage("vol", "vm-a")
		if err := p.Stage("vol", "vm-a"); err == nil {
			t.Fatal("law 2: staged at the LUN of another VM")
		}
		must(t, p.Unpublish(t.Context(), handle, "vm-a"))
		if n := p.Cloud.CallCount(fake.AttachmentsForceDetach); n != 1 {
			t.Fatalf("law 3: %d forced detaches", n)
		}
		if proof := p.Volume("vol").Status.LastRelease.Proof; proof.Type != apiv1.ProofDetached {
			t.Fatalf("proof %+v", proof)
		}
		must(t, p.Publish(t.Context(), handle, "vm-b"))
	})
}
