package controllerplugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// list returns all volumes, with the nodes to which they are published, by ID.
func list(t *testing.T, p *controlplane.ControlPlane) map[string][]string {
	t.Helper()
	response, err := p.CSI.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	must(t, err)
	found := map[string][]string{}
	for _, e := range response.GetEntries() {
		found[e.GetVolume().GetVolumeId()] = e.GetStatus().GetPublishedNodeIds()
	}
	return found
}

// published waits until ListVolumes and ControllerGetVolume say that a volume is published to
// nodes.
func published(t *testing.T, p *controlplane.ControlPlane, handle string, nodes ...string) {
	t.Helper()
	p.Eventually(fmt.Sprintf("%s is published to %v", handle, nodes), func() string {
		all := list(t, p)
		if got, ok := all[handle]; !ok || !slices.Equal(got, nodes) {
			return fmt.Sprintf("the list says %v", all)
		}
		return ""
	})
	got, err := p.CSI.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: handle})
	must(t, err)
	if !slices.Equal(got.GetStatus().GetPublishedNodeIds(), nodes) {
		t.Errorf("ControllerGetVolume says %v, want %v", got.GetStatus().GetPublishedNodeIds(), nodes)
	}
}

func TestListVolumesFollowsAVolumeThroughItsMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		p.AddNode("li-a", "1", size)
		p.AddNode("li-b", "1", size)
		handle := p.Create("vol", replicated)
		published(t, p, handle)
		must(t, p.Publish(t.Context(), handle, "li-a"))
		p.StageOn(handle, "vol", "li-a")
		p.AwaitReplica("vol", "li-b")
		published(t, p, handle, "li-a") // and not where the replica is

		// While the node has not released the volume, it is still published there.
		expectWaiting(t, p, codes.Aborted, func(ctx context.Context) error { return p.Unpublish(ctx, handle, "li-a") })
		published(t, p, handle, "li-a")
		p.Unstage("vol", "li-a")
		must(t, p.Unpublish(t.Context(), handle, "li-a"))
		published(t, p, handle)
		must(t, p.Publish(t.Context(), handle, "li-b"))
		published(t, p, handle, "li-b")
	})
}

func TestListVolumesOfASharedDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		request := controlplane.CreateRequest("vol", map[string]string{"skuName": "Premium_LRS", "maxShares": "2"})
		request.VolumeCapabilities = []*csi.VolumeCapability{controlplane.Shared()}
		created, err := p.CSI.CreateVolume(t.Context(), request)
		must(t, err)
		handle := created.GetVolume().GetVolumeId()
		for _, node := range []string{"ls-a", "ls-b"} {
			p.AddNode(node, "1", size)
			_, err := p.CSI.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{
				VolumeId:         handle,
				NodeId:           node,
				VolumeCapability: controlplane.Shared(),
			})
			must(t, err)
		}
		published(t, p, handle, "ls-a", "ls-b")
		must(t, p.Unpublish(t.Context(), handle, "ls-a"))
		published(t, p, handle, "ls-b")
	})
}

func TestListVolumesHasWhatIsNotAdoptedYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		p.AddNode("ln-a", "2", size)
		p.Cloud.AddDisk(provisioner.Disk{
			ID:           controlplane.DiskID("v1-" + p.Namespace),
			Location:     region,
			Zone:         "2",
			SizeBytes:    10 * gib,
			AttachedTo:   []string{strings.ToUpper(controlplane.VMID("ln-a"))},
			DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
		})
		// V1 wrote the handle in its own way; the attacher looks for it to the letter.
		handle := strings.Replace(controlplane.DiskID("v1-"+p.Namespace), "/resourceGroups/rg/", "/resourceGroups/RG/", 1)
		gone := controlplane.DiskID("gone-" + p.Namespace)
		for name, id := range map[string]string{"list-v1-": handle, "list-gone-": gone, "list-other-": "csi-other-handle"} {
			pv := controlplane.NewPersistentVolume(name+p.Namespace, id)
			p.AddPersistentVolume(pv)
		}
		p.Eventually("both are listed", func() string {
			all := list(t, p)
			if nodes, ok := all[handle]; !ok || !slices.Equal(nodes, []string{"ln-a"}) {
				return fmt.Sprint(all)
			}
			if nodes, ok := all[gone]; !ok || len(nodes) != 0 {
				return fmt.Sprint(all)
			}
			if _, ok := all["csi-other-handle"]; ok {
				return "a handle that is none is listed"
			}
			return ""
		})
		for range 5 {
			list(t, p)
		}
		if n := p.Cloud.CallCount(fake.DisksList); n != 1 {
			t.Errorf("%d lists at Azure, want 1 for many of ours", n)
		}
		// With the first publish it is adopted; the ID stays.
		must(t, p.Publish(t.Context(), handle, "ln-a"))
		published(t, p, handle, "ln-a")
		if all := list(t, p); len(all[controlplane.DiskID("v1-"+p.Namespace)]) != 0 {
			t.Errorf("the disk is listed twice: %v", all)
		}
		// What may not be read is listed without its nodes, and what cannot be read now is no list.
		p.Stop()
		p.Start()
		remove := p.Cloud.Inject(fake.Fault{Method: fake.DisksList, Err: provisioner.Errorf(provisioner.Unavailable, "out")})
		_, err := p.CSI.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
		expectCode(t, err, codes.Unavailable)
		remove()
		p.Cloud.Inject(fake.Fault{Method: fake.DisksList, Err: provisioner.Errorf(provisioner.Unauthorized, "no")})
		if _, ok := list(t, p)[gone]; !ok {
			t.Error("a volume whose disk may not be read is not listed")
		}
	})
}

func TestListVolumesHasWhatAPodNamesItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		p.AddNode("lp-a", "1", size)
		p.Cloud.AddDisk(provisioner.Disk{
			ID:           strings.ToUpper(controlplane.DiskID("inline")),
			Location:     region,
			Zone:         "1",
			SizeBytes:    gib,
			DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
		})
		handle := controlplane.DiskID("inline")
		must(t, p.Publish(t.Context(), handle, "lp-a"))
		published(t, p, handle, "lp-a")
	})
}

func TestControllerGetVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		handle := p.Create("vol", replicated)
		p.Cloud.AddDisk(provisioner.Disk{
			ID:           controlplane.DiskID("stray"),
			Location:     region,
			Zone:         "3",
			SizeBytes:    20 * gib,
			DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
		})
		get := func(id string) (*csi.ControllerGetVolumeResponse, error) {
			return p.CSI.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: id})
		}
		got, err := get(handle)
		if err != nil || got.GetVolume().GetVolumeId() != handle || got.GetVolume().GetCapacityBytes() != 10*gib ||
			accessibleFrom(got.GetVolume())[0] != region+"-1" {
			t.Errorf("%v, %v", got, err)
		}
		if got, err = get(controlplane.DiskID("stray")); err != nil || got.GetVolume().GetCapacityBytes() != 20*gib ||
			accessibleFrom(got.GetVolume())[0] != region+"-3" {
			t.Errorf("a disk that is not adopted: %v, %v", got, err)
		}
		for id, code := range map[string]codes.Code{
			"":                             codes.InvalidArgument,
			"no-handle":                    codes.NotFound,
			controlplane.DiskID("missing"): codes.NotFound,
		} {
			_, err := get(id)
			expectCode(t, err, code)
		}
		p.Cloud.FailNext(fake.DisksGet, 1, provisioner.Errorf(provisioner.Unavailable, "out"))
		_, err = get(handle)
		expectCode(t, err, codes.Unavailable)
	})
}

func TestTheHealthOfAVolumeWhoseDiskIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		for _, name := range []string{"well", "robbed"} {
			p.Create(name, nil)
		}
		unwell := func() []*csi.VolumeHealth {
			t.Helper()
			response, err := p.CSI.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{})
			must(t, err)
			return response.GetEntries()
		}
		if got := unwell(); len(got) != 0 {
			t.Fatalf("two volumes that are well: %v", got)
		}
		op, err := p.Cloud.Disks().Delete(t.Context(), controlplane.DiskID("robbed")) // behind the driver's back
		must(t, err)
		must(t, op.Wait(t.Context()))
		p.Stop() // what it read from Azure is lost with the process
		p.Start()
		p.Eventually("the loss is told", func() string {
			got := unwell()
			if len(got) != 1 || got[0].GetVolumeId() != controlplane.DiskID("robbed") ||
				got[0].GetHealthStatuses()[0].GetStatus() != csi.VolumeHealthErrorType_DATA_LOSS {
				return fmt.Sprint(got)
			}
			return ""
		})
		if n := p.Cloud.CallCount(fake.DisksList); n > 2 {
			t.Errorf("%d lists at Azure", n)
		}
		got, err := p.CSI.ControllerGetVolumeHealth(t.Context(),
			&csi.ControllerGetVolumeHealthRequest{VolumeId: controlplane.DiskID("robbed")})
		if err != nil || len(got.GetVolumeHealth().GetHealthStatuses()) != 1 {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func TestListVolumesAfterAFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		p.AddNode("lf-a", "1", size)
		handle := p.Create("vol", map[string]string{"maxShares": "1"})
		v := p.Volume("vol")
		before := v.DeepCopy()
		now := metav1.Now()
		v.Status.Primary = &apiv1.Ownership{Epoch: 1, State: apiv1.OwnershipReleased, LastTransitionTime: &now}
		v.Status.LastReleasedTime = &now
		v.Status.LastRelease = &apiv1.ReleaseRecord{
			NodeName: "lf-a",
			Cause:    apiv1.CauseNodeLost,
			Proof:    apiv1.ReleaseProof{Type: apiv1.ProofDetached, Epoch: 1, ProvenTime: now},
		}
		must(t, p.Client.Status().Patch(t.Context(), v, client.MergeFrom(before)))
		reachable := func(status metav1.ConditionStatus, reason string) {
			p.Report("lf-a", func(s *apiv1.AzDriverNodeStatus) {
				s.Conditions = []metav1.Condition{{
					Type:               apiv1.NodeConditionReachable,
					Status:             status,
					Reason:             reason,
					LastTransitionTime: metav1.Now(),
				}}
			})
		}
		reachable(metav1.ConditionFalse, apiv1.ReasonNodeLost)
		published(t, p, handle, "lf-a")
		reachable(metav1.ConditionTrue, apiv1.ReasonHeartbeatFresh)
		published(t, p, handle)
	})
}
