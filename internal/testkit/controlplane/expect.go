package controlplane

import (
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// Must ends the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ExpectCode ends the test unless the error has the code. Its message must contain says.
func ExpectCode(t testing.TB, err error, want codes.Code, says ...string) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Fatalf("got code %s, want %s: %v", got, want, err)
	}
	for _, words := range says {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("got error %q, want one with %q", err, words)
		}
	}
}

// WithPendingCopies starts a controller plug-in at a platform whose background copies end when the test says so.
func WithPendingCopies(t *testing.T) *ControlPlane {
	t.Helper()
	return New(t, Options{Quiet: true, Latency: fake.Latency{BackgroundCopy: time.Hour}})
}

// AddDisk adds a disk of 10 GiB that no volume was made of, and returns its ID. change may be nil.
func (p *ControlPlane) AddDisk(name string, change func(*provisioner.Disk)) string {
	d := provisioner.Disk{ID: DiskID(name), Location: Location, Zone: "1", SKUName: "Premium_LRS", SizeBytes: 10 << 30, MaxShares: 1}
	if change != nil {
		change(&d)
	}
	p.Cloud.AddDisk(d)
	return d.ID
}

// SnapshotID returns the resource ID of a snapshot in the resource group Group.
func SnapshotID(name string) string {
	return strings.Replace(DiskID(name), "/disks/", "/snapshots/", 1)
}

// TakeSnapshot takes a snapshot of a disk.
func (p *ControlPlane) TakeSnapshot(name, source string, parameters map[string]string) (*csi.Snapshot, error) {
	response, err := p.CSI.CreateSnapshot(p.t.Context(), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: source, Parameters: parameters})
	return response.GetSnapshot(), err
}
