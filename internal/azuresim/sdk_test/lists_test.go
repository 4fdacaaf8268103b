package sdk_test

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
)

// pages returns the entries of all pages of a list, and how many pages there are.
func pages[P, T any](t *testing.T, pager *runtime.Pager[P], items func(P) []*T) (all []*T, n int) {
	t.Helper()
	for ; pager.More(); n++ {
		page, err := pager.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, items(page)...)
	}
	return all, n
}

func inGroup(p armcompute.VirtualMachinesClientListResponse) []*armcompute.VirtualMachine {
	return p.Value
}

func inSubscription(p armcompute.VirtualMachinesClientListAllResponse) []*armcompute.VirtualMachine {
	return p.Value
}

func TestListsOfVMsHaveTheirDisksOrTheirStatus(t *testing.T) {
	s := start(t, func(o *server.Options) { o.PageSize = 2 })
	names := []string{"a", "b", "c"}
	for _, name := range names {
		s.vm(name, "Standard_D4s_v5", func(vm *armcompute.VirtualMachine) { vm.Tags = map[string]*string{"of": &name} })
	}
	s.disk("disk")
	s.attach("a", "disk")

	whole, n := pages(t, s.vms.NewListPager(group, nil), inGroup)
	if len(whole) != 3 || n != 2 {
		t.Fatalf("got %d VMs on %d pages, want 3 on 2", len(whole), n)
	}
	for _, vm := range whole {
		wantDisks := 0
		if *vm.Name == "a" {
			wantDisks = 1
		}
		if got := len(vm.Properties.StorageProfile.DataDisks); got != wantDisks || vm.Properties.InstanceView != nil ||
			vm.Tags["of"] == nil {
			t.Errorf("VM %s: got %d disks, instance view %v, tags %v; want %d disks, no instance view, tags", *vm.Name, got,
				vm.Properties.InstanceView, vm.Tags, wantDisks)
		}
	}

	status, n := pages(t, s.vms.NewListAllPager(&armcompute.VirtualMachinesClientListAllOptions{StatusOnly: to.Ptr("true")}),
		inSubscription)
	if len(status) != 3 || n != 2 {
		t.Fatalf("got the status of %d VMs on %d pages, want 3 on 2", len(status), n)
	}
	for _, vm := range status {
		if vm.Properties.InstanceView == nil || *vm.Properties.InstanceView.Statuses[1].Code != "PowerState/running" ||
			vm.Properties.StorageProfile != nil || vm.Tags != nil {
			t.Errorf("VM %s: got %+v, want the power state and no profiles", *vm.Name, vm.Properties)
		}
	}
}

func TestTheStatusOfTheVMsOfAFlexibleScaleSet(t *testing.T) {
	s := start(t)
	set := s.scaleSet("flex", armcompute.OrchestrationModeFlexible, 2)
	s.vm("other", "Standard_D4s_v5")
	filter := "'virtualMachineScaleSet/id' eq '" + *set.ID + "'"
	members, _ := pages(t, s.vms.NewListAllPager(&armcompute.VirtualMachinesClientListAllOptions{
		StatusOnly: to.Ptr("true"),
		Filter:     &filter,
	}), inSubscription)
	if len(members) != 2 || members[0].Properties.InstanceView == nil || members[0].Properties.StorageProfile != nil {
		t.Errorf("got %d members, the first with %+v; want 2 with their status only", len(members), members[0].Properties)
	}
}
