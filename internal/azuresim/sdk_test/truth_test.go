package sdk_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
)

const emptyDisk = `{"location":"eastus","properties":{"creationData":{"createOption":"Empty"},"diskSizeGB":4}}`

// code sends a request without the SDK and returns the status and the code of the error.
func (s *simulator) code(method, path, body string) (status int, code, message string) {
	s.t.Helper()
	resp := s.raw(method, path, body)
	var doc struct {
		Error struct{ Code, Message string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil && resp.StatusCode >= 400 {
		s.t.Fatal(err)
	}
	return resp.StatusCode, doc.Error.Code, doc.Error.Message
}

// azuresim verify plays more of them against Azure and azuresim.
func TestWhatAzureRefusesIsRefused(t *testing.T) {
	s := start(t)
	s.disk("plain")
	version := "?api-version=2025-01-02"
	elsewhere := "/subscriptions/" + subscription + "/resourceGroups/nowhere/providers/Microsoft.Compute/disks/a" + version
	disk := func(properties string) string {
		return `{"location":"eastus","properties":{"creationData":{"createOption":"Empty"},"diskSizeGB":4,` + properties + `}}`
	}
	missing := "/subscriptions/" + subscription + "/resourceGroups/" + group + "/providers/Microsoft.Compute/"
	for name, tc := range map[string]struct {
		method, path, body string
		status             int
		code               string
	}{
		"DELETE in a resource group that does not exist": {"DELETE", elsewhere, "", 404, "ResourceGroupNotFound"},
		"PATCH in a resource group that does not exist":  {"PATCH", elsewhere, `{}`, 404, "ResourceGroupNotFound"},
		"an api-version of VMs for a disk": {"GET", diskID("plain") + "?api-version=2025-04-01", "", 400,
			"NoRegisteredProviderFound"},
		"an unknown property of a part": {"PUT", diskID("a") + version, disk(`"encryption":{"colour":"red"}`),
			400, "BadRequest"},
		"an unknown property of a change": {"PATCH", diskID("plain") + version,
			`{"properties":{"diskSizeGB":8,"colour":"red"}}`, 400, "BadRequest"},
		"an unknown property of a data disk": {"PUT",
			strings.Replace(diskID("v"), "/disks/", "/virtualMachines/", 1) + "?api-version=2025-04-01",
			`{"location":"eastus","properties":{"hardwareProfile":{"vmSize":"Standard_D4s_v5"},"storageProfile":{"dataDisks":[{"lun":0,"colour":"red"}]}}}`, 400, "BadRequest"},
		"an unknown property of an attach": {"POST",
			strings.Replace(diskID("v"), "/disks/", "/virtualMachines/", 1) + "/attachDetachDataDisks?api-version=2025-04-01",
			`{"dataDisksToAttach":[{"diskId":"` + diskID("plain") + `","colour":"red"}]}`, 400, "BadRequest"},
		"a name with a space":            {"PUT", diskID("a%20b") + version, emptyDisk, 400, "InvalidParameter"},
		"a name that ends with a hyphen": {"PUT", diskID("a-") + version, emptyDisk, 400, "InvalidParameter"},
		"a disk access that does not exist, for an existing disk": {"PATCH", diskID("plain") + version,
			`{"properties":{"networkAccessPolicy":"AllowPrivate","diskAccessId":"` + missing + `diskAccesses/none"}}`, 400,
			"BadRequest"},
	} {
		t.Run(name, func(t *testing.T) {
			if status, code, message := s.code(tc.method, tc.path, tc.body); status != tc.status || code != tc.code {
				t.Errorf("got %d %s (%s), want %d %s", status, code, message, tc.status, tc.code)
			}
		})
	}
}

func TestNamesThatAzureTakes(t *testing.T) {
	s := start(t)
	for _, name := range []string{"a", strings.Repeat("a", 80), "1.a-b_c", "a_"} {
		s.disk(name)
	}
}

func TestATokenForAnotherAudienceIsRefused(t *testing.T) {
	s := start(t, func(o *server.Options) { o.Auth = "on" })
	for audience, code := range map[string]string{
		"https://management.azure.com": "", "https://management.azure.com/": "", "https://management.core.windows.net/": "",
		s.url:                     "",
		"https://vault.azure.net": "InvalidAuthenticationTokenAudience", "": "InvalidAuthenticationTokenAudience",
	} {
		var doc struct {
			Token string `json:"access_token"`
		}
		s.adminCall("POST", "/admin/tokens", map[string]string{"client_id": "vm", "resource": audience}, &doc)
		f, err := armcompute.NewClientFactory(subscription, fixedToken(doc.Token), clientOptions(s.url, nil))
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.NewDisksClient().Get(t.Context(), group, "a", nil)
		if code == "" {
			expectCode(t, responseError(t, err), 404, "ResourceNotFound")
			continue
		}
		expectCode(t, responseError(t, err), 401, code)
	}
}

func TestPerformanceAndTierOfADisk(t *testing.T) {
	s := start(t)
	for name, tc := range map[string]struct {
		change     []func(*armcompute.Disk)
		iops, mbps int64
		tier       string
	}{
		"premium": {[]func(*armcompute.Disk){sizeGB(10)}, 120, 25, "P3"},
		"premium with a higher tier": {[]func(*armcompute.Disk){sizeGB(10),
			with(func(p *armcompute.DiskProperties) { p.Tier = to.Ptr("P20") })}, 2300, 150, "P20"},
		"standard":     {[]func(*armcompute.Disk){sku(standard), sizeGB(200)}, 500, 60, ""},
		"standard SSD": {[]func(*armcompute.Disk){sku(ssd), sizeGB(200)}, 500, 100, ""},
		"premium v2":   {[]func(*armcompute.Disk){sku(premiumV2), zone("1")}, 3000, 125, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := s.disk(strings.ReplaceAll(name, " ", "-"), tc.change...)
			p := d.Properties
			if *p.DiskIOPSReadWrite != tc.iops || *p.DiskMBpsReadWrite != tc.mbps || deref(p.Tier) != tc.tier ||
				p.DataAccessAuthMode != nil {
				t.Errorf("IOPS %d, MBps %d, tier %q, data access %v; want %d, %d, %q and none",
					*p.DiskIOPSReadWrite, *p.DiskMBpsReadWrite, deref(p.Tier), p.DataAccessAuthMode, tc.iops, tc.mbps, tc.tier)
			}
			again, err := s.disks.BeginCreateOrUpdate(t.Context(), group, *d.Name, d, nil)
			finish(t, again, err) // the disk as it was read is no change
		})
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func TestTheCreationOfADiskAsksToWait(t *testing.T) {
	s := start(t)
	realistic := latency.Realistic()
	realistic.Steps = map[latency.Step]latency.Range{}
	s.adminCall("PUT", "/admin/latency", realistic, nil)
	after := func(method, path, body string) string {
		return s.raw(method, path+"?api-version=2025-01-02", body).Header.Get("Retry-After")
	}
	if got := after("PUT", diskID("a"), emptyDisk); got != "2" {
		t.Errorf("Retry-After of a creation is %q, want 2", got)
	}
	s.settle()
	if got := after("PATCH", diskID("a"), `{"properties":{"diskSizeGB":8}}`); got != "" {
		t.Errorf("Retry-After of a change is %q, want none", got)
	}
}

func TestADiskCanBeDeletedWhileItIsBeingAttached(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.disk("b")
	s.vm("node", "Standard_D4s_v5")
	s.hold("vm.disks", "node")
	attach, err := s.begin("node", attachments("a"))
	if err != nil {
		t.Fatal(err)
	}
	if d := s.getDisk("a"); *d.Properties.DiskState != "Unattached" || d.ManagedBy != nil {
		t.Errorf("a disk during its attach is %s, managed by %v; want Unattached, and nothing", *d.Properties.DiskState,
			d.ManagedBy)
	}
	del, err := s.disks.BeginDelete(t.Context(), group, "a", nil)
	finish(t, del, err)
	finish(t, attach, nil)

	// The VM has a disk that does not exist. A whole list that names it is refused.
	vm := s.getVM("node")
	if disks := vm.Properties.StorageProfile.DataDisks; len(disks) != 1 ||
		!strings.EqualFold(*disks[0].ManagedDisk.ID, diskID("a")) {
		t.Fatalf("data disks are %v, want the one that was deleted", disks)
	}
	list := append(vm.Properties.StorageProfile.DataDisks, &armcompute.DataDisk{
		Lun:          to.Ptr[int32](1),
		CreateOption: to.Ptr(armcompute.DiskCreateOptionTypesAttach),
		ManagedDisk:  &armcompute.ManagedDiskParameters{ID: to.Ptr(diskID("b"))},
	})
	update, err := s.vms.BeginUpdate(t.Context(), group, "node", armcompute.VirtualMachineUpdate{
		Properties: &armcompute.VirtualMachineProperties{StorageProfile: &armcompute.StorageProfile{DataDisks: list}},
	}, nil)
	expectCode(t, failure(t, update, err), http.StatusNotFound, "NotFound")

	s.attach("node", "b")
	if left := s.detach("node", "a").DataDisks; len(left) != 1 {
		t.Errorf("data disks after the detach are %v, want one", left)
	}
}

func TestInstancesOfAUniformScaleSetHaveTheProfilesOfItsModel(t *testing.T) {
	s := start(t)
	p, err := s.sets.BeginCreateOrUpdate(t.Context(), group, "pool", armcompute.VirtualMachineScaleSet{
		Location: to.Ptr("eastus"),
		SKU:      &armcompute.SKU{Name: to.Ptr("Standard_D4s_v5"), Capacity: to.Ptr[int64](1)},
		Properties: &armcompute.VirtualMachineScaleSetProperties{
			OrchestrationMode: to.Ptr(armcompute.OrchestrationModeUniform),
			VirtualMachineProfile: &armcompute.VirtualMachineScaleSetVMProfile{
				OSProfile: &armcompute.VirtualMachineScaleSetOSProfile{ComputerNamePrefix: to.Ptr("pool")},
				StorageProfile: &armcompute.VirtualMachineScaleSetStorageProfile{
					ImageReference: &armcompute.ImageReference{ID: to.Ptr("/image")},
					OSDisk: &armcompute.VirtualMachineScaleSetOSDisk{
						CreateOption: to.Ptr(armcompute.DiskCreateOptionTypesFromImage),
						Caching:      to.Ptr(armcompute.CachingTypesReadWrite),
						OSType:       to.Ptr(armcompute.OperatingSystemTypesLinux),
						DiskSizeGB:   to.Ptr[int32](128),
						ManagedDisk: &armcompute.VirtualMachineScaleSetManagedDiskParameters{StorageAccountType: to.Ptr(
							armcompute.StorageAccountTypesPremiumLRS)},
					},
				},
				NetworkProfile: &armcompute.VirtualMachineScaleSetNetworkProfile{
					NetworkInterfaceConfigurations: []*armcompute.VirtualMachineScaleSetNetworkConfiguration{{
						Name:       to.Ptr("nic"),
						Properties: &armcompute.VirtualMachineScaleSetNetworkConfigurationProperties{Primary: to.Ptr(true)},
					}},
				},
			},
		},
	}, nil)
	finish(t, p, err)
	got, err := s.instances.Get(t.Context(), group, "pool", "0", nil)
	if err != nil {
		t.Fatal(err)
	}
	props := got.Properties
	if props.NetworkProfile == nil || len(props.NetworkProfile.NetworkInterfaces) != 1 ||
		!strings.HasSuffix(*props.NetworkProfile.NetworkInterfaces[0].ID,
			"/virtualMachineScaleSets/pool/virtualMachines/0/networkInterfaces/nic") {
		t.Errorf("network profile is %+v, want the interface nic of the instance", props.NetworkProfile)
	}
	if props.NetworkProfileConfiguration == nil || len(props.NetworkProfileConfiguration.NetworkInterfaceConfigurations) != 1 {
		t.Errorf("network configuration is %+v, want that of the model", props.NetworkProfileConfiguration)
	}
	os := props.StorageProfile.OSDisk
	if os == nil || os.OSType == nil || *os.OSType != armcompute.OperatingSystemTypesLinux || *os.DiskSizeGB != 128 ||
		os.Name == nil || os.ManagedDisk == nil || os.ManagedDisk.ID == nil {
		t.Errorf("OS disk is %+v, want that of the model, with a name and an ID", os)
	}
	if props.StorageProfile.ImageReference == nil {
		t.Error("the image of the model is missing")
	}
}

func TestTagsThatDifferInCaseAreOneTag(t *testing.T) {
	s := start(t)
	status, code, message := s.code("PUT", diskID("tagged")+"?api-version=2025-01-02",
		strings.Replace(emptyDisk, "{", `{"tags":{"Owner":"a","other":"x","owner":"b"},`, 1))
	if status >= 300 {
		t.Fatalf("PUT: got %d %s %s, want success", status, code, message)
	}
	got, err := s.disks.Get(t.Context(), group, "tagged", nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Tags) != 2 || got.Tags["Owner"] == nil || *got.Tags["Owner"] != "b" {
		t.Errorf("got %d tags, Owner is %v; want 2 and b", len(got.Tags), got.Tags["Owner"])
	}
}
