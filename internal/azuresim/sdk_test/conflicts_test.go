package sdk_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
)

// hold makes the next operation of the kind take a second longer than it would.
func (s *simulator) hold(operation, name string) {
	s.t.Helper()
	s.fault(map[string]any{"stage": "operation", "operation": operation, "name": name, "times": 1, "delay": "1s"})
}

func TestPutPreemptsTheUpdateUnderWay(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.disk("b")
	s.vm("node", "Standard_D4s_v5")
	s.hold("vm.update", "node")
	first, err := s.beginPatch("node", entry("a", 0))
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.beginPatch("node", entry("a", 0), entry("b", 1))
	expectLUNs(t, finish(t, second, err).VirtualMachine, map[string]int32{"a": 0, "b": 1})
	re := failure(t, first, nil)
	if re.ErrorCode != "OperationPreempted" {
		t.Errorf("first update ended with %v, want re.ErrorCode = %v", re, "OperationPreempted")
	}
	for _, n := range []string{"a", "b"} {
		if st := *s.getDisk(n).Properties.DiskState; st != armcompute.DiskStateAttached {
			t.Errorf("disk %s is %s, want %s", n, st, armcompute.DiskStateAttached)
		}
	}
}

func TestPutPreemptsAttachAndUndoesAttachesThatItDoesNotList(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.vm("node", "Standard_D4s_v5")
	s.hold("vm.disks", "node")
	first, err := s.begin("node", attachments("a"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.beginPatch("node")
	expectLUNs(t, finish(t, second, err).VirtualMachine, nil)
	if re := failure(t, first, nil); re.ErrorCode != "OperationPreempted" {
		t.Errorf("attach ended with %v, want re.ErrorCode = %v", re, "OperationPreempted")
	}
	s.vm("other", "Standard_D4s_v5")
	s.attach("other", "a")
}

func TestAttachDuringPutConflicts(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.vm("node", "Standard_D4s_v5")
	s.hold("vm.update", "node")
	put, err := s.vms.BeginUpdate(t.Context(), group, "node", armcompute.VirtualMachineUpdate{
		Tags: map[string]*string{"a": to.Ptr("b")},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.begin("node", attachments("a"))
	expectCode(t, responseError(t, err), 409, "Conflict")
	finish(t, put, nil)
}

func TestCallsForOneVMWaitInLine(t *testing.T) {
	s := start(t)
	s.vm("node", "Standard_D8s_v5")
	var done []func()
	for i := range 5 {
		name := fmt.Sprintf("d%d", i)
		s.disk(name)
		p, err := s.begin("node", attachments(name))
		if err != nil {
			t.Fatal(err)
		}
		done = append(done, func() { finish(t, p, nil) })
	}
	for _, wait := range done {
		wait()
	}
	expectLUNs(t, s.getVM("node"), map[string]int32{"d0": 0, "d1": 1, "d2": 2, "d3": 3, "d4": 4})
}

func TestForceDetachPreemptsEverything(t *testing.T) {
	s := start(t)
	s.disk("stuck")
	s.disk("coming")
	s.vm("node", "Standard_D4s_v5")
	s.attach("node", "stuck")
	s.fault(map[string]any{"stage": "operation", "operation": "vm.disks", "times": 1, "delay": "1h"})
	ordinary, err := s.begin("node", detachments("stuck"))
	if err != nil {
		t.Fatal(err)
	}
	waiting, err := s.begin("node", attachments("coming"))
	if err != nil {
		t.Fatal(err)
	}
	s.eventually("the ordinary detach is stuck", func() bool {
		var rules []any
		s.adminCall("GET", "/admin/faults", nil, &rules)
		return len(rules) == 0
	})
	r := detachments("stuck")
	r.DataDisksToDetach[0].DetachOption = to.Ptr(armcompute.DiskDetachOptionTypesForceDetach)
	forced, err := s.begin("node", r)
	finish(t, forced, err)
	for name, re := range map[string]string{
		"ordinary": failure(t, ordinary, nil).ErrorCode,
		"waiting":  failure(t, waiting, nil).ErrorCode,
	} {
		if re != "DataDisksForceDetached" {
			t.Errorf("%s operation ended with %s, want %s", name, re, "DataDisksForceDetached")
		}
	}
	expectLUNs(t, s.getVM("node"), nil)
}

func TestDetachShowsWhileItGoesOn(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.vm("node", "Standard_D4s_v5")
	s.attach("node", "a")
	s.hold("vm.disks", "node")
	p, err := s.begin("node", detachments("a"))
	if err != nil {
		t.Fatal(err)
	}
	vm := s.getVM("node")
	if d := vm.Properties.StorageProfile.DataDisks; len(d) != 1 || !*d[0].ToBeDetached ||
		*vm.Properties.ProvisioningState != "Updating" {
		t.Errorf("during detach: %+v, VM is %s", d, *vm.Properties.ProvisioningState)
	}
	_, err = s.begin("node", attachments("a"))
	expectCode(t, responseError(t, err), 409, "AttachDiskWhileBeingDetached")
	finish(t, p, nil)
}

func TestFailedDetachLeavesTheDiskMarked(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.vm("node", "Standard_D4s_v5")
	s.attach("node", "a")
	s.fault(map[string]any{
		"stage":     "operation",
		"operation": "vm.disks",
		"times":     1,
		"code":      "InternalExecutionError",
		"status":    500,
	})
	p, err := s.begin("node", detachments("a"))
	if re := failure(t, p, err); re.ErrorCode != "InternalExecutionError" {
		t.Errorf("detach ended with %v, want re.ErrorCode = %v", re, "InternalExecutionError")
	}
	vm := s.getVM("node")
	if *vm.Properties.ProvisioningState != "Failed" || !*vm.Properties.StorageProfile.DataDisks[0].ToBeDetached {
		t.Errorf("VM is %s with %+v", *vm.Properties.ProvisioningState, vm.Properties.StorageProfile.DataDisks[0])
	}
	_, err = s.begin("node", attachments("a"))
	expectCode(t, responseError(t, err), 409, "AttachDiskWhileBeingDetached")
	s.detach("node", "a")
}

func TestFailedAttachLeavesNothing(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.vm("node", "Standard_D4s_v5")
	s.fault(map[string]any{
		"stage":     "operation",
		"operation": "vm.disks",
		"times":     1,
		"code":      "InternalExecutionError",
		"status":    500,
	})
	p, err := s.begin("node", attachments("a"))
	failure(t, p, err)
	expectLUNs(t, s.getVM("node"), nil)
	s.attach("node", "a")
}

func TestSharedDiskAttachesOneAtATime(t *testing.T) {
	s := start(t)
	s.disk("shared", shares(2))
	for _, n := range []string{"n1", "n2", "n3"} {
		s.vm(n, "Standard_D4s_v5")
	}
	s.hold("vm.disks", "n1")
	first, err := s.begin("n1", attachments("shared"))
	if err != nil {
		t.Fatal(err)
	}
	if st := *s.getDisk("shared").Properties.DiskState; st != armcompute.DiskStateUnattached {
		t.Errorf("during attach the disk is %s, want %s", st, armcompute.DiskStateUnattached)
	}
	_, err = s.begin("n2", attachments("shared"))
	expectCode(t, responseError(t, err), 409, "ConflictingUserInput")
	finish(t, first, nil)
	s.attach("n2", "shared")
	_, err = s.begin("n3", attachments("shared"))
	expectCode(t, responseError(t, err), 409, "ConflictingUserInput")

	d := s.getDisk("shared")
	if len(d.ManagedByExtended) != 2 || len(d.Properties.ShareInfo) != 2 || !strings.HasSuffix(*d.ManagedBy, "/n1") {
		t.Errorf("owners of a shared disk: %v, %v", d.ManagedBy, d.ManagedByExtended)
	}
}

func TestAttachIsRefusedForWhatTheDiskAndTheVMAre(t *testing.T) {
	s := start(t)
	s.disk("zone1", zone("1"))
	s.disk("zone2", zone("2"))
	s.disk("anywhere")
	s.disk("zrs", sku(armcompute.DiskStorageAccountTypesPremiumZRS))
	s.disk("shared", zone("1"), shares(2))
	s.disk("ultra", zone("1"), sku(armcompute.DiskStorageAccountTypesUltraSSDLRS))
	s.disk("distant", func(d *armcompute.Disk) { d.Location = to.Ptr("westus") })
	s.vm("node", "Standard_D4s_v5", vmZone("1"))
	s.vm("basic", "Standard_A2_v2", vmZone("1"))
	s.vm("regional", "Standard_D4s_v5")
	s.vm("inset", "Standard_D4s_v5", func(vm *armcompute.VirtualMachine) {
		vm.Properties.AvailabilitySet = &armcompute.SubResource{ID: to.Ptr("/x")}
	})
	s.vm("blob", "Standard_D4s_v5", vmZone("1"), func(vm *armcompute.VirtualMachine) {
		vm.Properties.StorageProfile.OSDisk.Vhd = &armcompute.VirtualHardDisk{URI: to.Ptr("https://x/y.vhd")}
	})
	caching := func(c armcompute.CachingTypes) func(*armcompute.DataDisksToAttach) {
		return func(d *armcompute.DataDisksToAttach) { d.Caching = &c }
	}
	for name, tc := range map[string]struct {
		vm, disk string
		change   func(*armcompute.DataDisksToAttach)
		status   int
		code     string
	}{
		"a disk of another zone":                       {"node", "zone2", nil, 400, "BadRequest"},
		"a regional disk on a zonal VM":                {"node", "anywhere", nil, 400, "BadRequest"},
		"a zonal disk on a regional VM":                {"regional", "zone1", nil, 400, "BadRequest"},
		"a zonal disk on a VM of an availability set":  {"inset", "zone1", nil, 400, "BadRequest"},
		"a disk of another location":                   {"regional", "distant", nil, 400, "BadRequest"},
		"a premium disk on a VM that cannot take it":   {"basic", "zone1", nil, 400, "InvalidParameter"},
		"an ultra disk on a VM without the capability": {"node", "ultra", nil, 400, "InvalidParameter"},
		"a managed disk on a VM with blob disks":       {"blob", "zone1", nil, 409, "OperationNotAllowed"},
		"a shared disk with host caching": {"node", "shared", caching(armcompute.CachingTypesReadOnly), 400,
			"InvalidParameter"},
		"write accelerator on a size that does not do it": {"node", "zone1",
			func(d *armcompute.DataDisksToAttach) { d.WriteAcceleratorEnabled = to.Ptr(true) }, 400, "InvalidParameter"},
		"a VM that is not there": {"nowhere", "zone1", nil, 404, "ResourceNotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			r := attachments(tc.disk)
			if tc.change != nil {
				tc.change(r.DataDisksToAttach[0])
			}
			p, err := s.begin(tc.vm, r)
			expectCode(t, failure(t, p, err), tc.status, tc.code)
		})
	}
	s.attach("node", "zrs", "zone1", "shared")
}

func TestDetachIsRefusedForWhatIsNotAttached(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.vm("node", "Standard_D4s_v5")
	_, err := s.begin("node", detachments("a"))
	expectCode(t, responseError(t, err), 400, "InvalidParameter")
	_, err = s.begin("node", detachments("nowhere"))
	expectCode(t, responseError(t, err), 404, "NotFound")
}
