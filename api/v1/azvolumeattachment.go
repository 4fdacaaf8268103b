package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AzVolumeAttachment is the attachment of one disk to one node. It is named
// after both (see AttachmentName).
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=azva,categories=azuredisk
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:selectablefield:JSONPath=`.spec.volumeName`
// +kubebuilder:selectablefield:JSONPath=`.spec.role`
// +kubebuilder:printcolumn:name="Volume",type=string,JSONPath=`.spec.volumeName`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.spec.role`
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.spec.epoch`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Attached")].reason`
// +kubebuilder:printcolumn:name="LUN",type=integer,JSONPath=`.status.lun`
// +kubebuilder:printcolumn:name="Proof",type=string,JSONPath=`.status.proof.type`
// +kubebuilder:printcolumn:name="Proven",type=date,JSONPath=`.status.proof.provenTime`
// +kubebuilder:printcolumn:name="Proof of epoch",type=integer,JSONPath=`.status.proof.epoch`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Deleting",type=date,JSONPath=`.metadata.deletionTimestamp`,priority=1
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.proof) && oldSelf.status.proof.type == 'Preempted' && oldSelf.status.proof.epoch >= oldSelf.spec.epoch) || (self.spec.role == oldSelf.spec.role && self.spec.epoch == oldSelf.spec.epoch)",message="an attachment with a proof of the type Preempted is deleted, and its role and epoch are not changed: the disk may still be attached to the node that was fenced"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.proof) && oldSelf.status.proof.type == 'Preempted' && oldSelf.status.proof.epoch >= oldSelf.spec.epoch) || (has(self.status) && has(self.status.proof) && (self.status.proof == oldSelf.status.proof || self.status.proof.type in ['Detached', 'VMDown'] && self.status.proof.epoch >= oldSelf.status.proof.epoch)) || (has(oldSelf.status.vmID) && (!has(self.status) || !has(self.status.vmID) && !has(self.status.uid) && !has(self.status.proof)))",message="a proof of the type Preempted is replaced by Detached or VMDown only, or discarded with the VM and the UID of a status that was restored from a backup"
type AzVolumeAttachment struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard metadata of an object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is wanted.
	// +required
	Spec AzVolumeAttachmentSpec `json:"spec"`
	// status is what is.
	// +optional
	Status AzVolumeAttachmentStatus `json:"status,omitempty"`
}

// AzVolumeAttachmentList is a list of AzVolumeAttachments.
//
// +kubebuilder:object:root=true
type AzVolumeAttachmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// +required
	Items []AzVolumeAttachment `json:"items"`
}

// Role is what a node is to a volume.
// +kubebuilder:validation:Enum=Primary;Replica
type Role string

const (
	// RolePrimary may stage and use the volume.
	RolePrimary Role = "Primary"
	// RoleReplica has the disk attached and may not touch it.
	RoleReplica Role = "Replica"
)

// AzVolumeAttachmentSpec is what is wanted of an attachment. Only the driver writes it, except for the fields
// that say that an administrator may change them.
//
// +kubebuilder:validation:XValidation:rule="self.volumeName == oldSelf.volumeName",message="spec.volumeName is immutable"
// +kubebuilder:validation:XValidation:rule="self.nodeName == oldSelf.nodeName",message="spec.nodeName is immutable"
// +kubebuilder:validation:XValidation:rule="self.epoch >= oldSelf.epoch",message="spec.epoch may only grow"
// +kubebuilder:validation:XValidation:rule="self.role != 'Primary' || self.epoch > 0",message="a Primary carries the epoch of its ownership, which is at least 1"
type AzVolumeAttachmentSpec struct {
	// volumeName is the name of the AzVolume.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[a-z0-9.-]+$`
	// +kubebuilder:validation:MaxLength=63
	// +required
	VolumeName string `json:"volumeName"`
	// nodeName is the name of the node and of its AzDriverNode.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[a-z0-9.-]+$`
	// +kubebuilder:validation:MaxLength=253
	// +required
	NodeName string `json:"nodeName"`
	// role that is wanted. More values may be added; treat an unknown one as Replica.
	// +required
	Role Role `json:"role"`
	// epoch of the ownership under which the role Primary was given. For a Replica it is
	// the last epoch under which it was Primary, or 0.
	// +kubebuilder:validation:Minimum=0
	// +required
	Epoch int64 `json:"epoch"`
	// readOnly says that the volume was published to the node for reading only: the node mounts it
	// so, and write-protects the device of a raw block volume. It means nothing for a Replica. An administrator may
	// change it.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`
}

