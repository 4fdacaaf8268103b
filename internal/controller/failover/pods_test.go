package failover

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// shelf is an API server that has at most one volume and one attachment.
type shelf struct {
	client.Reader
	volume     *apiv1.AzVolume
	attachment *apiv1.AzVolumeAttachment
}

func (s shelf) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *apiv1.AzVolume:
		if s.volume != nil {
			s.volume.DeepCopyInto(into)
			return nil
		}
	case *apiv1.AzVolumeAttachment:
		if s.attachment != nil {
			s.attachment.DeepCopyInto(into)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// What the cache showed does not count right before a pod is deleted by force.
func TestLaw3NoPodIsDeletedByForceWhoseVolumeTheNodeMayUse(t *testing.T) {
	t.Parallel()
	volume := func(origin apiv1.VolumeOrigin, access apiv1.AccessPattern, primary *apiv1.Ownership) *apiv1.AzVolume {
		return &apiv1.AzVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "v"},
			Spec:       apiv1.AzVolumeSpec{Origin: origin, Access: access},
			Status:     apiv1.AzVolumeStatus{Primary: primary},
		}
	}
	heldBy := func(node string) *apiv1.Ownership {
		return &apiv1.Ownership{NodeName: node, Epoch: 2, State: apiv1.OwnershipHeld}
	}
	attachment := func(epoch int64, proof *apiv1.ReleaseProof) *apiv1.AzVolumeAttachment {
		return &apiv1.AzVolumeAttachment{
			Spec:   apiv1.AzVolumeAttachmentSpec{Role: apiv1.RolePrimary, Epoch: epoch},
			Status: apiv1.AzVolumeAttachmentStatus{Proof: proof},
		}
	}
	const made, adopted, one, many = apiv1.OriginProvisioned, apiv1.OriginAdopted, apiv1.AccessSingleNode, apiv1.AccessMultiNode
	for name, test := range map[string]struct {
		api        shelf
		lost, down bool
	}{
		"there is no AzVolume":                                       {shelf{}, false, true},
		"an expansion has adopted it":                                {shelf{volume: volume(adopted, one, nil)}, false, true},
		"several nodes use it, it was adopted, and not for this one": {shelf{volume: volume(adopted, many, nil)}, false, true},
		"it was made and never used":                                 {shelf{volume: volume(made, one, nil)}, true, true},
		"several nodes use it, and this one does not":                {shelf{volume: volume(made, many, nil)}, true, true},
		"another node holds it":                                      {shelf{volume: volume(adopted, one, heldBy("m"))}, true, true},
		"the node holds it":                                          {shelf{volume: volume(made, one, heldBy("n")), attachment: attachment(2, nil)}, false, false},
		"the node holds it, and the attachment is lost": {
			shelf{volume: volume(made, one, heldBy("n"))}, false, false},
		"the proof exists": {
			shelf{volume: volume(made, one, heldBy("n")), attachment: attachment(2, &apiv1.ReleaseProof{Epoch: 2})}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for health, want := range map[nodehealth.Judgement]bool{
				{State: nodehealth.Lost}:                test.lost,
				{State: nodehealth.Down, Stopped: true}: test.lost,
				{State: nodehealth.Down}:                test.down,
			} {
				o := observed{namespace: "ns"}
				o.NodeName, o.Health = "n", health
				free, err := newProofs(&Reconciler{Options: Options{Reader: test.api}}, o).free(t.Context(), "v")
				if err != nil || free != want {
					t.Errorf("on a node that is %s, stopped %t: got free %t, %v; want %t", health.State, health.Stopped, free,
						err, want)
				}
			}
		})
	}
}
