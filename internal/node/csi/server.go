package csi

import (
	"context"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/condition"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/device"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/filesystem"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/grant"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/reservation"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/keylock"
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
	// Cluster is part of the keys with which this node reserves disks. It must be set.
	Cluster provisioner.ClusterIdentity
	// BootID of the running kernel.
	BootID string
	// KubeletDir is the kubelet's root directory. A staging path is below it.
	KubeletDir string
	// Client reads at the API server, never through a cache: MayStage needs the current objects.
	Client client.WithWatch
	Host   provisioner.Host
	Report *nodereport.Reporter
	// Records hold what the mounts do not show after a restart.
	Records nodereport.Records
	// Limit is how many volumes the node can take.
	Limit Limit
	// AwaitPublish makes a NodeStageVolume that arrives before the publish wait for it. It is set
	// if the CSIDriver's attachRequired is false, because then the kubelet does not wait until the
	// controller has published the volume.
	AwaitPublish bool
	// DiskAt returns the ID of the disk that Azure has at a LUN of this VM, "" for none. The answer
	// may be out of date. DiskAt is nil if the node cannot read it.
	DiskAt func(ctx context.Context, lun int32) (string, error)
	// Reservations lets the node reserve shared disks (law 3d). Both the node and the volume must
	// allow it.
	Reservations bool
	// FencesAtOnce is how many volumes AnswerFences fences at the same time; 0 for 4.
	FencesAtOnce int
	// Expansion declares the capability EXPAND_VOLUME.
	Expansion bool
	// Clock sets the intervals at which the node reads again while it waits for an attachment; nil
	// for the real one.
	Clock clock.WithTicker
	// NewUUID returns the UUID of a new filesystem; nil for random ones.
	NewUUID func() string
}

// Limit is how many volumes the node can take.
type Limit struct {
	// Volumes is the number; 0 means the number in the AzDriverNode, which the controller writes.
	Volumes int64
	// Reserved is subtracted from the controller's number, for disks that the driver does not
	// manage.
	Reserved int64
	// Patience is how long to wait for the controller.
	Patience time.Duration
	// Fallback is the number of data disks if the controller has not written it when Patience ends,
	// and for a VM size that Azure does not list.
	Fallback int64
}

// Server serves csi.v1.Node.
type Server struct {
	csi.UnimplementedNodeServer
	options     Options
	grants      *grant.Reader
	devices     *device.Finder
	filesystems *filesystem.Stager
	reserver    reservation.Reserver
	busy        keylock.Locks
	// outside are the disks that are not this driver's, by the kernel's number. Only
	// ProtectReplicas uses it, which is not called twice at once.
	outside map[uint64]bool

	mu sync.Mutex
	// undelivered are the failures of calls, by volume, whose callers had stopped waiting.
	undelivered map[string]error
}

// New returns a Server.
func New(options Options) *Server {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.FencesAtOnce == 0 {
		options.FencesAtOnce = fencesAtOnce
	}
	if options.NewUUID == nil {
		options.NewUUID = func() string { return string(uuid.NewUUID()) }
	}
	grants := &grant.Reader{
		NodeName:     options.NodeName,
		VMID:         options.Instance.VMID,
		Client:       options.Client,
		Namespace:    options.Namespace,
		Report:       options.Report,
		AwaitPublish: options.AwaitPublish,
		Clock:        options.Clock,
	}
	devices := &device.Finder{
		Reader:  grants,
		Host:    options.Host,
		Records: options.Records,
		BootID:  options.BootID,
		DiskAt:  options.DiskAt,
	}
	filesystems := &filesystem.Stager{Finder: devices, NewUUID: options.NewUUID}
	return &Server{
		options:     options,
		grants:      grants,
		devices:     devices,
		filesystems: filesystems,
		reserver:    reservation.Reserver{Disk: options.Host.Reservations()},
		undelivered: map[string]error{},
		outside:     map[uint64]bool{},
	}
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

// lock reserves the volume for one call. A second call at the same time fails with Conflict, and
// its caller retries.
func (s *Server) lock(volume string) (unlock func(), err error) {
	unlock, locked := s.busy.TryLock(volume)
	if !locked {
		return nil, provisioner.Errorf(provisioner.Conflict, "another call for volume %s is running%s", volume,
			s.progress(volume))
	}
	return unlock, nil
}
