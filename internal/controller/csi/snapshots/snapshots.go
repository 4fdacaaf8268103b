// Package snapshots answers the calls of the CSI controller server about snapshots. They have no
// custom resource: the server reads from Azure which exist, and how much of them is complete.
package snapshots

import (
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/topology"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Snapshotter serves the calls.
type Snapshotter struct {
	*cluster.Records
	*call.Calls
	Disks     provisioner.Disks
	Snapshots provisioner.Snapshots
	Topology  topology.Key
	// DriverName by which VolumeSnapshotContents name the driver.
	DriverName string
	// SubscriptionID and ResourceGroup of the cluster, where a snapshot ID without them is looked
	// up.
	SubscriptionID, ResourceGroup string
	// ExtraTags are tags of all snapshots. The tags of a VolumeSnapshotClass take precedence.
	ExtraTags map[string]string
}
