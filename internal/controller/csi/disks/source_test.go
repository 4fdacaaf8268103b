package disks_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const gib = int64(1) << 30

var must, expectCode = expect.Must, expect.Code

func ultra(d *provisioner.Disk) { d.SKUName = "UltraSSD_LRS" }

func snapshotOf(t *testing.T, p *controlplane.ControlPlane, name, source string) *csi.Snapshot {
	t.Helper()
	taken, err := p.TakeSnapshot(name, source, nil)
	must(t, err)
	return taken
}

func fromSnapshot(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{
		Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id}},
	}
}

func fromVolume(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{
		Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id}},
	}
}

// copyRequest asks for a volume of a source, of its size.
func copyRequest(name string, source *csi.VolumeContentSource, parameters map[string]string,
	zones ...string) *csi.CreateVolumeRequest {
	request := controlplane.CreateRequest(name, parameters)
	request.VolumeContentSource, request.CapacityRange, request.AccessibilityRequirements = source, nil, nil
	if len(zones) > 0 {
		request.AccessibilityRequirements = &csi.TopologyRequirement{}
	}
	for _, zone := range zones {
		segments := map[string]string{"topology." + controlplane.DriverName + "/zone": zone}
		request.AccessibilityRequirements.Requisite = append(request.AccessibilityRequirements.Requisite,
			&csi.Topology{Segments: segments})
	}
	return request
}

func mustMake(p *controlplane.ControlPlane, t *testing.T, request *csi.CreateVolumeRequest) *csi.Volume {
	t.Helper()
	response, err := p.CSI.CreateVolume(t.Context(), request)
	must(t, err)
	return response.GetVolume()
}

func diskAtAzure(p *controlplane.ControlPlane, t *testing.T, id string) provisioner.Disk {
	t.Helper()
	d, err := p.Cloud.Disks().Get(t.Context(), id)
	must(t, err)
	return d
}

func TestRestoreMakesADiskFromTheSnapshot(t *testing.T) {
	for name, test := range map[string]struct {
		asked *csi.CapacityRange
		want  int64
		code  codes.Code
		says  string
	}{
		"of its size":                     {asked: &csi.CapacityRange{RequiredBytes: 10 * gib}, want: 10 * gib},
		"of a size that is rounded to it": {asked: &csi.CapacityRange{RequiredBytes: 10*gib - 5}, want: 10 * gib},
		"larger":                          {asked: &csi.CapacityRange{RequiredBytes: 25 * gib}, want: 25 * gib},
		"of no size":                      {want: 10 * gib},
		"with a limit":                    {asked: &csi.CapacityRange{LimitBytes: 12 * gib}, want: 10 * gib},
		"smaller": {asked: &csi.CapacityRange{RequiredBytes: 9 * gib}, code: codes.OutOfRange,
			says: "snap"},
		"with a limit below": {asked: &csi.CapacityRange{LimitBytes: 9 * gib}, code: codes.OutOfRange,
			says: "limit"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := controlplane.WithPendingCopies(t)
				source := p.Create("source", nil)
				taken := snapshotOf(t, p, "snap", source)
				request := copyRequest("restored "+name, fromSnapshot(taken.GetSnapshotId()), nil, "eastus-2")
				request.CapacityRange = test.asked
				response, err := p.CSI.CreateVolume(t.Context(), request)
				if test.code != codes.OK {
					expectCode(t, err, test.code, test.says)
					return
				}
				must(t, err)
				v := response.GetVolume()
				if v.GetCapacityBytes() != test.want ||
					v.GetContentSource().GetSnapshot().GetSnapshotId() != taken.GetSnapshotId() {
					t.Errorf("volume is %s", v)
				}
				if d := diskAtAzure(p, t, v.GetVolumeId()); d.SourceID != taken.GetSnapshotId() || d.SizeBytes != test.want ||
					d.Zone != "2" {
					t.Errorf("disk is %+v", d)
				}
			})
		})
	}
}

