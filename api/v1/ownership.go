package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OwnershipState is the state of the ownership of a volume.
// +kubebuilder:validation:Enum=Held;Releasing;Released
type OwnershipState string

const (
	// OwnershipHeld allows the node to stage the volume.
	OwnershipHeld OwnershipState = "Held"
	// OwnershipReleasing no longer allows the node to start to stage the volume. The driver waits
	// for the proof that the node released it, and no other node can acquire the ownership.
	OwnershipReleasing OwnershipState = "Releasing"
	// OwnershipReleased allows any node to acquire the ownership.
	OwnershipReleased OwnershipState = "Released"
)

// ReleaseCause is why the release of an ownership was started.
// +kubebuilder:validation:Enum=Unpublished;NodeLost
type ReleaseCause string

const (
	// CauseUnpublished: Kubernetes asked for it.
	CauseUnpublished ReleaseCause = "Unpublished"
	// CauseNodeLost: the driver found the node lost, and fences it.
	CauseNodeLost ReleaseCause = "NodeLost"
)

// Ownership is the right of one node to use a volume, that is, to be its primary. It is written
// with optimistic locking only: a compare-and-swap (law 1).
//
// The epoch is a fencing token. It grows by one each time the ownership is acquired, or beyond the
// epochs of attachments that outlived an AzVolume, which was lost or restored from a backup.
//
//	Released ──acquire(B), epoch+1──▶ Held(B) ──unpublish(B)──▶ Releasing(B) ──proof──▶ Released
//	                                    ▲                          │
//	                                    └───acquire(B), epoch+1────┘
//
// An ownership that is Releasing because its node was lost cannot be acquired again before the
// proof: the disk is being detached from the node.
//
// The API server accepts exactly these transitions, and any ownership in an AzVolume that has none: an
// AzVolume that is restored from a backup may get its status back. Released keeps its epoch, so that the
// next node gets a later one.
//
// +kubebuilder:validation:XValidation:rule="(self.state == 'Released') != has(self.nodeName)",message="an ownership that is Held or Releasing has a nodeName, and one that is Released has none"
// +kubebuilder:validation:XValidation:rule="self.state == 'Released' || self.epoch > 0",message="an ownership that is Held or Releasing has an epoch of at least 1"
// +kubebuilder:validation:XValidation:rule="(self.state == 'Releasing') == has(self.cause)",message="cause is set while the ownership is Releasing, and only then"
// +kubebuilder:validation:XValidation:rule="self.epoch >= oldSelf.epoch",message="the epoch may only grow"
// +kubebuilder:validation:XValidation:rule="(self.state == 'Held' && oldSelf.state != 'Held') ? self.epoch > oldSelf.epoch : self.epoch == oldSelf.epoch",message="the epoch grows each time the ownership is acquired, and only then"
// +kubebuilder:validation:XValidation:rule="!(self.state == 'Held' && oldSelf.state != 'Released' && self.nodeName != oldSelf.nodeName)",message="another node can acquire the ownership only once it is Released"
// +kubebuilder:validation:XValidation:rule="self.state != 'Releasing' || (oldSelf.state != 'Released' && self.nodeName == oldSelf.nodeName)",message="only the node that has the ownership can release it"
// +kubebuilder:validation:XValidation:rule="self.state != 'Released' || oldSelf.state != 'Held'",message="an ownership that is Held is Releasing before it is Released"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.cause) && oldSelf.cause == 'NodeLost') || self.state == 'Released' || (self.state == 'Releasing' && self.cause == 'NodeLost')",message="an ownership that is Releasing because its node was lost has to be Released first"
type Ownership struct {
	// nodeName is the node that holds the ownership; unset when Released.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[a-z0-9.-]+$`
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`
	// epoch grows each time the ownership is acquired and never shrinks. 0: it was never acquired.
	// +kubebuilder:validation:Minimum=0
	// +required
	Epoch int64 `json:"epoch"`
	// state of the ownership. More values may be added; treat an unknown one as Releasing.
	// +required
	State OwnershipState `json:"state"`
	// lastTransitionTime is when the state was entered.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
	// cause is why the release was started; set while Releasing. NodeLost is a decision that the
	// driver carries out even if the node is healthy again: the proof comes from Azure. More values may be
	// added; treat an unknown one as Unpublished.
	// +optional
	Cause ReleaseCause `json:"cause,omitempty"`
	// exclusive is true if Azure, asked before this ownership was acquired, listed the disk at no VM
	// outside of this cluster. Azure is asked unless it is confirmed that this cluster uses
	// the disk, so a planned move does not set it. It is for users to read: what the node may do depends
	// on the AzVolumeAttachment, whose exclusive names one attach.
	// +optional
	Exclusive bool `json:"exclusive,omitempty"`
}

// ReleaseRecord says which node released a volume last, and by what proof.
type ReleaseRecord struct {
	// nodeName of the node that held the ownership.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[a-z0-9.-]+$`
	// +kubebuilder:validation:MaxLength=253
	// +required
	NodeName string `json:"nodeName"`
	// cause of the release. More values may be added; treat an unknown one as Unpublished.
	// +optional
	Cause ReleaseCause `json:"cause,omitempty"`
	// proof that the node can no longer write.
	// +required
	Proof ReleaseProof `json:"proof"`
}
