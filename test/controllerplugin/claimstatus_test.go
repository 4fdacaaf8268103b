package controllerplugin

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/claimstatus"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
)

func TestTheStatusOfAClaimFollowsItsVolume(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{ClaimStatus: true})
	p.AddNode("cs-a", "1", size)
	p.AddNode("cs-b", "1", size)
	vol := freshName("cs-vol")
	handle := p.Create(vol, replicated)
	claim := p.Bind(controlplane.NewPersistentVolume(vol, handle), p.Namespace, "data")
	must(t, p.Publish(t.Context(), handle, "cs-a"))
	want := claimstatus.Status{Primary: "cs-a", Replicas: "1/1"}
	eventually(t, p, "the claim says which node has the volume", func() error {
		current := &corev1.PersistentVolumeClaim{}
		must(t, p.Client.Get(t.Context(), client.ObjectKeyFromObject(claim), current))
		if got, ok := claimstatus.Parse(current.Annotations); !ok || got != want {
			return fmt.Errorf("got %q, want %+v", current.Annotations[apiv1.AnnotationStatus], want)
		}
		return nil
	})
}
