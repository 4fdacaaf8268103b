package scheduler

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kubeapi"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

const (
	// volumeIndex is the index of AzVolumeAttachments by their volume.
	volumeIndex = "spec.volumeName"
	// takenIndex is the index by node of those AzVolumeAttachments that do not give way.
	takenIndex = "taken"
)

// View reads what the extender decides upon. Each method costs a fixed number of
// look-ups in indexed caches for each volume or node that it is asked about.
type View struct {
	// Reader is a cache with the indexes volumeIndex and takenIndex. Objects read from it are not changed.
	Reader client.Reader
	// Heartbeats of the nodes in the cache.
	Heartbeats *Heartbeats
	// Namespace of the custom resources.
	Namespace string
	// DriverName is the CSI driver's name.
	DriverName string
}

// Volumes returns the volumes of the pod that are this driver's, with the nodes
// that hold them. A claim that waits for its first consumer is among them, without
// nodes. A claim, volume or class that does not exist is passed over: the scheduler itself deals with it.
func (v *View) Volumes(ctx context.Context, pod *corev1.Pod) ([]Volume, error) {
	var volumes []Volume
	seen := map[string]bool{}
	for i := range pod.Spec.Volumes {
		disk, err := v.disk(ctx, pod, &pod.Spec.Volumes[i])
		if err != nil {
			return nil, err
		}
		if !disk.ours {
			continue
		}
		volume := Volume{Name: volumeName(disk.uri), SKU: disk.sku}
		if volume.Name != "" {
			if seen[volume.Name] {
				continue
			}
			seen[volume.Name] = true
			if volume.Nodes, err = v.nodes(ctx, volume.Name); err != nil {
				return nil, err
			}
		}
		volumes = append(volumes, volume)
	}
	return volumes, nil
}

// disk is the disk behind a pod's volume.
type disk struct {
	// uri is the resource ID; "" for a claim that has no disk yet.
	uri string
	sku string
	// ours says that it is this driver's.
	ours bool
}

