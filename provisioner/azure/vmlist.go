package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/batch"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/client"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/pacing"
)

// listAttempts is how often a list of data disks is written again after another client has changed it.
const listAttempts = 4

// ways remembers, by the type of VM, where attachDetachDataDisks is not enabled, so that the whole list
// of a VM's data disks is written instead. A new process finds it out again.
type ways struct {
	log   logr.Logger
	lists *prometheus.GaugeVec

	mu       sync.Mutex
	byList   map[string]bool // by type of resource
	onChange func(kind string, refusal error)
}

func newWays(log logr.Logger, metrics prometheus.Registerer) *ways {
	return &ways{
		log:      log,
		byList:   map[string]bool{},
		onChange: func(string, error) {},
		lists: promauto.With(metrics).NewGaugeVec(prometheus.GaugeOpts{
			Name: "azuredisk_azure_attaches_by_vm_list",
			Help: "1 for a type of VM whose list of data disks is written, because attachDetachDataDisks is not enabled.",
		}, []string{"type"}),
	}
}

func (w *ways) usesList(v vmClient) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byList[v.ResourceType.String()]
}

// useList is called when Azure has refused attachDetachDataDisks and accepted a list.
func (w *ways) useList(v vmClient, refusal error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kind := v.ResourceType.String()
	if w.byList[kind] {
		return
	}
	w.byList[kind] = true
	w.lists.WithLabelValues(kind).Set(1)
	w.log.Error(refusal, "attachDetachDataDisks is not enabled; disks are attached and detached by updates of the VM's list",
		"type", kind)
	w.onChange(kind, refusal)
}

// OnAttachByList calls report when the driver begins to write the list of data disks of a type of VM,
// because Azure refuses attachDetachDataDisks for it with refusal: once for each type, on the
// goroutine of the caller who attaches or detaches. report must not block, nor call the Cloud. It
// takes the place of the one before.
func (c *Cloud) OnAttachByList(report func(kind string, refusal error)) {
	c.ways.mu.Lock()
	defer c.ways.mu.Unlock()
	c.ways.onChange = report
}

// updateDisks changes the data disks of the VM: by attachDetachDataDisks, or by the list where that is
// not enabled.
func (v vmClient) updateDisks(ctx context.Context, changes []batch.Change) (p client.SDKPoller, byList bool, err error) {
	if v.cloud.ways.usesList(v) {
		p, err = v.writeList(ctx, changes)
		return p, true, err
	}
	luns, err := v.chooseLUNs(ctx, changes)
	if err != nil {
		return nil, false, err
	}
	p, refusal := v.attachDetach(ctx, updateOf(changes, luns))
	if !client.NotEnabled(refusal) {
		return p, false, v.cloud.api.Translate(refusal, "change the disks of VM %s", v.Name)
	}
	// The refusal has no code that is known. Its text is reason enough to try the list, and no more:
	// that Azure accepts the list decides.
	if p, err = v.writeList(ctx, changes); err != nil {
		return nil, true, fmt.Errorf("%w (%w)", err, v.cloud.api.Translate(refusal, "change the disks of VM %s", v.Name))
	}
	v.cloud.ways.useList(v, refusal)
	return p, true, nil
}

// diskList is a VM's list of data disks as it was read.
type diskList struct {
	etag, state, location *string
	storage               *armcompute.StorageProfile
}

func (v vmClient) readList(ctx context.Context) (diskList, error) {
	ctx = v.cloud.api.Persistent(ctx, pacing.GetVM, v.String())
	var list diskList
	var err error
	if v.Is(client.TypeScaleSetVM) {
		var got armcompute.VirtualMachineScaleSetVMsClientGetResponse
		got, err = v.ScaleSets.Get(ctx, v.ResourceGroupName, v.Parent.Name, v.Name, nil)
		list.etag, list.location = got.Etag, got.Location
		if got.Properties != nil {
			list.state, list.storage = got.Properties.ProvisioningState, got.Properties.StorageProfile
		}
	} else {
		var got armcompute.VirtualMachinesClientGetResponse
		got, err = v.VMs.Get(ctx, v.ResourceGroupName, v.Name, nil)
		list.etag, list.location = got.Etag, got.Location
		if got.Properties != nil {
			list.state, list.storage = got.Properties.ProvisioningState, got.Properties.StorageProfile
		}
	}
	switch {
	case err != nil:
		return list, v.cloud.api.Translate(err, "read VM %s", v.Name)
	case list.storage == nil:
		return list, incomplete("VM", v.Name)
	case client.Value(list.etag) == "":
		return list, provisioner.Errorf(provisioner.FailedPrecondition,
			"change the disks of VM %s: Azure gives the VM no ETag, without which another client's change of its list could be undone",
			v.Name)
	}
	return list, nil
}

// writeList changes the data disks of the VM by writing its whole list. The ETag lets Azure refuse a
// list that is stale, so that no disk of another client is detached or attached by it.
func (v vmClient) writeList(ctx context.Context, changes []batch.Change) (client.SDKPoller, error) {
	taken, err := recordedLUNs(ctx, v.Name, changes)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		have, err := v.readList(ctx)
		if err != nil {
			return nil, err
		}
		state := client.Value(have.state)
		if state != operation.StateSucceeded && state != operation.StateFailed && !forced(changes) {
			// An update of a list takes the place of what is in flight, and an ordinary one need not.
			return nil, provisioner.Errorf(provisioner.Conflict, "change the disks of VM %s: the VM is %s", v.Name, state)
		}
		list, err := withChanges(have.storage.DataDisks, changes, taken)
		if err != nil {
			return nil, err
		}
		p, err := v.sendList(ctx, have, list)
		if refused, ok := errors.AsType[*azcore.ResponseError](err); ok && attempt < listAttempts &&
			refused.StatusCode == http.StatusPreconditionFailed {
			continue
		}
		return p, v.cloud.api.Translate(err, "write the disks of VM %s", v.Name)
	}
}

