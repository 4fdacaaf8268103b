package handover_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/api/meta"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// retained makes a PersistentVolume for a disk that is to be retained, and returns how it is deleted.
func retained(t *testing.T, p *controlplane.ControlPlane, handle string) (remove func()) {
	t.Helper()
	pv := newPersistentVolume("retain-"+p.Namespace, handle)
	must(t, p.Client.Create(t.Context(), pv))
	remove = func() { removePersistentVolume(t, p, pv) }
	t.Cleanup(remove)
	return remove
}

func awaitForgotten(t *testing.T, p *controlplane.ControlPlane, volume string) {
	t.Helper()
	p.Eventually("the record is gone", func() string {
		if v := p.Volume(volume); v != nil {
			return "it is " + string(v.Status.State)
		}
		return ""
	})
}

// held says that the deletion of a volume is held back, or what is the case instead.
func held(v *apiv1.AzVolume) string {
	c := meta.FindStatusCondition(v.Status.Conditions, disk.ConditionReady)
	if v.DeletionTimestamp == nil || v.Status.Primary.State != apiv1.OwnershipReleased || c == nil || c.Reason != disk.ReasonDeletionHeld || !strings.Contains(c.Message, "Retain") {
		return fmt.Sprintf("deletion %v, claim %+v, condition %+v", v.DeletionTimestamp, *v.Status.Primary, c)
	}
	return ""
}

func diskThere(t *testing.T, p *controlplane.ControlPlane, handle string) bool {
	t.Helper()
	_, err := p.Cloud.Disks().Get(t.Context(), handle)
	if err != nil && !errors.Is(err, provisioner.NotFound) {
		t.Fatal(err)
	}
	return err == nil
}

func TestARetainedDiskOutlivesItsPersistentVolume(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{})
	p.AddNode("rt-a", "1", size)
	p.AddNode("rt-b", "1", size)
	handle := p.Create("vol", replicated)
	removePV := retained(t, p, handle)
	stageOn(t, p, handle, "vol", "rt-a")
	awaitReplica(t, p, "vol", "rt-b")
	p.Eventually("the volume knows its PersistentVolume", func() string {
		if name := p.Volume("vol").Status.PersistentVolume; name != "retain-"+p.Namespace {
			return name
		}
		return ""
	})

	// An AzVolume that a user deletes remains as long as it is used or belongs to a PersistentVolume, and its disk remains after it.
	must(t, p.Client.Delete(t.Context(), p.Volume("vol")))
	p.Unstage("vol", "rt-a")
	must(t, p.Unpublish(t.Context(), handle, "rt-a"))
	p.Eventually("the deletion is held", func() string {
		v := p.Volume("vol")
		if v == nil {
			t.Fatal("it is gone")
		}
		return held(v)
	})
	removePV()
	awaitForgotten(t, p, "vol")
	if !diskThere(t, p, handle) {
		t.Fatal("the disk was deleted")
	}
	if on := p.AttachedTo("vol"); len(on) != 0 {
		t.Errorf("the disk is still attached to %v", on)
	}

	// It can be used again.
	removePV = retained(t, p, handle)
	must(t, p.Publish(t.Context(), handle, "rt-b"))
	must(t, p.Unpublish(t.Context(), handle, "rt-b"))
	p.Eventually("the adopted volume knows its PersistentVolume", func() string {
		if name := p.Volume("vol").Status.PersistentVolume; name == "" {
			return "it does not"
		}
		return ""
	})
	// Without a deletion by a user, too, the AzVolume is deleted after its PersistentVolume.
	removePV()
	awaitForgotten(t, p, "vol")
	if !diskThere(t, p, handle) {
		t.Fatal("the disk was deleted")
	}
	// DeleteVolume deletes the disk, although no object names it any more.
	_, err := p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
	must(t, err)
	if diskThere(t, p, handle) {
		t.Error("the disk is there after DeleteVolume")
	}
}

func TestADeletedRecordTakesNoDiskWithIt(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{})
	handle := p.Create("vol", replicated)
	must(t, p.Client.Delete(t.Context(), p.Volume("vol")))
	awaitForgotten(t, p, "vol")
	if !diskThere(t, p, handle) {
		t.Fatal("the disk was deleted")
	}
	// What CSI was asked for when the controller stopped, and a node then used, is not done after all.
	handle = p.Create("half", replicated)
	p.AddNode("rt-c", "1", size)
	v := p.Volume("half")
	v.Spec.DeleteDisk = true
	must(t, p.Client.Update(t.Context(), v))
	must(t, p.Publish(t.Context(), handle, "rt-c"))
	p.Eventually("the deletion is cancelled", func() string {
		if p.Volume("half").Spec.DeleteDisk {
			return "not yet"
		}
		return ""
	})
}
