package scale

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// What the cluster is like: each node has a pod that uses volumesPerNode volumes, and each volume
// has a replica on each of the next replicas nodes.
const (
	volumesPerNode = 4
	replicas       = 2

	subscription  = "00000000-0000-0000-0000-000000000001"
	resourceGroup = "scale"
	location      = "eastus"
	zone          = "1"
	vmSize        = "Standard_D32s_v5" // with more slots than the disks need
	diskGiB       = 64
	storageClass  = "scale"
	driverName    = "disk.csi.azure.com"
)

// Numbers of the sample. All other nodes and volumes are copies of it. Its next nodes are
// sampleNode+1 and sampleNode+2.
const (
	sampleNode   = 999990
	sampleVolume = 99999992 // divisible by volumesPerNode
)

// Names have a fixed length, so that objects can be copied in the form in which they are stored.
func nodeName(i int) string { return fmt.Sprintf("aks-nodepool1-%06d", i) }
func podName(i int) string  { return fmt.Sprintf("database-%06d", i) }
func diskName(v int) string { return fmt.Sprintf("pvc-%08d", v) }

func vmID(i int) string {
	return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/virtualMachines/%s", subscription,
		resourceGroup, nodeName(i))
}

func handleOf(v int) volumehandle.Handle {
	return volumehandle.Handle{SubscriptionID: subscription, ResourceGroup: resourceGroup, DiskName: diskName(v)}
}

func volumeName(v int) string { return handleOf(v).VolumeName() }

// lun is where a node has a disk. The lowest LUNs are those of its own volumes, then come the
// replicas of its predecessors' volumes.
func lun(v int, distance int) int32 { return int32(distance*volumesPerNode + v%volumesPerNode) }

// uid is that of an object of a kind.
func uid(kind string, i int) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, fmt.Appendf(nil, "%s/%d", kind, i)).String()
}

// reservationKey is that of every disk. Here no node sends a command to a disk.
const reservationKey = "0xad1d540000010001"

// cluster makes the objects of a node and of a volume.
type cluster struct {
	namespace string
	// kubeletPort is where all nodes answer probes.
	kubeletPort int32
}

func (c *cluster) class() *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: storageClass},
		Provisioner: driverName,
		Parameters: map[string]string{
			"skuName": "Premium_LRS", "maxShares": "3", "maxMountReplicaCount": "2",
		},
	}
}

func (c *cluster) node(i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{
		corev1.LabelHostname: nodeName(i), corev1.LabelTopologyRegion: location, corev1.LabelTopologyZone: location + "-" + zone,
		corev1.LabelInstanceTypeStable: vmSize, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		"topology.disk.csi.azure.com/zone": location + "-" + zone, "kubernetes.azure.com/cluster": "MC_scale",
		"kubernetes.azure.com/agentpool": "nodepool1",
	}}, Spec: corev1.NodeSpec{ProviderID: "azure://" + vmID(i)}}
	quantities := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("32"),
		corev1.ResourceMemory: resource.MustParse("128Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	n.Status = corev1.NodeStatus{
		Capacity:    quantities,
		Allocatable: quantities,
		Addresses: []corev1.NodeAddress{{
			Type:    corev1.NodeHostName,
			Address: nodeName(i),
		}, {Type: corev1.NodeInternalIP, Address: commonIP}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: c.kubeletPort}},
		NodeInfo: corev1.NodeSystemInfo{
			KubeletVersion:          "v1.37.2",
			KernelVersion:           "6.8.0-1021-azure",
			OSImage:                 "Ubuntu 24.04",
			ContainerRuntimeVersion: "containerd://2.1.4",
		},
	}
	for _, t := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
		corev1.NodeReady} {
		status := corev1.ConditionFalse
		if t == corev1.NodeReady {
			status = corev1.ConditionTrue
		}
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type:               t,
			Status:             status,
			Reason:             "Kubelet",
			Message:            "as the kubelet says",
			LastTransitionTime: metav1.Now(),
			LastHeartbeatTime:  metav1.Now(),
		})
	}
	for image := range 30 { // a kubelet reports up to 50
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{SizeBytes: 100 << 20, Names: []string{
			fmt.Sprintf("registry.test/images/component-%d@sha256:%s", image, strings.Repeat("0123456789abcdef", 4)),
			fmt.Sprintf("registry.test/images/component-%d:v1.2.3", image),
		}})
	}
	return n
}

