package condition_test

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/azuredisk-csi/azuredisk/internal/node/csi/condition"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/volumecondition"
)

func TestAConditionTravelsBesideTheRest(t *testing.T) {
	for name, test := range map[string]struct {
		message, received proto.Message
		abnormal          bool
		text              string
	}{
		"of statistics, abnormal": {&csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Total: 7}}},
			&csi.NodeGetVolumeStatsResponse{}, true, "the device is gone"},
		"of statistics, normal": {&csi.NodeGetVolumeStatsResponse{}, &csi.NodeGetVolumeStatsResponse{}, false, ""},
		"of a volume in a list": {&csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: []string{"a"}},
			&csi.ListVolumesResponse_VolumeStatus{}, true, "x"},
		"of one volume": {&csi.ControllerGetVolumeResponse_VolumeStatus{},
			&csi.ControllerGetVolumeResponse_VolumeStatus{}, false, "fine"},
	} {
		t.Run(name, func(t *testing.T) {
			condition.Attach(test.message, test.abnormal, test.text)
			raw, err := proto.Marshal(test.message)
			if err != nil {
				t.Fatal(err)
			}
			if err := proto.Unmarshal(raw, test.received); err != nil {
				t.Fatal(err)
			}
			abnormal, text, found := volumecondition.Of(test.received)
			if !found || abnormal != test.abnormal || text != test.text {
				t.Errorf("received %t, %q, %t", abnormal, text, found)
			}
			if !proto.Equal(test.message, test.received) {
				t.Errorf("received %v, want %v", test.received, test.message)
			}
		})
	}
}

func TestAMessageWithoutACondition(t *testing.T) {
	if _, _, found := volumecondition.Of(&csi.NodeGetVolumeStatsResponse{}); found {
		t.Error("a condition was found in an empty message")
	}
}

// The bytes are those of CSI 1.12: field 2, length 5, abnormal (field 1) true, message (field 2)
// "x".
func TestTheBytesAreThoseOfOlderVersionsOfCSI(t *testing.T) {
	message := &csi.NodeGetVolumeStatsResponse{}
	condition.Attach(message, true, "x")
	raw, err := proto.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	if want := "\x12\x05\x08\x01\x12\x01x"; string(raw) != want {
		t.Errorf("bytes %q, want %q", raw, want)
	}
}
