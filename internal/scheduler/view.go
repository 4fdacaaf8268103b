package scheduler

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/claimstatus"
	"github.com/azuredisk-csi/azuredisk/internal/plan/fencing"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// View has the state of the cluster from which the extender decides. Each method costs a fixed
// number of look-ups for each volume that it is asked about, and one for each node.
type View struct {
	// Namespace of the custom resources.
	Namespace string
	// DriverName is the CSI driver's name.
	DriverName string

	// reader reads from the cache, live from the API server.
	reader, live client.Reader
	table        nodeTable
}

// Volumes returns the volumes of the pod that are this driver's, with the nodes that hold them. A
// claim that waits for its first consumer is among them, without nodes. A claim, volume or class
// that does not exist is passed over: the scheduler itself deals with it.
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
		volume := Volume{Name: disk.volume, SKU: disk.sku, Zone: disk.zone}
		if volume.Name != "" {
			if seen[volume.Name] {
				continue
			}
			seen[volume.Name] = true
			if volume.Nodes, err = v.nodes(ctx, volume.Name); err != nil {
				return nil, err
			}
			if disk.changes {
				volume.Release()
			}
			if err := v.avoid(ctx, &volume, disk.several); err != nil {
				return nil, err
			}
		}
		volumes = append(volumes, volume)
	}
	return volumes, nil
}

// disk is the disk behind a pod's volume.
type disk struct {
	// volume is the name of the AzVolume; "" for a claim that has no disk yet.
	volume string
	sku    string
	// zone is that of Volume.
	zone string
	// ours says that it is this driver's.
	ours bool
	// changes says that its claim asks for a change.
	changes bool
	// several says that several nodes may write to it at once. Its users see to it that they do not
	// disturb each other.
	several bool
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
		return disk{volume: volumeName(volume.AzureDisk.DataDiskURI), ours: v.servesInTree()}, nil
	default:
		return disk{}, nil
	}
	claim, err := find[corev1.PersistentVolumeClaim](ctx, v, pod.Namespace, claimName)
	if err != nil || claim == nil {
		return disk{}, err
	}
	if volume.Ephemeral != nil {
		if owner := metav1.GetControllerOf(claim); owner == nil || owner.UID != pod.UID {
			return disk{}, nil // a claim of the same name that was not made for this pod
		}
	}
	if claim.Spec.VolumeName != "" {
		pv, err := find[corev1.PersistentVolume](ctx, v, "", claim.Spec.VolumeName)
		if err != nil || pv == nil {
			return disk{}, err
		}
		d := v.diskOf(pv)
		d.changes = claimstatus.MayChange(claim)
		return d, nil
	}
	class, err := find[storagev1.StorageClass](ctx, v, "", ptr.Deref(claim.Spec.StorageClassName, ""))
	if err != nil || class == nil {
		return disk{}, err
	}
	d := disk{sku: cluster.SKU(class.Parameters), ours: class.Provisioner == v.DriverName}
	if d.ours && !placement.ZoneRedundant(d.sku) {
		d.zone, err = v.sourceZone(ctx, claim)
	}
	return d, err
}

// sourceZone returns the zone of the disk that a claim is to be a clone of; "" if the claim is for
// no clone, or if the disk is in no zone or in several.
func (v *View) sourceZone(ctx context.Context, claim *corev1.PersistentVolumeClaim) (string, error) {
	if claim.Spec.DataSource == nil || claim.Spec.DataSource.Kind != "PersistentVolumeClaim" {
		return "", nil
	}
	source, err := find[corev1.PersistentVolumeClaim](ctx, v, claim.Namespace, claim.Spec.DataSource.Name)
	if err != nil || source == nil {
		return "", err
	}
	pv, err := find[corev1.PersistentVolume](ctx, v, "", source.Spec.VolumeName)
	if err != nil || pv == nil || pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return "", err
	}
	terms := pv.Spec.NodeAffinity.Required.NodeSelectorTerms
	if len(terms) != 1 {
		return "", nil
	}
	for _, e := range terms[0].MatchExpressions {
		isZone := e.Key == apiv1.ZoneLabel(v.DriverName) || e.Key == corev1.LabelTopologyZone
		if isZone && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 {
			return strings.ToLower(e.Values[0]), nil
		}
	}
	return "", nil
}

// diskOf says which disk a PersistentVolume is.
func (v *View) diskOf(pv *corev1.PersistentVolume) disk {
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != v.DriverName {
		return disk{}
	}
	return disk{volume: volumeName(pv.Spec.CSI.VolumeHandle), sku: SKUOf(pv), ours: true, several: cluster.ForSeveralNodes(pv)}
}

// SKUOf returns the SKU that a PersistentVolume of the driver names; "" if it may have changed since.
func SKUOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.VolumeAttributesClassName != nil {
		return ""
	}
	return cluster.SKU(pv.Spec.CSI.VolumeAttributes)
}

