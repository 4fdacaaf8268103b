package disks_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
)

func TestAccessModes(t *testing.T) {
	modes := csi.VolumeCapability_AccessMode_Mode_name
	for number, mode := range modes {
		for _, block := range []bool{false, true} {
			for _, shares := range []int32{1, 2} {
				name := strings.ToLower(strings.ReplaceAll(fmt.Sprintf("%s-%v-%d", mode, block, shares), "_", "-"))
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
						capability := &csi.VolumeCapability{
							AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_Mode(number)},
						}
						capability.AccessType = &csi.VolumeCapability_Mount{
							Mount: &csi.VolumeCapability_MountVolume{FsType: "xfs"},
						}
						if block {
							capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
						}
						several := strings.HasPrefix(mode, "MULTI_NODE")
						request := controlplane.CreateRequest(name, map[string]string{
							"skuName":   "Premium_LRS",
							"maxShares": fmt.Sprint(shares),
						})
						request.VolumeCapabilities = []*csi.VolumeCapability{capability}
						_, err := p.CSI.CreateVolume(t.Context(), request)
						if mode == "UNKNOWN" || several && (!block || shares < 2) {
							expectCode(t, err, codes.InvalidArgument)
							return
						}
						must(t, err)
						want := apiv1.AzVolumeSpec{Access: apiv1.AccessSingleNode, MaxMountReplicaCount: shares - 1}
						if several {
							want.Access, want.MaxMountReplicaCount = apiv1.AccessMultiNode, 0
						}
						if !block {
							want.Filesystem = &apiv1.Filesystem{Type: "xfs"}
						}
						v := p.Volume(name)
						if v.Spec.Access != want.Access || v.Spec.MaxMountReplicaCount != want.MaxMountReplicaCount ||
							!cmp.Equal(v.Spec.Filesystem, want.Filesystem) {
							t.Errorf("%+v", v.Spec)
						}
					})
				})
			}
		}
	}
}

func TestSizes(t *testing.T) {
	const gib = 1 << 30
	for name, test := range map[string]struct {
		capacity   *csi.CapacityRange
		parameters map[string]string
		want       int64
		code       codes.Code
	}{
		"nothing":      {want: gib},
		"zero":         {capacity: &csi.CapacityRange{}, want: gib},
		"a-limit-only": {capacity: &csi.CapacityRange{LimitBytes: 5 * gib}, want: gib},
		"a-byte-more":  {capacity: &csi.CapacityRange{RequiredBytes: 5*gib + 1}, want: 6 * gib},
		"ultra": {capacity: &csi.CapacityRange{RequiredBytes: 1}, parameters: map[string]string{"skuName": "UltraSSD_LRS"},
			want: 4 * gib},
		"performance-plus": {capacity: &csi.CapacityRange{RequiredBytes: gib},
			parameters: map[string]string{"enablePerformancePlus": "true"}, want: 513 * gib},
		"no-room-to-round": {capacity: &csi.CapacityRange{RequiredBytes: 5*gib + 1, LimitBytes: 5*gib + 2},
			code: codes.OutOfRange},
		"no-room-for-plus": {capacity: &csi.CapacityRange{LimitBytes: 512 * gib},
			parameters: map[string]string{"enablePerformancePlus": "true"}, code: codes.OutOfRange},
		"negative": {capacity: &csi.CapacityRange{RequiredBytes: -1}, code: codes.InvalidArgument},
		"limit-below-required": {capacity: &csi.CapacityRange{RequiredBytes: 2 * gib, LimitBytes: gib},
			code: codes.InvalidArgument},
		"larger-than-any": {capacity: &csi.CapacityRange{RequiredBytes: 1 << 62}, code: codes.OutOfRange},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
				request := controlplane.CreateRequest(name, test.parameters)
				request.CapacityRange = test.capacity
				response, err := p.CSI.CreateVolume(t.Context(), request)
				if status.Code(err) != test.code || response.GetVolume().GetCapacityBytes() != test.want {
					t.Errorf("%d bytes, %v; want %d, %s", response.GetVolume().GetCapacityBytes(), err, test.want, test.code)
				}
			})
		})
	}
}

