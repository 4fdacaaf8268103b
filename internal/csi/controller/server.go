// Package controller is the CSI Controller server. It translates each call into
// what is wanted of the custom resources, waits for what the reconcilers make of it, and translates
// back. Any replica of the Deployment can serve any call.
//
// The server is the only writer of the claim to be primary, and keeps the protocol of
// docs/adr/0001-hand-over-protocol.md: what decides is read from the API server and not from
// the cache, and the claim is written with optimistic locking only. The cache, and the events that feed
// it, serve to wait without polling.
package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes/status,verbs=patch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumeattachments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumeattachments/status,verbs=patch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get

// Options of a Server.
type Options struct {
	// Client reads from the cache, which must have the index spec.volumeName of AzVolumeAttachments, and
	// writes; Reader reads from the API server.
	Client client.Client
	Reader client.Reader
	// Watch tells of changes in the cache.
	Watch *Watch
	// Disks finds out whether a disk without an AzVolume exists.
	Disks provisioner.Disks
	// Snapshots are taken, found and deleted at Azure, which alone knows of them.
	Snapshots provisioner.Snapshots
	// SKUs tells where disks can be had.
	SKUs  provisioner.SKUs
	Clock clock.PassiveClock
	// Namespace of the custom resources.
	Namespace string
	// DriverName makes the topology key.
	DriverName string
	// SubscriptionID, ResourceGroup and Location of disks whose StorageClass names none.
	SubscriptionID, ResourceGroup, Location string
	// PublishedByPods says that nobody is to call for volumes to be published: the CSIDriver's attachRequired is false, and the controller does it
	// as pods need them. The calls are served all the same, but not declared.
	PublishedByPods bool
	// WaitTimeout bounds a call that came without a deadline.
	WaitTimeout time.Duration
	// Metrics is where promotions and releases are counted.
	Metrics prometheus.Registerer
}

// Server implements the CSI Controller and GroupController services.
type Server struct {
	csi.UnimplementedControllerServer
	csi.UnimplementedGroupControllerServer
	Options
	busy    *busy
	disks   *diskCache
	metrics metrics
}

// New makes a Server.
func New(options Options) (*Server, error) {
	s := &Server{Options: options, busy: newBusy(), disks: newDiskCache(options.Disks, options.Clock), metrics: newMetrics()}
	if options.Metrics == nil {
		return s, nil
	}
	for _, c := range []prometheus.Collector{s.metrics.promotions, s.metrics.releases} {
		if err := options.Metrics.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of the controller server: %w", err)
		}
	}
	return s, nil
}

type metrics struct{ promotions, releases *prometheus.CounterVec }

func newMetrics() metrics {
	return metrics{
		promotions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_promotions_total", Help: "Claims to be primary that were granted, by whether the disk was attached already.",
		}, []string{"warm"}),
		releases: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_releases_total", Help: "Claims to be primary that were taken back, by the kind of proof.",
		}, []string{"proof"}),
	}
}

// ControllerGetCapabilities lists what the server can do.
func (s *Server) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
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
	if !s.PublishedByPods {
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

// lastMoment is left of a deadline, so that the answer still reaches the caller.
const lastMoment = 500 * time.Millisecond

// bound returns a context that ends a moment before the caller gives up.
func (s *Server) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithTimeout(ctx, s.WaitTimeout)
	}
	left := deadline.Sub(s.Clock.Now())
	return context.WithTimeout(ctx, left-min(lastMoment, left/10))
}

// lock keeps a second call for the same key out.
func (s *Server) lock(key string) (unlock func(), err error) {
	unlock, ok := s.busy.acquire(key)
	if !ok {
		return nil, grpcstatus.Errorf(codes.Aborted, "another call for %s is in progress", key)
	}
	return unlock, nil
}

func (s *Server) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.Namespace, Name: name}
}

func invalidArgument(format string, args ...any) error {
	return grpcstatus.Errorf(codes.InvalidArgument, format, args...)
}

// failureOf returns a failure that a status records, as an error of its kind.
func failureOf(e *apiv1.Error) error {
	return &provisioner.Error{Kind: provisioner.Kind(e.Kind), Message: e.Message}
}

// belongsTo checks that an AzVolume is of the disk that a handle names. One that was made by hand need not be.
func belongsTo(v *apiv1.AzVolume, handle volumehandle.Handle) error {
	if volumehandle.Of(v.Spec.Disk).Same(handle) {
		return nil
	}
	return grpcstatus.Errorf(codes.FailedPrecondition, "disk %s was asked for, and the AzVolume of its name, %s, is of disk %s; if it was made by hand, delete it",
		handle, v.Name, volumehandle.Of(v.Spec.Disk))
}
