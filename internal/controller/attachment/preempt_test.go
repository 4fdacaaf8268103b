package attachment

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// A node with a replica is asked to fence while the forced detach runs, and its answer is the
// proof.
func TestTheNodeWithAReplicaIsAskedToFence(t *testing.T) {
	t.Parallel()
	d := newDeserted(t)
	cloud, _ := d.Cloud.(*fake.Cloud)
	// so its proof does not come first
	cloud.FailNext(fake.InstancesGet, 100, provisioner.Errorf(provisioner.Unavailable, "Azure is down"))
	const helper = "b"
	each := func(do func(client.WithWatch)) { do(d.cache); do(d.api) }
	each(func(c client.WithWatch) {
		volume := &apiv1.AzVolume{}
		expect.Must(t, c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: desertedVolume}, volume))
		volume.Status.Primary.Cause = apiv1.CauseNodeLost
		expect.Must(t, c.Status().Update(t.Context(), volume))
		lost := &apiv1.AzDriverNode{}
		expect.Must(t, c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: desertedNode}, lost))
		lost.Status.StagedVolumes = []apiv1.StagedVolume{{
			VolumeName:     desertedVolume,
			Epoch:          1,
			Phase:          apiv1.PhaseStaged,
			ReservationKey: "0xad1d540000010002",
		}}
		expect.Must(t, c.Status().Update(t.Context(), lost))
		for _, o := range []client.Object{
			&apiv1.AzVolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: apiv1.AttachmentName(desertedVolume, helper)},
				Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: desertedVolume, NodeName: helper, Role: apiv1.RoleReplica},
				Status:     apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttached, VMID: lostVM + "-b"}},
			&apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: helper},
				Spec: apiv1.AzDriverNodeSpec{VMID: lostVM + "-b"}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: helper},
				Spec: corev1.NodeSpec{ProviderID: "azure://" + lostVM + "-b"},
				Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
					Status: corev1.ConditionTrue}}}},
		} {
			expect.Must(t, c.Create(t.Context(), o))
		}
	})
	key := client.ObjectKey{Namespace: "ns", Name: apiv1.AttachmentName(desertedVolume, desertedNode)}
	asked := &apiv1.AzDriverNode{}
	for range 2 { // the cache does not show the request at the second time
		_, err := d.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
		expect.Must(t, err)
		// The client of this test writes to the cache; the object at the API server follows.
		expect.Must(t, d.cache.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: helper}, asked))
	}
	if r := asked.FenceRequests(); len(r) != 1 || r[0].VolumeName != desertedVolume || r[0].NodeName != desertedNode ||
		r[0].Epoch != 1 {
		t.Fatalf("got requests %+v, want one for the lost node's epoch", r)
	}
	a := &apiv1.AzVolumeAttachment{}
	expect.Must(t, d.cache.Get(t.Context(), key, a))
	if a.Status.Proof != nil || d.Jobs.Job(a).Work != operation.WorkFence {
		t.Fatalf("got proof %+v and work %q, want no proof yet, and the forced detach begun", a.Status.Proof, d.Jobs.Job(a).Work)
	}
	request := asked.FenceRequests()[0]
	asked.Status.FenceResults = []apiv1.FenceResult{{
		VolumeName: desertedVolume, VolumeUID: request.VolumeUID, NodeName: desertedNode, Epoch: 1,
		RequestTime: request.RequestTime,
		Key:         "0xad1d540000010003", PRGeneration: 7,
	}}
	expect.Must(t, d.cache.Status().Update(t.Context(), asked))
	requests := answered(t.Context(), asked)
	if len(requests) != 1 || requests[0].NamespacedName != key {
		t.Fatalf("an answer requests %v, want the attachment of the lost node", requests)
	}
	_, err := d.Reconcile(t.Context(), requests[0])
	expect.Must(t, err)
	expect.Must(t, d.cache.Get(t.Context(), key, a))
	if p := a.Status.Proof; p == nil || p.Type != apiv1.ProofPreempted || p.Preemption == nil ||
		p.Preemption.NodeName != helper || p.Preemption.PRGeneration != 7 {
		t.Errorf("got proof %+v, want Preempted by node %s with its generation", p, helper)
	}
}

// The volumes of a lost node often have the same helper. Requests that conflict wait for longer and
// longer before they are written.
func TestRequestsToOneNodeDoNotConflict(t *testing.T) {
	t.Parallel()
	const volumes, helper = 50, "b"
	api := fakeapi.With().WithObjects(&apiv1.AzDriverNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: helper},
		Spec: apiv1.AzDriverNodeSpec{Requests: &apiv1.NodeRequests{Fences: []apiv1.FenceRequest{
			{VolumeName: "other", NodeName: "a", Epoch: 1},
			{VolumeName: "v0", NodeName: "c", Epoch: 1},
		}}},
	}).Build()
	var writes atomic.Int32
	counting := interceptor.NewClient(api, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			writes.Add(1)
			return c.Patch(ctx, o, patch, options...)
		},
	})
	r := &Reconciler{Options: Options{Client: counting, Reader: api, Clock: clock.RealClock{}}}
	var group errgroup.Group
	for i := range volumes {
		a := &apiv1.AzVolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns"},
			Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: fmt.Sprint("v", i), NodeName: "a", Epoch: 1},
		}
		v := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Name: a.Spec.VolumeName, UID: "v"}}
		group.Go(func() error { return r.ask(t.Context(), v, a, helper) })
	}
	expect.Must(t, group.Wait())
	asked := &apiv1.AzDriverNode{}
	expect.Must(t, api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: helper}, asked))
	if got := len(asked.FenceRequests()); got != volumes+1 || writes.Load() != volumes {
		t.Errorf("got %d requests after %d writes, want %d more by as many writes", got, writes.Load(), volumes-1)
	}
	if replaced := asked.FenceRequests()[1]; replaced.VolumeName != "v0" || replaced.NodeName != "a" {
		t.Errorf("got request %+v, want the older one of volume v0 replaced", replaced)
	}
}