// The type of the filesystem may come from the capability, which the parser of the StorageClass
// does not see.
func TestTheOptionsOfTheFilesystemAreCheckedAndRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		options := map[string]string{"blockSize": "1024", "inodeSize": "512", "bytesPerInode": "4096"}
		for name, test := range map[string]struct {
			capability *csi.VolumeCapability
			want       apiv1.FilesystemOptions
			code       codes.Code
		}{
			"ext4": {&csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}},
				apiv1.FilesystemOptions{BlockSizeBytes: 1024, InodeSizeBytes: 512, BytesPerInode: 4096}, codes.OK},
			"xfs": {&csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{
				Mount: &csi.VolumeCapability_MountVolume{FsType: "xfs"},
			}}, apiv1.FilesystemOptions{}, codes.InvalidArgument},
			"block": {&csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}},
				apiv1.FilesystemOptions{}, codes.OK},
		} {
			request := controlplane.CreateRequest(name, options)
			test.capability.AccessMode = &csi.VolumeCapability_AccessMode{
				Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
			}
			request.VolumeCapabilities = []*csi.VolumeCapability{test.capability}
			_, err := p.CSI.CreateVolume(t.Context(), request)
			if status.Code(err) != test.code {
				t.Errorf("%s: got %v, want %s", name, err, test.code)
			}
			if err != nil {
				continue
			}
			var got apiv1.FilesystemOptions
			if fs := p.Volume(name).Spec.Filesystem; fs != nil {
				got = fs.FilesystemOptions
			}
			if got != test.want {
				t.Errorf("%s: got %+v, want %+v", name, got, test.want)
			}
		}
	})
}

// No node could mount a volume with such options.
func TestMountOptionsThatNoNodeCanUseAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		for flag, code := range map[string]codes.Code{
			"ro,noatime":  codes.OK,
			"ro, noatime": codes.InvalidArgument,
			"bind":        codes.InvalidArgument,
		} {
			request := controlplane.CreateRequest("options-"+strconv.Itoa(len(flag)), nil)
			mount := &csi.VolumeCapability_MountVolume{MountFlags: []string{"nodiratime", flag}}
			request.VolumeCapabilities = []*csi.VolumeCapability{{
				AccessType: &csi.VolumeCapability_Mount{Mount: mount},
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			}}
			_, err := p.CSI.CreateVolume(t.Context(), request)
			if status.Code(err) != code || err != nil && !strings.Contains(err.Error(), strconv.Quote(flag)) {
				t.Errorf("mountOptions with %q: got %v, want %s that names the entry", flag, err, code)
			}
		}
	})
}

// A PersistentVolume of this driver has to work with the V1 driver after a migration back: it has
// the attributes that V1 would have written, in the spelling of the StorageClass.
func TestTheVolumeContextIsV1s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		request := controlplane.CreateRequest("back", map[string]string{
			"SkuName": "Premium_LRS", "kind": "dedicated", "CACHINGMODE": "ReadOnly", "attachDiskInitialDelay": "500",
			"maxshares": "1", "perfProfile": "basic",
			"csi.storage.k8s.io/pvc/name": "claim", "csi.storage.k8s.io/pvc/namespace": "ns",
			"csi.storage.k8s.io/pv/name": "back",
			"tags":                       "a=b",
			"writeAcceleratorEnabled":    "true",
		})
		request.MutableParameters = map[string]string{"tier": "P20"}
		request.Secrets = map[string]string{"password": "unused"}
		response, err := p.CSI.CreateVolume(t.Context(), request)
		must(t, err)
		want := map[string]string{
			"SkuName": "Premium_LRS", "kind": "Managed", "CACHINGMODE": "ReadOnly", "attachDiskInitialDelay": "500",
			"maxshares": "1", "perfProfile": "basic",
			"csi.storage.k8s.io/pvc/name": "claim", "csi.storage.k8s.io/pvc/namespace": "ns",
			"csi.storage.k8s.io/pv/name": "back",
			"tags":                       "a=b",
			"writeAcceleratorEnabled":    "true", "tier": "P20", "requestedsizegib": "10", "fsType": "ext4",
		}
		if diff := cmp.Diff(want, response.GetVolume().GetVolumeContext()); diff != "" {
			t.Errorf("volume context (-want +got):\n%s", diff)
		}
		if handle := response.GetVolume().GetVolumeId(); handle != controlplane.DiskID("back") {
			t.Errorf("handle %s", handle)
		}
		disk := p.Cloud.State().Disks[0]
		for tag, value := range map[string]string{
			"k8s-azure-created-by": "kubernetes-azure-dd", "kubernetes.io-created-for-pv-name": "back",
			"kubernetes.io-created-for-pvc-name":      "claim",
			"kubernetes.io-created-for-pvc-namespace": "ns", "a": "b", "writeacceleratorenabled": "true",
		} {
			if disk.Tags[tag] != value {
				t.Errorf("tag %s is %q, want %q", tag, disk.Tags[tag], value)
			}
		}
		if disk.NetworkAccessPolicy != "DenyAll" || disk.PublicNetworkAccess != "Disabled" || disk.Tier != "P20" {
			t.Errorf("%+v", disk)
		}
	})
}

