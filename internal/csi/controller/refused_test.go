package controller

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

func TestARefusedClaimSaysWhatAzureAnswersToTheFenceOfTheHolder(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := apiv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	v := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vol"}, Spec: apiv1.AzVolumeSpec{Access: apiv1.AccessSingleNode}}
	v.Status.Primary = &apiv1.Ownership{NodeName: "node-2", Epoch: 4, State: apiv1.OwnershipReleasing, Cause: apiv1.CauseNodeLost}
	a := &apiv1.AzVolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: apiv1.AttachmentName("vol", "node-2")}}
	a.Status.Error = &apiv1.Error{Kind: "Unavailable", Message: "503 Service Unavailable"}
	s := &Server{Options: Options{
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(v, a).Build(), Namespace: "ns", Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0)),
	}}
	_, err := s.claim(t.Context(), volumehandle.Handle{}, v, "node-3")
	if got := status.Code(statusOf(err)); got != codes.FailedPrecondition {
		t.Errorf("got %v (%v), want FailedPrecondition", got, err)
	}
	for _, want := range []string{"held by node node-2 (epoch 4), which was lost", "503 Service Unavailable"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want a message with %q", err, want)
		}
	}
}
