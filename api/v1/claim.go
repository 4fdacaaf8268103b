package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClaimState is the state of a claim to be primary.
// +kubebuilder:validation:Enum=Held;Releasing;Released
type ClaimState string

const (
	// ClaimHeld allows the node to stage the volume.
	ClaimHeld ClaimState = "Held"
	// ClaimReleasing no longer allows the node to start to stage it, while the proof
	// that it let go is awaited. No other node can claim it yet.
	ClaimReleasing ClaimState = "Releasing"
	// ClaimReleased allows any node to claim the volume.
	ClaimReleased ClaimState = "Released"
)

// ReleaseCause is why a claim is taken back from its node.
// +kubebuilder:validation:Enum=Unpublished;NodeLost
type ReleaseCause string

const (
	// CauseUnpublished: Kubernetes asked for it.
	CauseUnpublished ReleaseCause = "Unpublished"
	// CauseNodeLost: the driver found the node lost, and fences it.
	CauseNodeLost ReleaseCause = "NodeLost"
)

// PrimaryClaim is the claim to be the one node that uses a volume. It is written
// with optimistic locking only: a compare-and-swap (law 1).
//
// An epoch grows by one, or past those of attachments that an AzVolume of before had, which was lost or restored from a backup.
//
//	Released ──claim(B), epoch+1──▶ Held(B) ──unpublish(B)──▶ Releasing(B) ──proof──▶ Released
//	                                  ▲                          │
//	                                  └────claim(B), epoch+1─────┘
//
// A claim that is Releasing because its node was lost is not taken up again before the proof: the disk is being cut off.
//
// +kubebuilder:validation:XValidation:rule="self.epoch >= oldSelf.epoch",message="the epoch never shrinks"
// +kubebuilder:validation:XValidation:rule="self.state == 'Released' || has(self.nodeName)",message="a claim that is Held or Releasing has a nodeName"
// +kubebuilder:validation:XValidation:rule="!(self.state == 'Held' && has(oldSelf.nodeName) && oldSelf.state != 'Released' && self.nodeName != oldSelf.nodeName)",message="a claim can be taken over only once it is Released"
// +kubebuilder:validation:XValidation:rule="!(self.state == 'Held' && oldSelf.state == 'Releasing' && has(oldSelf.cause) && oldSelf.cause == 'NodeLost')",message="a claim that is Releasing because its node was lost has to be Released first"
// +kubebuilder:validation:XValidation:rule="!has(self.cause) || self.state == 'Releasing'",message="cause is set only while the claim is Releasing"
// +kubebuilder:validation:XValidation:rule="!(self.state == 'Held' && oldSelf.state != 'Held') || self.epoch > oldSelf.epoch",message="every claim raises the epoch"
type PrimaryClaim struct {
	// NodeName is the node that holds the claim; empty when Released.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Epoch grows at every claim and never shrinks. 0 is never claimed.
	// +kubebuilder:validation:Minimum=0
	Epoch int64 `json:"epoch"`
	// State of the claim.
	State ClaimState `json:"state"`
	// Since is when the state was entered.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Cause is why the claim is being taken back; set while Releasing. NodeLost is a decision that is
	// carried through, whether or not the node comes back: Azure is asked for the proof.
	// +optional
	Cause ReleaseCause `json:"cause,omitempty"`
}

// ReleaseRecord says who let go of a volume last, and by what proof.
type ReleaseRecord struct {
	// NodeName of the node that held the claim.
	NodeName string `json:"nodeName"`
	// Cause of the release.
	// +optional
	Cause ReleaseCause `json:"cause,omitempty"`
	// Proof that the node let go.
	Proof ReleaseProof `json:"proof"`
}
