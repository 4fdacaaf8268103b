package attachment

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

func TestALeaderThatFollowsAnotherWaitsBeforeADetach(t *testing.T) {
	t.Parallel()
	for name, overlap := range map[string]time.Duration{"a leader that was elected": 10 * time.Second, "the only process": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDeserted(t)
			key := client.ObjectKey{Namespace: "ns", Name: apiv1.AttachmentName(desertedVolume, desertedNode)}
			for _, c := range []client.Client{d.cache, d.api} {
				a := &apiv1.AzVolumeAttachment{}
				expect.Must(t, c.Get(t.Context(), key, a))
				a.Status.State = apiv1.AttachmentAttaching
				a.Status.Proof = &apiv1.ReleaseProof{
					Type:       apiv1.ProofUnstaged,
					Epoch:      1,
					ProvenTime: longAgo(),
				}
				expect.Must(t, c.Status().Update(t.Context(), a))
				expect.Must(t, c.Delete(t.Context(), a))
			}
			d.Overlap = overlap
			expect.Must(t, d.lead(t.Context(), nil))
			result, err := d.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
			expect.Must(t, err)
			a := &apiv1.AzVolumeAttachment{}
			expect.Must(t, d.cache.Get(t.Context(), key, a))
			begun := d.Jobs.Job(a).Work == operation.WorkDetach
			if begun != (overlap == 0) || result.RequeueAfter > overlap || !begun && result.RequeueAfter <= 0 {
				t.Errorf("got a detach begun %t, and the next look in %v; want it to begin %t, or a look within %v", begun,
					result.RequeueAfter, overlap == 0, overlap)
			}
		})
	}
}