func TestEveryParameterArrivesAtAzure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		set := strings.Replace(controlplane.DiskID("set"), "/disks/", "/diskEncryptionSets/", 1)
		access := strings.Replace(controlplane.DiskID("access"), "/disks/", "/diskAccesses/", 1)
		p.Create("ultra", map[string]string{
			"skuName": "UltraSSD_LRS", "maxShares": "2", "diskIOPSReadWrite": "900", "diskMBpsReadWrite": "90",
			"diskIOPSReadOnly": "200", "diskMBpsReadOnly": "20", "logicalSectorSize": "512",
		})
		p.Create("default-ultra", map[string]string{"skuName": "UltraSSD_LRS"})
		p.Create("premium", map[string]string{
			"skuName": "Premium_LRS", "tier": "P30", "optimizedForFrequentAttach": "true",
			"actionOnDiskDelay":     "AutomaticReattach",
			"enablePerformancePlus": "true", "enableBursting": "true",
			"diskEncryptionSetID": set, "networkAccessPolicy": "AllowPrivate", "diskAccessID": access,
			"publicNetworkAccess": "Enabled",
		})
		got := map[string]string{}
		for _, d := range p.Cloud.State().Disks {
			number := func(n *int64) int64 {
				if n == nil {
					return 0
				}
				return *n
			}
			name := d.ID[strings.LastIndex(d.ID, "/")+1:]
			got[name] = fmt.Sprint(number(d.DiskIOPSReadWrite), number(d.DiskMBpsReadWrite), number(d.DiskIOPSReadOnly),
				number(d.DiskMBpsReadOnly), d.LogicalSectorSizeBytes != nil && *d.LogicalSectorSizeBytes == 512,
				d.Tier, d.OptimizedForFrequentAttach, d.ActionOnDiskDelay, d.PerformancePlusEnabled, d.BurstingEnabled,
				d.DiskEncryptionSetID == set, d.DiskEncryptionType,
				d.NetworkAccessPolicy, d.DiskAccessID == access, d.PublicNetworkAccess)
		}
		want := map[string]string{
			"ultra": fmt.Sprint(900, 90, 200, 20, true, "", false, "", false, false, false, "", "DenyAll", false,
				"Disabled"),
			"default-ultra": fmt.Sprint(500, 100, 0, 0, false, "", false, "", false, false, false, "", "DenyAll", false,
				"Disabled"),
			"premium": fmt.Sprint(0, 0, 0, 0, false, "P30", true, "AutomaticReattach", true, true, true,
				"EncryptionAtRestWithCustomerKey", "AllowPrivate", true, "Enabled"),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("disks (-want +got):\n%s", diff)
		}
	})
}

// The tags that the driver is configured to add are on each disk. They may change while a disk is
// being created.
func TestEachDiskHasTheExtraTags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		request := controlplane.CreateRequest("tagged", map[string]string{"skuName": "Premium_LRS", "tags": "Team=mine"})
		p.CSI.Provisioner.ExtraTags = map[string]string{"team": "platform", "costCenter": "47,11",
			"kubernetes.io-cluster-id": "blue"}
		_, err := p.CSI.CreateVolume(t.Context(), request)
		must(t, err)
		tags := p.Cloud.State().Disks[0].Tags
		for name, want := range map[string]string{
			"Team":                     "mine",
			"team":                     "",
			"costCenter":               "47,11",
			"kubernetes.io-cluster-id": "blue",
		} {
			if tags[name] != want {
				t.Errorf("tag %s: got %q, want %q; all are %v", name, tags[name], want, tags)
			}
		}
		p.CSI.Provisioner.ExtraTags = map[string]string{"costCenter": "12"}
		_, err = p.CSI.CreateVolume(t.Context(), request)
		must(t, err)

		many := make([]string, 40)
		for i := range many {
			many[i] = fmt.Sprintf("t%d=x", i)
		}
		p.CSI.Provisioner.ExtraTags = map[string]string{}
		for i := range 20 {
			p.CSI.Provisioner.ExtraTags[fmt.Sprintf("extra%d", i)] = "x"
		}
		_, err = p.CSI.CreateVolume(t.Context(),
			controlplane.CreateRequest("overfull", map[string]string{"tags": strings.Join(many, ",")}))
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "the disk would have 61 tags") {
			t.Errorf("got %v, want a refusal that names the number of tags", err)
		}
	})
}
