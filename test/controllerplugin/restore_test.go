package controllerplugin

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
)

// restore does what a backup tool does that restores objects without their status: it takes the
// driver's records of a volume away, while no controller runs, and re-creates those that keep names
// from their specs, in that order.
func restore(t *testing.T, p *controlplane.ControlPlane, volume string, keep ...string) {
	t.Helper()
	p.Stop()
	defer p.Start()
	saved := map[string]client.Object{"volume": p.Volume(volume)}
	for i, a := range p.Attachments(volume) {
		saved[a.Spec.NodeName] = &p.Attachments(volume)[i]
	}
	for _, o := range saved {
		o.SetFinalizers(nil)
		must(t, p.Client.Update(t.Context(), o))
		must(t, client.IgnoreNotFound(p.Client.Delete(t.Context(), o)))
	}
	for _, name := range keep {
		o := saved[name]
		switch o := o.(type) {
		case *apiv1.AzVolume:
			o.Status, o.Finalizers = apiv1.AzVolumeStatus{}, []string{apiv1.FinalizerVolume}
		case *apiv1.AzVolumeAttachment:
			o.Status, o.Finalizers = apiv1.AzVolumeAttachmentStatus{}, []string{apiv1.FinalizerAttachment}
		}
		o.SetResourceVersion("")
		o.SetUID("")
		must(t, p.Client.Create(t.Context(), o))
	}
}

// Whatever of the records of a volume is restored, no other node gets it while the node reports it,
// and afterwards any node can.
func TestAVolumeOfARestoredClusterStaysWithTheNodeThatUsesIt(t *testing.T) {
	for name, keep := range map[string][]string{
		"the AzVolume and its attachments":         {"volume", "a", "b"},
		"the attachments before the AzVolume":      {"b", "a", "volume"},
		"the AzVolume alone":                       {"volume"},
		"the AzVolume and the other's replica":     {"volume", "b"},
		"the attachments alone":                    {"a", "b"},
		"nothing":                                  {},
		"the AzVolume and the primary's alone":     {"volume", "a"},
		"the primary's attachment, as from before": {"a"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := controlplane.NewInMemory(t, controlplane.Options{})
				a, b := freshName("rs-a"), freshName("rs-b")
				p.AddNode(a, "1", size)
				p.AddNode(b, "1", size)
				handle := p.Create("vol", replicated)
				bound(t, p, handle)
				must(t, p.Publish(t.Context(), handle, a))
				must(t, p.Unpublish(t.Context(), handle, a))
				p.StageOn(handle, "vol", a)
				p.AwaitReplica("vol", b)
				names := map[string]string{"volume": "volume", "a": a, "b": b}
				var kept []string
				for _, k := range keep {
					kept = append(kept, names[k])
				}
				restore(t, p, "vol", kept...)
				for range 3 {
					expectCode(t, p.Publish(shortly(t, 10*time.Second), handle, b), codes.FailedPrecondition)
				}
				if to := p.AttachedTo("vol"); !slices.Contains(to, a) {
					t.Fatalf("law 3: the volume is staged on %s, and the disk is attached to %q", a, to)
				}
				p.Unstage("vol", a)
				eventually(t, p, "unpublished", func() error { return p.Unpublish(shortly(t, 10*time.Second), handle, a) })
				eventually(t, p, "published", func() error { return p.Publish(shortly(t, 10*time.Second), handle, b) })
				eventually(t, p, "staged", func() error { return p.Stage("vol", b) })
				if got := p.Volume("vol").Status.Primary; got.NodeName != b {
					t.Errorf("got claim %+v, want one of %s", got, b)
				}
			})
		})
	}
}

// bound makes the PersistentVolume of a handle, bound to a claim.
func bound(t *testing.T, p *controlplane.ControlPlane, handle string) {
	t.Helper()
	pv := controlplane.NewPersistentVolume(freshName("pv"), handle)
	p.AddPersistentVolume(pv)
	pv.Status.Phase = corev1.VolumeBound
	must(t, p.Client.Status().Update(t.Context(), pv))
}

// The node that used the volume is lost together with the records. Azure gives the proof.
func TestAVolumeOfARestoredClusterLeavesANodeThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{StaleAfter: 2 * time.Second})
		a, b := freshName("rn-a"), freshName("rn-b")
		p.AddNode(a, "1", size)
		p.AddNode(b, "1", size)
		handle := p.Create("vol", replicated)
		bound(t, p, handle)
		p.StageOn(handle, "vol", a)
		p.Report(a, func(s *apiv1.AzDriverNodeStatus) { s.HeartbeatPeriodSeconds = 1 })
		notReady(t, p, a)
		restore(t, p, "vol", "volume", a)
		eventually(t, p, "published", func() error { return p.Publish(shortly(t, 10*time.Second), handle, b) })
		p.Eventually("the disk is off the lost node", attachedTo(p, "vol", b))
		must(t, p.Stage("vol", b))
	})
}
