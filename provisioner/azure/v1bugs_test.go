package azure_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
)

// In V1 every attach and every detach sent all of a VM's data disks from a list that was up to ten
// minutes old, so that a disk that another process had attached since was detached; and attaches
// and detaches took a call each.
func TestV1BugTheDisksOfAVMAreSentFromAnOldList(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		b := newBed(t, 4)
		if err := b.outcome(b.attach(0)); err != nil {
			t.Fatal(err)
		}
		// Another process attaches a disk.
		p, err := b.vms.BeginAttachDetachDataDisks(t.Context(), group, nameOf(b.vm), armcompute.AttachDetachDataDisksRequest{
			DataDisksToAttach: []*armcompute.DataDisksToAttach{{DiskID: &b.disks[1]}},
		}, nil)
		finish(t, p, err)
		before := vmUpdates(b.calls())
		// Requests that arrive while a call is in flight are sent in one call.
		b.together(3, func(i int) error {
			if i == 0 {
				return b.outcome(b.cloud.Attachments().Detach(t.Context(), b.vm, b.disks[0]))
			}
			return b.outcome(b.attach(i + 1))
		})
		if b.has(0) || !b.has(1) || !b.has(2) || !b.has(3) {
			t.Errorf("attached: %v", b.attached())
		}
		if n := vmUpdates(b.calls()) - before; n > 2 {
			t.Errorf("%d updates of the VM for two attaches and a detach", n)
		}
		writes := count(b.calls(), func(c seenCall) bool {
			return (c.Method == http.MethodPut || c.Method == http.MethodPatch) &&
				strings.Contains(strings.ToLower(c.Path), "/virtualmachines/")
		})
		if writes > 0 {
			t.Errorf("the VM was written as a whole %d times", writes)
		}
	})
}
