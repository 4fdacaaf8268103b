package scheduler

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kubeapi"
	"github.com/azuredisk-csi/azuredisk/internal/plan/reservation"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

const (
	// volumeIndex is the index of AzVolumeAttachments by their volume.
	volumeIndex = "spec.volumeName"
	// takenIndex is the index by node of those AzVolumeAttachments that do not give way.
	takenIndex = "taken"
)

// View reads what the extender decides upon. Each method costs a fixed number of look-ups in indexed caches for each volume that it is asked about,
// and one in a table for each node.
type View struct {
	// Reader is a cache with the indexes volumeIndex and takenIndex. Objects read from it are not changed.
	Reader client.Reader
	// Heartbeats of the nodes in the cache.
	Heartbeats *Heartbeats
	table      nodeTable
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
	for name, state := range nodes {
		if state != Replica {
			continue
		}
		node, err := kubeapi.Find[apiv1.AzDriverNode](ctx, v.Reader, client.ObjectKey{Namespace: v.Namespace, Name: name})
		if err != nil {
			return nil, err
		}
		// Its plug-in may be dead, or may not reach the API server: then it cannot mount the volume either.
		if node != nil && reservation.Unanswered(node, volume) {
			nodes[name] = Attaching
		}
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

// taken returns the volumes of the attachments of a node that do not give way.
func (v *View) taken(ctx context.Context, node string) ([]string, error) {
	var list apiv1.AzVolumeAttachmentList
	if err := v.Reader.List(ctx, &list, client.InNamespace(v.Namespace), client.MatchingFields{takenIndex: node}); err != nil {
		return nil, fmt.Errorf("list the attachments of node %s: %w", node, err)
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Spec.VolumeName
	}
	return names, nil
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
