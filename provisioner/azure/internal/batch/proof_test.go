package batch

import (
	"errors"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

// The list of a VM proves nothing; see isOff. A proof that is none lets two nodes write.
func TestWhatProvesADetach(t *testing.T) {
	t.Parallel()
	const detach, force, failed = operation.Detach, operation.ForceDetach, operation.StateFailed
	for name, test := range map[string]struct {
		given        []given
		kind         operation.Kind
		proved, told bool // and whether there is an error
	}{
		"the VM is gone, and the disk names it":          {on(gone, named("vm", "a"), vmIs(failed)), force, true, false},
		"the disk does not name the VM":                  {on(named("vm2", "a")), force, true, false},
		"the disk does not exist":                        {on(unreadDisk("a", missing)), force, true, false},
		"the disk names the VM":                          {on(named("VM", "a")), force, false, false},
		"the disk names the VM of a detach":              {on(named("vm", "a")), detach, false, false},
		"the VM has failed":                              {on(vmIs(failed)), force, false, false},
		"the VM has failed after a detach":               {on(vmIs(failed)), detach, true, false},
		"the VM has failed, and the disk names it":       {on(named("vm", "a"), vmIs(failed)), detach, false, false},
		"the VM has failed, and the disk does not exist": {on(unreadDisk("a", missing), vmIs(failed)), detach, true, false},
		"the disk cannot be read":                        {on(unreadDisk("a", busy)), force, false, true},
		"the VM lists the disk":                          {on(listed("a")), detach, false, false},
		"the request is an attach":                       {nil, operation.Attach, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in(t, test.given, func(w *world) {
				vm, err := w.VM(w.ctx, "vm")
				q := newRequest(test.kind, provisioner.AttachRequest{VMID: "vm", DiskID: "a"})
				proved, faults := (&run{engine: w.Engine, batch: &batch{}}).detached(vm, []*request{q})
				if err != nil || proved[q] != test.proved || (faults[q] != nil) != test.told {
					t.Errorf("got %t, error %v; want %t, an error: %t", proved[q], faults[q], test.proved, test.told)
				}
			})
		})
	}
}

// While Azure asks not to poll an operation, reads show its end.
func TestALookProvesTheEndOfAnOperation(t *testing.T) {
	t.Parallel()
	requests := func(kinds ...operation.Kind) (all []*request) {
		for i, k := range kinds {
			all = append(all, newRequest(k, provisioner.AttachRequest{VMID: "vm", DiskID: string(rune('a' + i))}))
		}
		return all
	}
	attach, both := requests(operation.Attach), requests(operation.Attach, operation.Detach)
	detach := requests(operation.Detach)
	force, failed := requests(operation.ForceDetach), requests(operation.Attach)
	failed[0].failed = true
	left := func(n int) given { return func(p *azure) { p.reads = n } }
	for name, test := range map[string]struct {
		given    []given
		requests []*request
		later    bool // whether another call has been made for the batch
		want     bool
	}{
		"the VM has the disk":                           {on(has("a")), attach, false, true},
		"the VM has the disk, and is being updated":     {on(has("a"), vmIs(operation.StateUpdating)), attach, false, false},
		"the VM lists the disk":                         {on(listed("a")), attach, false, false},
		"the disk is at another VM":                     {on(listed("a"), named("vm2", "a")), attach, false, false},
		"the disk cannot be read":                       {on(has("a"), unreadDisk("a", busy)), attach, false, false},
		"the disk is being detached":                    {on(has("a"), detaching), attach, false, false},
		"the disk names the VM, which does not list it": {on(named("vm", "a")), attach, false, false},
		"the VM cannot be read":                         {on(has("a"), unread(busy)), attach, false, false},
		"the VM of a detach cannot be read":             {on(unread(busy)), detach, false, false},
		"the VM of a detach is being updated":           {on(vmIs(operation.StateUpdating)), detach, false, false},
		"another call has been made":                    {on(has("a")), attach, true, false},
		"an operation for the disk has failed":          {on(has("a")), failed, false, false},
		"an attach and a detach have been made":         {on(has("a")), both, false, true},
		"the attach has been made":                      {on(has("a", "b")), both, false, false},
		"the detach has been made":                      {on(listed("a")), both, false, false},
		"the VM is gone":                                {on(gone, vmIs(operation.StateFailed)), force, false, true},
		"few reads are left":                            {on(has("a"), left(readsForAll)), attach, false, true},
		"too few reads are left":                        {on(has("a"), left(readsForAll-1)), attach, false, false},
		"few reads are left for a fence":                {on(left(readsForFences)), force, false, true},
		"too few reads are left for a fence":            {on(left(readsForFences - 1)), force, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in(t, test.given, func(w *world) {
				r := &run{engine: w.Engine, batch: &batch{vmID: "vm"}}
				look := r.look(test.requests)
				if test.later {
					r.look(nil)
				}
				if got := look.Proved(w.ctx); got != test.want {
					t.Errorf("got %t, want %t", got, test.want)
				}
			})
		})
	}
}

// The error says what is missing, and what a user can do about it.
func TestAnUnprovedDetachSaysWhy(t *testing.T) {
	t.Parallel()
	q := newRequest(operation.Detach, provisioner.AttachRequest{VMID: "vm", DiskID: "a"})
	for state, want := range map[string][2]string{
		operation.StateSucceeded: {"the disk names the VM", ""},
		operation.StateUpdating:  {"the VM's state is Updating", ""},
		operation.StateFailed:    {"the VM's state is Failed", "az vm reapply"},
	} {
		for _, cause := range []error{nil, bad} {
			err := unproved(q, VM{State: state}, cause)
			if !strings.Contains(err.Error(), want[0]) || strings.Contains(err.Error(), "reapply") != (want[1] != "") ||
				(cause != nil) != (operation.CodeOf(err) == "Bad") || cause != nil && !errors.Is(err, cause) {
				t.Errorf("%s, after %v: got %v, want %q", state, cause, err, want)
			}
		}
	}
}
