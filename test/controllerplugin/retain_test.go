package controllerplugin

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

func awaitForgotten(t *testing.T, p *controlplane.ControlPlane, volume string) {
	t.Helper()
	p.Eventually("the record is gone", func() string {
		if v := p.Volume(volume); v != nil {
			return "it is " + string(v.Status.State)
		}
		return ""
	})
}

func diskThere(t *testing.T, p *controlplane.ControlPlane, handle string) bool {
	t.Helper()
	_, err := p.Cloud.Disks().Get(t.Context(), handle)
	if err != nil && !errors.Is(err, provisioner.NotFound) {
		t.Fatal(err)
	}
	return err == nil
}

func TestADeletedRecordTakesNoDiskWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		handle := p.Create("vol", replicated)
		must(t, p.Client.Delete(t.Context(), p.Volume("vol")))
		awaitForgotten(t, p, "vol")
		if !diskThere(t, p, handle) {
			t.Fatal("the disk was deleted")
		}
		// What CSI was asked for when the controller stopped, and a node then used, is not done after
		// all.
		handle = p.Create("half", replicated)
		p.AddNode("rt-c", "1", size)
		v := p.Volume("half")
		v.Spec.DeletionPolicy = apiv1.DeletionDelete
		must(t, p.Client.Update(t.Context(), v))
		must(t, p.Publish(t.Context(), handle, "rt-c"))
		p.Eventually("the deletion is cancelled", func() string {
			if p.Volume("half").DeletesDisk() {
				return "not yet"
			}
			return ""
		})
	})
}

// bindTo creates a PersistentVolume for a disk in a phase, and with the reclaim policy Delete.
func bindTo(
	t *testing.T, p *controlplane.ControlPlane, handle string, phase corev1.PersistentVolumePhase,
) *corev1.PersistentVolume {
	t.Helper()
	name := freshName("p")
	pv := controlplane.NewPersistentVolume(name, handle, func(s *corev1.PersistentVolumeSpec) {
		s.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	})
	p.Bind(pv, p.NewNamespace(), name)
	setPhase(t, p, pv, phase)
	return pv
}

// setPhase sets the phase of a PersistentVolume, and waits until the driver's cache has it.
func setPhase(t *testing.T, p *controlplane.ControlPlane, pv *corev1.PersistentVolume, phase corev1.PersistentVolumePhase) {
	t.Helper()
	before := pv.DeepCopy()
	pv.Status.Phase = phase
	must(t, p.Client.Status().Patch(t.Context(), pv, client.MergeFrom(before)))
	p.Eventually("the cache has the PersistentVolume", func() string {
		cached := &corev1.PersistentVolume{}
		err := p.CSI.Client.Get(t.Context(), client.ObjectKeyFromObject(pv), cached)
		if err != nil || cached.Status.Phase != phase {
			return fmt.Sprintf("got %v in phase %s", err, cached.Status.Phase)
		}
		return ""
	})
}

func TestARecordThatIsKeptWorksAsAnyOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := byPods(t)
		p.AddNode("rk-a", "1", size)
		p.AddNode("rk-b", "1", size)
		vol := freshName("rk-vol")
		handle := p.Create(vol, replicated)
		pv := bindTo(t, p, handle, corev1.VolumeBound)
		pod := controlplane.NewPod(pv.Spec.ClaimRef.Namespace, pv.Name, "rk-a", pv.Spec.ClaimRef.Name)
		must(t, p.Client.Create(t.Context(), pod))
		p.AwaitStaged(vol, "rk-a")
		p.AwaitReplica(vol, "rk-b")
		uid := p.Volume(vol).UID
		must(t, p.Client.Delete(t.Context(), p.Volume(vol)))
		p.Eventually("the record is kept", func() string {
			c := meta.FindStatusCondition(p.Volume(vol).Status.Conditions, apiv1.VolumeConditionReady)
			if c.Reason != apiv1.ReasonVolumeDeletionHeld {
				return c.Reason
			}
			return ""
		})

		// The pod moves: to the replica, without a call to Azure.
		attaches := p.Cloud.CallCount(fake.AttachmentsAttach)
		must(t, p.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
		next := podOf(t, p, pod, "rk-b")
		p.Unstage(vol, "rk-a")
		p.AwaitStaged(vol, "rk-b")
		p.AwaitReplica(vol, "rk-a")
		if got := p.Cloud.CallCount(fake.AttachmentsAttach) - attaches; got != 0 {
			t.Errorf("%d attaches for the move, want none", got)
		}

		// The disk grows while no node uses it.
		must(t, p.Client.Delete(t.Context(), next, client.GracePeriodSeconds(0)))
		p.Unstage(vol, "rk-b")
		eventually(t, p, "the disk has grown", func() error {
			_, err := expand(t.Context(), p, handle, 20<<30)
			return err
		})
		if v := p.Volume(vol); v.UID != uid || v.DeletionTimestamp == nil {
			t.Errorf("got AzVolume %s deleted at %v, want the one that was kept: %s", v.UID, v.DeletionTimestamp, uid)
		}

		// The deletion of the claim deletes both.
		setPhase(t, p, pv, corev1.VolumeReleased)
		eventually(t, p, "DeleteVolume has ended", func() error {
			_, err := p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
			return err
		})
		if p.Volume(vol) != nil || diskThere(t, p, handle) {
			t.Errorf("got AzVolume %v, disk there %t; want neither", p.Volume(vol), diskThere(t, p, handle))
		}
	})
}

func TestADiskThatAnotherPersistentVolumeNamesIsNotDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		vol := freshName("tw-vol")
		handle := p.Create(vol, replicated)
		bindTo(t, p, handle, corev1.VolumeReleased)
		for _, phase := range []corev1.PersistentVolumePhase{corev1.VolumeAvailable, corev1.VolumeBound} {
			other := bindTo(t, p, handle, phase)
			_, err := p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
			if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), other.Name) {
				t.Fatalf("%s: got %v, want FailedPrecondition that names %s", phase, err, other.Name)
			}
			if v := p.Volume(vol); v.DeletionTimestamp != nil || v.DeletesDisk() {
				t.Errorf("%s: got deletion %v, deletionPolicy %q; want neither", phase, v.DeletionTimestamp,
					v.Spec.DeletionPolicy)
			}
			setPhase(t, p, other, corev1.VolumeReleased)
		}
		eventually(t, p, "DeleteVolume has ended", func() error {
			_, err := p.CSI.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
			return err
		})
		if diskThere(t, p, handle) {
			t.Error("the disk is there")
		}
	})
}
