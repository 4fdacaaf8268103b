package failover

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
)

// judgement is a monitor that judges every node the same.
type judgement struct {
	Monitor
	nodehealth.Judgement
}

func (j judgement) Health(string) nodehealth.Judgement { return j.Judgement }

func owned(epoch int64, state apiv1.OwnershipState, cause apiv1.ReleaseCause) *apiv1.AzVolume {
	v := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v"},
		Spec:       apiv1.AzVolumeSpec{Access: apiv1.AccessSingleNode, Origin: apiv1.OriginProvisioned},
	}
	v.Status.Primary = &apiv1.Ownership{NodeName: "a", Epoch: epoch, State: state, Cause: cause}
	return v
}

func ofNode() observed { return observed{Input: lostnode.Input{NodeName: "a"}, namespace: "ns"} }

// The step was decided while the node was lost, and a heartbeat has come since.
func TestTheJudgementIsAskedAgainBeforeADecisionToFenceIsWritten(t *testing.T) {
	t.Parallel()
	lost := nodehealth.Judgement{State: nodehealth.Lost}
	held := lost
	held.HeldBack = "the guard against mass loss"
	for name, test := range map[string]struct {
		now     nodehealth.Judgement
		written bool
	}{
		"it is lost":             {lost, true},
		"it is alive":            {nodehealth.Judgement{State: nodehealth.Healthy}, false},
		"its fence is held back": {held, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := owned(2, apiv1.OwnershipHeld, "")
			c := fakeapi.With(v).Build()
			expect.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(v), v))
			r := &Reconciler{Options: Options{Client: c, Reader: c, Clock: clock.RealClock{}, Monitor: judgement{nil, test.now}}}
			written, err := r.fenceOwnership(t.Context(), ofNode(), lostnode.Volume{Volume: v})
			expect.Must(t, err)
			expect.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(v), v))
			releasing := v.Status.Primary.State == apiv1.OwnershipReleasing
			if written != test.written || releasing != test.written {
				t.Errorf("got written %t, and the ownership is %s; want it released: %t", written, v.Status.Primary.State, test.written)
			}
		})
	}
}

// The cache showed the ownership of epoch 2. The node acquired the volume again since, and the fence
// of epoch 3 is under way: an attachment of epoch 2 would prove the release of another ownership.
func TestOnlyTheAttachmentOfThePresentEpochIsRepaired(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ epoch, repaired int64 }{
		"the epoch that was read":    {2, 2},
		"the node acquired it again": {3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := fakeapi.With(owned(test.epoch, apiv1.OwnershipReleasing, apiv1.CauseNodeLost)).Build()
			r := &Reconciler{Options: Options{Client: c, Reader: c}}
			read := lostnode.Volume{Volume: owned(2, apiv1.OwnershipReleasing, apiv1.CauseNodeLost)}
			expect.Must(t, r.repair(t.Context(), ofNode(), read))
			a := &apiv1.AzVolumeAttachment{}
			err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: apiv1.AttachmentName("v", "a")}, a)
			expect.Must(t, client.IgnoreNotFound(err))
			if a.Spec.Epoch != test.repaired {
				t.Errorf("got an attachment of epoch %d, want %d (0 for none)", a.Spec.Epoch, test.repaired)
			}
		})
	}
}

func TestAPodIsDeletedByForceOnlyIfTheAPIServerShowsTheProof(t *testing.T) {
	t.Parallel()
	proof := &apiv1.ReleaseProof{Type: apiv1.ProofDetached, Epoch: 2}
	for name, test := range map[string]struct {
		force   bool
		proof   *apiv1.ReleaseProof
		deleted bool
	}{
		"by force, with the proof":    {true, proof, true},
		"by force, without the proof": {true, nil, false},
		"without force":               {false, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &apiv1.AzVolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: apiv1.AttachmentName("v", "a")},
				Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: "v", NodeName: "a", Role: apiv1.RolePrimary, Epoch: 2},
				Status:     apiv1.AzVolumeAttachmentStatus{Proof: test.proof},
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "1"}}
			api := fakeapi.With(owned(2, apiv1.OwnershipReleasing, apiv1.CauseNodeLost), a, pod).Build()
			deleted := false
			counting := interceptor.NewClient(api, interceptor.Funcs{
				Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
					deleted = true
					return apierrors.NewNotFound(corev1.Resource("pods"), "p") // the journal is not needed here
				},
			})
			r, o := &Reconciler{Options: Options{Client: counting, Reader: api}}, ofNode()
			o.Health = nodehealth.Judgement{State: nodehealth.Lost, Since: time.Unix(0, 0)}
			expect.Must(t, r.deletePod(t.Context(), o, lostnode.PodDeletion{Pod: pod, Force: test.force, Volumes: []string{"v"}},
				newProofs(r, o)))
			if deleted != test.deleted {
				t.Errorf("got the pod deleted: %t, want %t", deleted, test.deleted)
			}
		})
	}
}