func (c *cluster) driverNode(i int, volumes []int) *apiv1.AzDriverNode {
	now := metav1.NowMicro()
	d := &apiv1.AzDriverNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: nodeName(i)},
		Spec:       apiv1.AzDriverNodeSpec{VMID: vmID(i), VMSize: vmSize, Location: location, Zone: zone},
		Status: apiv1.AzDriverNodeStatus{
			HeartbeatTime:          &now,
			HeartbeatPeriodSeconds: 300,
			HeartbeatOnRequest:     true,
			DriverVersion:          "scale",
			BootID:                 uid("boot", i),
			MountsScannedTime:      &now,
			Conditions: []metav1.Condition{{
				Type:               apiv1.NodeConditionPluginReady,
				Status:             metav1.ConditionTrue,
				Reason:             "Serving",
				Message:            "the node plug-in serves",
				LastTransitionTime: metav1.Now(),
			}},
		},
	}
	for k, v := range volumes {
		d.Status.StagedVolumes = append(d.Status.StagedVolumes, apiv1.StagedVolume{
			VolumeName:     volumeName(v),
			Epoch:          1,
			Phase:          apiv1.PhaseStaged,
			Device:         fmt.Sprintf("/dev/sd%c", 'c'+k),
			SizeBytes:      diskGiB << 30,
			Filesystem:     &apiv1.FilesystemRecord{Type: "ext4", UUID: uid("filesystem", v)},
			StagingPath:    "/var/lib/kubelet/plugins/kubernetes.io/csi/" + driverName + "/" + uid("staging", v) + "/globalmount",
			ReservationKey: reservationKey,
		})
	}
	return d
}

// digest is what the node plug-in writes with a report.
func digest(uid string, volumes []int) string {
	d := &apiv1.AzDriverNode{}
	d.UID = types.UID(uid)
	for _, v := range volumes {
		d.Status.StagedVolumes = append(d.Status.StagedVolumes, apiv1.StagedVolume{VolumeName: volumeName(v)})
	}
	return ownership.ReportDigest(d)
}

func (c *cluster) pod(i int, volumes []int) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.namespace,
			Name:      podName(i),
			Labels:    map[string]string{"app": "database"},
		},
		Spec: corev1.PodSpec{
			NodeName:                     nodeName(i),
			AutomountServiceAccountToken: ptr.To(false),
			Containers:                   []corev1.Container{{Name: "database", Image: "registry.test/database:v1"}},
		},
	}
	for k, v := range volumes {
		name := fmt.Sprintf("data-%d", k)
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: diskName(v)},
		}})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{
			Name:      name,
			MountPath: "/" + name,
		})
	}
	p.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	return p
}

func size() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(diskGiB<<30, resource.BinarySI)}
}

func (c *cluster) claim(v int) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: diskName(v)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: size()},
			StorageClassName: ptr.To(storageClass),
			VolumeName:       diskName(v),
		},
		Status: corev1.PersistentVolumeClaimStatus{
			Phase:       corev1.ClaimBound,
			Capacity:    size(),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		},
	}
}

func (c *cluster) persistentVolume(v int, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        diskName(v),
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": driverName},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      size(),
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			StorageClassName:              storageClass,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1",
				Kind:       "PersistentVolumeClaim",
				Namespace:  claim.Namespace,
				Name:       claim.Name,
				UID:        claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver:       driverName,
				VolumeHandle: handleOf(v).String(),
				FSType:       "ext4",
				VolumeAttributes: map[string]string{
					"skuName":              "Premium_LRS",
					"maxShares":            "3",
					"maxMountReplicaCount": "2",
					"storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-1234-" + driverName,
				},
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{
				Required: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key: "topology.disk.csi.azure.com/zone", Operator: corev1.NodeSelectorOpIn,
						Values: []string{location + "-" + zone},
					}}}},
				},
			},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
}

