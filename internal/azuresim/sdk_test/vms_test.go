package sdk_test

import (
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
)

func powerState(vm armcompute.VirtualMachine) string {
	for _, st := range vm.Properties.InstanceView.Statuses {
		if p, ok := strings.CutPrefix(*st.Code, "PowerState/"); ok {
			return p
		}
	}
	return ""
}

func TestPowerStatesShowOnVMAndDisks(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.disk("b")
	s.vm("node", "Standard_D4s_v5")
	s.attach("node", "a")
	expect := func(power string, state armcompute.DiskState) {
		t.Helper()
		if got := powerState(s.getVM("node")); got != power {
			t.Errorf("VM is %s, want %s", got, power)
		}
		if got := *s.getDisk("a").Properties.DiskState; got != state {
			t.Errorf("disk is %s, want %s", got, state)
		}
	}
	expect("running", armcompute.DiskStateAttached)
	off, err := s.vms.BeginPowerOff(t.Context(), group, "node", nil)
	finish(t, off, err)
	expect("stopped", armcompute.DiskStateAttached)
	deallocate, err := s.vms.BeginDeallocate(t.Context(), group, "node", nil)
	finish(t, deallocate, err)
	expect("deallocated", armcompute.DiskStateReserved)
	restart, err := s.vms.BeginRestart(t.Context(), group, "node", nil)
	expectCode(t, failure(t, restart, err), 409, "OperationNotAllowed")
	s.attach("node", "b") // a VM without power takes a disk too
	on, err := s.vms.BeginStart(t.Context(), group, "node", nil)
	finish(t, on, err)
	expect("running", armcompute.DiskStateAttached)
	restart, err = s.vms.BeginRestart(t.Context(), group, "node", nil)
	finish(t, restart, err)
	expectLUNs(t, s.getVM("node"), map[string]int32{"a": 0, "b": 1})

	view, err := s.vms.InstanceView(t.Context(), group, "node", nil)
	if err != nil || len(view.Disks) != 2 || *view.ComputerName != "host" {
		t.Errorf("instance view is %+v, %v", view, err)
	}
}

func TestVMResizeIsHeldToTheDisks(t *testing.T) {
	s := start(t)
	s.vm("node", "Standard_D4s_v5")
	for _, n := range []string{"a", "b", "c", "d", "e"} {
		s.disk(n)
	}
	s.attach("node", "a", "b", "c", "d", "e")
	resize := func(size string) error {
		p, err := s.vms.BeginUpdate(t.Context(), group, "node", armcompute.VirtualMachineUpdate{
			Properties: &armcompute.VirtualMachineProperties{HardwareProfile: &armcompute.HardwareProfile{VMSize: to.Ptr(
				armcompute.VirtualMachineSizeTypes(size))}},
		}, nil)
		if err == nil {
			finish(t, p, nil)
		}
		return err
	}
	expectCode(t, responseError(t, resize("Standard_D2s_v5")), 409, "OperationNotAllowed")
	expectCode(t, responseError(t, resize("Standard_Gigantic")), 400, "InvalidParameter")
	if err := resize("Standard_D8s_v5"); err != nil {
		t.Error(err)
	}
	if got := *s.getVM("node").Properties.HardwareProfile.VMSize; got != "Standard_D8s_v5" {
		t.Errorf("size is %s, want %s", got, "Standard_D8s_v5")
	}
}

func TestVMNamesAreUniqueOverTheSimulator(t *testing.T) {
	s := start(t, func(o *server.Options) { o.ResourceGroups = []string{group, "other"} })
	s.vm("node", "Standard_D4s_v5")
	_, err := s.vms.BeginCreateOrUpdate(t.Context(), "other", "Node", vmParams("Standard_D4s_v5"), nil)
	expectCode(t, responseError(t, err), 409, "OperationNotAllowed")
}

func (s *simulator) scaleSet(name string, mode armcompute.OrchestrationMode, capacity int64) armcompute.VirtualMachineScaleSet {
	s.t.Helper()
	p, err := s.sets.BeginCreateOrUpdate(s.t.Context(), group, name, armcompute.VirtualMachineScaleSet{
		Location: to.Ptr("eastus"),
		Zones:    []*string{to.Ptr("1"), to.Ptr("2")},
		SKU:      &armcompute.SKU{Name: to.Ptr("Standard_D4s_v5"), Capacity: &capacity},
		Properties: &armcompute.VirtualMachineScaleSetProperties{
			OrchestrationMode: &mode,
			VirtualMachineProfile: &armcompute.VirtualMachineScaleSetVMProfile{
				OSProfile: &armcompute.VirtualMachineScaleSetOSProfile{ComputerNamePrefix: to.Ptr("pool")},
			},
		},
	}, nil)
	return finish(s.t, p, err).VirtualMachineScaleSet
}

func (s *simulator) listInstances(set string) []*armcompute.VirtualMachineScaleSetVM {
	s.t.Helper()
	list, _ := pages(s.t, s.instances.NewListPager(group, set, nil),
		func(p armcompute.VirtualMachineScaleSetVMsClientListResponse) []*armcompute.VirtualMachineScaleSetVM {
			return p.Value
		})
	return list
}