func TestSourcesThatCannotBe(t *testing.T) {
	for name, test := range map[string]struct {
		source     *csi.VolumeContentSource
		parameters map[string]string
		zones      []string
		code       codes.Code
		says       string
	}{
		"a snapshot that is missing": {source: fromSnapshot(controlplane.SnapshotID("none")), code: codes.NotFound, says: "none"},
		"no ID of a snapshot":        {source: fromSnapshot("no/such/thing"), code: codes.NotFound},
		"a volume that is missing":   {source: fromVolume(controlplane.DiskID("none")), code: codes.NotFound, says: "none"},
		"no ID of a volume":          {source: fromVolume("none"), code: codes.NotFound},
		"neither":                    {source: &csi.VolumeContentSource{}, code: codes.InvalidArgument},
		"a snapshot that is not complete": {source: fromSnapshot(controlplane.SnapshotID("filling")), code: codes.Unavailable,
			says: "not ready"},
		"a disk of another region than the topology": {source: fromVolume(controlplane.DiskID("westerner")),
			zones: []string{"eastus-1"},
			code:  codes.ResourceExhausted, says: "westus2"},
		"a disk of another region than the StorageClass": {source: fromVolume(controlplane.DiskID("westerner")),
			parameters: map[string]string{"location": "eastus"}, code: codes.InvalidArgument, says: "westus2"},
		"a disk of another zone than the topology": {source: fromVolume(controlplane.DiskID("disk")),
			zones: []string{"eastus-2", "eastus-3"},
			code:  codes.ResourceExhausted, says: "eastus-1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := controlplane.WithPendingCopies(t)
				p.AddDisk("westerner", func(d *provisioner.Disk) { d.Location = "westus2" })
				snapshotOf(t, p, "filling", p.AddDisk("fast", ultra))
				p.AddDisk("disk", nil)
				_, err := p.CSI.CreateVolume(t.Context(), copyRequest("bad", test.source, test.parameters, test.zones...))
				expectCode(t, err, test.code, test.says)
				if p.Volume("bad") != nil {
					t.Error("an AzVolume was made")
				}
			})
		})
	}
}

// The V1 driver used the size of the first ancestor without a source.
func TestCloneOfACloneHasTheSizeOfItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		first := p.Create("first", nil)
		larger := copyRequest("second", fromVolume(first), nil, "eastus-1")
		larger.CapacityRange = &csi.CapacityRange{RequiredBytes: 20 * gib}
		second := mustMake(p, t, larger)
		third := mustMake(p, t, copyRequest("third", fromVolume(second.GetVolumeId()), nil, "eastus-1"))
		if third.GetCapacityBytes() != 20*gib || third.GetContentSource().GetVolume().GetVolumeId() != second.GetVolumeId() {
			t.Errorf("the clone is %s", third)
		}
		smaller := copyRequest("fourth", fromVolume(second.GetVolumeId()), nil, "eastus-1")
		smaller.CapacityRange = &csi.CapacityRange{RequiredBytes: 10 * gib}
		_, err := p.CSI.CreateVolume(t.Context(), smaller)
		expectCode(t, err, codes.OutOfRange, "second")
		if v := p.Volume("third"); v.Spec.Source == nil || v.Spec.Source.DiskID != second.GetVolumeId() {
			t.Errorf("AzVolume is %+v", v.Spec)
		}
	})
}

func TestCloneIsInTheZoneOfItsSource(t *testing.T) {
	for name, test := range map[string]struct {
		source, sku string
		zones       []string
		want        string
	}{
		"where the topology prefers another": {source: controlplane.DiskID("zonal"), sku: "Premium_LRS",
			zones: []string{"eastus-1", "eastus-2"},
			want:  "2"},
		"where the request names no zone": {source: controlplane.DiskID("zonal"), sku: "Premium_LRS", want: "2"},
		"unless the clone is zone-redundant": {source: controlplane.DiskID("zonal"), sku: "Premium_ZRS",
			zones: []string{"eastus-1"}, want: ""},
		"unless the source is zone-redundant": {source: controlplane.DiskID("redundant"), sku: "Premium_LRS",
			zones: []string{"eastus-3"}, want: "3"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := controlplane.WithPendingCopies(t)
				p.AddDisk("zonal", func(d *provisioner.Disk) { d.Zone = "2" })
				p.AddDisk("redundant", func(d *provisioner.Disk) { d.Zone, d.SKUName = "", "Premium_ZRS" })
				v := mustMake(p, t, copyRequest("clone "+name, fromVolume(test.source), map[string]string{"skuName": test.sku},
					test.zones...))
				if d := diskAtAzure(p, t, v.GetVolumeId()); d.Zone != test.want || d.SourceID != test.source {
					t.Errorf("disk is %+v", d)
				}
			})
		})
	}
}

