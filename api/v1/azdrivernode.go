package v1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AzDriverNode is a node on which the driver's node plug-in runs. It has the
// Node's name. The node plug-in makes it; its controller deletes it when the Node is gone.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=azdn,categories=azuredisk
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Plug-in ready",type=string,JSONPath=`.status.conditions[?(@.type=="PluginReady")].status`,priority=1
// +kubebuilder:printcolumn:name="Reachable",type=string,JSONPath=`.status.conditions[?(@.type=="Reachable")].status`
// +kubebuilder:printcolumn:name="VM size",type=string,JSONPath=`.spec.vmSize`
// +kubebuilder:printcolumn:name="Zone",type=string,JSONPath=`.spec.zone`
// +kubebuilder:printcolumn:name="Max disks",type=integer,JSONPath=`.status.capacity.maxDataDisks`
// +kubebuilder:printcolumn:name="Foreign disks",type=integer,JSONPath=`.status.capacity.foreignDisks`,priority=1
// +kubebuilder:printcolumn:name="Heartbeat",type=date,JSONPath=`.status.heartbeatTime`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.driverVersion`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AzDriverNode struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard metadata of an object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec identifies the VM, and has the controller's requests to the node.
	// +required
	Spec AzDriverNodeSpec `json:"spec"`
	// status is the node's half of the hand-over.
	// +optional
	Status AzDriverNodeStatus `json:"status,omitempty"`
}

// AzDriverNodeList is a list of AzDriverNodes.
//
// +kubebuilder:object:root=true
type AzDriverNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// +required
	Items []AzDriverNode `json:"items"`
}

// AzDriverNodeSpec identifies the virtual machine of a node, and has what the controller asks of its
// node plug-in.
type AzDriverNodeSpec struct {
	// vmID is the Azure resource ID of the VM or of the scale-set instance. The controller believes
	// it only as far as it agrees with the Node's spec.providerID; see the condition VMKnown.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +required
	VMID string `json:"vmID"`
	// vmSize as in "Standard_D4s_v5".
	// +kubebuilder:validation:MaxLength=128
	// +optional
	VMSize string `json:"vmSize,omitempty"`
	// location is the region, as in "eastus".
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Location string `json:"location,omitempty"`
	// zone is the availability zone within the region, as in "1"; empty for none.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Zone string `json:"zone,omitempty"`
	// requests to the node plug-in. Only the controller writes them: the admission policy refuses a
	// change by a node plug-in. The other fields are the node plug-in's.
	// +optional
	Requests *NodeRequests `json:"requests,omitempty"`
}

// NodeRequests are what the controller asks of a node plug-in.
type NodeRequests struct {
	// heartbeatTime is when a controller requested a heartbeat, because a probe of the node had
	// failed. Every replica of the controller may write it, also one that does not lead.
	// +optional
	HeartbeatTime *metav1.MicroTime `json:"heartbeatTime,omitempty"`
	// fences ask this node to take the persistent reservation of a volume from a node that was lost
	// (law 3d). A request remains until the lost node's attachment is gone; until then this node keeps
	// the reservation that it took.
	// +optional
	// +listType=map
	// +listMapKey=volumeName
	// +kubebuilder:validation:MaxItems=64
	Fences []FenceRequest `json:"fences,omitempty"`
}

// FenceRequests returns the fences that the controller asks of the node.
func (d *AzDriverNode) FenceRequests() []FenceRequest {
	if d.Spec.Requests == nil {
		return nil
	}
	return d.Spec.Requests.Fences
}

// HeartbeatRequestedTime returns when a controller last requested a heartbeat; nil if none did.
func (d *AzDriverNode) HeartbeatRequestedTime() *metav1.MicroTime {
	if d.Spec.Requests == nil {
		return nil
	}
	return d.Spec.Requests.HeartbeatTime
}

