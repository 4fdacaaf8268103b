package snapshots_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

func list(p *controlplane.ControlPlane, t *testing.T, request *csi.ListSnapshotsRequest) (found []string, next string) {
	t.Helper()
	response, err := p.CSI.ListSnapshots(t.Context(), request)
	must(t, err)
	for _, e := range response.GetEntries() {
		found = append(found, e.GetSnapshot().GetSnapshotId())
	}
	return found, response.GetNextToken()
}

func TestListSnapshotsByID(t *testing.T) {
	for name, test := range map[string]struct {
		id, source string
		want       bool
		ready      bool
	}{
		"a complete one":              {id: controlplane.SnapshotID("done"), want: true, ready: true},
		"one that is being filled":    {id: controlplane.SnapshotID("filling"), want: true},
		"one in another spelling":     {id: strings.ToUpper(controlplane.SnapshotID("done")), want: true, ready: true},
		"a bare name, as V1 takes it": {id: "done", want: true, ready: true},
		"one that is missing":         {id: controlplane.SnapshotID("none")},
		"no ID at all":                {id: "no/such/thing"},
		"one of that volume": {id: controlplane.SnapshotID("done"), source: controlplane.DiskID("disk"), want: true,
			ready: true},
		"one of another volume":       {id: controlplane.SnapshotID("done"), source: controlplane.DiskID("fast")},
		"one in another region":       {id: controlplane.SnapshotID("copied"), source: controlplane.DiskID("disk"), want: true},
		"the one that is copied from": {id: controlplane.SnapshotID("local_copied")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := controlplane.WithPendingCopies(t)
				disk, fast := p.AddDisk("disk", nil), p.AddDisk("fast", ultra)
				mustTake(p, t, "done", disk, nil)
				mustTake(p, t, "filling", fast, nil)
				mustTake(p, t, "copied", disk, otherRegion)
				response, err := p.CSI.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{
					SnapshotId:     test.id,
					SourceVolumeId: test.source,
				})
				must(t, err)
				if (len(response.GetEntries()) == 1) != test.want || len(response.GetEntries()) > 1 {
					t.Fatalf("found %s", response)
				}
				if !test.want {
					return
				}
				if s := response.GetEntries()[0].GetSnapshot(); s.GetSnapshotId() != test.id || s.GetReadyToUse() != test.ready ||
					s.GetSizeBytes() == 0 || s.GetSourceVolumeId() == "" {
					t.Errorf("found %s", s)
				}
			})
		})
	}
}

func TestListSnapshotsOfAVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		disk, other := p.AddDisk("disk", nil), p.AddDisk("other", nil)
		elsewhere := strings.Replace(p.AddDisk("x", func(d *provisioner.Disk) {
			d.ID = strings.Replace(d.ID, "/rg/", "/elsewhere/", 1)
		}), "/rg/", "/elsewhere/", 1)
		mustTake(p, t, "s1", disk, nil)
		mustTake(p, t, "s2", other, nil)
		mustTake(p, t, "s3", disk, otherRegion)
		mustTake(p, t, "s4", elsewhere, nil)
		for source, want := range map[string][]string{
			strings.ToUpper(disk):       {controlplane.SnapshotID("s1"), controlplane.SnapshotID("s3")},
			elsewhere:                   {strings.Replace(controlplane.SnapshotID("s4"), "/rg/", "/elsewhere/", 1)},
			"none":                      nil,
			controlplane.DiskID("none"): nil,
		} {
			if got, _ := list(p, t, &csi.ListSnapshotsRequest{SourceVolumeId: source}); !slices.Equal(got, want) {
				t.Errorf("of %s: %q, want %q", source, got, want)
			}
		}
	})
}

func TestListSnapshotsLeavesOutWhatIsNotCutYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		disk := p.AddDisk("disk", nil)
		release := p.Cloud.HoldAll(fake.SnapshotsCreate)
		defer release()
		_, err := p.Cloud.Snapshots().Create(t.Context(), provisioner.SnapshotSpec{
			ID:          controlplane.SnapshotID("s"),
			SourceID:    disk,
			Location:    controlplane.Location,
			Incremental: true,
		})
		must(t, err)
		if got, _ := list(p, t, &csi.ListSnapshotsRequest{}); len(got) != 0 {
			t.Errorf("found %q", got)
		}
		if got, _ := list(p, t, &csi.ListSnapshotsRequest{SnapshotId: controlplane.SnapshotID("s")}); len(got) != 0 {
			t.Errorf("found %q", got)
		}
	})
}

// A VolumeSnapshotClass may send snapshots to a resource group that nothing else of the cluster is
// in.
func TestListSnapshotsLooksWhereVolumeSnapshotContentsPoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		disk := p.AddDisk("disk", nil)
		taken := mustTake(p, t, "s", disk, map[string]string{"resourceGroup": "backups"})
		if got, _ := list(p, t, &csi.ListSnapshotsRequest{}); len(got) != 0 {
			t.Fatalf("found %q before anything names the resource group", got)
		}
		content := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
			"metadata": map[string]any{"name": "content"},
			"spec":     map[string]any{"driver": controlplane.DriverName, "source": map[string]any{"volumeHandle": disk}},
			"status":   map[string]any{"snapshotHandle": taken.GetSnapshotId()},
		}}
		must(t, p.Client.Create(t.Context(), content))
		if got, _ := list(p, t, &csi.ListSnapshotsRequest{}); !slices.Equal(got, []string{taken.GetSnapshotId()}) {
			t.Errorf("found %q", got)
		}
	})
}

// V1's tokens were numbers, which a snapshot that comes or goes between two pages sets wrong.
func TestListSnapshotsPagesSurviveWhatComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		disk := p.AddDisk("disk", nil)
		for i := range 6 {
			mustTake(p, t, fmt.Sprintf("s%d", i), disk, map[string]string{"resourceGroup": []string{"rg", "rg-a"}[i%2]})
		}
		p.Create("volume-in-a", map[string]string{"resourceGroup": "rg-a"}) // by which that group is known
		all, _ := list(p, t, &csi.ListSnapshotsRequest{})
		if len(all) != 6 {
			t.Fatalf("found %q", all)
		}
		var seen []string
		token := ""
		for n := 0; n == 0 || token != ""; n++ {
			var page []string
			page, token = list(p, t, &csi.ListSnapshotsRequest{MaxEntries: 2, StartingToken: token})
			seen = append(seen, page...)
			if n == 0 {
				must(t, drop(p, t, page[0]))
				mustTake(p, t, "a-newcomer", disk, map[string]string{"resourceGroup": "rg-a"}) // before all others
				p.Stop()
				p.Start()
			}
		}
		if !slices.Equal(seen, all) {
			t.Errorf("found %q in pages, want %q", seen, all)
		}
		for name, request := range map[string]*csi.ListSnapshotsRequest{
			"a number":                {StartingToken: "2"},
			"a token of another list": {StartingToken: tokenOf(t, p), SourceVolumeId: disk},
		} {
			if _, err := p.CSI.ListSnapshots(t.Context(), request); status.Code(err) != codes.Aborted {
				t.Errorf("%s: got %v, want Aborted", name, err)
			}
		}
		_, err := p.CSI.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{MaxEntries: -1})
		expectCode(t, err, codes.InvalidArgument)
	})
}

func tokenOf(t *testing.T, p *controlplane.ControlPlane) string {
	t.Helper()
	_, token := list(p, t, &csi.ListSnapshotsRequest{MaxEntries: 1})
	return token
}
