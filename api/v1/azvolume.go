package v1

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AzVolume is one Azure managed disk that the driver manages. Its name is the
// disk's name in lower case, a dash, and a hash of the disk's resource ID, so that
// two disks of one name have two AzVolumes.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.maxMountReplicaCount,statuspath=.status.replicas.ready
// +kubebuilder:resource:scope=Namespaced,shortName=azv,categories=azuredisk
// +kubebuilder:selectablefield:JSONPath=`.spec.disk.name`
// +kubebuilder:selectablefield:JSONPath=`.spec.disk.resourceGroup`
// +kubebuilder:selectablefield:JSONPath=`.status.claimRef.namespace`
// +kubebuilder:selectablefield:JSONPath=`.status.claimRef.name`
// +kubebuilder:selectablefield:JSONPath=`.status.primary.nodeName`
// +kubebuilder:printcolumn:name="Namespace of claim",type=string,JSONPath=`.status.claimRef.namespace`
// +kubebuilder:printcolumn:name="Claim",type=string,JSONPath=`.status.claimRef.name`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="SKU",type=string,JSONPath=`.spec.disk.skuName`
// +kubebuilder:printcolumn:name="Primary",type=string,JSONPath=`.status.primary.nodeName`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas.ready`
// +kubebuilder:printcolumn:name="Wanted",type=integer,JSONPath=`.status.replicas.wanted`
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.status.primary.epoch`
// +kubebuilder:printcolumn:name="Missing replicas",type=string,JSONPath=`.status.conditions[?(@.type=="ReplicasAttached")].message`,priority=1
// +kubebuilder:printcolumn:name="Zone",type=string,JSONPath=`.spec.disk.zone`,priority=1
// +kubebuilder:printcolumn:name="Fencing",type=string,JSONPath=`.status.fencing`,priority=1
// +kubebuilder:printcolumn:name="PersistentVolume",type=string,JSONPath=`.status.persistentVolume`,priority=1
// +kubebuilder:printcolumn:name="Released by",type=string,JSONPath=`.status.lastRelease.nodeName`,priority=1
// +kubebuilder:printcolumn:name="Proof",type=string,JSONPath=`.status.lastRelease.proof.type`,priority=1
// +kubebuilder:printcolumn:name="Proven",type=date,JSONPath=`.status.lastRelease.proof.provenTime`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="the name of an AzVolume is made of the disk's name and a hash of its resource ID, and is at most 63 characters long"
// +kubebuilder:validation:XValidation:rule="self.spec.capacityBytes >= oldSelf.spec.capacityBytes || (has(self.status) && has(self.status.sizeBytes) && self.spec.capacityBytes >= self.status.sizeBytes)",message="spec.capacityBytes may only grow, or be reverted to no less than the size of the disk: Azure cannot shrink a disk"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.primary) || has(self.status) && has(self.status.primary)",message="status.primary may not be removed: its epoch outlives each release"
type AzVolume struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard metadata of an object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what was asked for.
	// +required
	Spec AzVolumeSpec `json:"spec"`
	// status is what is.
	// +optional
	Status AzVolumeStatus `json:"status,omitempty"`
}

// AzVolumeList is a list of AzVolumes.
//
// +kubebuilder:object:root=true
type AzVolumeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// +required
	Items []AzVolume `json:"items"`
}

// VolumeOrigin says where a volume's disk comes from.
// +kubebuilder:validation:Enum=Provisioned;Adopted
type VolumeOrigin string

const (
	// OriginProvisioned is a disk that the driver creates.
	OriginProvisioned VolumeOrigin = "Provisioned"
	// OriginAdopted is a disk that existed before: of a PersistentVolume that was created manually
	// or by the V1 driver. It is never formatted unless it reads blank, and the driver never
	// creates it.
	OriginAdopted VolumeOrigin = "Adopted"
)

// AccessPattern says how many nodes may use the volume at once.
// +kubebuilder:validation:Enum=SingleNode;MultiNode
type AccessPattern string

const (
	// AccessSingleNode is a volume with at most one primary.
	AccessSingleNode AccessPattern = "SingleNode"
	// AccessMultiNode is a raw block volume that several nodes use at once; each of
	// its attachments is a primary and it has no replicas.
	AccessMultiNode AccessPattern = "MultiNode"
)

// AzVolumeSpec is what was requested. All of it is immutable except the capacity, the number of
// replicas, deletionPolicy, disk.persistentReservations, disk.cachingMode, which follows the
// PersistentVolume, and what a VolumeAttributesClass can change of the disk: the DiskSettings,
// disk.modifiedCachingMode and disk.iopsPerGiB. What Azure refuses permanently is reverted to what the
// status says about the disk. Only the driver writes the spec, except for the fields that say that an
// administrator may change them.
//
// +kubebuilder:validation:XValidation:rule="self.origin == oldSelf.origin",message="spec.origin is immutable"
// +kubebuilder:validation:XValidation:rule="self.access == oldSelf.access",message="spec.access is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.source) == has(oldSelf.source) && (!has(self.source) || self.source == oldSelf.source)",message="spec.source is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.claimRef) == has(oldSelf.claimRef) && (!has(self.claimRef) || self.claimRef == oldSelf.claimRef)",message="spec.claimRef is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.filesystem) == has(oldSelf.filesystem)",message="spec.filesystem is immutable"
// +kubebuilder:validation:XValidation:rule="self.maxMountReplicaCount <= self.disk.maxShares - 1",message="spec.maxMountReplicaCount must be at most spec.disk.maxShares - 1"
// +kubebuilder:validation:XValidation:rule="self.access == 'SingleNode' || self.maxMountReplicaCount == 0",message="spec.maxMountReplicaCount must be 0 for a MultiNode volume"
type AzVolumeSpec struct {
	// origin reports whether the driver creates the disk or adopted it. More values may be added; treat an
	// unknown one as Adopted.
	// +required
	Origin VolumeOrigin `json:"origin"`
	// access says how many nodes may use the volume at once. More values may be added; treat an unknown
	// one as SingleNode.
	// +required
	Access AccessPattern `json:"access"`
	// capacityBytes is the wanted size in bytes, a multiple of 1 GiB for a disk that
	// the driver creates.
	// +kubebuilder:validation:Minimum=1
	// +required
	CapacityBytes int64 `json:"capacityBytes"`
	// maxMountReplicaCount is the number of attachment replicas to keep besides the
	// primary: 0 to disk.maxShares - 1. An administrator may change it, also with kubectl scale.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=14
	// +required
	MaxMountReplicaCount int32 `json:"maxMountReplicaCount"`
	// disk holds the disk's identity and its parameters.
	// +required
	Disk DiskParameters `json:"disk"`
	// source is the disk or snapshot whose content the disk starts with.
	// +optional
	Source *VolumeSource `json:"source,omitempty"`
	// filesystem is the filesystem of the volume; unset for raw block.
	// +optional
	Filesystem *Filesystem `json:"filesystem,omitempty"`
	// claimRef is the PersistentVolumeClaim for which the volume was provisioned, or that had its
	// PersistentVolume when the disk was adopted. It is a record: status.claimRef is the claim of now.
	// +optional
	ClaimRef *ClaimReference `json:"claimRef,omitempty"`
	// deletionPolicy is what becomes of the disk when the AzVolume is deleted; Retain if it is unset, except
	// for a disk whose creation was not completed. CSI's DeleteVolume sets Delete before it deletes the
	// AzVolume; it is Retain again if the volume is used or to be retained after all. More values may be
	// added; treat an unknown one as Retain.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// DeletionPolicy is what becomes of a disk when its AzVolume is deleted.
// +kubebuilder:validation:Enum=Delete;Retain
type DeletionPolicy string

const (
	// DeletionDelete deletes the disk with its AzVolume.
	DeletionDelete DeletionPolicy = "Delete"
	// DeletionRetain leaves the disk at Azure.
	DeletionRetain DeletionPolicy = "Retain"
)

// ClaimReference names a PersistentVolumeClaim in any namespace.
type ClaimReference struct {
	// namespace of the claim.
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]+$`
	// +kubebuilder:validation:MaxLength=63
	// +required
	Namespace string `json:"namespace"`
	// name of the claim.
	// +kubebuilder:validation:Pattern=`^[a-z0-9.-]+$`
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// uid of the claim, where it is known.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]*$`
	// +kubebuilder:validation:MaxLength=64
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// String returns namespace/name, and "" for no claim.
func (r ClaimReference) String() string {
	if r.Name == "" {
		return ""
	}
	return r.Namespace + "/" + r.Name
}