func forced(changes []batch.Change) bool {
	return slices.ContainsFunc(changes, func(c batch.Change) bool { return c.Kind == operation.ForceDetach })
}

// withChanges returns a VM's list of data disks with the changes. Every other entry is sent as it was
// read, but for what only Azure sets. A disk that is detached stays in the list, marked, and Azure
// removes it. taken are the LUNs that are recorded for other disks.
func withChanges(have []*armcompute.DataDisk, changes []batch.Change, taken map[int32]bool) ([]*armcompute.DataDisk, error) {
	list := make([]*armcompute.DataDisk, 0, len(have)+len(changes))
	at, used := map[string]int{}, map[int32]bool{}
	for _, d := range have {
		entry := *d
		entry.DiskIOPSReadWrite, entry.DiskMBpsReadWrite = nil, nil
		if entry.ManagedDisk != nil && entry.ManagedDisk.ID != nil {
			at[operation.Key(*entry.ManagedDisk.ID)] = len(list)
		}
		used[client.Value(entry.Lun)] = true
		list = append(list, &entry)
	}
	for _, change := range changes {
		i, listed := at[operation.Key(change.DiskID)]
		switch {
		case change.Kind == operation.Attach && listed:
			// The same list again: the operation ends after the one that attaches the disk.
		case change.Kind == operation.Attach:
			lun := int32(0)
			for used[lun] || taken[lun] && lun < maxLUNs {
				lun++
			}
			used[lun] = true
			list = append(list, newEntry(change, lun)) // where no LUN is left, Azure says so
		case !listed:
			return nil, provisioner.Errorf(provisioner.InvalidArgument, "detach disk %s: the VM does not list it", change.DiskID)
		default:
			leaves := true
			list[i].ToBeDetached = &leaves
			if change.Kind == operation.ForceDetach {
				force := armcompute.DiskDetachOptionTypesForceDetach
				list[i].DetachOption = &force
			}
		}
	}
	return list, nil
}

func newEntry(change batch.Change, lun int32) *armcompute.DataDisk {
	attach := armcompute.DiskCreateOptionTypesAttach
	entry := &armcompute.DataDisk{
		CreateOption: &attach,
		Lun:          &lun,
		Caching:      optional(armcompute.CachingTypes(change.CachingMode)),
		ManagedDisk:  &armcompute.ManagedDiskParameters{ID: &change.DiskID},
	}
	if change.DiskEncryptionSetID != "" {
		entry.ManagedDisk.DiskEncryptionSet = &armcompute.DiskEncryptionSetParameters{ID: &change.DiskEncryptionSetID}
	}
	if change.WriteAccelerator {
		entry.WriteAcceleratorEnabled = &change.WriteAccelerator
	}
	return entry
}

// sendList writes a list that was made from the one that was read. An instance of a uniform scale set
// has no PATCH; its PUT has the storage profile only, as that of the V1 driver.
func (v vmClient) sendList(ctx context.Context, read diskList, list []*armcompute.DataDisk) (client.SDKPoller, error) {
	var answer *http.Response
	ctx = policy.WithCaptureResponse(v.cloud.api.Persistent(ctx, pacing.UpdateVM, v.String()), &answer)
	var p client.SDKPoller
	var err error
	if v.Is(client.TypeScaleSetVM) {
		p, err = client.Wrap(v.ScaleSets.BeginUpdate(ctx, v.ResourceGroupName, v.Parent.Name, v.Name,
			armcompute.VirtualMachineScaleSetVM{
				Location: read.location,
				Properties: &armcompute.VirtualMachineScaleSetVMProperties{StorageProfile: &armcompute.StorageProfile{
					OSDisk:             read.storage.OSDisk,
					DiskControllerType: read.storage.DiskControllerType,
					DataDisks:          list,
				}},
			}, &armcompute.VirtualMachineScaleSetVMsClientBeginUpdateOptions{IfMatch: read.etag}))
	} else {
		p, err = client.Wrap(v.VMs.BeginUpdate(ctx, v.ResourceGroupName, v.Name, armcompute.VirtualMachineUpdate{
			Properties: &armcompute.VirtualMachineProperties{StorageProfile: &armcompute.StorageProfile{DataDisks: list}},
		}, &armcompute.VirtualMachinesClientBeginUpdateOptions{IfMatch: read.etag}))
	}
	if err == nil && (answer == nil || answer.Header.Get("Azure-AsyncOperation") == "") {
		// Azure does nothing for a list that it has already, so that this is no proof of anything.
		return nil, provisioner.Errorf(provisioner.Conflict, "Azure began no operation for the list of data disks")
	}
	return p, err
}

// resumeList makes a poller from the SDK's token of an update of a list.
func (v vmClient) resumeList(ctx context.Context, sdkToken string) (client.SDKPoller, error) {
	if v.Is(client.TypeScaleSetVM) {
		return client.Wrap(v.ScaleSets.BeginUpdate(ctx, v.ResourceGroupName, v.Parent.Name, v.Name,
			armcompute.VirtualMachineScaleSetVM{},
			&armcompute.VirtualMachineScaleSetVMsClientBeginUpdateOptions{ResumeToken: sdkToken}))
	}
	return client.Wrap(v.VMs.BeginUpdate(ctx, v.ResourceGroupName, v.Name, armcompute.VirtualMachineUpdate{},
		&armcompute.VirtualMachinesClientBeginUpdateOptions{ResumeToken: sdkToken}))
}
