package controllerplugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// v1Disk is a disk as V1 creates it. A test changes some of its properties.
func v1Disk(name string) provisioner.Disk {
	return provisioner.Disk{
		ID:        controlplane.DiskID(name),
		Location:  "eastus",
		Zone:      "1",
		SizeBytes: 10 << 30,
		MaxShares: 1,
		Ready:     true,
		DiskSettings: provisioner.DiskSettings{
			SKUName: "Premium_LRS",
			Tags:    map[string]string{"k8s-azure-created-by": "kubernetes-azure-dd", "kubernetes.io-created-for-pv-name": name},
		},
	}
}

func TestADiskIsAdoptedAsItIsAndAttachedAsItsPersistentVolumeSays(t *testing.T) {
	set := strings.Replace(controlplane.DiskID("set"), "/disks/", "/diskEncryptionSets/", 1)
	for name, test := range map[string]struct {
		disk       func(*provisioner.Disk)
		attributes map[string]string
		caching    string
		accelerate bool
		set        string
		replicas   int32
	}{
		"what V1 made": {
			attributes: map[string]string{"skuName": "Premium_LRS", "kind": "Managed",
				"requestedsizegib": "10", "storage.kubernetes.io/csiProvisionerIdentity": "x"}, caching: "ReadOnly"},
		"made manually, without attributes": {caching: "ReadOnly"},
		"in-tree": {attributes: map[string]string{"cachingMode": "ReadWrite", "fsType": "ext4", "kind": "Managed"},
			caching: "ReadWrite"},
		"keys in another case": {attributes: map[string]string{"CACHINGMODE": "None", "FSType": "XFS"}, caching: "None"},
		"the write accelerator": {disk: func(d *provisioner.Disk) { d.Tags["WriteAcceleratorEnabled"] = "true" },
			caching: "ReadOnly", accelerate: true},
		"an encryption set": {disk: func(d *provisioner.Disk) { d.DiskEncryptionSetID = set }, caching: "ReadOnly", set: set},
		"shares that V1 does not use": {disk: func(d *provisioner.Disk) { d.MaxShares = 3 },
			attributes: map[string]string{"cachingMode": "ReadOnly", "maxShares": "1"}, caching: "None", replicas: 2},
		"shares, and few replicas": {disk: func(d *provisioner.Disk) { d.MaxShares = 3 },
			attributes: map[string]string{"maxMountReplicaCount": "1"}, caching: "None", replicas: 1},
		"shares that the disk does not have": {attributes: map[string]string{"maxShares": "3"}, caching: "ReadOnly"},
		"an Ultra disk with caching": {disk: func(d *provisioner.Disk) { d.SKUName = "UltraSSD_LRS" },
			attributes: map[string]string{"cachingMode": "ReadOnly"}, caching: "None"},
		// Azure refuses every other caching for such a disk, if it is of the family that its name says.
		"a SKU that this version does not know": {disk: func(d *provisioner.Disk) { d.SKUName = "PremiumV2_ZRS" },
			caching: "None"},
		"a large disk with caching": {disk: func(d *provisioner.Disk) { d.SizeBytes = 4096 << 30 },
			attributes: map[string]string{"cachingMode": "ReadWrite"}, caching: "None"},
		"values that V1 ignored": {
			attributes: map[string]string{"enableBursting": "maybe", "tags": "no", "location": "?", "unknown": "x"},
			caching:    "ReadOnly"},
		"a profile":   {attributes: map[string]string{"perfProfile": "Basic"}, caching: "ReadOnly"},
		"a partition": {attributes: map[string]string{"partition": "1"}, caching: "ReadOnly"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
				p.AddNode("as-a", "1", "Standard_D16s_v5")
				disk := v1Disk(strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), ",", ""))
				if test.disk != nil {
					test.disk(&disk)
				}
				p.Cloud.AddDisk(disk)
				handle := disk.ID
				must(t, p.PublishWith(t.Context(), handle, "as-a", controlplane.Mounted(), test.attributes))
				request, attached := p.Cloud.AttachedAs(controlplane.VMID("as-a"), handle)
				if !attached || request.CachingMode != test.caching || request.WriteAccelerator != test.accelerate ||
					request.DiskEncryptionSetID != test.set {
					t.Errorf("attached as %+v", request)
				}
				v := p.Volume(handle[strings.LastIndex(handle, "/")+1:])
				if v == nil || v.Spec.Origin != apiv1.OriginAdopted || v.Spec.MaxMountReplicaCount != test.replicas ||
					v.Spec.Disk.MaxShares != disk.MaxShares {
					t.Errorf("adopted as %+v", v)
				}
				must(t, p.Unpublish(t.Context(), handle, "as-a"))
				if n := len(p.Cloud.State().Disks); n == 0 {
					t.Fatal("the disk is gone")
				}
				for _, call := range p.Cloud.Calls() {
					if strings.HasPrefix(string(call.Method), "Disks.") && call.Method != "Disks.Get" {
						t.Errorf("an adoption called %s of %s", call.Method, call.ID)
					}
				}
			})
		})
	}
}

