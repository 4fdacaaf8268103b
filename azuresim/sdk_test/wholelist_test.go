package sdk_test

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
)

// entry is an element of the whole data disk list.
func entry(name string, lun int32) *armcompute.DataDisk {
	return &armcompute.DataDisk{
		Lun:          &lun,
		Name:         &name,
		CreateOption: to.Ptr(armcompute.DiskCreateOptionTypesAttach),
		ManagedDisk:  &armcompute.ManagedDiskParameters{ID: to.Ptr(diskID(name))},
	}
}

func leaving(name string, lun int32, force bool) *armcompute.DataDisk {
	e := entry(name, lun)
	e.ToBeDetached = to.Ptr(true)
	if force {
		e.DetachOption = to.Ptr(armcompute.DiskDetachOptionTypesForceDetach)
	}
	return e
}

func (s *simulator) beginPatch(vm string,
	list ...*armcompute.DataDisk) (*runtime.Poller[armcompute.VirtualMachinesClientUpdateResponse], error) {
	if list == nil {
		list = []*armcompute.DataDisk{}
	}
	return s.vms.BeginUpdate(s.t.Context(), group, vm, armcompute.VirtualMachineUpdate{
		Properties: &armcompute.VirtualMachineProperties{StorageProfile: &armcompute.StorageProfile{DataDisks: list}},
	}, nil)
}

func luns(vm armcompute.VirtualMachine) map[string]int32 {
	out := map[string]int32{}
	for _, d := range vm.Properties.StorageProfile.DataDisks {
		out[*d.Name] = *d.Lun
	}
	return out
}

func expectLUNs(t *testing.T, vm armcompute.VirtualMachine, want map[string]int32) {
	t.Helper()
	got := luns(vm)
	if len(got) != len(want) {
		t.Errorf("data disks are %v, want %v", got, want)
		return
	}
	for name, lun := range want {
		if l, ok := got[name]; !ok || l != lun {
			t.Errorf("data disks are %v, want %v", got, want)
			return
		}
	}
}

func TestPatchReplacesTheWholeDataDiskList(t *testing.T) {
	s := start(t)
	for _, n := range []string{"a", "b", "c"} {
		s.disk(n)
	}
	s.vm("node", "Standard_D4s_v5")
	p, err := s.beginPatch("node", entry("a", 0), entry("b", 1))
	expectLUNs(t, finish(t, p, err).VirtualMachine, map[string]int32{"a": 0, "b": 1})
	p, err = s.beginPatch("node", entry("b", 1), entry("c", 5))
	expectLUNs(t, finish(t, p, err).VirtualMachine, map[string]int32{"b": 1, "c": 5})
	p, err = s.beginPatch("node", leaving("b", 1, false), entry("c", 5))
	expectLUNs(t, finish(t, p, err).VirtualMachine, map[string]int32{"c": 5})
	p, err = s.beginPatch("node")
	expectLUNs(t, finish(t, p, err).VirtualMachine, nil)
	for _, n := range []string{"a", "b", "c"} {
		if st := *s.getDisk(n).Properties.DiskState; st != armcompute.DiskStateUnattached {
			t.Errorf("disk %s is %s, want %s", n, st, armcompute.DiskStateUnattached)
		}
	}
}

func TestPatchWithoutStorageProfileLeavesDisksAlone(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.vm("node", "Standard_D4s_v5")
	s.attach("node", "a")
	p, err := s.vms.BeginUpdate(t.Context(), group, "node",
		armcompute.VirtualMachineUpdate{Tags: map[string]*string{"k": to.Ptr("v")}}, nil)
	vm := finish(t, p, err).VirtualMachine
	expectLUNs(t, vm, map[string]int32{"a": 0})
	if *vm.Tags["k"] != "v" {
		t.Errorf("tags are %v", vm.Tags)
	}
}

