// Package controllerplugin runs the whole controller plug-in in virtual time, over an API server and a
// platform in memory, and checks the hand-over protocol and the laws from the outside.
package controllerplugin

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/container-storage-interface/spec/lib/go/csi"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

const size = "Standard_D4s_v5"

var replicated = map[string]string{"skuName": "Premium_LRS", "maxShares": "2"}

var must, expectCode = expect.Must, expect.Code

func TestVolumeMovesToItsReplicaWithoutAzure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		p.AddNode("mv-a", "1", size)
		p.AddNode("mv-b", "1", size)
		handle := p.Create("vol", replicated)
		if handle != controlplane.DiskID("vol") {
			t.Fatalf("handle %s", handle)
		}
		must(t, p.Publish(t.Context(), handle, "mv-a"))
		p.AwaitStaged("vol", "mv-a")
		p.AwaitReplica("vol", "mv-b")
		p.Eventually("filesystem is recorded", func() string {
			if f := p.Volume("vol").Status.Filesystem; f == nil || f.UUID != "uuid-vol" {
				return fmt.Sprint(f)
			}
			return ""
		})
		expectCode(t, p.Publish(t.Context(), handle, "mv-b"), codes.FailedPrecondition)

		attaches, detaches := p.Cloud.CallCount(fake.AttachmentsAttach), p.Cloud.CallCount(fake.AttachmentsDetach)
		p.Unstage("vol", "mv-a")
		start := time.Now()
		must(t, p.Unpublish(t.Context(), handle, "mv-a"))
		released := time.Now()
		must(t, p.Publish(t.Context(), handle, "mv-b"))
		t.Logf("unpublish %s, publish %s", released.Sub(start), time.Since(released))
		if err := p.Stage("vol", "mv-b"); err != nil {
			t.Fatal(err)
		}
		if a := p.Attachment("vol", "mv-a"); a.Spec.Role != apiv1.RoleReplica || a.Status.Proof == nil ||
			a.Status.Proof.Type != apiv1.ProofUnstaged || a.Status.Proof.Epoch != 1 {
			t.Fatalf("the old primary is %+v", a)
		}
		if c := p.Volume("vol").Status.Primary; c.NodeName != "mv-b" || c.Epoch != 2 {
			t.Fatalf("claim %+v", c)
		}
		got := p.Cloud.CallCount(fake.AttachmentsAttach) + p.Cloud.CallCount(fake.AttachmentsDetach)
		if got != attaches+detaches {
			t.Fatalf("%d calls to Azure on the path of the move", got-attaches-detaches)
		}
		_, err := p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
		expectCode(t, err, codes.FailedPrecondition)
		p.Unstage("vol", "mv-b")
		must(t, p.Unpublish(t.Context(), handle, "mv-b"))
		must(t, p.Unpublish(t.Context(), handle, "mv-b"))
		_, err = p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
		must(t, err)
		if len(p.Attachments("vol")) != 0 || p.Volume("vol") != nil || len(p.Cloud.State().Disks) != 0 {
			t.Fatal("something is left over")
		}
	})
}
