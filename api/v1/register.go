package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of the custom resources.
const GroupName = "disk.csi.azure.com"

// DefaultNamespace is the namespace in which the custom resources live unless the
// driver is configured otherwise.
const DefaultNamespace = "azure-disk-csi"

// FinalizerVolume is on every AzVolume before the first call to Azure for it, and is removed when its disk is
// deleted, or is given up and attached nowhere.
const FinalizerVolume = GroupName + "/azure-disk"

// FinalizerAttachment is on every AzVolumeAttachment before the first call to Azure for it, and is removed when
// the disk is proved to be detached.
const FinalizerAttachment = GroupName + "/azure-attachment"

var (
	// GroupVersion is the group and version of the resources in this package.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the resources of this package with a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&AzVolume{}, &AzVolumeList{},
		&AzVolumeAttachment{}, &AzVolumeAttachmentList{},
		&AzDriverNode{}, &AzDriverNodeList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// AnnotationFailover on a Pod, a PersistentVolumeClaim or a Node with the value FailoverDisabled keeps the
// driver from fencing its volumes and from deleting the pod, or the Node's pods, when the node is lost.
// FailoverEnabled is as without the annotation. Any other value counts as FailoverDisabled, and causes an
// event: its author wanted something else than the default.
const (
	AnnotationFailover = GroupName + "/failover"
	FailoverDisabled   = "disabled"
	FailoverEnabled    = "enabled"
)

// ZoneLabel is the label of a Node that names its zone, and the key of the driver's topologies. The
// value is as in "eastus-1", and empty outside of the zones.
func ZoneLabel(driverName string) string { return "topology." + driverName + "/zone" }

// AnnotationSteered is on a Pod that the webhook has judged: SteeredTrue if it has added preferences
// for nodes, and SteeredFalse if there were none to add. A Pod with volumes of the driver without
// it was created without the webhook, or before the driver knew the volumes.
const (
	AnnotationSteered = GroupName + "/steered"
	SteeredTrue       = "true"
	SteeredFalse      = "false"
)

// AnnotationSteering on a Pod with the value SteeringDisabled keeps the webhook from changing the pod, for
// programs that compare a pod with its template. SteeringEnabled is as without the annotation. Any other value
// counts as SteeringDisabled, and causes an event.
const (
	AnnotationSteering = GroupName + "/steering"
	SteeringDisabled   = "disabled"
	SteeringEnabled    = "enabled"
)

// AnnotationMaintenance on a Pod with the value MaintenanceStay keeps the driver from evicting the
// pod before maintenance of its node. MaintenanceEvict is as without the annotation. Any other value
// counts as MaintenanceStay, and causes an event.
const (
	AnnotationMaintenance = GroupName + "/maintenance"
	MaintenanceStay       = "stay"
	MaintenanceEvict      = "evict"
)

// AnnotationApplyPending on a PersistentVolumeClaim with the value ApplyPendingEvict has the driver evict the
// claim's pods, once for each change of the disk that waits for the next restart. ApplyPendingWait is as without
// the annotation. Any other value counts as ApplyPendingWait, and causes an event.
const (
	AnnotationApplyPending = GroupName + "/apply-pending"
	ApplyPendingEvict      = "evict"
	ApplyPendingWait       = "wait"
)

// AnnotationPaused on an AzVolume with the value PausedTrue has the driver begin nothing new at Azure for the
// volume, and place no replicas. The ownership still moves between nodes that have the disk. PausedFalse is as
// without the annotation. Any other value counts as PausedTrue, and causes an event.
const (
	AnnotationPaused = GroupName + "/paused"
	PausedTrue       = "true"
	PausedFalse      = "false"
)
