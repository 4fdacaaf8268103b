package controllerplugin

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// setPause writes the annotation of an AzVolume, or removes it, and waits until the driver has seen it.
func setPause(p *controlplane.ControlPlane, disk string, paused bool) {
	p.Eventually("the pause is written", func() string {
		v := p.Volume(disk)
		before := v.DeepCopy()
		if v.Annotations = map[string]string{apiv1.AnnotationPaused: apiv1.PausedTrue}; !paused {
			v.Annotations = nil
		}
		if err := p.Client.Patch(context.Background(), v, client.MergeFrom(before)); err != nil {
			return err.Error()
		}
		return ""
	})
	p.Eventually("the condition Paused", func() string {
		if c := p.Volume(disk).Status.Conditions; meta.IsStatusConditionTrue(c, apiv1.VolumeConditionPaused) != paused {
			return "is not as it should be"
		}
		return ""
	})
}

// callsFor are the calls about a disk.
func callsFor(p *controlplane.ControlPlane, handle string) (calls []fake.Call) {
	return slices.DeleteFunc(p.Cloud.Calls(), func(c fake.Call) bool {
		return !strings.EqualFold(c.ID, handle) && !strings.EqualFold(c.DiskID, handle)
	})
}

func TestAPausedVolumeIsHandedOverAndAzureIsAskedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		handle := p.CreateReplicated("ps-a", "ps-b")
		p.AddNode("ps-c", "1", size)
		p.Eventually("the use is confirmed", func() string { return unless(p.Volume("vol").Status.ConfirmedUID != "") })
		setPause(p, "vol", true)
		before := callsFor(p, handle)

		p.Unstage("vol", "ps-a")
		must(t, p.Unpublish(t.Context(), handle, "ps-a"))
		expectCode(t, p.Publish(t.Context(), handle, "ps-c"), codes.Unavailable, "VolumePaused: ", "has the annotation")
		must(t, p.Publish(t.Context(), handle, "ps-b"))
		must(t, p.Stage("vol", "ps-b"))
		if o := p.Volume("vol").Status.Primary; o.NodeName != "ps-b" || o.Epoch != 2 {
			t.Errorf("got ownership %+v, want node ps-b to have it under epoch 2", o)
		}
		_, err := expand(t.Context(), p, handle, 64<<30)
		expectCode(t, err, codes.Unavailable, "VolumePaused: ")
		_, err = p.CSI.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: handle})
		expectCode(t, err, codes.Unavailable, "VolumePaused: ")
		_, err = p.CSI.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{
			VolumeId: handle, MutableParameters: map[string]string{"skuName": "StandardSSD_LRS"},
		})
		expectCode(t, err, codes.Unavailable, "VolumePaused: ")
		_, err = p.CSI.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: handle})
		must(t, err)
		_, err = p.CSI.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: handle})
		must(t, err)

		p.Unstage("vol", "ps-b")
		must(t, p.Unpublish(t.Context(), handle, "ps-b"))
		tag(t, p)
		time.Sleep(time.Hour) // which is longer than the clean-up delay, and is over at once
		_, err = p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
		expectCode(t, err, codes.Unavailable, "VolumePaused: ")
		p.Stop()
		p.Start() // a new process begins nothing either
		must(t, p.Publish(t.Context(), handle, "ps-a"))
		if calls := callsFor(p, handle); len(calls) != len(before) {
			t.Errorf("got calls %+v during the pause, want none", calls[len(before):])
		}

		setPause(p, "vol", false)
		p.AwaitStaged("vol", "ps-a")
		p.Eventually("the tags are changed", func() string {
			return unless(p.Cloud.State().Disks[0].Tags["team"] == "shop")
		})
		p.Unstage("vol", "ps-a")
		must(t, p.Unpublish(t.Context(), handle, "ps-a"))
		must(t, p.Publish(t.Context(), handle, "ps-c"))
	})
}

func unless(is bool) string {
	if is {
		return ""
	}
	return "not yet"
}

// tag asks for a tag as a follower of labels does.
func tag(t *testing.T, p *controlplane.ControlPlane) {
	t.Helper()
	v := p.Volume("vol")
	before := v.DeepCopy()
	if v.Spec.Disk.Tags == nil {
		v.Spec.Disk.Tags = map[string]string{}
	}
	v.Spec.Disk.Tags["team"] = "shop"
	must(t, p.Client.Patch(t.Context(), v, client.MergeFrom(before)))
}
