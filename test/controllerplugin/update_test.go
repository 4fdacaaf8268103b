package controllerplugin

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

var (
	single     = map[string]string{"skuName": "Premium_LRS"}
	adjustable = map[string]string{"skuName": "PremiumV2_LRS"}
)

func modify(ctx context.Context, p *controlplane.ControlPlane, handle string, parameters map[string]string) error {
	_, err := p.CSI.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{
		VolumeId:          handle,
		MutableParameters: parameters,
	})
	return err
}

func expand(ctx context.Context, p *controlplane.ControlPlane, handle string, size int64) (*csi.ControllerExpandVolumeResponse,
	error) {
	return p.CSI.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId:         handle,
		CapacityRange:    &csi.CapacityRange{RequiredBytes: size},
		VolumeCapability: controlplane.Mounted(),
	})
}

func diskAt(t *testing.T, p *controlplane.ControlPlane, name string) provisioner.Disk {
	t.Helper()
	for _, d := range p.Cloud.State().Disks {
		if d.ID == controlplane.DiskID(name) {
			return d
		}
	}
	t.Fatalf("there is no disk %s", name)
	return provisioner.Disk{}
}

// asIs waits until the spec asks for nothing but what is.
func asIs(t *testing.T, p *controlplane.ControlPlane, name string) *apiv1.AzVolume {
	t.Helper()
	var v *apiv1.AzVolume
	p.Eventually("the spec is as the disk is", func() string {
		v = p.Volume(name)
		if v.Status.State != apiv1.VolumeCreated || v.Spec.CapacityBytes > v.Status.SizeBytes ||
			!equality.Semantic.DeepEqual(v.Spec.Disk.DiskSettings, v.Status.Applied.DiskSettings) {
			return fmt.Sprintf("%+v\n%+v", v.Spec, v.Status)
		}
		return ""
	})
	return v
}

func updated(v *apiv1.AzVolume) string {
	c := meta.FindStatusCondition(v.Status.Conditions, apiv1.VolumeConditionUpdated)
	if c == nil {
		return ""
	}
	return c.Reason + ": " + c.Message
}

func TestModify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		handle := p.Create("vol", adjustable)
		class := map[string]string{
			"diskIOPSReadWrite":   "5000",
			"DISKMBPSREADWRITE":   "200",
			"tags":                "team=db;of=${pvc.metadata.name}",
			"tagValueDelimiter":   ";",
			"networkAccessPolicy": "AllowAll",
			"publicNetworkAccess": "Enabled",
		}
		must(t, modify(t.Context(), p, handle, class))
		d := diskAt(t, p, "vol")
		if *d.DiskIOPSReadWrite != 5000 || *d.DiskMBpsReadWrite != 200 || d.Tags["team"] != "db" ||
			d.NetworkAccessPolicy != "AllowAll" || d.PublicNetworkAccess != "Enabled" {
			t.Fatalf("%+v", d)
		}
		if d.Tags["k8s-azure-created-by"] == "" || d.Tags["disk.csi.azure.com-volume-uid"] == "" {
			t.Fatalf("the driver's own tags are gone: %v", d.Tags)
		}
		// Again it costs nothing.
		must(t, modify(t.Context(), p, handle, class))
		if n := p.Cloud.CallCount(fake.DisksUpdate); n != 1 {
			t.Fatalf("%d calls to Azure", n)
		}
		if v := asIs(t, p, "vol"); !strings.HasPrefix(updated(v), apiv1.ReasonDiskUpdated) ||
			v.Status.Applied.DiskSettings.Tags["team"] != "db" {
			t.Fatal(updated(v))
		}
		// Tags that a class does not name stay.
		must(t, modify(t.Context(), p, handle, map[string]string{"tags": "other=1"}))
		if d := diskAt(t, p, "vol"); d.Tags["team"] != "db" || d.Tags["other"] != "1" || *d.DiskIOPSReadWrite != 5000 {
			t.Fatalf("%+v", d)
		}
	})
}

