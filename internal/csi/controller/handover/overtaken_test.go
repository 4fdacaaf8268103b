package handover

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// A publish that waited for an old attachment to go finds that of a claim which came after its own. Nothing is written: the server has no client.
func TestLaw1APublishThatWasOvertakenLeavesTheLaterOneItsAttachment(t *testing.T) {
	attachment := func(epoch int64) apiv1.AzVolumeAttachmentSpec {
		return apiv1.AzVolumeAttachmentSpec{VolumeName: "vol", NodeName: "a", Role: apiv1.RolePrimary, Epoch: epoch}
	}
	later := &apiv1.AzVolumeAttachment{Spec: attachment(4)}
	if _, err := new(Publisher).makePrimary(t.Context(), later, attachment(3)); status.Code(err) != codes.Aborted {
		t.Errorf("%v, want Aborted", err)
	}
	if changed, err := new(Publisher).makePrimary(t.Context(), later, attachment(4)); changed || err != nil {
		t.Errorf("the later one's own publish: %t, %v", changed, err)
	}
}
