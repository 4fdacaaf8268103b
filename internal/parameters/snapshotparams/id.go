package snapshotparams

import "github.com/azuredisk-csi/azuredisk/internal/volumehandle"

// ParseID reads a snapshot ID; ok is false if no snapshot can have it. A bare name is a snapshot of
// the subscription and resource group, as with the V1 driver.
func ParseID(id, subscriptionID, resourceGroup string) (handle volumehandle.Snapshot, ok bool) {
	handle, err := volumehandle.ParseSnapshot(id)
	if err == nil {
		return handle, true
	}
	if NameSnapshot(id) != id {
		return volumehandle.Snapshot{}, false
	}
	return volumehandle.Snapshot{
		SubscriptionID: subscriptionID,
		ResourceGroup:  resourceGroup,
		Name:           id,
	}, true
}