// The disk was changed at Azure by another client. A class that named what the record says changed
// nothing, and the call succeeded.
func TestModifyChangesWhatTheDiskHasAndNotWhatItsRecordSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		handle := p.Create("vol", map[string]string{"skuName": "Premium_LRS", "tags": "team=db"})
		changeOutside(t, p, "vol", func(d *provisioner.Disk) {
			d.SKUName, d.Tags["team"], d.Tags["owner"] = "StandardSSD_LRS", "web", "me"
		})
		must(t, modify(t.Context(), p, handle, map[string]string{"skuName": "Premium_LRS"}))
		if d := diskAt(t, p, "vol"); d.SKUName != "Premium_LRS" || d.Tags["team"] != "web" || d.Tags["owner"] != "me" {
			t.Errorf("got SKU %s and tags %v; want the SKU of the class, and the tags as they were changed", d.SKUName, d.Tags)
		}
		if v := asIs(t, p, "vol"); v.Spec.Disk.Tags["team"] != "web" || changed(v) != "" {
			t.Errorf("got a record with tags %v, and condition %q; want the disk as it is", v.Spec.Disk.Tags, changed(v))
		}
		must(t, modify(t.Context(), p, handle, map[string]string{"tags": "team=db"}))
		if d := diskAt(t, p, "vol"); d.Tags["team"] != "db" || p.Cloud.CallCount(fake.DisksUpdate) != 2 {
			t.Errorf("got tags %v after %d changes, want team=db after 2", d.Tags, p.Cloud.CallCount(fake.DisksUpdate))
		}
	})
}

func TestModifyRemovesTags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		handle := p.Create("vol", map[string]string{"skuName": "Premium_LRS", "tags": "team=db,cost=1"})
		op, err := p.Cloud.Disks().Update(t.Context(), handle,
			provisioner.DiskChange{To: provisioner.DiskSettings{Tags: map[string]string{
				"foreign": "1",
				"owner":   "me",
			}}})
		must(t, err)
		must(t, op.Wait(t.Context()))
		class := map[string]string{"removeTags": "Team,foreign,never"}
		must(t, modify(t.Context(), p, handle, class))
		d := diskAt(t, p, "vol")
		if _, has := d.Tags["team"]; has || d.Tags["foreign"] != "" || d.Tags["cost"] != "1" || d.Tags["owner"] != "me" ||
			d.Tags["disk.csi.azure.com-volume-uid"] == "" || d.Tags["k8s-azure-created-by"] == "" {
			t.Fatalf("got tags %v, want those without team and foreign", d.Tags)
		}
		calls := p.Cloud.CallCount(fake.DisksUpdate)
		must(t, modify(t.Context(), p, handle, class))
		must(t, modify(t.Context(), p, handle, map[string]string{"removeTags": "never"}))
		if n := p.Cloud.CallCount(fake.DisksUpdate); n != calls {
			t.Fatalf("got %d calls to Azure for tags that are removed already, want none", n-calls)
		}
		must(t, modify(t.Context(), p, handle, map[string]string{"tags": "team=web"}))
		if d := diskAt(t, p, "vol"); d.Tags["team"] != "web" {
			t.Fatalf("got tags %v, want team=web again", d.Tags)
		}
	})
}

// The job reads what is wanted as late as it can: what is written while it reads the disk is part
// of the same call.
func TestResizeAndModificationAtOnceAreOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		handle := p.Create("vol", adjustable)
		reads, release := p.Cloud.HoldReads(fake.DisksGet)
		changed := make(chan error, 2)
		go func() {
			_, err := expand(t.Context(), p, handle, 20*gib)
			changed <- err
		}()
		<-reads
		go func() { changed <- modify(t.Context(), p, handle, map[string]string{"diskIOPSReadWrite": "6000"}) }()
		p.Eventually("the modification is recorded", func() string {
			if iops := p.Volume("vol").Spec.Disk.DiskIOPSReadWrite; iops == nil || *iops != 6000 {
				return fmt.Sprint(iops)
			}
			return ""
		})
		release()
		must(t, <-changed)
		must(t, <-changed)
		if d := diskAt(t, p, "vol"); d.SizeBytes != 20*gib || *d.DiskIOPSReadWrite != 6000 {
			t.Fatalf("%+v", d)
		}
		if n := p.Cloud.CallCount(fake.DisksUpdate); n != 1 {
			t.Fatalf("got %d calls to Azure, want 1", n)
		}
	})
}