// Azure adds SKUs more often than nodes get a new version of the driver.
func TestADiskOfAnUnknownSKUIsAdoptedMovedAndFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{StaleAfter: time.Millisecond})
		for i, n := range []string{"new-a", "new-b"} {
			p.AddNode(n, strconv.Itoa(i+1), size)
			p.Report(n, func(s *apiv1.AzDriverNodeStatus) { s.HeartbeatPeriodSeconds = 0 })
		}
		disk := v1Disk("vol")
		disk.SKUName, disk.Zone, disk.MaxShares = "PremiumV2_ZRS", "", 2
		p.Cloud.AddDisk(disk)
		p.StageOn(disk.ID, "vol", "new-a")
		p.AwaitReplica("vol", "new-b")
		p.Unstage("vol", "new-a")
		must(t, p.Unpublish(t.Context(), disk.ID, "new-a"))
		p.StageOn(disk.ID, "vol", "new-b")
		notReady(t, p, "new-b")
		p.Eventually("released with proof", func() string {
			if err := p.Unpublish(shortly(t, 10*time.Second), disk.ID, "new-b"); err != nil {
				return err.Error()
			}
			return ""
		})
		if n := p.Cloud.CallCount(fake.AttachmentsForceDetach); n != 1 {
			t.Errorf("%d forced detaches, want 1", n)
		}
		must(t, p.Publish(t.Context(), disk.ID, "new-a"))
		if v := p.Volume("vol"); v.Spec.Disk.SKUName != "PremiumV2_ZRS" || v.Status.Primary.NodeName != "new-a" ||
			v.Status.Primary.Epoch != 3 {
			t.Errorf("got SKU %s and ownership %+v, want the disk as it was, of new-a in epoch 3", v.Spec.Disk.SKUName, v.Status.Primary)
		}
	})
}

func TestAnAdoptedVolumeNamesItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		p.AddNode("bound-a", "1", size)
		for name, claim := range map[string]*corev1.ObjectReference{
			"with-claim":    {Namespace: "shop", Name: "data"},
			"without-claim": nil,
		} {
			disk := v1Disk(name)
			p.Cloud.AddDisk(disk)
			volumeFor(t, p, name, func(pv *corev1.PersistentVolume) {
				pv.Spec.ClaimRef = claim
				pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "disk.csi.azure.com", VolumeHandle: disk.ID}
			})
			must(t, p.PublishWith(t.Context(), disk.ID, "bound-a", controlplane.Mounted(), nil))
			want := ""
			if claim != nil {
				want = claim.Namespace + "/" + claim.Name
			}
			if got := p.Volume(name).Claim().String(); got != want {
				t.Errorf("%s: got the claim %q, want %q", name, got, want)
			}
		}
	})
}

func TestTwoDisksOfOneNameAreTwoVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		for _, node := range []string{"tn-a", "tn-b"} {
			p.AddNode(node, "1", size)
		}
		one, other := v1Disk("twin"), v1Disk("twin")
		other.ID = strings.Replace(other.ID, "/resourceGroups/", "/resourceGroups/another-", 1)
		p.Cloud.AddDisk(one)
		p.Cloud.AddDisk(other)
		// The second disk is used on another node, and on the node that has the first.
		for _, use := range []struct{ id, node string }{{one.ID, "tn-a"}, {other.ID, "tn-b"}, {other.ID, "tn-a"}} {
			must(t, p.PublishWith(t.Context(), use.id, use.node, controlplane.Mounted(), nil))
			if _, attached := p.Cloud.AttachedAs(controlplane.VMID(use.node), use.id); !attached {
				t.Errorf("disk %s is not attached to node %s", use.id, use.node)
			}
			if use.id == other.ID {
				must(t, p.Unpublish(t.Context(), use.id, use.node))
			}
		}
		if _, attached := p.Cloud.AttachedAs(controlplane.VMID("tn-a"), one.ID); !attached {
			t.Errorf("disk %s was detached with the other disk of its name", one.ID)
		}
	})
}

// volumeFor creates a PersistentVolume for a disk and waits until the driver's cache has it.
func volumeFor(t *testing.T, p *controlplane.ControlPlane, name string, edit func(*corev1.PersistentVolume)) {
	t.Helper()
	pv := controlplane.NewPersistentVolume(name, "",
		func(s *corev1.PersistentVolumeSpec) { s.PersistentVolumeSource = corev1.PersistentVolumeSource{} })
	edit(pv)
	p.AddPersistentVolume(pv)
	p.Eventually("the cache has the PersistentVolume", func() string {
		var cached corev1.PersistentVolumeList
		must(t, p.CSI.Client.List(t.Context(), &cached, client.MatchingFields{"azVolume": p.VolumeName(name)}))
		if len(cached.Items) == 0 {
			return "not yet"
		}
		return ""
	})
}

