package sdk_test

import (
	"fmt"
	"regexp"
	"strings"
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

// created is an entry for which Azure makes a disk.
func created(name string, lun, gb int32) *armcompute.DataDisk {
	return &armcompute.DataDisk{
		Lun:          &lun,
		Name:         &name,
		CreateOption: to.Ptr(armcompute.DiskCreateOptionTypesEmpty),
		DiskSizeGB:   &gb,
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
	image, exists := entry("b", 1), created("b", 1, 8)
	image.CreateOption = to.Ptr(armcompute.DiskCreateOptionTypesFromImage)
	both := created("b", 1, 8)
	both.ManagedDisk = entry("b", 1).ManagedDisk
	noSize := created("c", 1, 0)
	noSize.DiskSizeGB = nil
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
		"a disk of an image is not supported": {[]*armcompute.DataDisk{entry("a", 0), image}, 400,
			"InvalidParameter"},
		"a disk that exists is not created": {[]*armcompute.DataDisk{entry("a", 0), exists}, 409,
			"ConflictingUserInput"},
		"a disk to create has no ID":  {[]*armcompute.DataDisk{entry("a", 0), both}, 400, "InvalidParameter"},
		"a disk to create has a size": {[]*armcompute.DataDisk{entry("a", 0), noSize}, 400, "InvalidParameter"},
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

func TestAVMsListCreatesDisks(t *testing.T) {
	s := start(t)
	s.realistic()
	s.vm("node", "Standard_B2ms", vmZone("2"))
	answer, body := s.send("PATCH", vmID("node"), `{"properties": {"storageProfile": {"dataDisks": [
		{"lun": 0, "name": "d1", "createOption": "Empty", "diskSizeGB": 1},
		{"lun": 2, "name": "d2", "createOption": "empty", "diskSizeGB": 2, "managedDisk": {"storageAccountType": "Standard_LRS"}},
		{"lun": 3, "createOption": "Empty", "diskSizeGB": 3}]}}}`)
	list := func(body any, i int, path ...any) any {
		return at(at(body, "properties", "storageProfile", "dataDisks", i), path...)
	}
	expect(t, "status", answer.StatusCode, 200)
	expect(t, "type without one asked for", list(body, 0, "managedDisk", "storageAccountType"), "Premium_LRS")
	expect(t, "ID before the disk is made", list(body, 1, "managedDisk", "id"), nil)
	s.settle()
	_, body = s.send("GET", vmID("node"), "")
	expect(t, "create option of a disk that was made", list(body, 1, "createOption"), "Empty")
	expect(t, "ID", list(body, 1, "managedDisk", "id"), diskID("d2"))
	expect(t, "size", list(body, 1, "diskSizeGB"), 2.0)
	_, disk := s.send("GET", diskID("d2")+"?api-version=2025-01-02", "")
	expect(t, "type", at(disk, "sku", "name"), "Standard_LRS")
	expect(t, "its own ID", at(disk, "id"), strings.Replace(diskID("d2"), "/default/", "/DEFAULT/", 1))
	expect(t, "zone", at(disk, "zones", 0), "2")
	expect(t, "user", at(disk, "managedBy"), vmID("node"))
	expect(t, "name without one asked for", regexp.MustCompile(`^node_disk5_[0-9a-f]{32}$`).
		MatchString(fmt.Sprint(list(body, 2, "name"))), true)

	p, err := s.beginPatch("node", created("d2", 2, 2))
	expectLUNs(t, finish(t, p, err).VirtualMachine, map[string]int32{"d2": 2})
	if st := *s.getDisk("d1").Properties.DiskState; st != armcompute.DiskStateUnattached {
		t.Errorf("disk d1 is %s after it left the list, want %s", st, armcompute.DiskStateUnattached)
	}
}

func TestAVMIsNotLeftWithADiskThatWasNotCreated(t *testing.T) {
	s := start(t)
	s.vm("node", "Standard_D4s_v5")
	s.fault(map[string]any{"stage": "operation", "operation": "disk.create", "times": 1, "code": "InternalServerError"})
	p, err := s.beginPatch("node", created("d1", 0, 4))
	expectCode(t, failure(t, p, err), 200, "OperationNotAllowed")
	expectLUNs(t, s.getVM("node"), nil)
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
