package sdk_test

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
)

// forceDetach begins a forced detach of a disk.
func (s *simulator) forceDetach(vm, disk string) error {
	body := detachments(disk)
	body.DataDisksToDetach[0].DetachOption = to.Ptr(armcompute.DiskDetachOptionTypesForceDetach)
	p, err := s.begin(vm, body)
	if err != nil {
		return err
	}
	_, err = p.PollUntilDone(s.t.Context(), nil)
	return err
}

func TestADetachThatFailsLeavesTheDiskAtTheHostWhateverTheVMLists(t *testing.T) {
	for value, listed := range map[string]int{"off": 1, "on": 0} {
		t.Run("goal state "+value, func(t *testing.T) {
			s := start(t)
			s.vm("n1", "Standard_D4s_v5")
			s.disk("d1", shares(2))
			s.attach("n1", "d1")
			s.adminCall("PUT", "/admin/goal-state?value="+value, nil, nil)
			s.fault(map[string]any{
				"stage": "operation", "operation": "vm.disks", "status": 500, "code": "InternalExecutionError", "times": 1,
			})
			if err := s.forceDetach("n1", "d1"); err == nil {
				t.Fatal("the forced detach succeeded, want the failure on request")
			}
			vm := s.getVM("n1")
			if got := len(vm.Properties.StorageProfile.DataDisks); got != listed || *vm.Properties.ProvisioningState != "Failed" {
				t.Errorf("got %d disks and state %s, want %d and Failed", got, *vm.Properties.ProvisioningState, listed)
			}
			if d := s.getDisk("d1"); d.ManagedBy == nil && len(d.ManagedByExtended) == 0 {
				t.Error("the disk names no VM, want n1")
			}
			if err := s.forceDetach("n1", "d1"); err != nil {
				t.Errorf("got %v, want that the detach can be repeated", err)
			}
			if d := s.getDisk("d1"); d.ManagedBy != nil || len(d.ManagedByExtended) > 0 {
				t.Error("the disk names a VM after its detach")
			}
		})
	}
}

func TestAVMIsHibernatedAndStartedAgain(t *testing.T) {
	s := start(t)
	s.vm("n1", "Standard_D4s_v5")
	s.vm("n2", "Standard_D4s_v5", func(vm *armcompute.VirtualMachine) {
		vm.Properties.AdditionalCapabilities = &armcompute.AdditionalCapabilities{HibernationEnabled: to.Ptr(true)}
	})
	s.disk("d1")
	s.attach("n2", "d1")
	hibernate := &armcompute.VirtualMachinesClientBeginDeallocateOptions{Hibernate: to.Ptr(true)}
	p, err := s.vms.BeginDeallocate(t.Context(), group, "n1", hibernate)
	expectCode(t, failure(t, p, err), 409, "OperationNotAllowed")
	p, err = s.vms.BeginDeallocate(t.Context(), group, "n2", hibernate)
	finish(t, p, err)
	view, err := s.vms.InstanceView(t.Context(), group, "n2", nil)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]bool{}
	for _, status := range view.Statuses {
		codes[*status.Code] = true
	}
	if !codes["PowerState/deallocated"] || !codes["HibernationState/Hibernated"] {
		t.Errorf("got %v, want it deallocated and hibernated", codes)
	}
	if d := s.getDisk("d1"); *d.Properties.DiskState != armcompute.DiskStateFrozen {
		t.Errorf("got a disk that is %s, want Frozen", *d.Properties.DiskState)
	}
	expectCode(t, responseError(t, s.forceDetach("n2", "d1")), 409, "OperationNotAllowed")
	started, err := s.vms.BeginStart(t.Context(), group, "n2", nil)
	finish(t, started, err)
	s.detach("n2", "d1")
}