func TestVolumeOfASourceIsMadeInTheRegionOfTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		westerner := p.AddDisk("westerner", func(d *provisioner.Disk) { d.Location, d.Zone = "westus2", "" })
		v := mustMake(p, t, copyRequest("clone", fromVolume(westerner), nil))
		if d := diskAtAzure(p, t, v.GetVolumeId()); d.Location != "westus2" {
			t.Errorf("disk is %+v", d)
		}
	})
}

func TestRestoreIsIdempotentAlsoWhenItsSourceHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		disk := p.Create("source", nil)
		taken, other := snapshotOf(t, p, "snap", disk), snapshotOf(t, p, "other", disk)
		request := copyRequest("restored", fromSnapshot(taken.GetSnapshotId()), nil, "eastus-1")
		first := mustMake(p, t, request)
		_, err := p.CSI.CreateVolume(t.Context(), copyRequest("restored", fromSnapshot(other.GetSnapshotId()), nil, "eastus-1"))
		expectCode(t, err, codes.AlreadyExists, "content source")
		_, err = p.CSI.CreateVolume(t.Context(), copyRequest("restored", nil, nil, "eastus-1"))
		expectCode(t, err, codes.AlreadyExists)
		_, err = p.CSI.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: taken.GetSnapshotId()})
		must(t, err)
		if again := mustMake(p, t, request); again.String() != first.String() {
			t.Errorf("%s\n%s", first, again)
		}
		_, err = p.CSI.CreateVolume(t.Context(), copyRequest("another", fromSnapshot(taken.GetSnapshotId()), nil, "eastus-1"))
		expectCode(t, err, codes.NotFound)
	})
}

// A disk that is made from a snapshot of a provisioned disk cannot be attached before Azure has
// filled it.
func TestVolumeIsCreatedWhenItsBackgroundCopyIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		taken := snapshotOf(t, p, "snap", p.AddDisk("fast", ultra))
		p.Cloud.FinishCopies()
		request := copyRequest("restored", fromSnapshot(taken.GetSnapshotId()), map[string]string{"skuName": "UltraSSD_LRS"},
			"eastus-1")
		for said := ""; !strings.Contains(said, "% of the content of its source"); {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := p.CSI.CreateVolume(ctx, request)
			cancel()
			if said = status.Convert(err).Message(); status.Code(err) != codes.DeadlineExceeded { // of a write of the controller
				expectCode(t, err, codes.Aborted, "")
			}
		}
		v := p.Volume("restored")
		if v.Status.State != apiv1.VolumeCreating || v.Status.DiskID != "" || conditionReason(v) != apiv1.ReasonDiskFilling &&
			conditionReason(v) != apiv1.ReasonDiskCreating {
			t.Errorf("status is %+v", v.Status)
		}
		p.Stop()
		p.Start()
		p.Cloud.FinishCopies()
		if made := mustMake(p, t, request); made.GetCapacityBytes() != 10*gib {
			t.Errorf("volume is %s", made)
		}
		if v := p.Volume("restored"); v.Status.State != apiv1.VolumeCreated || v.Status.Error != nil {
			t.Errorf("status is %+v", v.Status)
		}
	})
}

func conditionReason(v *apiv1.AzVolume) string {
	for _, c := range v.Status.Conditions {
		if c.Type == apiv1.VolumeConditionReady {
			return c.Reason
		}
	}
	return ""
}
