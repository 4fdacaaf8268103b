// Package disks answers the calls of the CSI controller server that create, delete and change
// disks, and that ask for the capacity for them. Each call writes its request to an AzVolume, and
// waits until the reconcilers have done it.
package disks

import (
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/adoption"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/topology"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Provisioner serves the calls.
type Provisioner struct {
	*adoption.Adopter
	*call.Calls
	// Snapshots are the sources of new disks.
	Snapshots provisioner.Snapshots
	// SKUs says where disks can be created.
	SKUs     provisioner.SKUs
	Clock    clock.PassiveClock
	Topology topology.Key
	// PublishedByPods says that the driver itself unpublishes volumes after their pods have gone.
	PublishedByPods bool
	// SubscriptionID, ResourceGroup and Location of disks whose StorageClass names none.
	SubscriptionID, ResourceGroup, Location string
	// ExtraTags are tags of all disks. The tags of a StorageClass take precedence.
	ExtraTags map[string]string
}