// DiskParameters are the typed parameters of a managed disk, after validation.
// Sources: the StorageClass parameters of the driver, and
// https://learn.microsoft.com/azure/virtual-machines/disks-types.
//
// +kubebuilder:validation:XValidation:rule="self.subscriptionID == oldSelf.subscriptionID",message="spec.disk.subscriptionID is immutable"
// +kubebuilder:validation:XValidation:rule="self.resourceGroup == oldSelf.resourceGroup",message="spec.disk.resourceGroup is immutable"
// +kubebuilder:validation:XValidation:rule="self.name == oldSelf.name",message="spec.disk.name is immutable"
// +kubebuilder:validation:XValidation:rule="self.maxShares == oldSelf.maxShares",message="spec.disk.maxShares is immutable"
// +kubebuilder:validation:XValidation:rule="(has(self.location) && self.location != \"\") ? (has(oldSelf.location) && self.location == oldSelf.location) : (!has(oldSelf.location) || oldSelf.location == \"\")",message="spec.disk.location is immutable"
// +kubebuilder:validation:XValidation:rule="(has(self.zone) && self.zone != \"\") ? (has(oldSelf.zone) && self.zone == oldSelf.zone) : (!has(oldSelf.zone) || oldSelf.zone == \"\")",message="spec.disk.zone is immutable"
// +kubebuilder:validation:XValidation:rule="(has(self.writeAcceleratorEnabled) && self.writeAcceleratorEnabled) == (has(oldSelf.writeAcceleratorEnabled) && oldSelf.writeAcceleratorEnabled)",message="spec.disk.writeAcceleratorEnabled is immutable"
type DiskParameters struct {
	// subscriptionID is the subscription of the disk.
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$`
	// +kubebuilder:validation:MaxLength=36
	// +required
	SubscriptionID string `json:"subscriptionID"`
	// resourceGroup is the resource group of the disk.
	// +kubebuilder:validation:MaxLength=90
	// +kubebuilder:validation:Pattern=`^[\p{L}\p{N}_()-][\p{L}\p{N}_().-]*$`
	// +required
	ResourceGroup string `json:"resourceGroup"`
	// name is the disk's name at Azure.
	// +kubebuilder:validation:MaxLength=80
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`
	// +required
	Name string `json:"name"`
	// location is the Azure region, as in "eastus".
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]*$`
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Location string `json:"location,omitempty"`
	// zone is the availability zone within the region, as in "1"; empty for a disk
	// that is regional or zone-redundant.
	// +kubebuilder:validation:Pattern=`^[0-9]*$`
	// +kubebuilder:validation:MaxLength=3
	// +optional
	Zone string `json:"zone,omitempty"`
	// maxShares is the number of VMs that may attach the disk at once.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=15
	// +required
	MaxShares int32 `json:"maxShares"`
	// cachingMode is the host caching of the attachments: that of the PersistentVolume, which a publish
	// updates; None for shared disks.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]+$`
	// +kubebuilder:validation:MaxLength=64
	// +required
	CachingMode string `json:"cachingMode"`
	// modifiedCachingMode is the host caching that a VolumeAttributesClass has set since the disk
	// was created, from the next attach on. It takes precedence over CachingMode, which is that of
	// the PersistentVolume.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]*$`
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ModifiedCachingMode string `json:"modifiedCachingMode,omitempty"`
	// iopsPerGiB is the number of IOPS for each GiB to which diskIOPSReadWrite is raised when the
	// disk grows (UltraSSD_LRS, PremiumV2_LRS).
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	IOPSPerGiB int64 `json:"iopsPerGiB,omitempty"`
	// writeAcceleratorEnabled turns the write accelerator on.
	// +optional
	WriteAcceleratorEnabled bool `json:"writeAcceleratorEnabled,omitempty"`
	// persistentReservations reports whether the nodes that use the volume reserve its disk; empty means
	// Auto. It takes effect when the volume is staged next. An administrator may change it. More values may
	// be added; treat an unknown one as Auto.
	// +optional
	PersistentReservations ReservationMode `json:"persistentReservations,omitempty"`
	DiskSettings           `json:",inline"`
	ImmutableDiskSettings  `json:",inline"`
}