func TestSharedDiskChangesInUseWhatAzureLets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		handle := p.CreateReplicated("sd-a", "sd-b")
		must(t, modify(t.Context(), p, handle, map[string]string{"tags": "a=b", "networkAccessPolicy": "AllowAll"}))
		attaches := p.Cloud.CallCount(fake.AttachmentsAttach)
		if got := p.AttachedTo("vol"); len(got) != 2 || p.Cloud.CallCount(fake.AttachmentsDetach) != 0 {
			t.Fatalf("attached to %v", got)
		}
		for _, class := range []map[string]string{{"skuName": "StandardSSD_LRS"}, {"skuName": "Premium_LRS"}, {"tier": "P10"}} {
			err := modify(t.Context(), p, handle, class)
			if class["skuName"] == "Premium_LRS" { // the change that waits is withdrawn
				must(t, err)
				continue
			}
			expectCode(t, err, codes.Aborted)
			if !strings.Contains(err.Error(), "sd-a") {
				t.Fatalf("%v does not say who has it", err)
			}
		}
		if n := p.Cloud.CallCount(fake.AttachmentsDetach); n != 0 {
			t.Fatalf("got %d detaches while a node uses the volume", n)
		}
		p.Unstage("vol", "sd-a")
		must(t, p.Unpublish(t.Context(), handle, "sd-a"))
		p.Eventually("the tier is another", func() string { // the cache may not have the release yet
			if err := modify(t.Context(), p, handle, map[string]string{"tier": "P10"}); err != nil {
				return err.Error()
			}
			return ""
		})
		p.Eventually("the replicas are back", func() string {
			if len(p.AttachedTo("vol")) == 0 || p.Cloud.CallCount(fake.AttachmentsAttach) == attaches {
				return "no replica"
			}
			return ""
		})
		if d := diskAt(t, p, "vol"); d.Tier != "P10" || d.Tags["a"] != "b" {
			t.Fatalf("%+v", d)
		}
	})
}

func TestConversionToPremiumV2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Latency: fake.Latency{BackgroundCopy: time.Hour}})
		p.AddNode("cv-a", "1", size)
		handle := p.Create("vol", single) // host caching ReadOnly
		p.StageOn(handle, "vol", "cv-a")
		class := map[string]string{"skuName": "PremiumV2_LRS", "diskIOPSReadWrite": "4000"}
		err := modify(t.Context(), p, handle, class)
		expectCode(t, err, codes.FailedPrecondition)
		if !strings.Contains(err.Error(), "caching") {
			t.Fatal(err)
		}
		p.Unstage("vol", "cv-a")
		must(t, p.Unpublish(t.Context(), handle, "cv-a"))
		p.Eventually("detached", attachedTo(p, "vol"))
		must(t, modify(t.Context(), p, handle, class))
		v := p.Volume("vol")
		if v.Status.Conversion == nil || v.Status.Conversion.Percent != 0 ||
			!strings.HasPrefix(updated(v), apiv1.ReasonDiskConverting) {
			t.Fatalf("%+v", v.Status)
		}
		// The disk can be used during the change, without host caching, which it had before.
		p.StageOn(handle, "vol", "cv-a")
	})
}

func TestNodeIsAskedToLookAtABlockDeviceOnlyIfItHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		p.AddNode("bd-a", "1", size)
		block := controlplane.Shared()
		block.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
		request := controlplane.CreateRequest("vol", single)
		request.VolumeCapabilities = []*csi.VolumeCapability{block}
		created, err := p.CSI.CreateVolume(t.Context(), request)
		must(t, err)
		grow := func(capability *csi.VolumeCapability, size int64) bool {
			t.Helper()
			response, err := p.CSI.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
				VolumeId:         created.GetVolume().GetVolumeId(),
				CapacityRange:    &csi.CapacityRange{RequiredBytes: size},
				VolumeCapability: capability,
			})
			must(t, err)
			return response.GetNodeExpansionRequired()
		}
		if grow(block, 20*gib) || grow(nil, 21*gib) {
			t.Fatal("a node is asked to look at a device that it does not have")
		}
		_, err = p.CSI.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{
			VolumeId:         created.GetVolume().GetVolumeId(),
			NodeId:           "bd-a",
			VolumeCapability: block,
		})
		must(t, err)
		if !grow(block, 30*gib) || !grow(nil, 30*gib) {
			t.Fatal("the node that has the device is not asked to look at it")
		}
	})
}

func TestMutableParametersOfACreation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		request := controlplane.CreateRequest("vol", map[string]string{"storageAccountType": "Premium_LRS", "tags": "a=1,b=1"})
		request.MutableParameters = map[string]string{"skuName": "PremiumV2_LRS", "diskIOPSReadWrite": "4000", "tags": "b=2"}
		_, err := p.CSI.CreateVolume(t.Context(), request)
		must(t, err)
		if d := diskAt(t, p, "vol"); d.SKUName != "PremiumV2_LRS" || *d.DiskIOPSReadWrite != 4000 || d.Tags["a"] != "1" ||
			d.Tags["b"] != "2" {
			t.Fatalf("%+v", d)
		}
		request = controlplane.CreateRequest("bad", single)
		request.MutableParameters = map[string]string{"fsType": "xfs"}
		_, err = p.CSI.CreateVolume(t.Context(), request)
		expectCode(t, err, codes.InvalidArgument)
	})
}
