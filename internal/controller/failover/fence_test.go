package failover

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
)

// The cache still showed the attachment as fenced, and the volume was published to the node again.
func TestAnAttachmentThatIsFencedNoLongerIsNotDeleted(t *testing.T) {
	t.Parallel()
	a := &apiv1.AzVolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v-a", UID: "1"}}
	c := fakeapi.With(a).Build()
	r := &Reconciler{Options: Options{Client: c, Reader: c}}
	expect.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(a), a))
	fenced, err := r.setFinalizer(t.Context(), a, true)
	expect.Must(t, err)
	again, err := r.setFinalizer(t.Context(), fenced, false)
	expect.Must(t, err)
	if err := r.deleteFenced(t.Context(), fenced); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(again), again); err != nil {
		t.Errorf("got %v, want the attachment to be there", err)
	}
}
