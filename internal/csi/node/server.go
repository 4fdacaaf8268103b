package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/csi/condition"
	"github.com/azuredisk-csi/azuredisk/internal/nodereport"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Options of a Server.
type Options struct {
	// NodeName is the Node's name, and the CSI node ID.
	NodeName string
	// DriverName is part of the topology key.
	DriverName string
	// Namespace of the custom resources.
	Namespace string
	// Instance says which VM the node is.
	Instance apiv1.AzDriverNodeSpec
	// BootID of the running kernel.
	BootID string
	// Client reads at the API server, never through a cache: MayStage rests on it.
	Client client.WithWatch
	Host   provisioner.Host
	Report *nodereport.Reporter
	// Records is where the node keeps what the mounts do not show.
	Records nodereport.Records
	// Limit is how many volumes the node can take.
	Limit Limit
	// AwaitPublish lets a NodeStageVolume come before the publish, and wait for it: so it is where the CSIDriver's attachRequired is false, and nobody but
	// the controller knows when a volume is published.
	AwaitPublish bool
	// DiskAt returns the ID of the disk that Azure has at a LUN of this VM, "" for none; nil where the node cannot ask. What it returns may be
	// older than what is there.
	DiskAt func(ctx context.Context, lun int32) (string, error)
	// Expansion declares the capability EXPAND_VOLUME.
	Expansion bool
	// Clock paces the waiting for an attachment; nil for the real one.
	Clock clock.WithTicker
	// NewUUID returns the UUID of a filesystem to make; nil for random ones.
	NewUUID func() string
}

// Limit is how many volumes the node can take.
type Limit struct {
	// Volumes is the number; 0 takes it from the AzDriverNode, where the controller fills it in.
	Volumes int64
	// Reserved is taken off the controller's number, for disks that are not the driver's.
	Reserved int64
	// Patience is how long to wait for the controller.
	Patience time.Duration
	// Fallback is the number of data disks if the controller does not fill it in for so long, and for a VM size that
	// Azure does not list.
	Fallback int64
}

// Server serves csi.v1.Node.
type Server struct {
	csi.UnimplementedNodeServer
	options Options

	mu   sync.Mutex
	busy map[string]bool
	// reserved are the devices that calls at work use.
	reserved map[string]bool
	// undelivered are the failures of calls, by volume, whose callers were gone by then.
	undelivered map[string]error
}

// New returns a Server.
func New(options Options) *Server {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.NewUUID == nil {
		options.NewUUID = func() string { return string(uuid.NewUUID()) }
	}
	return &Server{options: options, busy: map[string]bool{}, reserved: map[string]bool{}, undelivered: map[string]error{}}
}

// NodeGetCapabilities implements csi.NodeServer.
func (s *Server) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	kinds := []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH,
		condition.NodeCapability,
	}
	if s.options.Expansion {
		kinds = append(kinds, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	}
	response := &csi.NodeGetCapabilitiesResponse{}
	for _, kind := range kinds {
		response.Capabilities = append(response.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: kind}},
		})
	}
	return response, nil
}

// lock takes the volume for one call; a second call at the same time is told to come again.
func (s *Server) lock(volume string) (unlock func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[volume] {
		return nil, provisioner.Errorf(provisioner.Conflict, "another call for volume %s is at work%s", volume, s.progress(volume))
	}
	s.busy[volume] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.busy, volume)
	}, nil
}

// mountAt returns what is mounted at a path, seen from above.
func (s *Server) mountAt(ctx context.Context, path string) (mount provisioner.MountPoint, found bool, err error) {
	mounts, err := s.options.Host.Mounts().List(ctx)
	if err != nil {
		return provisioner.MountPoint{}, false, fmt.Errorf("list mounts: %w", err)
	}
	for _, m := range mounts {
		if m.Target == path {
			mount, found = m, true
		}
	}
	return mount, found, nil
}
