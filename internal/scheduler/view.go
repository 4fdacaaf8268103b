package scheduler

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kubeapi/store"
	"github.com/azuredisk-csi/azuredisk/internal/plan/reservation"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// View has the state of the cluster from which the extender decides. Each method costs a fixed
// number of look-ups for each volume that it is asked about, and one for each node.
type View struct {
	// Heartbeats of the nodes.
	Heartbeats *Heartbeats
	// Namespace of the custom resources.
	Namespace string
	// DriverName is the CSI driver's name.
	DriverName string

	attachments *store.Store[attachmentRecord]
	driverNodes *store.Store[*apiv1.AzDriverNode]
	claims      *store.Store[claimRecord]
	disks       *store.Store[disk] // by the name of the PersistentVolume
	classes     *store.Store[disk]
	// byVolume are the attachments of each volume, and taken the attachments of each node that do
	// not give way. The lock of attachments guards both.
	byVolume, taken map[string][]*attachmentRecord
	table           nodeTable
}

// Volumes returns the volumes of the pod that are this driver's, with the nodes that hold them. A
// claim that waits for its first consumer is among them, without nodes. A claim, volume or class
// that does not exist is passed over: the scheduler itself deals with it.
func (v *View) Volumes(pod *corev1.Pod) []Volume {
	var volumes []Volume
	seen := map[string]bool{}
	for i := range pod.Spec.Volumes {
		disk := v.disk(pod, &pod.Spec.Volumes[i])
		if !disk.ours {
			continue
		}
		volume := Volume{Name: disk.volume, SKU: disk.sku}
		if volume.Name != "" {
			if seen[volume.Name] {
				continue
			}
			seen[volume.Name] = true
			volume.Nodes = v.nodes(volume.Name)
		}
		volumes = append(volumes, volume)
	}
	return volumes
}

// disk is the disk behind a pod's volume.
type disk struct {
	// volume is the name of the AzVolume; "" for a claim that has no disk yet.
	volume string
	sku    string
	// ours says that it is this driver's.
	ours bool
}

// disk finds the disk behind a pod's volume.
func (v *View) disk(pod *corev1.Pod, volume *corev1.Volume) disk {
	claimName := ""
	switch {
	case volume.PersistentVolumeClaim != nil:
		claimName = volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil:
		claimName = pod.Name + "-" + volume.Name
	case volume.AzureDisk != nil:
		// Kubernetes hands volumes of the former in-tree plug-in to the driver of this name.
		return disk{volume: volumeName(volume.AzureDisk.DataDiskURI), ours: v.servesInTree()}
	default:
		return disk{}
	}
	claim := v.claims.Get(client.ObjectKey{Namespace: pod.Namespace, Name: claimName})
	switch {
	case claim == nil:
		return disk{}
	case volume.Ephemeral != nil && (claim.owner == "" || claim.owner != pod.UID):
		return disk{} // a claim of the same name that was not made for this pod
	case claim.volume != "":
		return valueOf(v.disks.Get(client.ObjectKey{Name: claim.volume}))
	}
	return valueOf(v.classes.Get(client.ObjectKey{Name: claim.class}))
}

func valueOf(d *disk) disk {
	if d == nil {
		return disk{}
	}
	return *d
}

// skuOf finds the SKU among the parameters of a class or the attributes of a volume; "" if they do
// not name it.
func skuOf(parameters map[string]string) string {
	for key, value := range parameters {
		if strings.EqualFold(key, "skuName") || strings.EqualFold(key, "storageAccountType") {
			return value
		}
	}
	return ""
}

func (v *View) nodes(volume string) map[string]DiskState {
	nodes := v.attachedTo(volume)
	for name, state := range nodes {
		if state != Replica {
			continue
		}
		// Its plug-in may be dead, or may not reach the API server: then it cannot mount the volume
		// either.
		if node := v.driverNodes.Get(client.ObjectKey{
			Namespace: v.Namespace,
			Name:      name,
		}); node != nil && reservation.Unanswered(*node, volume) {
			nodes[name] = Attaching
		}
	}
	return nodes
}

func (v *View) attachedTo(volume string) map[string]DiskState {
	nodes := map[string]DiskState{}
	v.attachments.Read(func() {
		for _, a := range v.byVolume[volume] {
			nodes[a.node] = max(nodes[a.node], a.state)
		}
	})
	return nodes
}

// diskState returns the state of an attachment. One that is being deleted or has failed counts as
// Absent.
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

// takenAt returns for each of some nodes the volumes of its attachments that do not give way.
func (v *View) takenAt(nodes map[string]bool) map[string][]string {
	taken := make(map[string][]string, len(nodes))
	v.attachments.Read(func() {
		for node := range nodes {
			for _, a := range v.taken[node] {
				taken[node] = append(taken[node], a.volume)
			}
		}
	})
	return taken
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