// AzDriverNodeStatus is what the node plug-in reports of its node.
type AzDriverNodeStatus struct {
	// heartbeatTime is the node's clock at its last report. Observers judge staleness
	// by their own clock: by when they saw it change.
	// +optional
	HeartbeatTime *metav1.MicroTime `json:"heartbeatTime,omitempty"`
	// heartbeatPeriodSeconds is the interval at which the node promises to report.
	// +optional
	HeartbeatPeriodSeconds int32 `json:"heartbeatPeriodSeconds,omitempty"`
	// heartbeatOnRequest says that the node plug-in watches this object and reports at once when
	// spec.requests.heartbeatTime changes. It then reports rarely otherwise.
	// +optional
	HeartbeatOnRequest bool `json:"heartbeatOnRequest,omitempty"`
	// driverVersion of the node plug-in.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	DriverVersion string `json:"driverVersion,omitempty"`
	// bootID is the kernel's boot ID: after a change of it, no earlier mount exists.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	BootID string `json:"bootID,omitempty"`
	// mountsScannedTime is when this node plug-in process compared StagedVolumes with the node's
	// mounts. A volume's absence from StagedVolumes proves nothing while it is unset (law 3a).
	// +optional
	MountsScannedTime *metav1.MicroTime `json:"mountsScannedTime,omitempty"`
	// stagedVolumes are the volumes that are staged here, or being staged. An entry is written
	// before the first effect on the device and removed after the last. They are at most 128: a VM has up
	// to 64 data disks, and a node that was lost may still have as many to unstage that were detached by
	// force.
	// +optional
	// +listType=map
	// +listMapKey=volumeName
	// +kubebuilder:validation:MaxItems=128
	StagedVolumes []StagedVolume `json:"stagedVolumes,omitempty"`
	// reportDigest is a digest of the object's UID and of the volumes in StagedVolumes, as the node
	// plug-in wrote them. Where it does not agree, something else has changed the report, and a
	// volume's absence proves nothing until the node writes again. Node plug-ins of earlier
	// versions do not write it.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ReportDigest string `json:"reportDigest,omitempty"`
	// fenceResults are this node's answers to spec.requests.fences. Only the node plug-in writes them. It
	// removes a result after the request was removed and this node's registration with the disk has
	// ended.
	// +optional
	// +listType=map
	// +listMapKey=volumeName
	// +kubebuilder:validation:MaxItems=128
	FenceResults []FenceResult `json:"fenceResults,omitempty"`
	// lostWrites are the volumes whose device did not take all data at an unpublish or an unstage
	// within the last hour, with the last loss of each. Only the node plug-in writes it.
	// +optional
	// +listType=map
	// +listMapKey=volumeName
	// +kubebuilder:validation:MaxItems=32
	LostWrites []LostWrites `json:"lostWrites,omitempty"`
	// volumeProblems say what keeps a volume from being used on this node, or from leaving it, for longer
	// than ten seconds. A volume may have one without an entry in stagedVolumes, while it cannot be
	// staged. Only the node plug-in writes them, and removes them when they have ended. It
	// leaves out those beyond eight.
	// +optional
	// +listType=map
	// +listMapKey=volumeName
	// +kubebuilder:validation:MaxItems=8
	VolumeProblems []VolumeProblem `json:"volumeProblems,omitempty"`
	// maintenance is what Azure has announced for the VM, as the scheduled events of the instance
	// metadata say; unset while the metadata has not answered. Only the node plug-in writes it, and
	// only when it changes. While it is unset, the controller reads the condition VMEventScheduled
	// of the Node, which the node problem detector of AKS writes.
	// +optional
	Maintenance *NodeMaintenance `json:"maintenance,omitempty"`
	// capacity is filled in by the controller from what Azure says of the VM and of its size.
	// +optional
	Capacity *NodeCapacity `json:"capacity,omitempty"`
	// conditions of the node. The node plug-in writes PluginReady and GuardsFencedNodes, the controller Ready, Reachable,
	// Probeable, VMKnown, Undisturbed, InService and FailoverEnabled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.message.size() <= 1024)",message="a message has at most 1024 characters"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// VolumeProblem says what is wrong with a volume on a node.
type VolumeProblem struct {
	// volumeName is the name of the AzVolume.
	// +kubebuilder:validation:Pattern=`^[a-z0-9.-]+$`
	// +kubebuilder:validation:MaxLength=63
	// +required
	VolumeName string `json:"volumeName"`
	// reason is the cause, as in "FilesystemFrozen"; docs/reference/reasons.md has all. More values may
	// be added. The controller makes the reason of a condition of it.
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9_]*$`
	// +kubebuilder:validation:MaxLength=64
	// +required
	Reason string `json:"reason"`
	// message is what the node plug-in has seen, with device and path. Other characters are left out, so
	// that the largest report fits into etcd.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9 .,:;/_()='*~-]*$`
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
	// startTime is when it was first seen, by the node's clock.
	// +required
	StartTime metav1.Time `json:"startTime"`
}

