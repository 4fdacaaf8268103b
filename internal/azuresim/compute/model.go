package compute

import (
	"encoding/json"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// Provisioning states.
const (
	Creating  = "Creating"
	Updating  = "Updating"
	Deleting  = "Deleting"
	Succeeded = "Succeeded"
	Failed    = "Failed"
)

// Power states of a VM, without the "PowerState/" in front.
const (
	PowerStarting     = "starting"
	PowerRunning      = "running"
	PowerStopping     = "stopping"
	PowerStopped      = "stopped"
	PowerDeallocating = "deallocating"
	PowerDeallocated  = "deallocated"
)

// Properties are JSON properties that the model keeps for its callers and does not look into.
type Properties map[string]json.RawMessage

// Group is a resource group.
type Group struct {
	Subscription string            `json:"subscription"`
	Name         string            `json:"name"`
	Location     string            `json:"location"`
	Tags         map[string]string `json:"tags,omitempty"`
	Deleting     bool              `json:"deleting,omitempty"`
}

// Source says what a disk or snapshot is made from.
type Source struct {
	Option     string     `json:"option"` // Empty, Copy, CopyStart
	ResourceID string     `json:"resourceId,omitempty"`
	UID        string     `json:"uid,omitempty"` // uniqueId of the source
	Other      Properties `json:"other,omitempty"`
}

// DiskSpec is what a caller chooses and may change later.
type DiskSpec struct {
	Tags                       map[string]string `json:"tags,omitempty"`
	SKU                        string            `json:"sku"`
	SizeGB                     int64             `json:"sizeGB"`
	MaxShares                  int               `json:"maxShares"`
	Tier                       string            `json:"tier,omitempty"`
	Bursting                   bool              `json:"bursting,omitempty"`
	IOPS, MBps                 int64             `json:",omitempty"`
	IOPSReadOnly               int64             `json:",omitempty"`
	MBpsReadOnly               int64             `json:",omitempty"`
	OptimizedForFrequentAttach *bool             `json:"optimizedForFrequentAttach,omitempty"`
	Other                      Properties        `json:"other,omitempty"`
}

// Claim is the tie of a disk to a VM, from the moment that an attach is accepted until the detach
// is done.
type Claim struct {
	VM       string `json:"vm"` // resource ID
	LUN      int    `json:"lun"`
	Attached bool   `json:"attached"` // the attach operation has succeeded
}

// Disk is a managed disk.
type Disk struct {
	ID           ID        `json:"id"`
	UID          string    `json:"uid"`
	Location     string    `json:"location"`
	Zones        []string  `json:"zones,omitempty"`
	Source       Source    `json:"source"`
	Spec         DiskSpec  `json:"spec"`
	Created      time.Time `json:"created"`
	OwnerChanged time.Time `json:"ownerChanged"`
	BurstingOn   time.Time `json:"burstingOn"`
	Provisioning string    `json:"provisioning"`
	Claims       []Claim   `json:"claims,omitempty"`
	CopyStarted  time.Time `json:"copyStarted"`
	CopyDone     time.Time `json:"copyDone"` // zero: there is no background copy
}

// SizeBytes is the size of the block device.
func (d *Disk) SizeBytes() int64 { return d.Spec.SizeGB << 30 }

// Snapshot is a point-in-time copy of a disk.
type Snapshot struct {
	ID           ID                `json:"id"`
	UID          string            `json:"uid"`
	Location     string            `json:"location"`
	Tags         map[string]string `json:"tags,omitempty"`
	SKU          string            `json:"sku"`
	SizeGB       int64             `json:"sizeGB"`
	Incremental  bool              `json:"incremental"`
	FamilyID     string            `json:"familyId,omitempty"`
	Source       Source            `json:"source"`
	Created      time.Time         `json:"created"`
	Provisioning string            `json:"provisioning"`
	CopyStarted  time.Time         `json:"copyStarted"`
	CopyDone     time.Time         `json:"copyDone"`
	InstantUntil time.Time         `json:"instantUntil"` // zero: there is no instant access
	Other        Properties        `json:"other,omitempty"`
}

// States of a data disk of a VM.
const (
	DiskAttaching    = "Attaching"
	DiskAttached     = "Attached"
	DiskDetaching    = "Detaching"
	DiskDetachFailed = "DetachFailed"
	// DiskAttachFailed: its attach has failed, and it stays in the goal state. The host does not have
	// it.
	DiskAttachFailed = "AttachFailed"
)

// DataDisk is an entry of a VM's data disk list.
type DataDisk struct {
	LUN              int        `json:"lun"`
	Disk             ID         `json:"disk"`
	UID              string     `json:"uid"`
	SKU              string     `json:"sku"` // that the caller gave, or else the disk's
	SizeGB           int64      `json:"sizeGB,omitempty"`
	Caching          string     `json:"caching"`
	DeleteOption     string     `json:"deleteOption,omitempty"`
	WriteAccelerator bool       `json:"writeAccelerator,omitempty"`
	Force            bool       `json:"force,omitempty"`
	State            string     `json:"state"`
	Undone           bool       `json:"takenBack,omitempty"` // Detaching before it was ever attached
	Unlisted         bool       `json:"unlisted,omitempty"`  // the VM lists what it is to have, and its detach was accepted
	Operation        string     `json:"operation,omitempty"` // the one that will end Attaching or Detaching
	Gone             bool       `json:"gone,omitempty"`      // the disk was deleted while it was being attached
	Created          bool       `json:"created,omitempty"`   // the update that attached the disk made it
	Changed          time.Time  `json:"changed"`             // when the attach was accepted, then when it was done
	Other            Properties `json:"other,omitempty"`     // of managedDisk
}

// VM is a virtual machine or an instance of a uniform scale set.
type VM struct {
	ID           ID                `json:"id"`
	PlaneKey     string            `json:"planeKey"` // its name on the data plane
	Name         string            `json:"name"`
	VMID         string            `json:"vmId"`
	Location     string            `json:"location"`
	Zones        []string          `json:"zones,omitempty"`
	Tags         map[string]string `json:"tags,omitempty"`
	Size         string            `json:"size"`
	ScaleSet     string            `json:"scaleSet,omitempty"` // ID of its flexible or uniform scale set
	Created      time.Time         `json:"created"`
	Provisioning string            `json:"provisioning"`
	Power        string            `json:"power"`
	Hibernated   bool              `json:"hibernated,omitempty"` // it is to be started with its memory
	PowerCut     bool              `json:"powerCut,omitempty"`   // fault: no power although Azure may say that it runs
	NetworkCut   bool              `json:"networkCut,omitempty"` // fault: recorded for the program that simulates the network
	Revision     uint64            `json:"revision"`             // grows with each accepted write; the ETag
	Disks        []DataDisk        `json:"disks,omitempty"`
	TopLevel     Properties        `json:"topLevel,omitempty"`   // identity, plan, ...
	Properties   Properties        `json:"properties,omitempty"` // osProfile, networkProfile, ...
	Hardware     Properties        `json:"hardware,omitempty"`   // of hardwareProfile, without vmSize
	Storage      Properties        `json:"storage,omitempty"`    // of storageProfile, without dataDisks
}

// Off reports whether the VM has no power, so that it holds no devices.
func (vm *VM) Off() bool {
	return vm.PowerCut || vm.Power == PowerStopped || vm.Power == PowerDeallocated
}

// ScaleSet is a scale set.
type ScaleSet struct {
	ID           ID                `json:"id"`
	Location     string            `json:"location"`
	Zones        []string          `json:"zones,omitempty"`
	Tags         map[string]string `json:"tags,omitempty"`
	SKU          string            `json:"sku"`
	Capacity     int               `json:"capacity"`
	Revision     uint64            `json:"revision"` // grows with each accepted write; the ETag
	Flexible     bool              `json:"flexible"`
	NextInstance int               `json:"nextInstance"`
	Created      time.Time         `json:"created"`
	UniqueID     string            `json:"uniqueId"`
	Provisioning string            `json:"provisioning"`
	TopLevel     Properties        `json:"topLevel,omitempty"`
	Properties   Properties        `json:"properties,omitempty"`
}

var (
	groupTable    = store.Table[Group]{Name: "groups"}
	diskTable     = store.Table[Disk]{Name: "disks"}
	snapshotTable = store.Table[Snapshot]{Name: "snapshots"}
	vmTable       = store.Table[VM]{Name: "vms"}
	planeTable    = store.Table[string]{Name: "planeKeys"} // data-plane key -> VM ID key
	scaleSetTable = store.Table[ScaleSet]{Name: "scaleSets"}
	linkedTable   = store.Table[Linked]{Name: "linked"}
	quotaTable    = store.Table[int64]{Name: "quotas"} // by counter; only those that were set by the admin API
)

// Tables are the tables that the model needs in its store.
var Tables = []string{
	groupTable.Name, diskTable.Name, snapshotTable.Name, vmTable.Name, planeTable.Name, scaleSetTable.Name, linkedTable.Name,
	quotaTable.Name,
}
