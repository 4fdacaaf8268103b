package azure

// Permission is an action of Azure's access control that the driver's identity must be allowed.
type Permission struct {
	// Action as in a role definition.
	Action string
	// Needed says what for.
	Needed string
	// Subscription says that Azure checks the action in the subscription itself: a role that is
	// assigned in resource groups does not grant it.
	Subscription bool
	// Optional is a feature without which the action need not be granted; "" where the driver does
	// not work without it.
	Optional string
}

// Permissions are the actions of all calls that this package makes, in the order in which a role
// definition lists them. Azure looks at the resources to which a call refers as well: an identity
// that creates a snapshot must be allowed to read the content of the disk.
func Permissions() []Permission {
	return append(contentPermissions(), []Permission{
		{
			Action:   "Microsoft.Compute/virtualMachines/read",
			Needed:   "see which disks a VM has, and whether it runs",
			Optional: "nodes that are VMs, or of flexible scale sets",
		},
		{
			Action:   "Microsoft.Compute/virtualMachines/attachDetachDataDisks/action",
			Needed:   "attach and detach disks, by force too",
			Optional: "nodes that are VMs, or of flexible scale sets",
		},
		{
			Action:   "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
			Needed:   "see which disks an instance has, and whether it runs",
			Optional: "nodes of uniform scale sets",
		},
		{
			Action:   "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/attachDetachDataDisks/action",
			Needed:   "attach and detach disks, by force too",
			Optional: "nodes of uniform scale sets",
		},
		{Action: "Microsoft.Compute/locations/operations/read", Subscription: true, Needed: "follow the operations of VMs"},
		{
			Action:       "Microsoft.Compute/locations/diskOperations/read",
			Subscription: true,
			Needed:       "follow the operations of disks and snapshots",
		},
		{
			Action:       "Microsoft.Compute/skus/read",
			Subscription: true,
			Needed:       "learn how many disks a VM takes, and what a SKU of disks offers in which zone",
		},
		{
			Action:       "Microsoft.Compute/locations/usages/read",
			Subscription: true,
			Needed:       "learn what is left of the subscription's quota, for GetCapacity",
		},
		{
			Action:   "Microsoft.Compute/diskEncryptionSets/read",
			Needed:   "refer to a disk encryption set",
			Optional: "the parameter diskEncryptionSetID",
		},
		{Action: "Microsoft.Compute/diskAccesses/read", Needed: "refer to a disk access", Optional: "the parameter diskAccessID"},
	}...)
}

// contentPermissions are those for disks and snapshots.
func contentPermissions() []Permission {
	return []Permission{
		{Action: "Microsoft.Compute/disks/read", Needed: "look at a disk before each change, list disks"},
		{Action: "Microsoft.Compute/disks/write", Needed: "create, grow and modify disks; attach them"},
		{Action: "Microsoft.Compute/disks/delete", Needed: "delete disks"},
		{
			Action:   "Microsoft.Compute/disks/beginGetAccess/action",
			Needed:   "copy the content of a disk: Azure asks for it when a snapshot or a clone refers to the disk",
			Optional: "snapshots and clones",
		},
		{
			Action:   "Microsoft.Compute/snapshots/read",
			Needed:   "look at a snapshot before each change, list snapshots",
			Optional: "snapshots",
		},
		{Action: "Microsoft.Compute/snapshots/write", Needed: "create snapshots", Optional: "snapshots"},
		{Action: "Microsoft.Compute/snapshots/delete", Needed: "delete snapshots", Optional: "snapshots"},
		{
			Action:   "Microsoft.Compute/snapshots/beginGetAccess/action",
			Needed:   "copy the content of a snapshot: Azure asks for it when a disk is restored from it, and when it is copied to another region",
			Optional: "snapshots",
		},
	}
}

// ListPermissions are what the driver needs besides where attachDetachDataDisks is not enabled. They
// allow to change everything of a VM, and are in no role by default.
func ListPermissions() []Permission {
	const needed = "attach and detach disks where attachDetachDataDisks is not enabled"
	return []Permission{
		{Action: "Microsoft.Compute/virtualMachines/write", Needed: needed},
		{Action: "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/write", Needed: needed},
	}
}

// RoleDefinition is a custom role with all that the driver may have to do and nothing besides, in
// the form that `az role definition create` takes.
type RoleDefinition struct {
	Name             string
	IsCustom         bool
	Description      string
	Actions          []string
	NotActions       []string
	DataActions      []string
	NotDataActions   []string
	AssignableScopes []string
}

// NewRoleDefinition returns the role with the permissions, to be assigned in the scopes: resource
// IDs of subscriptions or resource groups.
func NewRoleDefinition(name string, permissions []Permission, scopes ...string) RoleDefinition {
	role := RoleDefinition{
		Name:             name,
		IsCustom:         true,
		Description:      "What the Azure Disk CSI driver does: disks, snapshots, and attaching them to nodes.",
		NotActions:       []string{},
		DataActions:      []string{},
		NotDataActions:   []string{},
		AssignableScopes: scopes,
	}
	for _, p := range permissions {
		role.Actions = append(role.Actions, p.Action)
	}
	return role
}
