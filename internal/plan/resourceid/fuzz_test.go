package resourceid_test

import (
	"regexp"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/plan/resourceid"
)

const vms = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/"

// vmID says the same as IsVM, in the words of the resource provider's rules for names.
var vmID = regexp.MustCompile(`^(?i:/subscriptions/)[\w-]+(?i:/resourceGroups/)[\p{L}\p{N}_()-][\p{L}\p{N}_().-]*(?i:/providers/Microsoft\.Compute/)((?i:virtualMachineScaleSets)/\w[\w.-]*/)?(?i:virtualMachines)/\w[\w.-]*$`)

func FuzzIsVM(f *testing.F) {
	for _, seed := range []string{
		vms + "virtualMachines/a", vms + "VIRTUALMACHINES/A.b-c_9", vms + "virtualMachineScaleSets/set/virtualMachines/7",
		vms + "virtualMachines/a/", vms + "sets/set/virtualMachines/7", vms + "virtualMachineScaleSets/%/virtualMachines/7",
		vms + "virtualMachineScaleSets/set/machines/7", vms + "virtualMachineScaleSets/set/virtualMachines/%",
		vms + "virtualMachines/.a", vms + "virtualMachines/%62", vms + "virtualMachines/", vms + "disks/a",
		vms + "virtualMachines/a/extensions/b", vms + "virtualMachines/é",
		"/subscriptions/s-1/resourceGroups/g.(é)_½/providers/Microsoft.Compute/virtualMachines/a",
		"/subscriptions/s/resourceGroups/.g/providers/Microsoft.Compute/virtualMachines/a",
		"/subscriptions/s/resourceGroups/\xff/providers/Microsoft.Compute/virtualMachines/a",
		"/subscriptions/é/resourceGroups/g/providers/MicrosoftXCompute/virtualMachines/a",
		"/ſubscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/a", "x" + vms + "virtualMachines/a", "",
		"////////", "//////////", vms + "virtualMachines/a%",
		"/subscription/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/a",
		"/subscriptions/%/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/a",
		"/subscriptions/s/groups/g/providers/Microsoft.Compute/virtualMachines/a",
		"/subscriptions/s/resourceGroups/g/provider/Microsoft.Compute/virtualMachines/a",
		"/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualMachines/a",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if want := vmID.MatchString(id); resourceid.IsVM(id) != want {
			t.Errorf("IsVM(%q) = %t", id, !want)
		}
	})
}

func TestAreNames(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		subscription, group, disk string
		want                      bool
	}{
		"all are allowed":            {"s-1", "g.(1)", "a.b-c_9", true},
		"no subscription":            {"", "g", "a", false},
		"a subscription with a dot":  {"s.1", "g", "a", false},
		"no resource group":          {"s", "", "a", false},
		"a resource group of dots":   {"s", "..", "a", false},
		"an escaped character in it": {"s", "g%2e", "a", false},
		"no disk":                    {"s", "g", "", false},
		"a disk of dots":             {"s", "g", "..", false},
		"a slash in the disk's name": {"s", "g", "a/b", false},
	} {
		if got := resourceid.AreNames(test.subscription, test.group, test.disk); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func TestSubscriptionsAreGUIDsAndGroupsHaveAzuresCharacters(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"00000000-0000-0000-0000-0000000000a1": true, "ABCDEF00-0000-0000-0000-000000000001": true,
		"": false, "sub": false, "../../x": false, "00000000-0000-0000-0000-00000000000": false,
		"00000000-0000-0000-0000-00000000000g": false, "000000000000-0000-0000-0000-00000001": false,
		"00000000-0000-0000-0000-0000-00000001": false,
	} {
		if got := resourceid.IsSubscription(id); got != want {
			t.Errorf("subscription %q: got %v, want %v", id, got, want)
		}
	}
	for name, want := range map[string]bool{"rg": true, "MC_a(1).é": true, "": false, ".": false, "a/b": false, "a b": false} {
		if got := resourceid.IsGroup(name); got != want {
			t.Errorf("group %q: got %v, want %v", name, got, want)
		}
	}
}
