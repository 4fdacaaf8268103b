package batch

import (
	"errors"
	"testing"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

// An attach of a disk with two shares is refused only for what the disk and the VM show.
func TestWhatForbidsAnAttach(t *testing.T) {
	t.Parallel()
	shared := func(d *Disk) { d.MaxShares = 2 }
	zoned := func(d *Disk) { d.Zone = "2" }
	state := func(s string) func(*Disk) { return func(d *Disk) { d.State = s } }
	there := func(d *Disk) { d.Location = "there" }
	at := func(vms ...string) func(*Disk) { return func(d *Disk) { d.AttachedTo = vms } }
	for name, test := range map[string]struct {
		disk    []func(*Disk)
		caching string
		want    error
	}{
		"nothing":                                {nil, "", nil},
		"nothing, if the disk is not shared":     {nil, "ReadWrite", nil},
		"a deletion of the disk":                 {[]func(*Disk){state(operation.StateDeleting)}, "", provisioner.NotFound},
		"another region":                         {[]func(*Disk){there}, "", provisioner.InvalidArgument},
		"nothing, if the region is spelled so":   {[]func(*Disk){func(d *Disk) { d.Location = "Here" }}, "", nil},
		"another zone":                           {[]func(*Disk){zoned}, "", provisioner.InvalidArgument},
		"nothing, if the disk is in all zones":   {[]func(*Disk){zoned, func(d *Disk) { d.SKUName = "Premium_ZRS" }}, "", nil},
		"the caching of a shared disk":           {[]func(*Disk){shared}, "ReadOnly", provisioner.InvalidArgument},
		"nothing, if a shared disk has no cache": {[]func(*Disk){shared}, "None", nil},
		"nothing, if nothing is said of a cache": {[]func(*Disk){shared}, "", nil},
		"another VM":                             {[]func(*Disk){at("x")}, "", provisioner.FailedPrecondition},
		"nothing, if it is at the VM itself":     {[]func(*Disk){at("VM")}, "", nil},
		"nothing, if a share is free":            {[]func(*Disk){shared, at("x", "VM")}, "", nil},
		"no free share":                          {[]func(*Disk){shared, at("x", "y")}, "", provisioner.InsufficientCapacity},
		"a creation of the disk":                 {[]func(*Disk){state(operation.StateCreating)}, "", provisioner.Conflict},
		"an update of the disk":                  {[]func(*Disk){state(operation.StateUpdating)}, "", provisioner.Conflict},
	} {
		r := newRequest(operation.Attach, provisioner.AttachRequest{VMID: "vm", DiskID: "a", CachingMode: test.caching})
		d := Disk{Disk: provisioner.Disk{Location: "here", Zone: "1", MaxShares: 1}, State: operation.StateSucceeded}
		for _, f := range test.disk {
			f(&d)
		}
		var got error
		if reason := r.forbiddenBy(d, VM{Instance: provisioner.Instance{Location: "here", Zone: "1"}}); reason != nil {
			got = reason
		}
		if !errors.Is(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