func TestAnExpansionThatComesFirstAdoptsTheDisk(t *testing.T) {
	block := corev1.PersistentVolumeBlock
	readWrite := corev1.AzureDataDiskCachingReadWrite
	for name, test := range map[string]struct {
		disk       func(*provisioner.Disk)
		pv         func(*corev1.PersistentVolume, string)
		capability *csi.VolumeCapability
		caching    string
		access     apiv1.AccessPattern
	}{
		"csi": {
			pv: func(pv *corev1.PersistentVolume, handle string) {
				pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{
					Driver:           controlplane.DriverName,
					VolumeHandle:     handle,
					FSType:           "xfs",
					VolumeAttributes: map[string]string{"cachingMode": "None"},
				}
			}, capability: controlplane.Mounted(), caching: "None", access: apiv1.AccessSingleNode,
		},
		"intree": {
			pv: func(pv *corev1.PersistentVolume, handle string) {
				kind := corev1.AzureManagedDisk
				pv.Spec.AzureDisk = &corev1.AzureDiskVolumeSource{
					DiskName:    "intree",
					DataDiskURI: handle,
					CachingMode: &readWrite,
					Kind:        &kind,
				}
			}, capability: controlplane.Mounted(), caching: "ReadWrite", access: apiv1.AccessSingleNode,
		},
		"shared": {
			disk: func(d *provisioner.Disk) { d.MaxShares = 2 },
			pv: func(pv *corev1.PersistentVolume, handle string) {
				pv.Spec.VolumeMode, pv.Spec.AccessModes = &block, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
				pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: controlplane.DriverName, VolumeHandle: handle}
			}, capability: controlplane.Shared(), caching: "None", access: apiv1.AccessMultiNode,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
				p.AddNode("xf-a", "1", size)
				disk := v1Disk(fmt.Sprintf("first-%s-%s", name, p.Namespace[len(p.Namespace)-4:]))
				if test.disk != nil {
					test.disk(&disk)
				}
				p.Cloud.AddDisk(disk)
				volume := disk.ID[strings.LastIndex(disk.ID, "/")+1:]
				volumeFor(t, p, volume, func(pv *corev1.PersistentVolume) { test.pv(pv, disk.ID) })
				_, err := p.CSI.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
					VolumeId: disk.ID, CapacityRange: &csi.CapacityRange{RequiredBytes: 20 << 30},
				})
				must(t, err)
				if v := p.Volume(volume); v.Spec.Access != test.access || v.Spec.Disk.CachingMode != test.caching ||
					v.Status.SizeBytes != 20<<30 {
					t.Errorf("adopted as %+v", v)
				}
				must(t, p.PublishWith(t.Context(), disk.ID, "xf-a", test.capability, nil))
				if request, ok := p.Cloud.AttachedAs(controlplane.VMID("xf-a"), disk.ID); !ok ||
					request.CachingMode != test.caching {
					t.Errorf("attached as %+v", request)
				}
			})
		})
	}
}

func TestADiskIsAttachedWithTheCachingModeOfTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		p.AddNode("cm-a", "1", size)
		disk := v1Disk("again")
		p.Cloud.AddDisk(disk)
		for _, mode := range []string{"ReadOnly", "None", "ReadWrite"} {
			must(t, p.PublishWith(t.Context(), disk.ID, "cm-a", controlplane.Mounted(), map[string]string{"cachingMode": mode}))
			p.Eventually("attached", func() string {
				if request, ok := p.Cloud.AttachedAs(controlplane.VMID("cm-a"), disk.ID); !ok || request.CachingMode != mode {
					return fmt.Sprintf("attached as %+v, want %s", request, mode)
				}
				return ""
			})
			must(t, p.Unpublish(t.Context(), disk.ID, "cm-a"))
			p.Eventually("detached", func() string {
				if _, ok := p.Cloud.AttachedAs(controlplane.VMID("cm-a"), disk.ID); ok {
					return "got the disk attached, want it detached"
				}
				return ""
			})
		}
	})
}