// find reads an object of the cache. It returns nil if there is none, or for no name.
func find[T any, Object interface {
	*T
	client.Object
}](ctx context.Context, v *View, namespace, name string) (Object, error) {
	if name == "" {
		return nil, nil
	}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	return kube.Find[T, Object](ctx, v.reader, key, client.UnsafeDisableDeepCopy)
}

// nodes returns the nodes that a volume's disk is at, or on its way to.
func (v *View) nodes(ctx context.Context, volume string) (map[string]DiskState, error) {
	attachments, err := cluster.Attachments(ctx, v.reader, v.Namespace, cluster.AttachmentVolume, volume)
	if err != nil {
		return nil, err
	}
	return DiskStates(volume, attachments, func(node string) (*apiv1.AzDriverNode, error) {
		return find[apiv1.AzDriverNode](ctx, v, v.Namespace, node)
	})
}

// avoid finds the nodes where a process that outlived its pod may use a volume. It asks the API
// server, because the extender keeps no pods and the next pod of a StatefulSet is there within
// milliseconds; but only about a volume that is mounted for a pod while another pod is placed.
func (v *View) avoid(ctx context.Context, volume *Volume, several bool) error {
	if several {
		return nil
	}
	for _, node := range v.table.publishedAt(volume.Name) {
		byClaim, naming, err := cluster.PodsWith(ctx, v.live, v.reader, volume.Name, node)
		if err != nil {
			return err
		}
		report, err := kube.Find[apiv1.AzDriverNode](ctx, v.live, client.ObjectKey{Namespace: v.Namespace, Name: node})
		if err != nil {
			return err
		}
		if ownership.LeftBehind(report, volume.Name, len(byClaim)+len(naming) > 0) {
			volume.Avoid(node)
		}
	}
	return nil
}

// DiskStates returns how near a volume's disk is to the nodes of its attachments. report returns the
// AzDriverNode of a node, nil if there is none.
func DiskStates(volume string, attachments []*apiv1.AzVolumeAttachment, report func(node string) (*apiv1.AzDriverNode, error),
) (map[string]DiskState, error) {
	nodes := make(map[string]DiskState, len(attachments))
	for _, a := range attachments {
		state := diskState(a)
		if state >= Replica {
			// Its plug-in may be dead, or may not reach the API server: then it cannot mount the
			// volume either. Or Azure is going to service its VM, and a replica elsewhere is better.
			d, err := report(a.Spec.NodeName)
			if err != nil {
				return nil, err
			}
			if d != nil && (state == Replica && fencing.Unanswered(d, volume) || leaves(d, state)) {
				state = Attaching
			}
		}
		nodes[a.Spec.NodeName] = max(nodes[a.Spec.NodeName], state)
	}
	return nodes, nil
}

// leaves reports whether a replica elsewhere is better than this disk, because Azure is going to
// service the VM. It is better than the primary only if the driver moves the pods of the node:
// another pod with the volume cannot start elsewhere while the node uses it.
func leaves(d *apiv1.AzDriverNode, state DiskState) bool {
	c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionUndisturbed)
	return c != nil && c.Status == metav1.ConditionFalse && (state == Replica || c.Reason == apiv1.ReasonMaintenancePodsMove)
}

// diskState returns the state of an attachment. One that is being deleted or has failed counts as
// Absent.
func diskState(a *apiv1.AzVolumeAttachment) DiskState {
	if a.DeletionTimestamp != nil {
		return absent
	}
	switch a.Status.State {
	case apiv1.AttachmentAttached:
		if a.Spec.Role == apiv1.RolePrimary {
			return primary
		}
		return Replica
	case "", apiv1.AttachmentPending, apiv1.AttachmentAttaching:
		return Attaching
	case apiv1.AttachmentFailed, apiv1.AttachmentDetaching, apiv1.AttachmentDetachFail:
		return absent
	}
	return absent
}

// takenAt returns for each of some nodes the volumes of its attachments that keep their slots.
func (v *View) takenAt(ctx context.Context, nodes map[string]bool) (map[string][]string, error) {
	taken := make(map[string][]string, len(nodes))
	for node := range nodes {
		attachments, err := cluster.AttachmentsOfNode(ctx, v.reader, v.Namespace, node)
		if err != nil {
			return nil, err
		}
		for _, a := range attachments {
			if attaching.KeepsSlot(a) {
				taken[node] = append(taken[node], a.Spec.VolumeName)
			}
		}
	}
	return taken, nil
}

// servesInTree reports whether this is the driver that Kubernetes translates in-tree volumes to.
func (v *View) servesInTree() bool { return v.DriverName == apiv1.GroupName }

// volumeName returns the name of the AzVolume for a volume handle; "" if the handle is not the ID
// of a disk.
func volumeName(diskURI string) string {
	disk, err := volumehandle.Parse(diskURI)
	if err != nil {
		return ""
	}
	return disk.VolumeName()
}
