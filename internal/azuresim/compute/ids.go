package compute

import (
	"regexp"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
)

// Resource kinds, as they are spelled in resource IDs.
const (
	KindDisk     = "disks"
	KindSnapshot = "snapshots"
	KindVM       = "virtualMachines"
	KindScaleSet = "virtualMachineScaleSets"

	KindEncryptionSet = "diskEncryptionSets"
	KindDiskAccess    = "diskAccesses"
)

// resourceName is what Azure takes as the name of a disk and of what has to do with disks: it
// begins with a letter or digit, and does not end with a hyphen or full stop.
var resourceName = regexp.MustCompile(`^[a-zA-Z0-9]([\w.-]{0,78}\w)?$`)

// CheckName refuses names that a resource of the kind cannot have. VMs and scale sets are not
// checked.
func CheckName(kind, name string) *armerror.Error {
	parameter := map[string]string{
		KindDisk:          "disk.name",
		KindSnapshot:      "snapshot.name",
		KindEncryptionSet: "diskEncryptionSet.name",
		KindDiskAccess:    "diskAccess.name",
	}[kind]
	if parameter == "" || resourceName.MatchString(name) {
		return nil
	}
	return armerror.InvalidParameter(parameter, "The value of parameter %s is invalid.", parameter)
}

// ID names a resource. Case is kept for display; two IDs are the same resource if their Keys are
// equal.
type ID struct {
	Subscription string `json:"subscription"`
	Group        string `json:"group"`
	Kind         string `json:"kind"`
	Name         string `json:"name"`
	Instance     string `json:"instance,omitempty"` // instance of a uniform scale set; Kind is KindScaleSet then
}

// String is the resource ID as Azure writes it. Without a Kind it is that of the resource group.
func (id ID) String() string {
	s := "/subscriptions/" + id.Subscription + "/resourceGroups/" + id.Group
	if id.Kind == "" {
		return s
	}
	s += "/providers/Microsoft.Compute/" + id.Kind + "/" + id.Name
	if id.Instance != "" {
		s += "/virtualMachines/" + id.Instance
	}
	return s
}

// Key is the form that is equal for equal resources.
func (id ID) Key() string { return strings.ToLower(id.String()) }

// groupPrefix is how the keys of a kind in a resource group begin; without a group, those of a
// subscription.
func groupPrefix(subscription, group, kind string) string {
	p := "/subscriptions/" + subscription + "/"
	if group != "" {
		p += "resourcegroups/" + group + "/providers/microsoft.compute/" + kind + "/"
	}
	return strings.ToLower(p)
}

// Target is what an operation is about.
func Target(op *operations.Operation) (ID, error) {
	if parts := strings.Split(op.Target, "/"); op.Kind == opGroupDelete && len(parts) == 5 {
		return ID{Subscription: parts[2], Group: parts[4]}, nil
	}
	return ParseID(op.Target, "target")
}

// ParseID reads a resource ID of one of the kinds above. target names the parameter that held it,
// for the error.
func ParseID(s, target string) (ID, error) {
	invalid := armerror.InvalidParameter(target,
		"Parameter '%s' has an invalid value '%s': it is not the ID of a Microsoft.Compute resource.", target, s)
	parts := strings.Split(strings.TrimPrefix(s, "/"), "/")
	if len(parts) != 8 && len(parts) != 10 {
		return ID{}, invalid
	}
	if slices.Contains(parts, "") {
		return ID{}, invalid
	}
	fixed := strings.EqualFold(parts[0], "subscriptions") && strings.EqualFold(parts[2], "resourceGroups") &&
		strings.EqualFold(parts[4], "providers") && strings.EqualFold(parts[5], "Microsoft.Compute")
	if !fixed {
		return ID{}, invalid
	}
	id := ID{
		Subscription: parts[1],
		Group:        parts[3],
		Name:         parts[7],
	}
	for _, kind := range []string{KindDisk, KindSnapshot, KindVM, KindScaleSet, KindEncryptionSet, KindDiskAccess} {
		if strings.EqualFold(kind, parts[6]) {
			id.Kind = kind
		}
	}
	if len(parts) == 10 {
		if id.Kind != KindScaleSet || !strings.EqualFold(parts[8], KindVM) {
			return ID{}, invalid
		}
		id.Instance = parts[9]
	}
	if id.Kind == "" {
		return ID{}, invalid
	}
	return id, nil
}
