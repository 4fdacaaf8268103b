// Package csi is the CSI Controller server. It translates each call into a change of the
// custom resources, waits until the reconcilers have done it, and translates the result to CSI. Any
// replica of the Deployment can serve any call.
//
// The server is composed of its parts, one package each, which do not import one another:
//
//	handover    publishes and unpublishes
//	disks       creates, deletes, expands and modifies; capacity
//	snapshots   creates, deletes and lists snapshots
//	inventory   lists volumes, and reports their health
//
// Below them are adoption (AzVolumes for disks that exist), cluster (the custom resources), call
// (bounds, locks, errors) and topology.
package csi

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/adoption"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/disks"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/handover"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/inventory"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/snapshots"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/topology"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Options of a Server.
type Options struct {
	// Client reads from the cache, which must have the indexes of package cluster, and
	// writes; Reader reads from the API server.
	Client client.Client
	Reader client.Reader
	// Watch reports changes in the cache.
	Watch *cluster.Watch
	// Disks reads disks without an AzVolume.
	Disks provisioner.Disks
	// Snapshots are created, read and deleted at Azure; they have no custom resource.
	Snapshots provisioner.Snapshots
	// SKUs says where disks can be created.
	SKUs  provisioner.SKUs
	Clock clock.PassiveClock
	// Namespace of the custom resources.
	Namespace string
	// DriverName is part of the topology key.
	DriverName string
	// SubscriptionID, ResourceGroup and Location of disks whose StorageClass names none.
	SubscriptionID, ResourceGroup, Location string
	// ExtraTags are tags of all new disks and snapshots. The tags of a class take precedence.
	ExtraTags map[string]string
	// PublishedByPods says that the CSIDriver's attachRequired is false, and that the driver itself
	// publishes volumes as pods need them. The server then serves the calls without declaring the
	// capability.
	PublishedByPods bool
	// WaitTimeout limits a call without a deadline.
	WaitTimeout time.Duration
	// Metrics gets the counters of promotions and releases.
	Metrics prometheus.Registerer
}

// Server implements the CSI Controller service with the methods of its parts.
type Server struct {
	unimplemented
	*handover.Publisher
	*disks.Provisioner
	*snapshots.Snapshotter
	*inventory.Lister
	Options Options
}

// unimplemented answers the calls that no part implements. It is a separate type because the
// methods of an embedded type hide those that are embedded one level deeper.
type unimplemented struct {
	csi.UnimplementedControllerServer
}

// New makes a Server.
func New(o Options) (*Server, error) {
	stored := &cluster.Records{
		Client:    o.Client,
		Reader:    o.Reader,
		Watch:     o.Watch,
		Namespace: o.Namespace,
	}
	calls := call.New(o.Clock, o.WaitTimeout)
	adopter := &adoption.Adopter{Records: stored, Disks: o.Disks, DriverName: o.DriverName}
	key := topology.KeyOf(o.DriverName)
	publisher, err := handover.New(adopter, calls, o.Clock, o.Metrics)
	if err != nil {
		return nil, err
	}
	publisher.ByVolumeAttachments = !o.PublishedByPods
	return &Server{
		Publisher: publisher,
		Provisioner: &disks.Provisioner{
			Adopter:         adopter,
			Calls:           calls,
			Snapshots:       o.Snapshots,
			SKUs:            o.SKUs,
			Clock:           o.Clock,
			Topology:        key,
			PublishedByPods: o.PublishedByPods,
			SubscriptionID:  o.SubscriptionID,
			ResourceGroup:   o.ResourceGroup,
			Location:        o.Location,
			ExtraTags:       o.ExtraTags,
		},
		Snapshotter: &snapshots.Snapshotter{
			Records:        stored,
			Calls:          calls,
			Disks:          o.Disks,
			Snapshots:      o.Snapshots,
			Topology:       key,
			DriverName:     o.DriverName,
			SubscriptionID: o.SubscriptionID,
			ResourceGroup:  o.ResourceGroup,
			ExtraTags:      o.ExtraTags,
		},
		Lister: inventory.New(inventory.Options{
			Records:    stored,
			Calls:      calls,
			Disks:      o.Disks,
			Clock:      o.Clock,
			Topology:   key,
			DriverName: o.DriverName,
		}),
		Options: o,
	}, nil
}

// ControllerGetCapabilities lists what the server can do.
func (s *Server) ControllerGetCapabilities(context.Context,
	*csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	response := &csi.ControllerGetCapabilitiesResponse{}
	types := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_GET_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH,
	}
	if !s.Options.PublishedByPods {
		types = append(types,
			csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
			csi.ControllerServiceCapability_RPC_PUBLISH_READONLY,
			csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES)
	}
	for _, t := range types {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return response, nil
}
