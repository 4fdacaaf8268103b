package controlplane

import (
	"context"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// VMID returns the resource ID of a node's VM.
func VMID(node string) string {
	return "/subscriptions/" + Subscription + "/resourceGroups/" + Group + "/providers/Microsoft.Compute/virtualMachines/" + node
}

// DiskID returns the resource ID of a disk in the resource group Group.
func DiskID(name string) string { return diskID(Group, name) }

func diskID(group, name string) string {
	return "/subscriptions/" + Subscription + "/resourceGroups/" + group + "/providers/Microsoft.Compute/disks/" + name
}

// DiskID returns the resource ID of a disk.
func (p *ControlPlane) DiskID(name string) string { return diskID(p.Group, name) }

// VolumeName returns the name of the AzVolume of a disk.
func (p *ControlPlane) VolumeName(disk string) string {
	return apiv1.VolumeName(Subscription, p.Group, disk)
}

// Create creates a volume with parameters and returns its handle.
func (p *ControlPlane) Create(name string, parameters map[string]string) string {
	p.t.Helper()
	response, err := p.CSI.CreateVolume(p.t.Context(), CreateRequest(name, parameters))
	p.must(err)
	return response.GetVolume().GetVolumeId()
}

// CreateRequest is a request for a mounted volume of 10 GiB in zone 1.
func CreateRequest(name string, parameters map[string]string) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name:               name,
		Parameters:         parameters,
		CapacityRange:      &csi.CapacityRange{RequiredBytes: 10 << 30},
		VolumeCapabilities: []*csi.VolumeCapability{Mounted()},
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{
			{Segments: map[string]string{"topology." + DriverName + "/zone": Location + "-1"}},
		}},
	}
}

// Mounted is the capability of a filesystem on one node.
func Mounted() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

// Shared is the capability of raw block on several nodes.
func Shared() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
	}
}

// Publish publishes a mounted volume to a node.
func (p *ControlPlane) Publish(ctx context.Context, handle, node string) error {
	return p.PublishWith(ctx, handle, node, Mounted(), nil)
}

// PublishWith publishes a volume to a node as Kubernetes does with a PersistentVolume of the
// attributes.
func (p *ControlPlane) PublishWith(ctx context.Context, handle, node string, capability *csi.VolumeCapability,
	attributes map[string]string) error {
	_, err := p.CSI.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId:         handle,
		NodeId:           node,
		VolumeCapability: capability,
		VolumeContext:    attributes,
	})
	return err
}

// Unpublish unpublishes a volume from a node.
func (p *ControlPlane) Unpublish(ctx context.Context, handle, node string) error {
	_, err := p.CSI.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: handle, NodeId: node})
	return err
}

// Volume reads the AzVolume of a disk, or returns nil.
func (p *ControlPlane) Volume(disk string) *apiv1.AzVolume {
	p.t.Helper()
	v := &apiv1.AzVolume{}
	return found(p.t, v, p.Client.Get(context.Background(), client.ObjectKey{
		Namespace: p.Namespace,
		Name:      p.VolumeName(disk),
	}, v))
}

// Attachment reads the AzVolumeAttachment of a disk to a node, or returns nil.
func (p *ControlPlane) Attachment(disk, node string) *apiv1.AzVolumeAttachment {
	p.t.Helper()
	a := &apiv1.AzVolumeAttachment{}
	return found(p.t, a, p.Client.Get(context.Background(), client.ObjectKey{
		Namespace: p.Namespace,
		Name:      apiv1.AttachmentName(p.VolumeName(disk), node),
	}, a))
}

func found[T any](t testing.TB, object *T, err error) *T {
	t.Helper()
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return object
}

// RemoveByForce removes an attachment from an API server in memory as a user does who removes the
// finalizer, before a reconciler can put it back.
func (p *ControlPlane) RemoveByForce(disk, node string) {
	p.t.Helper()
	at := p.memory.client(nil) // whose writes wait for no reconciler
	p.Eventually("removed by force", func() string {
		a := p.Attachment(disk, node)
		a.Finalizers = nil
		if err := at.Update(p.t.Context(), a); err != nil {
			return err.Error()
		}
		if err := at.Delete(p.t.Context(), a, client.Preconditions{
			UID:             &a.UID,
			ResourceVersion: &a.ResourceVersion,
		}); err != nil {
			return err.Error()
		}
		return ""
	})
}

// Attachments reads all attachments of a disk.
func (p *ControlPlane) Attachments(disk string) []apiv1.AzVolumeAttachment {
	p.t.Helper()
	var list apiv1.AzVolumeAttachmentList
	p.must(p.Client.List(context.Background(), &list, client.InNamespace(p.Namespace),
		client.MatchingFields{"spec.volumeName": p.VolumeName(disk)}))
	return list.Items
}

// AttachedTo returns the names of the VMs that have a disk attached, says the platform.
func (p *ControlPlane) AttachedTo(disk string) []string {
	var names []string
	for _, d := range p.Cloud.State().Disks {
		if d.ID == p.DiskID(disk) {
			for _, vm := range d.AttachedTo {
				names = append(names, vm[len(VMID("")):])
			}
		}
	}
	return names
}