func (c *cluster) volume(v, node int) *apiv1.AzVolume {
	now := metav1.NewTime(time.Now())
	settings := apiv1.DiskSettings{SKUName: "Premium_LRS"}
	return &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: volumeName(v), Finalizers: []string{apiv1.FinalizerVolume}},
		Spec: apiv1.AzVolumeSpec{
			Origin:               apiv1.OriginProvisioned,
			Access:               apiv1.AccessSingleNode,
			CapacityBytes:        diskGiB << 30,
			MaxMountReplicaCount: replicas,
			ClaimRef:             &apiv1.ClaimReference{Namespace: c.namespace, Name: diskName(v)},
			Filesystem:           &apiv1.Filesystem{Type: "ext4"},
			Disk: apiv1.DiskParameters{
				SubscriptionID: subscription,
				ResourceGroup:  resourceGroup,
				Name:           diskName(v),
				Location:       location,
				Zone:           zone,
				MaxShares:      replicas + 1,
				CachingMode:    "None",
				DiskSettings:   settings,
			},
		},
		Status: apiv1.AzVolumeStatus{
			State:              apiv1.VolumeCreated,
			DiskID:             handleOf(v).String(),
			SizeBytes:          diskGiB << 30,
			Size:               resource.NewQuantity(diskGiB<<30, resource.BinarySI),
			ObservedGeneration: 1,
			PersistentVolume:   diskName(v),
			Applied:            &apiv1.AppliedSettings{Generation: 1, DiskSettings: settings},
			Filesystem:         &apiv1.FilesystemRecord{Type: "ext4", UUID: uid("filesystem", v)},
			Replicas:           &apiv1.ReplicaCount{Ready: replicas, Wanted: replicas},
			Fencing:            apiv1.FencingPreemption,
			Conditions: []metav1.Condition{
				{Type: apiv1.VolumeConditionReady, Status: metav1.ConditionTrue, Reason: apiv1.ReasonDiskCreated,
					LastTransitionTime: now, ObservedGeneration: 1},
				{Type: apiv1.VolumeConditionReplicasAttached, Status: metav1.ConditionTrue,
					Reason: apiv1.ReasonReplicasAttached, LastTransitionTime: now, ObservedGeneration: 1},
				{Type: apiv1.VolumeConditionUpdated, Status: metav1.ConditionTrue, Reason: apiv1.ReasonDiskUpdated,
					LastTransitionTime: now, ObservedGeneration: 1},
				{Type: apiv1.VolumeConditionDiskAsRecorded, Status: metav1.ConditionTrue, Reason: apiv1.ReasonDiskAsRecorded,
					LastTransitionTime: now, ObservedGeneration: 1},
				{Type: apiv1.VolumeConditionWritesKept, Status: metav1.ConditionTrue, Reason: apiv1.ReasonNoWritesLost,
					LastTransitionTime: now, ObservedGeneration: 1},
				{Type: apiv1.VolumeConditionUsable, Status: metav1.ConditionTrue, Reason: apiv1.ReasonNoProblem,
					LastTransitionTime: now, ObservedGeneration: 1},
				{Type: apiv1.VolumeConditionPublished, Status: metav1.ConditionTrue, Reason: apiv1.ReasonPublished,
					LastTransitionTime: now, ObservedGeneration: 1},
			},
			Primary: &apiv1.Ownership{NodeName: nodeName(node), Epoch: 1, State: apiv1.OwnershipHeld, LastTransitionTime: &now},
		},
	}
}

// attachment is to the node that is that far after the volume's own.
func (c *cluster) attachment(v, node, distance int) *apiv1.AzVolumeAttachment {
	role := apiv1.RoleReplica
	if distance == 0 {
		role = apiv1.RolePrimary
	}
	a := &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  c.namespace,
			Name:       apiv1.AttachmentName(volumeName(v), nodeName(node)),
			Finalizers: []string{apiv1.FinalizerAttachment},
		},
		Spec: apiv1.AzVolumeAttachmentSpec{VolumeName: volumeName(v), NodeName: nodeName(node), Role: role},
		Status: apiv1.AzVolumeAttachmentStatus{
			State:              apiv1.AttachmentAttached,
			Role:               role,
			LUN:                ptr.To(lun(v, distance)),
			VMID:               vmID(node),
			ObservedGeneration: 1,
			Conditions: []metav1.Condition{{
				Type:               apiv1.AttachmentConditionAttached,
				Status:             metav1.ConditionTrue,
				Reason:             apiv1.ReasonDiskAttached,
				LastTransitionTime: metav1.Now(),
				ObservedGeneration: 1,
			}},
		},
	}
	if role == apiv1.RolePrimary {
		a.Spec.Epoch = 1
	}
	return a
}
