package snapshots_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

func ultra(d *provisioner.Disk) { d.SKUName = "UltraSSD_LRS" }

var must, expectCode = expect.Must, expect.Code

func mustTake(p *controlplane.ControlPlane, t *testing.T, name, source string, parameters map[string]string) *csi.Snapshot {
	t.Helper()
	taken, err := p.TakeSnapshot(name, source, parameters)
	must(t, err)
	return taken
}

func drop(p *controlplane.ControlPlane, t *testing.T, id string) error {
	t.Helper()
	_, err := p.CSI.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: id})
	return err
}

// names are the names of the snapshots at Azure.
func names(p *controlplane.ControlPlane) string {
	var found []string
	for _, s := range p.Cloud.State().Snapshots {
		found = append(found, s.ID[strings.LastIndex(s.ID, "/")+1:])
	}
	return strings.Join(found, " ")
}

func TestSnapshotIsMadeAsItsClassSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		disk := p.AddDisk("disk", nil)
		taken := mustTake(p, t, "snap", disk, map[string]string{
			"resourceGroup": "backups", "subscriptionID": "00000000-0000-0000-0000-000000000002",
			"incremental": "false", "tags": "a=b",
			"networkAccessPolicy": "DenyAll", "publicNetworkAccess": "Disabled",
			"dataAccessAuthMode": "AzureActiveDirectory", "userAgent": "x",
			"csi.storage.k8s.io/volumesnapshot/name": "nightly", "csi.storage.k8s.io/volumesnapshot/namespace": "shop",
			"csi.storage.k8s.io/volumesnapshotcontent/name": "c",
		})
		want := "/subscriptions/00000000-0000-0000-0000-000000000002/resourceGroups/backups/providers/Microsoft.Compute/snapshots/snap"
		if taken.GetSnapshotId() != want || taken.GetSourceVolumeId() != disk || taken.GetSizeBytes() != 10<<30 ||
			!taken.GetReadyToUse() || taken.GetCreationTime().AsTime().IsZero() {
			t.Errorf("snapshot is %s", taken)
		}
		spec, ok := p.Cloud.SnapshotSpec(want)
		if !ok || spec.SourceID != disk || spec.Incremental || spec.NetworkAccessPolicy != "DenyAll" ||
			spec.PublicNetworkAccess != "Disabled" || spec.DataAccessAuthMode != "AzureActiveDirectory" {
			t.Errorf("it was made with %+v", spec)
		}
		tags := map[string]string{
			"a": "b", "k8s-azure-created-by": "kubernetes-azure-dd",
			"kubernetes.io-created-for-snapshot-name": "nightly", "kubernetes.io-created-for-snapshot-namespace": "shop",
		}
		if !maps.Equal(spec.Tags, tags) {
			t.Errorf("tags are %v, want %v", spec.Tags, tags)
		}
		plain := mustTake(p, t, "plain", disk, nil)
		if spec, _ := p.Cloud.SnapshotSpec(plain.GetSnapshotId()); !spec.Incremental ||
			plain.GetSnapshotId() != controlplane.SnapshotID("plain") {
			t.Errorf("without parameters it was made with %+v", spec)
		}
		p.CSI.Snapshotter.ExtraTags = map[string]string{"costCenter": "12", "A": "not this one"}
		extra := mustTake(p, t, "extra", disk, map[string]string{"tags": "a=b"})
		if spec, _ := p.Cloud.SnapshotSpec(extra.GetSnapshotId()); spec.Tags["costCenter"] != "12" || spec.Tags["a"] != "b" ||
			spec.Tags["A"] != "" {
			t.Errorf("got tags %v, want the extra ones that the class does not set", spec.Tags)
		}
		replaced := mustTake(p, t, "a name/that Azure refuses", disk, nil).GetSnapshotId()
		if again := mustTake(p, t, "a name/that Azure refuses", disk, nil).GetSnapshotId(); again != replaced ||
			strings.ContainsAny(replaced[strings.LastIndex(replaced, "/")+1:], " /") {
			t.Errorf("the IDs are %s and %s", replaced, again)
		}
	})
}

func TestCreateSnapshotIsIdempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		disk, other := p.AddDisk("disk", nil), p.AddDisk("other", nil)
		first := mustTake(p, t, "snap", disk, nil)
		p.Stop()
		p.Start()
		if again := mustTake(p, t, "snap", strings.ToUpper(disk), nil); !strings.EqualFold(again.GetSnapshotId(),
			first.GetSnapshotId()) || !again.GetCreationTime().AsTime().Equal(first.GetCreationTime().AsTime()) {
			t.Errorf("%s\n%s", first, again)
		}
		_, err := p.TakeSnapshot("snap", other, nil)
		expectCode(t, err, codes.AlreadyExists)
		_, err = p.TakeSnapshot("snap", other, map[string]string{"location": "westus2"})
		expectCode(t, err, codes.AlreadyExists)
		op, err := p.Cloud.Disks().Delete(t.Context(), disk)
		must(t, err)
		must(t, op.Wait(t.Context()))
		if again := mustTake(p, t, "snap", disk, nil); again.GetSnapshotId() != first.GetSnapshotId() {
			t.Errorf("after the disk has gone: %s", again)
		}
		if left := names(p); left != "snap" {
			t.Errorf("there is %s", left)
		}
	})
}