func TestUniformScaleSetInstancesTakeDisks(t *testing.T) {
	s := start(t)
	set := s.scaleSet("pool", armcompute.OrchestrationModeUniform, 3)
	if *set.Properties.OrchestrationMode != armcompute.OrchestrationModeUniform || *set.SKU.Capacity != 3 {
		t.Errorf("scale set is %+v", set)
	}
	list := s.listInstances("pool")
	if len(list) != 3 || *list[1].InstanceID != "1" || *list[1].Name != "pool_1" || *list[1].Zones[0] != "2" ||
		*list[1].Properties.OSProfile.ComputerName != "pool000001" {
		t.Fatalf("instances are %+v", list)
	}
	s.disk("a", zone("2"))
	s.disk("b", zone("2"))
	p, err := s.instances.BeginAttachDetachDataDisks(t.Context(), group, "pool", "1", attachments("a"), nil)
	if got := finish(t, p, err).DataDisks; len(got) != 1 || *got[0].Lun != 0 {
		t.Errorf("after attach: %+v", got)
	}
	got, err := s.instances.Get(t.Context(), group, "pool", "1",
		&armcompute.VirtualMachineScaleSetVMsClientGetOptions{Expand: to.Ptr(armcompute.InstanceViewTypesInstanceView)})
	if err != nil || *s.getDisk("a").ManagedBy != *got.ID ||
		!strings.HasSuffix(*got.ID, "/virtualMachineScaleSets/pool/virtualMachines/1") {
		t.Errorf("instance is %v, %v; disk is managed by %v", *got.ID, err, *s.getDisk("a").ManagedBy)
	}

	// The whole list by PUT, as V1 does it.
	vm := got.VirtualMachineScaleSetVM
	vm.Properties.StorageProfile.DataDisks = []*armcompute.DataDisk{entry("b", 4)}
	put, err := s.instances.BeginUpdate(t.Context(), group, "pool", "1", vm, nil)
	if got := finish(t, put, err).Properties.StorageProfile.DataDisks; len(got) != 1 || *got[0].Lun != 4 {
		t.Errorf("after PUT: %+v", got)
	}
	for _, n := range []string{"start", "deallocate"} {
		switch n {
		case "deallocate":
			p, err := s.instances.BeginDeallocate(t.Context(), group, "pool", "1", nil)
			finish(t, p, err)
			if st := *s.getDisk("b").Properties.DiskState; st != armcompute.DiskStateReserved {
				t.Errorf("disk of a deallocated instance is %s, want %s", st, armcompute.DiskStateReserved)
			}
		case "start":
			p, err := s.instances.BeginStart(t.Context(), group, "pool", "1", nil)
			finish(t, p, err)
		}
	}

	del, err := s.instances.BeginDelete(t.Context(), group, "pool", "1", nil)
	finish(t, del, err)
	_, err = s.instances.Get(t.Context(), group, "pool", "1", nil)
	re := responseError(t, err)
	expectCode(t, re, 404, "NotFound")
	if !strings.Contains(re.Error(), "not an active Virtual Machine Scale Set VM instanceId") {
		t.Errorf("message is %v, want it to contain %q", re, "not an active Virtual Machine Scale Set VM instanceId")
	}
	_, err = s.instances.Get(t.Context(), group, "nowhere", "1", nil)
	expectCode(t, responseError(t, err), 404, "ParentResourceNotFound")
}

func TestFlexibleScaleSetInstancesAreVMs(t *testing.T) {
	s := start(t)
	set := s.scaleSet("flex", armcompute.OrchestrationModeFlexible, 2)
	var names []string
	filter := "'virtualMachineScaleSet/id' eq '" + *set.ID + "'"
	members, _ := pages(t, s.vms.NewListPager(group, &armcompute.VirtualMachinesClientListOptions{Filter: &filter}), inGroup)
	for _, vm := range members {
		names = append(names, *vm.Name)
		if *vm.Properties.VirtualMachineScaleSet.ID != *set.ID {
			t.Errorf("VM %s is of scale set %v", *vm.Name, vm.Properties.VirtualMachineScaleSet)
		}
	}
	if len(names) != 2 {
		t.Fatalf("members are %v, want len(names) = %v", names, 2)
	}
	s.vm("joined", "Standard_D4s_v5", func(vm *armcompute.VirtualMachine) {
		vm.Properties.VirtualMachineScaleSet = &armcompute.SubResource{ID: set.ID}
	})
	z := *s.getVM(names[0]).Zones[0]
	s.disk("a", zone(z))
	s.attach(names[0], "a")

	p, err := s.sets.BeginDelete(t.Context(), group, "flex", nil)
	if err != nil {
		t.Fatal(err)
	}
	finish(t, p, nil)
	if st := *s.getDisk("a").Properties.DiskState; st != armcompute.DiskStateUnattached {
		t.Errorf("disk is %s after its scale set is gone, want %s", st, armcompute.DiskStateUnattached)
	}
}

func TestScaleSetGrowsAndShrinks(t *testing.T) {
	s := start(t)
	s.scaleSet("pool", armcompute.OrchestrationModeUniform, 2)
	resize := func(n int64) {
		t.Helper()
		p, err := s.sets.BeginUpdate(t.Context(), group, "pool",
			armcompute.VirtualMachineScaleSetUpdate{SKU: &armcompute.SKU{Capacity: &n}}, nil)
		finish(t, p, err)
	}
	resize(4)
	if got := len(s.listInstances("pool")); got != 4 {
		t.Errorf("%d instances, want 4", got)
	}
	resize(1)
	s.eventually("the instances above the capacity are gone", func() bool { return len(s.listInstances("pool")) == 1 })
	resize(2)
	if list := s.listInstances("pool"); *list[1].InstanceID != "4" {
		t.Errorf("an instance ID was used again: %s, want %s", *list[1].InstanceID, "4")
	}
	p, err := s.sets.BeginDeleteInstances(t.Context(), group, "pool",
		armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: []*string{to.Ptr("4")}}, nil)
	finish(t, p, err)
	got, err := s.sets.Get(t.Context(), group, "pool", nil)
	if err != nil || *got.SKU.Capacity != 1 {
		t.Errorf("capacity is %v, %v", got.SKU, err)
	}
}
