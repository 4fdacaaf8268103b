package snapshots_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

func takeGroup(p *controlplane.ControlPlane, t *testing.T, name string, sources ...string) (*csi.VolumeGroupSnapshot, error) {
	t.Helper()
	response, err := p.CSI.CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{
		Name:            name,
		SourceVolumeIds: sources,
	})
	return response.GetGroupSnapshot(), err
}

func TestAGroupIsTakenReadAndDeletedAsOne(t *testing.T) {
	p := controlplane.WithPendingCopies(t)
	a, b := p.Create("a", nil), p.Create("b", nil)
	taken, err := takeGroup(p, t, "group", a, b)
	must(t, err)
	again, err := takeGroup(p, t, "group", a, b)
	must(t, err)
	if taken.String() != again.String() || len(taken.GetSnapshots()) != 2 || !taken.GetReadyToUse() {
		t.Fatalf("taken %s, and again %s", taken, again)
	}
	ids := make([]string, 0, 2)
	for _, member := range taken.GetSnapshots() {
		if member.GetGroupSnapshotId() != taken.GetGroupSnapshotId() {
			t.Errorf("member %s is of group %q", member.GetSnapshotId(), member.GetGroupSnapshotId())
		}
		ids = append(ids, member.GetSnapshotId())
	}
	// The seal is in no list of snapshots.
	list, err := p.CSI.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{})
	must(t, err)
	if len(list.GetEntries()) != 2 {
		t.Errorf("%d snapshots are listed, want the two members", len(list.GetEntries()))
	}
	read, err := p.CSI.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{
		GroupSnapshotId: taken.GetGroupSnapshotId(),
		SnapshotIds:     ids,
	})
	must(t, err)
	if len(read.GetGroupSnapshot().GetSnapshots()) != 2 || read.GetGroupSnapshot().GetSnapshots()[0].GetSourceVolumeId() == "" {
		t.Errorf("read %v", read)
	}
	_, err = p.CSI.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{
		GroupSnapshotId: taken.GetGroupSnapshotId(),
		SnapshotIds:     ids[:1],
	})
	expectCode(t, err, codes.InvalidArgument, ids[1])
	expectCode(t, drop(p, t, ids[0]), codes.InvalidArgument, "group")
	expectCode(t, drop(p, t, taken.GetGroupSnapshotId()), codes.InvalidArgument, "group")
	_, err = p.CSI.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{
		GroupSnapshotId: taken.GetGroupSnapshotId(),
		SnapshotIds:     ids,
	})
	must(t, err)
	if left := names(p); left != "" {
		t.Errorf("snapshots are left: %s", left)
	}
}

func TestAGroupOfVolumesInUseIsRefused(t *testing.T) {
	p := controlplane.WithPendingCopies(t)
	p.AddNode("group-a", "1", "Standard_D4s_v5")
	a, b := p.Create("a", nil), p.Create("b", nil)
	must(t, p.Publish(t.Context(), a, "group-a"))
	_, err := takeGroup(p, t, "group", a, b)
	expectCode(t, err, codes.FailedPrecondition, "a", "group-a", "one moment")
	if left := names(p); left != "" {
		t.Errorf("snapshots are left: %s", left)
	}
	// A group of one volume is of one moment, whether a node uses it or not.
	_, err = takeGroup(p, t, "one", a)
	must(t, err)
}

func TestAGroupFailsIfANodeUsesAVolumeBetweenTwoCuts(t *testing.T) {
	p := controlplane.WithPendingCopies(t)
	p.AddNode("spoil-a", "1", "Standard_D4s_v5")
	a, b := p.Create("a", nil), p.Create("b", nil)
	release := p.Cloud.HoldAll(fake.SnapshotsCreate)
	before := p.Cloud.CallCount(fake.SnapshotsCreate)
	ended := make(chan error, 1)
	go func() {
		_, err := takeGroup(p, t, "group", a, b)
		ended <- err
	}()
	p.Eventually("the first snapshot is being taken", func() string {
		if p.Cloud.CallCount(fake.SnapshotsCreate) > before {
			return ""
		}
		return "not yet"
	})
	// A node acquires and releases it between two cuts: only the epoch shows that.
	must(t, p.Publish(t.Context(), a, "spoil-a"))
	must(t, p.Unpublish(t.Context(), a, "spoil-a"))
	release()
	expectCode(t, <-ended, codes.Aborted, "used")
	if left := names(p); left != "" {
		t.Errorf("snapshots are left: %s", left)
	}
	_, err := takeGroup(p, t, "group", a, b)
	must(t, err)
}

func TestARepeatedCallCompletesAnInterruptedGroup(t *testing.T) {
	p := controlplane.WithPendingCopies(t)
	p.AddNode("short-a", "1", "Standard_D4s_v5")
	a, b := p.Create("a", nil), p.Create("b", nil)
	cutShort := func() {
		t.Helper()
		// The second member fails for now, and the first one stays.
		sum := sha256.Sum256([]byte(strings.ToLower(b)))
		second := controlplane.SnapshotID("group-" + hex.EncodeToString(sum[:])[:8])
		stop := p.Cloud.Inject(fake.Fault{
			Method: fake.SnapshotsCreate,
			ID:     second,
			Err:    provisioner.Errorf(provisioner.Unavailable, "try again"),
		})
		_, err := takeGroup(p, t, "group", a, b)
		stop()
		expectCode(t, err, codes.Unavailable)
		if left := names(p); strings.Count(left, "group-") != 1 {
			t.Fatalf("snapshots %q are left, want the first member", left)
		}
	}
	cutShort()
	first := p.Cloud.State().Snapshots[0].Created
	taken, err := takeGroup(p, t, "group", a, b)
	must(t, err)
	if !taken.GetSnapshots()[0].GetCreationTime().AsTime().Equal(first) {
		t.Error("complete the group: got a new first member, want that of the interrupted call: no node has used its volume")
	}
	_, err = p.CSI.DeleteVolumeGroupSnapshot(t.Context(),
		&csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: taken.GetGroupSnapshotId()})
	must(t, err)
	cutShort()
	stale := p.Cloud.State().Snapshots[0].Created
	must(t, p.Publish(t.Context(), a, "short-a"))
	must(t, p.Unpublish(t.Context(), a, "short-a"))
	taken, err = takeGroup(p, t, "group", a, b)
	must(t, err)
	if taken.GetSnapshots()[0].GetCreationTime().AsTime().Equal(stale) {
		t.Error("take the group again: got the first member of the interrupted call, want a new one: a node has used its volume")
	}
}

func TestWhereASnapshotIsUsable(t *testing.T) {
	p := controlplane.WithPendingCopies(t)
	disk := p.AddDisk("disk", nil)
	at := func(zones ...string) error {
		request := &csi.CreateSnapshotRequest{
			Name:                      "s" + strings.Join(zones, "-"),
			SourceVolumeId:            disk,
			AccessibilityRequirements: &csi.TopologyRequirement{},
		}
		for _, zone := range zones {
			request.AccessibilityRequirements.Requisite = append(request.AccessibilityRequirements.Requisite,
				&csi.Topology{Segments: map[string]string{"topology.disk.csi.azure.com/zone": zone}})
		}
		_, err := p.CSI.CreateSnapshot(t.Context(), request)
		return err
	}
	must(t, at())
	must(t, at("eastus-3"))
	must(t, at("westus2-1", "eastus-2"))
	must(t, at(""))
	expectCode(t, at("westus2-1"), codes.ResourceExhausted, "eastus", "westus2")
	expectCode(t, at("nowhere"), codes.InvalidArgument, "nowhere")
}