func TestPutSendsBackWhatGetReturned(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.disk("b")
	s.vm("node", "Standard_D4s_v5")
	s.attach("node", "a")
	vm := s.getVM("node")
	vm.Properties.StorageProfile.DataDisks = append(vm.Properties.StorageProfile.DataDisks, entry("b", 1))
	p, err := s.vms.BeginCreateOrUpdate(t.Context(), group, "node", vm, nil)
	got := finish(t, p, err).VirtualMachine
	expectLUNs(t, got, map[string]int32{"a": 0, "b": 1})
	if *got.Properties.OSProfile.ComputerName != "host" || *got.Properties.StorageProfile.OSDisk.Name != "os" {
		t.Errorf("properties were lost: %+v", got.Properties)
	}
}

func TestListRulesAreHeld(t *testing.T) {
	s := start(t)
	for _, n := range []string{"a", "b"} {
		s.disk(n)
	}
	s.vm("node", "Standard_D4s_v5")
	s.attach("node", "a")
	force := leaving("a", 0, true)
	force.ToBeDetached = nil
	empty := entry("b", 1)
	empty.CreateOption = to.Ptr(armcompute.DiskCreateOptionTypesEmpty)
	for name, tc := range map[string]struct {
		list   []*armcompute.DataDisk
		status int
		code   string
	}{
		"a LUN that is taken is refused": {[]*armcompute.DataDisk{entry("a", 0), entry("b", 0)}, 400,
			"InvalidParameter"},
		"a LUN of a disk that is leaving is still taken": {[]*armcompute.DataDisk{leaving("a", 0, false), entry("b", 0)}, 400,
			"InvalidParameter"},
		"force detach needs toBeDetached": {[]*armcompute.DataDisk{force}, 400, "InvalidParameter"},
		"a disk that is not there cannot leave": {[]*armcompute.DataDisk{entry("a", 0), leaving("b", 1, false)}, 400,
			"InvalidParameter"},
		"a LUN cannot change": {[]*armcompute.DataDisk{entry("a", 3)}, 409,
			"PropertyChangeNotAllowed"},
		"a disk that does not exist cannot be attached": {[]*armcompute.DataDisk{entry("a", 0), entry("nowhere", 2)}, 404,
			"NotFound"},
		"a LUN above 63 is refused": {[]*armcompute.DataDisk{entry("a", 0), entry("b", 64)}, 400,
			"InvalidParameter"},
		"making a disk in the list is not supported, plain": {[]*armcompute.DataDisk{entry("a", 0), empty}, 400,
			"InvalidParameter"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := s.beginPatch("node", tc.list...)
			expectCode(t, failure(t, p, err), tc.status, tc.code)
		})
	}
	expectLUNs(t, s.getVM("node"), map[string]int32{"a": 0})
}

func TestETagGuardsWrites(t *testing.T) {
	s := start(t)
	s.vm("node", "Standard_D4s_v5")
	vm := s.getVM("node")
	vm.Tags = map[string]*string{"a": to.Ptr("b")}
	p, err := s.vms.BeginCreateOrUpdate(t.Context(), group, "node", vm,
		&armcompute.VirtualMachinesClientBeginCreateOrUpdateOptions{IfMatch: vm.Etag})
	finish(t, p, err)
	_, err = s.vms.BeginCreateOrUpdate(t.Context(), group, "node", vm,
		&armcompute.VirtualMachinesClientBeginCreateOrUpdateOptions{IfMatch: vm.Etag})
	expectCode(t, responseError(t, err), 412, "PreconditionFailed")
}

func TestVMsAreCreatedWithDisks(t *testing.T) {
	s := start(t)
	s.disk("a")
	vm := s.vm("node", "Standard_D4s_v5", func(vm *armcompute.VirtualMachine) {
		vm.Properties.StorageProfile.DataDisks = []*armcompute.DataDisk{entry("a", 2)}
	})
	expectLUNs(t, vm, map[string]int32{"a": 2})
	del, err := s.vms.BeginDelete(t.Context(), group, "node", nil)
	finish(t, del, err)
	if st := *s.getDisk("a").Properties.DiskState; st != armcompute.DiskStateUnattached {
		t.Errorf("disk of a deleted VM is %s, want %s", st, armcompute.DiskStateUnattached)
	}
}