// LostWrites says that a device did not take the last writes to a volume.
type LostWrites struct {
	// volumeName is the name of the AzVolume.
	// +kubebuilder:validation:Pattern=`^[a-z0-9.-]+$`
	// +kubebuilder:validation:MaxLength=63
	// +required
	VolumeName string `json:"volumeName"`
	// lossTime is when the device did not take them, by the node's clock.
	// +required
	LossTime metav1.Time `json:"lossTime"`
	// message is the error.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// NodeMaintenance is what Azure has announced for a VM.
type NodeMaintenance struct {
	// events that concern the VM and have not ended. An event is removed when Azure does not
	// announce it any more: it has ended or was cancelled.
	// +optional
	// +listType=map
	// +listMapKey=eventID
	// +kubebuilder:validation:MaxItems=16
	Events []MaintenanceEvent `json:"events,omitempty"`
}

// MaintenanceType is what Azure does to a VM.
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]+$`
// +kubebuilder:validation:MaxLength=64
type MaintenanceType string

// The kinds of maintenance, by Azure's names. Events of other kinds are not reported.
const (
	// MaintenanceFreeze: the VM is paused and continues with its memory.
	MaintenanceFreeze MaintenanceType = "Freeze"
	// MaintenanceReboot: the VM is started again.
	MaintenanceReboot MaintenanceType = "Reboot"
	// MaintenanceRedeploy: the VM is started again on another host.
	MaintenanceRedeploy MaintenanceType = "Redeploy"
	// MaintenancePreempt: the VM is a spot VM and is evicted.
	MaintenancePreempt MaintenanceType = "Preempt"
	// MaintenanceTerminate: the VM is deleted.
	MaintenanceTerminate MaintenanceType = "Terminate"
)

// MaintenanceEvent is one scheduled event of a VM.
type MaintenanceEvent struct {
	// eventID is Azure's name of the event. It stays the same when the event is postponed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +required
	EventID string `json:"eventID"`
	// type of the event. More values may be added; treat an unknown one as Reboot.
	// +required
	Type MaintenanceType `json:"type"`
	// notBeforeTime is the earliest time at which the event begins, unless a user lets it begin sooner.
	// Unset for an event that has begun.
	// +optional
	NotBeforeTime *metav1.Time `json:"notBeforeTime,omitempty"`
	// started says that the event has begun. The VM may be paused at any time until the event is
	// removed.
	// +optional
	Started bool `json:"started,omitempty"`
	// durationSeconds is how long the interruption is expected to take; unset if Azure does not say.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DurationSeconds *int32 `json:"durationSeconds,omitempty"`
	// source says who caused the event: Platform or User.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Source string `json:"source,omitempty"`
}

// NodeCapacity is how many disks the VM can have. The driver has MaxDataDisks less ForeignDisks.
// Replicas are not subtracted: they are deleted when a primary needs their slot (law 8).
type NodeCapacity struct {
	// maxDataDisks is the largest number of data disks for the VM's size; 0 for a size that Azure
	// does not list, and then Azure decides on each attach.
	// +required
	MaxDataDisks int32 `json:"maxDataDisks"`
	// vmSize for which it was looked up.
	// +kubebuilder:validation:MaxLength=128
	// +required
	VMSize string `json:"vmSize"`
	// foreignDisks is how many data disks are attached to the VM from outside this driver. They
	// take slots that the driver does not have; the controller counts them at Azure every few
	// minutes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ForeignDisks int32 `json:"foreignDisks,omitempty"`
	// lacksPremium says that Azure does not attach Premium disks, v2 included, to VMs of the size.
	// +optional
	LacksPremium bool `json:"lacksPremium,omitempty"`
	// lacksUltra says that Azure does not attach Ultra disks to VMs of the size in the VM's zone.
	// If it does, they must be enabled on the VM as well, which this field does not say.
	// +optional
	LacksUltra bool `json:"lacksUltra,omitempty"`
	// uncachedIOPS is how many requests a second the VM can make to all its disks together, without
	// what the host's cache answers; 0 if Azure does not say.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UncachedIOPS int64 `json:"uncachedIOPS,omitempty"`
	// uncachedBytesPerSecond is how many bytes a second the VM can read and write on all its disks
	// together, without what the host's cache answers; 0 if Azure does not say.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UncachedBytesPerSecond int64 `json:"uncachedBytesPerSecond,omitempty"`
}

// Capacity returns the capacity of the node's VM; nil if it is not known, or only of another size
// that the VM had.
func (d *AzDriverNode) Capacity() *NodeCapacity {
	if c := d.Status.Capacity; c != nil && c.VMSize == d.Spec.VMSize {
		return c
	}
	return nil
}

// Takes reports whether disks of a SKU can be attached to the VM, as far as that is known. A nil
// capacity takes all.
func (c *NodeCapacity) Takes(skuName string) bool {
	switch {
	case c == nil || c.MaxDataDisks == 0:
		return true
	case skuName == "UltraSSD_LRS":
		return !c.LacksUltra
	case strings.HasPrefix(skuName, "Premium"):
		return !c.LacksPremium
	}
	return true
}

// StagePhase is the progress of the staging of a volume on its node.
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]+$`
// +kubebuilder:validation:MaxLength=64
type StagePhase string

