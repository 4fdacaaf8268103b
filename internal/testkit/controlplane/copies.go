package controlplane

import (
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// WithPendingCopies starts a controller plug-in at a platform whose background copies end when the
// test says so.
func WithPendingCopies(t *testing.T) *ControlPlane {
	t.Helper()
	return NewInMemory(t, Options{Quiet: true, Latency: fake.Latency{BackgroundCopy: time.Hour}})
}

// AddDisk adds a disk of 10 GiB that no volume was made of, and returns its ID. change may be nil.
func (p *ControlPlane) AddDisk(name string, change func(*provisioner.Disk)) string {
	d := provisioner.Disk{
		ID:           DiskID(name),
		Location:     Location,
		Zone:         "1",
		SizeBytes:    10 << 30,
		MaxShares:    1,
		DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
	}
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
	response, err := p.CSI.CreateSnapshot(p.t.Context(), &csi.CreateSnapshotRequest{
		Name:           name,
		SourceVolumeId: source,
		Parameters:     parameters,
	})
	return response.GetSnapshot(), err
}
