package handover_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// keepBeating sends the heartbeats of a node until the test ends.
func keepBeating(t *testing.T, p *controlplane.ControlPlane, node string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(300 * time.Millisecond)
		defer ticker.Stop()
		for {
			d := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: node}}
			now := metav1.NowMicro()
			changed := d.DeepCopy()
			changed.Status.HeartbeatTime, changed.Status.HeartbeatSeconds = &now, 1
			_ = p.Client.Status().Patch(ctx, changed, client.MergeFrom(d)) // the next one follows
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

// The kubelet of a node is dead and its node plug-in lives: the heartbeat is fresh, and the report says that the volume is staged. The pod was deleted by force.
// Where there are VolumeAttachments it is Kubernetes that unpublishes, after its six minutes.
func TestAVolumeLeavesANodeWhoseKubeletIsDead(t *testing.T) {
	t.Run("without VolumeAttachments", func(t *testing.T) {
		t.Parallel()
		p, _ := watched(t, controlplane.Options{PublishedByPods: true, StaleAfter: 2 * time.Second})
		a, b := freshName("kd-a"), freshName("kd-b")
		p.AddNode(a, "1", size)
		p.AddNode(b, "1", size)
		keepBeating(t, p, a)
		vol := freshName("kd-vol")
		first := bindPod(t, p, p.Create(vol, replicated), a)
		eventuallyStaged(t, p, vol, a)
		awaitReplica(t, p, vol, b)
		notReady(t, p, a)
		must(t, p.Client.Delete(t.Context(), first, client.GracePeriodSeconds(0)))
		podOf(t, p, first, b)
		eventuallyStaged(t, p, vol, b)
		leftByForce(t, p, vol, a)
	})
	t.Run("with VolumeAttachments", func(t *testing.T) {
		t.Parallel()
		p := controlplane.New(t, controlplane.Options{StaleAfter: 2 * time.Second})
		a, vol := freshName("kv-a"), freshName("kv-vol")
		p.AddNode(a, "1", size)
		keepBeating(t, p, a)
		handle := p.Create(vol, replicated)
		must(t, p.Publish(t.Context(), handle, a))
		eventuallyStaged(t, p, vol, a)
		notReady(t, p, a)
		must(t, p.Unpublish(t.Context(), handle, a))
		leftByForce(t, p, vol, a)
	})
	t.Run("a multi-node volume", func(t *testing.T) {
		t.Parallel()
		p := controlplane.New(t, controlplane.Options{StaleAfter: 2 * time.Second})
		a, b := freshName("km-a"), freshName("km-b")
		p.AddNode(a, "1", size)
		p.AddNode(b, "1", size)
		keepBeating(t, p, a)
		handle := sharedVolume(t, p, a, b)
		eventuallyStaged(t, p, "vol", a)
		notReady(t, p, a)
		must(t, p.Unpublish(t.Context(), handle, a))
		p.Eventually("left to the other node alone", attachedTo(p, "vol", b))
	})
}

// leftByForce checks that a volume was taken from a node by a forced detach.
func leftByForce(t *testing.T, p *controlplane.ControlPlane, volume, node string) {
	t.Helper()
	last := p.Volume(volume).Status.LastRelease
	if last == nil || last.NodeName != node || last.Proof.Kind != apiv1.ProofDetached {
		t.Errorf("got release %+v, want one of node %s with the proof %s", last, node, apiv1.ProofDetached)
	}
	if n := p.Cloud.CallCount(fake.AttachmentsForceDetach); n != 1 {
		t.Errorf("got %d forced detaches, want 1", n)
	}
	eventually(t, p, "the disk is off the node", func() error {
		if a := p.Attachment(volume, node); a != nil {
			return fmt.Errorf("attachment %+v", a.Status)
		}
		return nil
	})
}
