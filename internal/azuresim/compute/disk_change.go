package compute

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/skus"
)

// burstingStays is how long on-demand bursting cannot be turned off again.
// Source: https://learn.microsoft.com/azure/virtual-machines/disks-enable-bursting
const burstingStays = 12 * time.Hour

// attachment is what a rule needs to know of the VMs that hold a disk.
type attachment struct {
	vm          string // name
	caching     string
	deallocated bool
	settled     bool // no attach or detach of it is under way
}

// diskStep is a step from one specification of a disk to another, given the VMs that hold the disk.
type diskStep struct {
	disk     *Disk
	from, to DiskSpec
	held     []attachment
	running  *attachment // a holder that runs, if there is one
	now      time.Time
}

// checkDiskChange judges the step.
func checkDiskChange(d *Disk, to DiskSpec, held []attachment, now time.Time) error {
	step := diskStep{
		disk: d,
		from: d.Spec,
		to:   to,
		held: held,
		now:  now,
	}
	for i, a := range held {
		if !a.settled {
			return armerror.Conflict()
		}
		if !a.deallocated && step.running == nil {
			step.running = &held[i]
		}
	}
	for _, rule := range []func(diskStep) error{diskStep.checkSize, diskStep.checkShares, diskStep.checkTier,
		diskStep.checkBursting, diskStep.checkSKU} {
		if err := rule(step); err != nil {
			return err
		}
	}
	return nil
}

func (s diskStep) checkSize() error {
	switch {
	case s.to.SizeGB < s.from.SizeGB:
		return armerror.BadRequest("ResizeDiskError",
			"The disk/snapshot resource with id %s cannot be resized down. Reducing disk/snapshot size is not supported in Azure to prevent data loss.",
			s.disk.ID)
	case s.to.SizeGB > s.from.SizeGB && s.running != nil && !s.resizableOnline():
		return armerror.NotAllowed("Cannot resize disk %s while it is attached to running VM %s. Resizing a disk of an Azure Virtual Machine requires the virtual machine to be deallocated.",
			s.disk.ID.Name, s.running.vm)
	}
	return nil
}

// resizableOnline: a disk of one VM may grow under it, but not a shared one and not across the 4
// TiB line.
func (s diskStep) resizableOnline() bool {
	sku, _ := skus.DiskByName(s.from.SKU)
	crosses := s.from.SizeGB <= 4096 && s.to.SizeGB > 4096 && !sku.Provisioned
	return s.from.MaxShares == 1 && !crosses
}

func (s diskStep) checkShares() error {
	if s.to.MaxShares != s.from.MaxShares && len(s.held) > 0 {
		return armerror.NotAllowed("Cannot change 'maxShares' of disk %s while it is attached to VM %s.", s.disk.ID.Name,
			s.held[0].vm)
	}
	return nil
}

func (s diskStep) checkTier() error {
	if s.to.Tier != s.from.Tier && s.from.MaxShares > 1 && s.running != nil {
		return armerror.NotAllowed("Cannot change the performance tier of shared disk %s while it is attached to running VM %s.",
			s.disk.ID.Name, s.running.vm)
	}
	return nil
}

func (s diskStep) checkBursting() error {
	switch {
	case s.to.Bursting && !s.from.Bursting && s.running != nil:
		return armerror.NotAllowed("Cannot enable on-demand bursting of disk %s while it is attached to running VM %s.",
			s.disk.ID.Name, s.running.vm)
	case s.from.Bursting && !s.to.Bursting && s.to.SKU == s.from.SKU && s.now.Before(s.disk.BurstingOn.Add(burstingStays)):
		return armerror.NotAllowed("On-demand bursting of disk %s can be disabled 12 hours after it was enabled.", s.disk.ID.Name)
	}
	return nil
}

func (s diskStep) checkSKU() error {
	if strings.EqualFold(s.to.SKU, s.from.SKU) {
		return nil
	}
	from, _ := skus.DiskByName(s.from.SKU)
	target, ok := skus.DiskByName(s.to.SKU)
	if !ok {
		return nil // checkDisk names it
	}
	forbidden := from.ZoneRedundant != target.ZoneRedundant || from.Name == skus.UltraSSDLRS || target.Name == skus.UltraSSDLRS ||
		from.Name == skus.PremiumV2LRS
	switch {
	case forbidden:
		return armerror.BadRequest("PropertyChangeNotAllowed", "Changing the SKU of disk '%s' from '%s' to '%s' is not allowed.",
			s.disk.ID.Name, from.Name, target.Name).WithTarget("sku.name")
	case s.disk.CopyDone.After(s.now):
		return armerror.NotAllowed("Cannot change the SKU of disk %s while its background copy is under way.", s.disk.ID.Name)
	case target.Name == skus.PremiumV2LRS && s.from.Bursting:
		return armerror.BadRequest("PropertyChangeNotAllowed",
			"Changing the SKU of disk '%s' to '%s' is not allowed while on-demand bursting is enabled.", s.disk.ID.Name,
			target.Name).WithTarget("sku.name")
	case target.Name == skus.PremiumV2LRS && s.running != nil && s.from.MaxShares == 1:
		return s.checkLiveConversion()
	case s.running != nil:
		return armerror.NotAllowed("Cannot change SKU of disk %s while it is attached to running VM %s.", s.disk.ID.Name,
			s.running.vm)
	}
	return nil
}

// checkLiveConversion: a disk becomes a Premium v2 one under a VM that does not cache it.
func (s diskStep) checkLiveConversion() error {
	i := slices.IndexFunc(s.held, func(a attachment) bool { return a.caching != "" && a.caching != "None" })
	if i < 0 {
		return nil
	}
	return armerror.NotAllowed("Cannot change SKU of disk %s to PremiumV2_LRS while VM %s has it attached with host caching '%s'.", s.disk.ID.Name, s.held[i].vm, s.held[i].caching)
}

// leaveBehind removes the properties that a disk loses when it changes its SKU, unless the caller
// asked for them.
func leaveBehind(from DiskSpec, to *DiskSpec, in DiskInput) {
	if strings.EqualFold(from.SKU, to.SKU) {
		return
	}
	target, ok := skus.DiskByName(to.SKU)
	if !ok {
		return
	}
	if in.Tier == nil {
		to.Tier = ""
	}
	if in.Bursting == nil && !target.Burstable {
		to.Bursting = false
	}
}

// checkNetworkAccess judges who may export the disk, which the model keeps as the caller said it.
func checkNetworkAccess(d *Disk, _ skus.Disk) error {
	text := func(name string) string {
		var value string
		_ = json.Unmarshal(d.Spec.Other[name], &value) // a value that is not a text counts as none
		return value
	}
	policy, public, access := text("networkAccessPolicy"), text("publicNetworkAccess"), text("diskAccessId")
	switch {
	case !slices.Contains([]string{"", "AllowAll", "DenyAll", "AllowPrivate"}, policy):
		return armerror.InvalidParameter("networkAccessPolicy", "The value '%s' of parameter 'networkAccessPolicy' is invalid.",
			policy)
	case !slices.Contains([]string{"", "Enabled", "Disabled"}, public):
		return armerror.InvalidParameter("publicNetworkAccess", "The value '%s' of parameter 'publicNetworkAccess' is invalid.",
			public)
	case policy == "AllowPrivate" && access == "":
		return missing("disk.diskAccessId")
	case policy != "AllowPrivate" && access != "":
		return armerror.InvalidParameter("disk.diskAccessId",
			"Parameter 'disk.diskAccessId' can be given with network access policy 'AllowPrivate' only.")
	}
	return nil
}