const (
	// PhaseStaging: the node has announced that it will use the device, and may be using it.
	PhaseStaging StagePhase = "Staging"
	// PhaseStaged: the device is in use.
	PhaseStaged StagePhase = "Staged"
	// PhaseUnstaging: the node is releasing the volume and may still be using the device.
	PhaseUnstaging StagePhase = "Unstaging"
)

// StagedVolume is a volume that is in use on a node.
type StagedVolume struct {
	// volumeName is the name of the AzVolume.
	// +kubebuilder:validation:Pattern=`^[a-z0-9.-]+$`
	// +kubebuilder:validation:MaxLength=63
	// +required
	VolumeName string `json:"volumeName"`
	// epoch under which it was staged.
	// +required
	Epoch int64 `json:"epoch"`
	// phase of the staging. More values may be added; treat an unknown one as Staged.
	// +required
	Phase StagePhase `json:"phase"`
	// published says that the volume is mounted for a pod, or is about to be: not all of its pods have
	// been unpublished. It is written before the first mount, and removed after the last unmount and
	// before the kubelet removes the pod's object. If it is set and no pod on the node uses the volume,
	// a process has outlived its pod. Node plug-ins of earlier versions do not write it.
	// +optional
	Published bool `json:"published,omitempty"`
	// filesystem that was found or made; unset for raw block and while Staging.
	// +optional
	Filesystem *FilesystemRecord `json:"filesystem,omitempty"`
	// device path as in "/dev/sdc".
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Device string `json:"device,omitempty"`
	// sizeBytes of the device.
	// +optional
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// stagingPath is where the volume is staged.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	StagingPath string `json:"stagingPath,omitempty"`
	// reservationKey is the key of the persistent reservation that this node holds on the disk, as
	// in "0xad1d540000070a2c"; unset if the disk is not reserved.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]*$`
	// +kubebuilder:validation:MaxLength=32
	// +optional
	ReservationKey string `json:"reservationKey,omitempty"`
	// unreservedReason is why the volume was staged without a reservation although its disk may
	// have them: the disk did not answer when it was asked. Unset otherwise.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	UnreservedReason string `json:"unreservedReason,omitempty"`
}
