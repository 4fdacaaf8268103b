package controllerplugin

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
	p := controlplane.New(t, controlplane.Options{})
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
}

func TestAPublishToANodeThatIsToLoseItsShareWaitsForTheOutcome(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{})
	p.AddNode("mf-a", "1", size)
	p.AddNode("mf-b", "1", size)
	handle := sharedVolume(t, p, "mf-a", "mf-b")
	// The failover has decided, and was killed before it deleted the attachment.
	decided := func(finalizers ...string) {
		t.Helper()
		a := p.Attachment("vol", "mf-a")
		a.Finalizers = append([]string{apiv1.Finalizer}, finalizers...)
		must(t, p.Client.Update(t.Context(), a))
	}
	decided(apiv1.FinalizerFenced)
	p.Eventually("the publish waits", func() string {
		err := publishShared(t, p, handle, "mf-a", time.Second)
		if status.Code(err) != codes.Aborted {
			return fmt.Sprint(err)
		}
		return ""
	})
	must(t, publishShared(t, p, handle, "mf-b", time.Minute))
	// The node spoke in time.
	decided()
	p.Eventually("published", func() string {
		if err := publishShared(t, p, handle, "mf-a", time.Second); err != nil {
			return err.Error()
		}
		return ""
	})
}

func TestLaw3ANodeOfSeveralKeepsTheDiskUntilItHasReleasedIt(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{})
	p.AddNode("mk-a", "1", size)
	p.AddNode("mk-b", "1", size)
	handle := sharedVolume(t, p, "mk-a", "mk-b")
	must(t, p.Stage("vol", "mk-a"))
	expectWaiting(t, p, codes.Aborted, func(ctx context.Context) error { return p.Unpublish(ctx, handle, "mk-a") })
	// A publish now is too late: the report may be read at any moment.
	if err := p.Stage("vol", "mk-a"); err == nil {
		t.Fatal("law 2: a node staged a volume that is being unpublished there")
	}
	expectCode(t, publishShared(t, p, handle, "mk-a", time.Second), codes.Aborted)
	if got := attachedTo(p, "vol", "mk-a", "mk-b")(); got != "" {
		t.Fatalf("law 3: %s", got)
	}
	p.Unstage("vol", "mk-a")
	must(t, publishShared(t, p, handle, "mk-a", time.Minute))
	p.AwaitStaged("vol", "mk-a")
}

func TestLaw3ANodeThatIsAnotherVMNowDoesNotSpeakForTheOld(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{})
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
	if proof := p.Volume("vol").Status.LastRelease.Proof; proof.Kind != apiv1.ProofDetached {
		t.Fatalf("proof %+v", proof)
	}
	must(t, p.Publish(t.Context(), handle, "vm-b"))
}
