package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ReservationMode reports whether the nodes that use a volume reserve its disk, so that a lost node
// is fenced by the disk itself.
// +kubebuilder:validation:Enum=Auto;Disabled
type ReservationMode string

const (
	// ReservationsAuto reserves shared disks that one node uses at a time, if the device can be
	// reserved. It is the default.
	ReservationsAuto ReservationMode = "Auto"
	// ReservationsDisabled leaves the reservations of the disk to other programs, for example to the
	// application of a raw block volume.
	ReservationsDisabled ReservationMode = "Disabled"
)

// FencingMethod is how the node that uses a volume is fenced if it is lost.
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]+$`
// +kubebuilder:validation:MaxLength=64
type FencingMethod string

const (
	// FencingPreemption: the node holds a persistent reservation of the disk, which a node with a
	// replica takes from it. The forced detach is requested at the same time, and the first proof
	// counts.
	FencingPreemption FencingMethod = "Preemption"
	// FencingForcedDetach: Azure detaches the disk.
	FencingForcedDetach FencingMethod = "ForcedDetach"
)

// FenceRequest asks a node with a replica of a volume to take its persistent reservation from a
// node that was lost.
type FenceRequest struct {
	// volumeName is the name of the AzVolume.
	// +kubebuilder:validation:Pattern=`^[a-z0-9.-]+$`
	// +kubebuilder:validation:MaxLength=63
	// +required
	VolumeName string `json:"volumeName"`
	// volumeUID is the UID of the AzVolume. Epochs begin again if an AzVolume is lost or deleted
	// and its disk is adopted again.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]*$`
	// +kubebuilder:validation:MaxLength=64
	// +required
	VolumeUID types.UID `json:"volumeUID"`
	// nodeName is the node that was lost.
	// +kubebuilder:validation:Pattern=`^[a-z0-9.-]+$`
	// +kubebuilder:validation:MaxLength=253
	// +required
	NodeName string `json:"nodeName"`
	// epoch under which the lost node holds the reservation.
	// +kubebuilder:validation:Minimum=1
	// +required
	Epoch int64 `json:"epoch"`
	// requestTime is when it was requested. It tells the request from others, and is compared with no other clock.
	// +required
	RequestTime metav1.MicroTime `json:"requestTime"`
}

// FenceResult is a node's answer to a FenceRequest.
//
// +kubebuilder:validation:XValidation:rule="has(self.key) != has(self.message)",message="a result has either the key of the node or the message that says why it has none"
type FenceResult struct {
	// volumeName is copied from the request, as are the four fields that follow. A result is a proof only
	// for the request with the same values.
	// +kubebuilder:validation:Pattern=`^[a-z0-9.-]+$`
	// +kubebuilder:validation:MaxLength=63
	// +required
	VolumeName string `json:"volumeName"`
	// volumeUID of the request.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]*$`
	// +kubebuilder:validation:MaxLength=64
	// +required
	VolumeUID types.UID `json:"volumeUID"`
	// nodeName of the request.
	// +kubebuilder:validation:Pattern=`^[a-z0-9.-]+$`
	// +kubebuilder:validation:MaxLength=253
	// +required
	NodeName string `json:"nodeName"`
	// epoch of the request.
	// +required
	Epoch int64 `json:"epoch"`
	// requestTime is the time of the request.
	// +required
	RequestTime metav1.MicroTime `json:"requestTime"`
	// key with which this node holds the reservation since it pre-empted the lost node's key, as in
	// "0xad1d540000070a2d". Unset if it could not; then Message says why.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]*$`
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Key string `json:"key,omitempty"`
	// prGeneration is the generation of the disk's registrations after the pre-emption (PRGENERATION of SPC-4).
	// +optional
	PRGeneration int64 `json:"prGeneration,omitempty"`
	// message says why there is no proof.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
	// resultTime is when the node answered.
	// +required
	ResultTime metav1.MicroTime `json:"resultTime"`
}

// Preemption is how a persistent reservation was taken from a lost node.
type Preemption struct {
	// nodeName is the node that took the reservation.
	// +kubebuilder:validation:Pattern=`^[a-z0-9.-]+$`
	// +kubebuilder:validation:MaxLength=253
	// +required
	NodeName string `json:"nodeName"`
	// key with which that node holds the reservation.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]*$`
	// +kubebuilder:validation:MaxLength=32
	// +required
	Key string `json:"key"`
	// prGeneration is the generation of the disk's registrations after the pre-emption (PRGENERATION of SPC-4).
	// +optional
	PRGeneration int64 `json:"prGeneration,omitempty"`
}