// AttachmentState is the state of an AzVolumeAttachment.
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]+$`
// +kubebuilder:validation:MaxLength=64
type AttachmentState string

// The states of an AzVolumeAttachment; failed states are retried. An attachment that is detached is
// deleted.
const (
	AttachmentPending    AttachmentState = "Pending"
	AttachmentAttaching  AttachmentState = "Attaching"
	AttachmentAttached   AttachmentState = "Attached"
	AttachmentFailed     AttachmentState = "AttachmentFailed"
	AttachmentDetaching  AttachmentState = "Detaching"
	AttachmentDetachFail AttachmentState = "DetachmentFailed"
)

// AzVolumeAttachmentStatus is what is.
type AzVolumeAttachmentStatus struct {
	// state of the attachment at Azure, for display: programs read the conditions. More values may be added;
	// treat an unknown one as Pending.
	// +optional
	State AttachmentState `json:"state,omitempty"`
	// role that the driver has seen through: set once State is Attached. More values may be added; treat an
	// unknown one as Replica.
	// +optional
	Role Role `json:"role,omitempty"`
	// lun of the disk at the VM; set once State is Attached. If State is AttachmentFailed, the VM
	// lists the disk there although the attach has failed.
	// +optional
	LUN *int32 `json:"lun,omitempty"`
	// exclusive is true if Azure, asked after this attach, listed the disk at no VM outside of this
	// cluster. Only then may the node take the disk's reservation from a key of another cluster.
	// It is unset when State is not Attached, and when Azure contradicts the attachment, so it never
	// is about an earlier attach.
	// +optional
	Exclusive bool `json:"exclusive,omitempty"`
	// vmID is the VM to which the disk is attached, recorded before the first call to Azure, so
	// that it is known even if the AzDriverNode is deleted.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	VMID string `json:"vmID,omitempty"`
	// uid of the AzVolumeAttachment, recorded with the VM. An object that was restored from a
	// backup has another UID than the status that was restored with it, and such a status is
	// discarded: the VM that it names may be another cluster's.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]*$`
	// +kubebuilder:validation:MaxLength=64
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// proof that the node released the volume, and the epoch for which it did (law 3).
	// +optional
	Proof *ReleaseProof `json:"proof,omitempty"`
	// operation is the Azure operation in flight, if any.
	// +optional
	Operation *Operation `json:"operation,omitempty"`
	// error is the last failure of the step that State names; unset on success.
	// +optional
	Error *Error `json:"error,omitempty"`
	// conditions of the attachment: Attached.
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

// ProofType names what proves that a node can no longer write to a volume.
// +kubebuilder:validation:Enum=Unstaged;Detached;VMDown;Preempted
type ProofType string

const (
	// ProofUnstaged: the node plug-in reported the volume unstaged (law 3a).
	ProofUnstaged ProofType = "Unstaged"
	// ProofDetached: Azure has detached the disk from the VM (law 3b).
	ProofDetached ProofType = "Detached"
	// ProofVMDown: Azure has no such VM, or reports it as stopped or deallocated and has detached
	// the disk (law 3c).
	ProofVMDown ProofType = "VMDown"
	// ProofPreempted: another node took the persistent reservation of the disk from this node (law
	// 3d). The disk may still be attached.
	ProofPreempted ProofType = "Preempted"
)

// ReleaseProof is the recorded proof that a node released a volume.
//
// +kubebuilder:validation:XValidation:rule="(self.type == 'Preempted') == has(self.preemption)",message="preemption is set for the type Preempted, and only then"
type ReleaseProof struct {
	// type of the proof. More values may be added; treat an unknown one as a proof after which the disk may
	// still be attached.
	// +required
	Type ProofType `json:"type"`
	// epoch up to which the node can no longer write.
	// +required
	Epoch int64 `json:"epoch"`
	// provenTime is when the proof was established.
	// +required
	ProvenTime metav1.Time `json:"provenTime"`
	// message names the observation, for users to read.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// preemption is set for the type Preempted.
	// +optional
	Preemption *Preemption `json:"preemption,omitempty"`
}
