package drivernode_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

func TestARequestToFenceIsWithdrawnWhenTheAttachmentIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const epoch = 2
	for _, volume := range []string{"kept", "gone"} {
		w.make(&apiv1.AzVolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: apiv1.AttachmentName(named(volume), "lost")},
			Spec: apiv1.AzVolumeAttachmentSpec{
				VolumeName: named(volume),
				NodeName:   "lost",
				Role:       apiv1.RolePrimary,
				Epoch:      epoch,
			},
		})
	}
	helper := &apiv1.AzDriverNode{}
	expect.Must(t, w.api.Get(t.Context(), w.request().NamespacedName, helper))
	helper.Spec.Requests = &apiv1.NodeRequests{}
	for _, volume := range []string{"kept", "gone"} {
		helper.Spec.Requests.Fences = append(helper.Spec.Requests.Fences, apiv1.FenceRequest{
			VolumeName:  named(volume),
			NodeName:    "lost",
			Epoch:       epoch,
			RequestTime: metav1.NowMicro(),
		})
	}
	expect.Must(t, w.api.Update(t.Context(), helper))
	left := func() (volumes []string) {
		w.reconcile()
		expect.Must(t, w.api.Get(t.Context(), w.request().NamespacedName, helper))
		for _, request := range helper.FenceRequests() {
			volumes = append(volumes, request.VolumeName)
		}
		return volumes
	}
	if got := left(); len(got) != 2 {
		t.Fatalf("got requests for %q while both attachments exist, want both", got)
	}
	expect.Must(t, w.api.Delete(t.Context(), &apiv1.AzVolumeAttachment{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.namespace,
		Name:      apiv1.AttachmentName(named("gone"), "lost"),
	}}))
	if got := left(); len(got) != 1 || got[0] != named("kept") {
		t.Errorf("got requests for %q after one attachment is gone, want %q", got, named("kept"))
	}
}