// disk finds the disk behind a pod's volume.
func (v *View) disk(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (disk, error) {
	claimName := ""
	switch {
	case volume.PersistentVolumeClaim != nil:
		claimName = volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil:
		claimName = pod.Name + "-" + volume.Name
	case volume.AzureDisk != nil:
		// Kubernetes hands volumes of the former in-tree plug-in to the driver of this name.
		return disk{uri: volume.AzureDisk.DataDiskURI, ours: v.servesInTree()}, nil
	default:
		return disk{}, nil
	}
	claim, err := kubeapi.Find[corev1.PersistentVolumeClaim](ctx, v.Reader, client.ObjectKey{Namespace: pod.Namespace, Name: claimName})
	if err != nil || claim == nil {
		return disk{}, err
	}
	if volume.Ephemeral != nil && !metav1.IsControlledBy(claim, pod) {
		return disk{}, nil // a claim of the same name that was not made for this pod
	}
	if claim.Spec.VolumeName == "" {
		return v.toBeProvisioned(ctx, claim.Spec.StorageClassName)
	}
	pv, err := kubeapi.Find[corev1.PersistentVolume](ctx, v.Reader, client.ObjectKey{Name: claim.Spec.VolumeName})
	if err != nil || pv == nil {
		return disk{}, err
	}
	switch {
	case pv.Spec.CSI != nil:
		return disk{uri: pv.Spec.CSI.VolumeHandle, sku: skuOf(pv.Spec.CSI.VolumeAttributes), ours: pv.Spec.CSI.Driver == v.DriverName}, nil
	case pv.Spec.AzureDisk != nil:
		return disk{uri: pv.Spec.AzureDisk.DataDiskURI, ours: v.servesInTree()}, nil
	}
	return disk{}, nil
}

// skuOf finds the SKU among the parameters of a class or the attributes of a volume; "" if they do not name it.
func skuOf(parameters map[string]string) string {
	for key, value := range parameters {
		if strings.EqualFold(key, "skuName") || strings.EqualFold(key, "storageAccountType") {
			return value
		}
	}
	return ""
}

func (v *View) toBeProvisioned(ctx context.Context, className *string) (disk, error) {
	if className == nil || *className == "" {
		return disk{}, nil
	}
	class, err := kubeapi.Find[storagev1.StorageClass](ctx, v.Reader, client.ObjectKey{Name: *className})
	if err != nil || class == nil {
		return disk{}, err
	}
	return disk{sku: skuOf(class.Parameters), ours: class.Provisioner == v.DriverName}, nil
}

func (v *View) nodes(ctx context.Context, volume string) (map[string]DiskState, error) {
	var list apiv1.AzVolumeAttachmentList
	err := v.Reader.List(ctx, &list, client.InNamespace(v.Namespace), client.MatchingFields{volumeIndex: volume})
	if err != nil {
		return nil, fmt.Errorf("list the attachments of volume %s: %w", volume, err)
	}
	nodes := make(map[string]DiskState, len(list.Items))
	for i := range list.Items {
		attachment := &list.Items[i]
		nodes[attachment.Spec.NodeName] = max(nodes[attachment.Spec.NodeName], diskState(attachment))
	}
	return nodes, nil
}

// presence reads an attachment. One that is on its way out, or has failed, is no help to a pod.
func diskState(a *apiv1.AzVolumeAttachment) DiskState {
	if a.DeletionTimestamp != nil {
		return Absent
	}
	switch a.Status.State {
	case apiv1.AttachmentAttached:
		if a.Spec.Role == apiv1.RolePrimary {
			return Primary
		}
		return Replica
	case "", apiv1.AttachmentPending, apiv1.AttachmentAttaching:
		return Attaching
	case apiv1.AttachmentFailed, apiv1.AttachmentDetaching, apiv1.AttachmentDetachFail:
		return Absent
	}
	return Absent
}

// Health judges whether a node can mount the driver's volumes.
func (v *View) Mountable(ctx context.Context, name string) (Feasibility, error) {
	node, err := kubeapi.Find[apiv1.AzDriverNode](ctx, v.Reader, client.ObjectKey{Namespace: v.Namespace, Name: name})
	if err != nil {
		return Feasibility{}, err
	}
	if node == nil {
		return Feasibility{FaultNoPlugin, "the node plug-in of " + v.DriverName + " has not registered on this node"}, nil
	}
	return v.mountable(node), nil
}

// Survey judges all nodes on which a node plug-in has registered, without counting their disks.
func (v *View) Survey(ctx context.Context, volumes []Volume) (map[string]Feasibility, error) {
	var list apiv1.AzDriverNodeList
	if err := v.Reader.List(ctx, &list, client.InNamespace(v.Namespace)); err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	nodes := make(map[string]Feasibility, len(list.Items))
	for i := range list.Items {
		node := &list.Items[i]
		feasibility := v.mountable(node)
		if feasibility.Feasible() {
			feasibility = supports(node, volumes)
		}
		nodes[node.Name] = feasibility
	}
	return nodes, nil
}

// mountable judges whether a node with a node plug-in can mount the driver's volumes.
func (v *View) mountable(node *apiv1.AzDriverNode) Feasibility {
	if state, c := nodehealth.Published(node); state.LostOrDown() {
		return Feasibility{FaultLost, fmt.Sprintf("the controller of %s found the node lost: %s: %s", v.DriverName, c.Reason, c.Message)}
	}
	ready := meta.FindStatusCondition(node.Status.Conditions, apiv1.NodeConditionReady)
	if ready == nil {
		return Feasibility{FaultNotReady, "the node plug-in of " + v.DriverName + " has not yet said that it is ready"}
	}
	if ready.Status != metav1.ConditionTrue {
		return Feasibility{FaultNotReady, fmt.Sprintf("the node plug-in of %s is not ready: %s: %s", v.DriverName, ready.Reason, ready.Message)}
	}
	if age, stale := v.Heartbeats.Age(node.Name); stale {
		return Feasibility{FaultStale, fmt.Sprintf("the node plug-in of %s has sent no heartbeat for %s", v.DriverName, age.Round(time.Second))}
	}
	return Feasibility{}
}

// Room judges whether the VM of a node can take the disks of a pod's volumes.
func (v *View) Room(ctx context.Context, name string, volumes []Volume) (Feasibility, error) {
	node, err := kubeapi.Find[apiv1.AzDriverNode](ctx, v.Reader, client.ObjectKey{Namespace: v.Namespace, Name: name})
	if err != nil || node == nil {
		return Feasibility{}, err
	}
	capacity := capacityOf(node)
	if capacity == nil {
		return Feasibility{}, nil
	}
	if feasibility := supports(node, volumes); !feasibility.Feasible() {
		return feasibility, nil
	}
	slots := Slots{Max: int(capacity.MaxDataDisks), Foreign: int(capacity.ForeignDisks)}
	var list apiv1.AzVolumeAttachmentList
	if err := v.Reader.List(ctx, &list, client.InNamespace(v.Namespace), client.MatchingFields{takenIndex: name}); err != nil {
		return Feasibility{}, fmt.Errorf("list the attachments of node %s: %w", name, err)
	}
	for i := range list.Items {
		slots.Taken = append(slots.Taken, list.Items[i].Spec.VolumeName)
	}
	return Room(name, slots, volumes), nil
}

// supports judges whether the VM of a node can have disks of the volumes' SKUs.
func supports(node *apiv1.AzDriverNode, volumes []Volume) Feasibility {
	capacity := capacityOf(node)
	if capacity == nil {
		return Feasibility{}
	}
	for _, volume := range volumes {
		if volume.Nodes[node.Name] < Replica && !capacity.Takes(volume.SKU) {
			return Feasibility{FaultUnsupported, fmt.Sprintf("disks of SKU %s cannot be attached to a VM of this size in this zone", volume.SKU)}
		}
	}
	return Feasibility{}
}

// capacityOf returns nil if the capacity of the node's VM is not known.
func capacityOf(node *apiv1.AzDriverNode) *apiv1.NodeCapacity {
	if capacity := node.Status.Capacity; capacity != nil && capacity.VMSize == node.Spec.VMSize {
		return capacity
	}
	return nil
}

// servesInTree says that this is the driver that Kubernetes translates in-tree volumes to.
func (v *View) servesInTree() bool { return v.DriverName == apiv1.GroupName }

// volumeName returns the name of the AzVolume for a volume handle; "" for what is not the ID of a disk.
func volumeName(diskURI string) string {
	disk, err := volumehandle.Parse(diskURI)
	if err != nil {
		return ""
	}
	return disk.VolumeName()
}