// Filesystem is the filesystem that is made on a blank disk.
//
// +kubebuilder:validation:XValidation:rule="self.type == oldSelf.type",message="spec.filesystem.type is immutable"
type Filesystem struct {
	// type as in "ext4". A node refuses to make one that it does not know.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]+$`
	// +kubebuilder:validation:MaxLength=64
	// +required
	Type              string `json:"type"`
	FilesystemOptions `json:",inline"`
}

// VolumeSource is the content that a disk starts with. Exactly one field is set.
//
// +kubebuilder:validation:XValidation:rule="has(self.diskID) != has(self.snapshotID)",message="exactly one of diskID and snapshotID must be set"
type VolumeSource struct {
	// diskID is the resource ID of the disk to clone.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +optional
	DiskID string `json:"diskID,omitempty"`
	// snapshotID is the resource ID of the snapshot to restore.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +optional
	SnapshotID string `json:"snapshotID,omitempty"`
}

// VolumeState is the state of an AzVolume.
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]+$`
// +kubebuilder:validation:MaxLength=64
type VolumeState string

// The states of an AzVolume. A failed state is not final: the driver retries as long as the object
// asks for it.
//
//	Pending ─▶ Creating ─▶ Created ─▶ Deleting ─▶ (gone)
//	              │  ▲      │   ▲         │ ▲
//	              ▼  │      ▼   │         ▼ │
//	    CreationFailed   Updating     DeletionFailed
//	                        │ ▲
//	                        ▼ │
//	                    UpdateFailed
const (
	VolumePending        VolumeState = "Pending"
	VolumeCreating       VolumeState = "Creating"
	VolumeCreationFailed VolumeState = "CreationFailed"
	VolumeCreated        VolumeState = "Created"
	VolumeUpdating       VolumeState = "Updating"
	VolumeUpdateFailed   VolumeState = "UpdateFailed"
	VolumeDeleting       VolumeState = "Deleting"
	VolumeDeletionFailed VolumeState = "DeletionFailed"
)

// AzVolumeStatus is what is.
type AzVolumeStatus struct {
	// state is the life-cycle state of the disk, for display: programs read the conditions. More values may be
	// added; treat an unknown one as Pending.
	// +optional
	State VolumeState `json:"state,omitempty"`
	// diskID is the disk's resource ID at Azure; it is also the CSI volume handle.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	DiskID string `json:"diskID,omitempty"`
	// sizeBytes is the size of the disk at Azure in bytes.
	// +optional
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// size is sizeBytes as a quantity, as in "10Gi", because kubectl get cannot make one.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// applied are the settings of spec.disk to which the disk has been brought. The disk is changed
	// when spec.disk says something else; without it the disk is read first.
	// +optional
	Applied *AppliedSettings `json:"applied,omitempty"`
	// updateWantedTime is when it was first seen that the disk has to be changed. For half a second from
	// then on changes are gathered, so that they reach Azure in one call. Unset when the disk is as
	// it should be.
	// +optional
	UpdateWantedTime *metav1.MicroTime `json:"updateWantedTime,omitempty"`
	// refusedCapacity is the last growth that was refused, unless one has succeeded since.
	// +optional
	RefusedCapacity *Refusal `json:"refusedCapacity,omitempty"`
	// refusedSettings is the last change of the settings that was refused, unless one has succeeded
	// since.
	// +optional
	RefusedSettings *Refusal `json:"refusedSettings,omitempty"`
	// conversion of the disk to another SKU that continues at Azure; unset if there is none.
	// +optional
	Conversion *Conversion `json:"conversion,omitempty"`
	// disk is the disk as Azure described it when the driver read it last: after Azure had refused
	// to attach it, or after a change that found it different from spec.disk. Where it differs from
	// spec.disk, the driver uses it.
	// +optional
	Disk *DiskReading `json:"disk,omitempty"`
	// filesystem records the filesystem that was made on the disk. While it is set,
	// a device that carries another one is refused (law 4).
	// +optional
	Filesystem *FilesystemRecord `json:"filesystem,omitempty"`
	// fencing is how the node that has the volume staged, or had it staged last, is fenced if it is
	// lost, according to that node's report. Unset before the first use. More values may be added; treat
	// an unknown one as ForcedDetach.
	// +optional
	Fencing FencingMethod `json:"fencing,omitempty"`
	// confirmedUID is the UID of this AzVolume once the disk is known to be used by this cluster:
	// the disk was created for this object, or the node that holds the ownership has staged it and
	// its attachment is exclusive. As long as it is not, also in an object that was restored from a
	// backup with its status and has another UID, Azure is asked for VMs outside of this cluster that
	// have the disk before a node acquires the ownership. It is removed when Azure contradicts an
	// attachment of the volume, and when a release was proved by Azure and not by the node: the disk
	// may have been taken from this cluster by then.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]*$`
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ConfirmedUID types.UID `json:"confirmedUID,omitempty"`
	// claimRef is the claim to which the PersistentVolume of the disk is bound, as it was seen last. It
	// follows the PersistentVolume; unset until the disk has one that is bound.
	// +optional
	ClaimRef *ClaimReference `json:"claimRef,omitempty"`
	// persistentVolume is the PersistentVolume of the disk as it was seen last; of several, one of
	// them. When none is left and the disk is not to be deleted, the driver deletes the
	// AzVolume as soon as no node uses the disk, and the disk remains at Azure.
	// +kubebuilder:validation:Pattern=`^[a-z0-9.-]+$`
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PersistentVolume string `json:"persistentVolume,omitempty"`
	// primary is the ownership of a SingleNode volume: which node may use it. Its epoch outlives
	// the release.
	// +optional
	Primary *Ownership `json:"primary,omitempty"`
	// lastReleasedTime is when the volume last lost its primary. Five minutes
	// later the replicas are cleaned up unless there is a primary again.
	// +optional
	LastReleasedTime *metav1.Time `json:"lastReleasedTime,omitempty"`
	// lastRelease says which node released the volume last, and by what proof.
	// +optional
	LastRelease *ReleaseRecord `json:"lastRelease,omitempty"`
	// replicas says how many attachment replicas there are. Unset for a volume that is to have
	// none.
	// +optional
	Replicas *ReplicaCount `json:"replicas,omitempty"`
	// operation is the Azure operation in flight, if any.
	// +optional
	Operation *Operation `json:"operation,omitempty"`
	// error is the last failure of the step that State names; unset on success.
	// +optional
	Error *Error `json:"error,omitempty"`
	// conditions of the volume: Ready, Updated, DiskAsRecorded, WritesKept, Usable, ReplicasAttached,
	// Published. The message of ReplicasAttached names the nodes that take no replica, and why.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.message.size() <= 1024)",message="a message has at most 1024 characters"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// DiskReading is what Azure says of a disk that decides how, and where, it can be attached. A
