package fake

import (
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// resource is a parsed resource ID.
type resource struct {
	subscription, group string
	// kind in lower case, as in "disks" or "virtualmachinescalesets/virtualmachines".
	kind string
	name string
}

// parse reads /subscriptions/S/resourceGroups/G/providers/Microsoft.Compute/KIND/NAME[/KIND/NAME].
func parse(id string) (resource, error) {
	parts := strings.Split(strings.Trim(id, "/"), "/")
	ok := len(parts) == 8 || len(parts) == 10
	for i, want := range []string{"subscriptions", "", "resourcegroups", "", "providers", "microsoft.compute"} {
		ok = ok && (want == "" || strings.EqualFold(parts[i], want))
	}
	for i := range parts {
		ok = ok && parts[i] != ""
	}
	if !ok {
		return resource{}, provisioner.Errorf(provisioner.InvalidArgument, "%q is no resource ID of Microsoft.Compute", id)
	}
	r := resource{
		subscription: parts[1],
		group:        parts[3],
		kind:         strings.ToLower(parts[6]),
		name:         parts[len(parts)-1],
	}
	if len(parts) == 10 {
		r.kind += "/" + strings.ToLower(parts[8])
	}
	return r, nil
}

// parseKind parses an ID that must be of one of the kinds.
func parseKind(id string, kinds ...string) (resource, error) {
	r, err := parse(id)
	if err != nil {
		return r, err
	}
	if slices.Contains(kinds, r.kind) {
		return r, nil
	}
	return r, provisioner.Errorf(provisioner.InvalidArgument, "%q is not of the kind %s", id, strings.Join(kinds, " or "))
}

const (
	kindDisk       = "disks"
	kindSnapshot   = "snapshots"
	kindVM         = "virtualmachines"
	kindScaleSetVM = "virtualmachinescalesets/virtualmachines"
)