// The V1 driver took the snapshot in the cluster's region, and not in that of the disk.
func TestSnapshotIsInTheRegionOfItsDiskAndNotOfTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		disk := p.AddDisk("disk", func(d *provisioner.Disk) { d.Location = "westus2" })
		taken := mustTake(p, t, "snap", disk, nil)
		if spec, _ := p.Cloud.SnapshotSpec(taken.GetSnapshotId()); spec.Location != "westus2" || spec.SourceID != disk {
			t.Errorf("it was made with %+v", spec)
		}
		// Here the cluster and the disk are in different regions.
		mustTake(p, t, "copied", disk, map[string]string{"location": controlplane.Location})
		if spec, _ := p.Cloud.SnapshotSpec(controlplane.SnapshotID("local_copied")); spec.Location != "westus2" {
			t.Errorf("the local one was made with %+v", spec)
		}
	})
}

func TestSnapshotIsReadyWhenItIsCompleteOrHasInstantAccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		fast := p.AddDisk("fast", ultra)
		if taken := mustTake(p, t, "instant", fast,
			map[string]string{"instantAccessDurationMinutes": "60"}); !taken.GetReadyToUse() {
			t.Errorf("with instant access: %s", taken)
		}
		before := time.Now()
		if taken := mustTake(p, t, "slow", fast, nil); taken.GetReadyToUse() {
			t.Errorf("while it is copied: %s", taken)
		}
		if took := time.Since(before); took > 5*time.Second {
			t.Errorf("the call took %s", took)
		}
		p.Cloud.FinishCopies()
		if taken := mustTake(p, t, "slow", fast, nil); !taken.GetReadyToUse() {
			t.Errorf("when it is complete: %s", taken)
		}
	})
}

// The V1 driver slept inside the call for as long as Azure requested, up to 20 minutes.
func TestThrottledSnapshotCallsAreUnavailableAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		disk := p.AddDisk("disk", nil)
		throttled := &provisioner.Error{
			Kind:       provisioner.RateLimited,
			RetryAfter: 20 * time.Minute,
			Message:    "too many requests",
		}
		before := time.Now()
		p.Cloud.FailNext(fake.SnapshotsCreate, 1, throttled)
		_, err := p.TakeSnapshot("snap", disk, nil)
		expectCode(t, err, codes.Unavailable, "too many requests")
		taken := mustTake(p, t, "snap", disk, nil)
		p.Cloud.FailNext(fake.SnapshotsDelete, 1, throttled)
		expectCode(t, drop(p, t, taken.GetSnapshotId()), codes.Unavailable)
		p.Cloud.FailNext(fake.SnapshotsList, 1, throttled)
		_, err = p.CSI.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{})
		expectCode(t, err, codes.Unavailable)
		if took := time.Since(before); took > 5*time.Second {
			t.Errorf("the calls took %s", took)
		}
		must(t, drop(p, t, taken.GetSnapshotId()))
	})
}

func TestDeleteSnapshotOfWhatIsNotThereIsASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		for name, id := range map[string]string{
			"one that never was": controlplane.SnapshotID("none"), "no resource ID at all": "no/such/thing",
			"the ID of a disk": p.AddDisk("disk", nil), "a bare name, as V1 takes it": "none",
		} {
			if err := drop(p, t, id); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		expectCode(t, drop(p, t, ""), codes.InvalidArgument)
		mustTake(p, t, "snap", controlplane.DiskID("disk"), nil)
		must(t, drop(p, t, "snap"))
		if left := names(p); left != "" {
			t.Errorf("there is %s", left)
		}
		if len(p.Cloud.State().Disks) != 1 {
			t.Error("the disk is gone")
		}
	})
}

// A call that repeats an interrupted one waits for the operation of the first.
func TestTheNextCallJoinsASnapshotCallThatWasCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		disk := p.AddDisk("disk", nil)
		release := p.Cloud.HoldAll(fake.SnapshotsCreate)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := p.CSI.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "snap", SourceVolumeId: disk})
			ended <- err
		}()
		expect.Eventually(t, "Azure has the request", func() bool { return p.Cloud.CallCount(fake.SnapshotsCreate) == 1 })
		cancel()
		expectCode(t, <-ended, codes.Canceled)
		p.Stop()
		p.Start()
		release()
		if taken := mustTake(p, t, "snap", disk, nil); !taken.GetReadyToUse() || p.Cloud.CallCount(fake.SnapshotsCreate) != 2 {
			t.Errorf("%s after %d creations", taken, p.Cloud.CallCount(fake.SnapshotsCreate))
		}
	})
}