// client of Azure can change all of it.
type DiskReading struct {
	// readTime is when Azure was asked last. If Azure has never answered, only the times are set.
	// +required
	ReadTime metav1.Time `json:"readTime"`
	// changedTime is when the driver first read the values below: what it asked Azure for until
	// then was decided from other values.
	// +optional
	ChangedTime *metav1.Time `json:"changedTime,omitempty"`
	// skuName is the disk's SKU.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]*$`
	// +kubebuilder:validation:MaxLength=64
	// +optional
	SKUName string `json:"skuName,omitempty"`
	// maxShares is the number of VMs that may attach the disk at once.
	// +optional
	MaxShares int32 `json:"maxShares,omitempty"`
	// zone is the disk's availability zone.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Zone string `json:"zone,omitempty"`
	// diskEncryptionSetID is the disk encryption set with which the disk is encrypted.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	DiskEncryptionSetID string `json:"diskEncryptionSetID,omitempty"`
	// unrecordedVMs are the resource IDs of the VMs that had the disk at ReadTime without an
	// AzVolumeAttachment.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	UnrecordedVMs []string `json:"unrecordedVMs,omitempty"`
}

// Shares is the number of VMs that may attach the disk at once: as Azure said last, or else as
// spec.disk says.
func (v *AzVolume) Shares() int32 {
	if d := v.Status.Disk; d != nil && d.MaxShares > 0 {
		return d.MaxShares
	}
	return v.Spec.Disk.MaxShares
}

