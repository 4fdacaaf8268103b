package compute

import (
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
)

// DataDiskInput is an entry of the whole list of a PUT or PATCH.
type DataDiskInput struct {
	AttachInput
	Name         string
	CreateOption string
	SizeGB       *int64 // of a disk to create
	ToBeDetached bool
	DetachOption string
}

// replaceDisks replaces the VM's list by the caller's: it detaches the disks that are missing or
// marked, and attaches the new ones. It creates those with createOption Empty.
func (c *Cloud) replaceDisks(u *update, list []DataDiskInput) error {
	var wanted []DataDiskInput
	seenLUN := map[int]bool{}
	keep := map[string]DataDiskInput{}
	for _, in := range list {
		if err := u.checkEntry(&in, seenLUN); err != nil {
			return err
		}
		if in.DiskID == "" {
			if err := c.createListed(u, &in); err != nil {
				return err
			}
		}
		id, err := ParseID(in.DiskID, "dataDisk.managedDisk.id")
		if err != nil {
			return err
		}
		keep[id.Key()] = in
		if !in.ToBeDetached {
			wanted = append(wanted, in)
		}
	}
	for i := range u.vm.Disks {
		have := &u.vm.Disks[i]
		in, listed := keep[have.Disk.Key()]
		if listed && !in.ToBeDetached {
			if caching, err := cachingFor(in.Caching); err == nil && in.Caching != "" {
				have.Caching = caching
			}
			continue
		}
		u.markDetaching(have, listed && strings.EqualFold(in.DetachOption, "ForceDetach"))
	}
	for _, in := range wanted {
		if err := c.attachOne(u, in.AttachInput); err != nil {
			return err
		}
	}
	return nil
}

// checkEntry judges one entry of a whole list by itself and fills in the disk ID of one that is
// given by name or LUN. An entry that still has none asks for a new disk.
func (u *update) checkEntry(in *DataDiskInput, seenLUN map[int]bool) error {
	if in.LUN == nil {
		return missing("dataDisk.lun")
	}
	if seenLUN[*in.LUN] {
		return armerror.InvalidParameter("dataDisk.lun", "A disk at LUN %d already exists.", *in.LUN)
	}
	seenLUN[*in.LUN] = true
	for _, have := range u.vm.Disks {
		if in.DiskID == "" && (strings.EqualFold(have.Disk.Name, in.Name) || in.Name == "" && have.LUN == *in.LUN) {
			in.DiskID = have.Disk.String()
		}
	}
	known := func(d DataDisk) bool { return strings.EqualFold(d.Disk.String(), in.DiskID) }
	isNew := !slices.ContainsFunc(u.vm.Disks, known)
	empty := strings.EqualFold(in.CreateOption, "Empty")
	switch {
	case in.DetachOption != "" && !strings.EqualFold(in.DetachOption, "ForceDetach"):
		return armerror.InvalidParameter("dataDisk.detachOption",
			"The value '%s' of parameter 'dataDisk.detachOption' is invalid. Allowed values are ForceDetach.", in.DetachOption)
	case in.DetachOption != "" && !in.ToBeDetached:
		return armerror.InvalidParameter("dataDisk.detachOption",
			"Parameter 'dataDisk.detachOption' can be used only when 'dataDisk.toBeDetached' is true.")
	case isNew && in.ToBeDetached:
		return armerror.InvalidParameter("dataDisk.toBeDetached",
			"Disk '%s' cannot be detached from VM '%s' because it is not attached to it.", in.Name, u.vm.Name)
	case isNew && empty && in.DiskID != "":
		return armerror.InvalidParameter("dataDisk.managedDisk.id",
			"Parameter 'dataDisk.managedDisk.id' is not allowed for a disk that 'dataDisk.createOption' Empty makes.")
	case isNew && !empty && !strings.EqualFold(in.CreateOption, "Attach"):
		return armerror.InvalidParameter("dataDisk.createOption",
			"The value '%s' of parameter 'dataDisk.createOption' is not supported by this simulator for a new disk; Attach and Empty are.",
			in.CreateOption)
	case in.DiskID == "" && !empty:
		return missing("dataDisk.managedDisk.id")
	}
	return nil
}
