package volumehandle

// Snapshot is a snapshot handle in its parts: the snapshot's resource ID at Azure, as it is for the
// V1 driver. Azure compares them without regard to case.
//
//	/subscriptions/{s}/resourceGroups/{rg}/providers/Microsoft.Compute/snapshots/{name}
type Snapshot struct {
	SubscriptionID, ResourceGroup, Name string
}

// ParseSnapshot reads a snapshot handle.
func ParseSnapshot(s string) (Snapshot, error) {
	subscription, group, name, ok := split(s, "snapshots")
	if !ok {
		return Snapshot{}, malformed("snapshot", s, "snapshots")
	}
	return Snapshot{
		SubscriptionID: subscription,
		ResourceGroup:  group,
		Name:           name,
	}, nil
}

// String returns the handle's text.
func (h Snapshot) String() string {
	return "/subscriptions/" + h.SubscriptionID + "/resourceGroups/" + h.ResourceGroup +
		"/providers/Microsoft.Compute/snapshots/" + h.Name
}