// TestOnlyAPublishNeedsTheAttributes makes each call the first one for a volume of V1 whose
// PersistentVolume has an attribute that the driver cannot obey.
func TestOnlyAPublishNeedsTheAttributes(t *testing.T) {
	var p *controlplane.ControlPlane
	calls := map[string]struct {
		attached bool
		do       func(ctx context.Context, id string, attributes map[string]string) error
	}{
		"expand": {true, func(ctx context.Context, id string, _ map[string]string) error {
			request := &csi.ControllerExpandVolumeRequest{
				VolumeId:      id,
				CapacityRange: &csi.CapacityRange{RequiredBytes: 20 << 30},
			}
			_, err := p.CSI.ControllerExpandVolume(ctx, request)
			return err
		}},
		"modify": {true, func(ctx context.Context, id string, _ map[string]string) error {
			request := &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: map[string]string{"tags": "a=b"}}
			_, err := p.CSI.ControllerModifyVolume(ctx, request)
			return err
		}},
		"unpublish": {true, func(ctx context.Context, id string, _ map[string]string) error {
			if err := p.Unpublish(ctx, id, "bad-a"); err != nil {
				return err
			}
			if _, still := p.Cloud.AttachedAs(controlplane.VMID("bad-a"), id); still {
				return errors.New("the disk is still attached")
			}
			return nil
		}},
		"delete": {false, func(ctx context.Context, id string, _ map[string]string) error {
			if _, err := p.CSI.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id}); err != nil {
				return err
			}
			if slices.ContainsFunc(p.Cloud.State().Disks, func(d provisioner.Disk) bool { return d.ID == id }) {
				return errors.New("the disk still exists")
			}
			return nil
		}},
		"snapshot": {true, func(ctx context.Context, id string, _ map[string]string) error {
			request := &csi.CreateSnapshotRequest{Name: "of-" + id[strings.LastIndex(id, "/")+1:], SourceVolumeId: id}
			_, err := p.CSI.CreateSnapshot(ctx, request)
			return err
		}},
		"get": {true, func(ctx context.Context, id string, _ map[string]string) error {
			_, err := p.CSI.ControllerGetVolume(ctx, &csi.ControllerGetVolumeRequest{VolumeId: id})
			return err
		}},
		"list": {true, func(ctx context.Context, _ string, _ map[string]string) error {
			_, err := p.CSI.ListVolumes(ctx, &csi.ListVolumesRequest{})
			return err
		}},
		"validate": {true, func(ctx context.Context, id string, attributes map[string]string) error {
			_, err := p.CSI.ValidateVolumeCapabilities(ctx, &csi.ValidateVolumeCapabilitiesRequest{
				VolumeId:           id,
				VolumeContext:      attributes,
				VolumeCapabilities: []*csi.VolumeCapability{controlplane.Mounted()},
			})
			return err
		}},
		"publish as raw block": {false, func(ctx context.Context, id string, attributes map[string]string) error {
			if attributes["fsType"] == "" {
				return nil
			}
			block := &csi.VolumeCapability{
				AccessMode: controlplane.Mounted().GetAccessMode(),
				AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
			}
			return p.PublishWith(ctx, id, "bad-a", block, attributes)
		}},
		"publish": {false, func(ctx context.Context, id string, attributes map[string]string) error {
			for _, given := range []map[string]string{attributes, nil} { // nil: they are read from the PersistentVolume
				err := p.PublishWith(ctx, id, "bad-a", controlplane.Mounted(), given)
				if status.Code(err) != codes.InvalidArgument {
					return fmt.Errorf("got %w, want InvalidArgument", err)
				}
				for key, value := range attributes {
					text := err.Error()
					if !strings.Contains(text, key) || !strings.Contains(text, value) || !strings.Contains(text, "allowed") {
						return fmt.Errorf("got %w, want an error that names %s, %s and what is allowed", err, key, value)
					}
				}
			}
			return nil
		}},
	}
	n := 0
	for key, value := range map[string]string{
		"fsType": "ntfs", "cachingMode": "read-only", "maxMountReplicaCount": "9", "partition": "sdc1", "perfProfile": "fast",
	} {
		for name, call := range calls {
			t.Run(key+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p = controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
					p.AddNode("bad-a", "1", "Standard_D32s_v5")
					n++
					disk := v1Disk("bad")
					disk.ID = p.DiskID(fmt.Sprintf("bad-%d", n))
					if p.Cloud.AddDisk(disk); call.attached {
						attachAsV1(t, p, disk, "bad-a")
					}
					attributes := map[string]string{key: value}
					volumeFor(t, p, fmt.Sprintf("bad-%d", n), func(pv *corev1.PersistentVolume) {
						pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
						pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{
							Driver:           controlplane.DriverName,
							VolumeHandle:     disk.ID,
							VolumeAttributes: attributes,
						}
					})
					if !call.attached {
						pv := &corev1.PersistentVolume{}
						must(t, p.Client.Get(t.Context(), client.ObjectKey{Name: fmt.Sprintf("bad-%d", n)}, pv))
						setPhase(t, p, pv, corev1.VolumeReleased)
					}
					if err := call.do(t.Context(), disk.ID, attributes); err != nil {
						t.Errorf("%s of a volume with %s %s: %v", name, key, value, err)
					}
				})
			})
		}
	}
}