// Claim is the claim that has the volume, or else the one for which it was provisioned; zero for none.
func (v *AzVolume) Claim() ClaimReference {
	return *cmp.Or(v.Status.ClaimRef, v.Spec.ClaimRef, &ClaimReference{})
}

// FilesystemType is the type of the filesystem, as in "ext4"; "" for raw block.
func (v *AzVolume) FilesystemType() string {
	if v.Spec.Filesystem == nil {
		return ""
	}
	return v.Spec.Filesystem.Type
}

// DeletesDisk reports whether the disk is deleted with the AzVolume.
func (v *AzVolume) DeletesDisk() bool { return v.Spec.DeletionPolicy == DeletionDelete }

// WantedReplicas is the number of replicas besides a primary: spec.maxMountReplicaCount, or fewer
// if the disk has fewer shares by now.
func (v *AzVolume) WantedReplicas() int32 {
	if d := v.Status.Disk; d != nil && d.MaxShares > 0 {
		return min(v.Spec.MaxMountReplicaCount, d.MaxShares-1)
	}
	return v.Spec.MaxMountReplicaCount
}

// Leaving reports whether the AzVolume is on its way out: its deletion was asked for, and DeleteVolume
// has marked the disk for deletion or the controller has begun to carry the deletion out. No node
// gets such a volume. An AzVolume that was deleted and is kept, because a PersistentVolume or a node
// needs it, is not leaving, and works as any other: no decision asks for the deletionTimestamp alone.
func (v *AzVolume) Leaving() bool {
	return v.DeletionTimestamp != nil &&
		(v.DeletesDisk() || v.Status.State == VolumeDeleting || v.Status.State == VolumeDeletionFailed)
}

// ReplicaCount counts the attachment replicas of a volume.
type ReplicaCount struct {
	// ready is how many of the wanted replicas are attached.
	// +required
	Ready int32 `json:"ready"`
	// wanted is how many replicas there should be now: spec.maxMountReplicaCount while the volume
	// is in use and for a while after, else 0.
	// +required
	Wanted int32 `json:"wanted"`
}

// FilesystemRecord identifies a filesystem that was made on a disk.
type FilesystemRecord struct {
	// type as in "ext4".
	// +kubebuilder:validation:MaxLength=32
	// +required
	Type string `json:"type"`
	// uuid as blkid prints it, in lower case.
	// +kubebuilder:validation:MaxLength=64
	// +required
	UUID string `json:"uuid"`
}
