package handover

import (
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/adoption"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// With VolumeAttachments csi-attacher repeats the call every few seconds.
func TestADiskThatDoesNotExistIsReadOnceAMinute(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	cloud := fake.New(fake.Options{})
	kube := withPods()
	s := &Publisher{
		clock: clock,
		Adopter: &adoption.Adopter{
			Records: &cluster.Records{Client: kube, Reader: kube, Namespace: "ns"},
			Disks:   cloud.Disks(),
		},
	}
	const disk = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/none"
	handle, err := volumehandle.Parse(disk)
	if err != nil {
		t.Fatal(err)
	}
	request := &csi.ControllerPublishVolumeRequest{VolumeCapability: &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	}}
	for second := range 600 {
		clock.SetTime(time.Unix(1000+int64(second), 0))
		if _, err := s.usable(t.Context(), handle, request); status.Code(err) != codes.NotFound {
			t.Fatalf("got %v, want NotFound", err)
		}
	}
	if got := cloud.CallCount(fake.DisksGet); got != 10 {
		t.Errorf("got %d reads in ten minutes, want one a minute", got)
	}
}

func TestTheMemoryOfAbsentDisksIsLimited(t *testing.T) {
	t.Parallel()
	var a absent
	missing := provisioner.Errorf(provisioner.NotFound, "there is no disk")
	named := func(i int) volumehandle.Handle {
		name := string(rune('a'+i%26)) + time.Duration(i).String()
		return volumehandle.Handle{SubscriptionID: "s", ResourceGroup: "rg", DiskName: name}
	}
	if a.note(named(0), provisioner.Errorf(provisioner.Unavailable, "try again"), time.Unix(0, 0)); len(a.disks) != 0 {
		t.Error("a read that failed is remembered, want only disks that do not exist")
	}
	for i := range mostAbsent + 10 {
		a.note(named(i), missing, time.Unix(0, 0))
	}
	if len(a.disks) != mostAbsent {
		t.Errorf("got %d disks, want %d", len(a.disks), mostAbsent)
	}
	a.note(named(mostAbsent+11), missing, time.Unix(61, 0))
	if len(a.disks) != 1 {
		t.Errorf("got %d disks after they are forgotten, want 1", len(a.disks))
	}
}
