package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/config"
	"github.com/azuredisk-csi/azuredisk/internal/controller/attachdetach"
	csicontroller "github.com/azuredisk-csi/azuredisk/internal/controller/csi"
	"github.com/azuredisk-csi/azuredisk/internal/controller/leadership"
	"github.com/azuredisk-csi/azuredisk/internal/crashpoint"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/kubeevents"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/identity"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/server"
	"github.com/azuredisk-csi/azuredisk/internal/version"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=azure-disk-csi,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=azure-disk-csi,resources=leases,resourceNames=azuredisk-controller,verbs=get;update

const (
	// leaseName is the name of the lease of the controller's leader.
	leaseName = "azuredisk-controller"
	// callTimeout bounds CSI calls that come without a deadline.
	callTimeout = 2 * time.Minute
)

func newControllerCommand() *cobra.Command {
	settings := &config.Controller{}
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Serve CSI controller calls, and reconcile volumes, attachments and nodes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := prepare(cmd, &settings.Common, settings.Validate); err != nil {
				return err
			}
			setCredentialFile(cmd, &settings.Cloud)
			cloud, credentials, err := newAzure(cmd.Context(), settings)
			if err != nil {
				return err
			}
			limitHeap()
			kube.BeginWithLists()
			return runController(cmd.Context(), settings, cloud, followAzure(cloud, credentials))
		},
	}
	settings.AddFlags(cmd.Flags())
	return cmd
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiv1.AddToScheme(scheme))
	return scheme
}

func newControllerManager(ctx context.Context, settings *config.Controller) (ctrl.Manager, *leadership.Lock, error) {
	cfg, err := restConfig(&settings.Common)
	if err != nil {
		return nil, nil, err
	}
	lock, err := newLeaderLock(settings, cfg)
	if err != nil {
		return nil, nil, err
	}
	lookEvery := leadership.LookEvery(settings.RetryPeriod)
	metrics := metricsOptions(&settings.Common)
	metrics.ExtraHandlers = crashpoint.Handlers()
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                              newScheme(),
		MapperProvider:                      kube.NewMapper,
		Cache:                               cluster.CacheOptions(settings.Namespace),
		Controller:                          leadership.ControllerOptions(),
		Logger:                              ctrl.Log,
		Metrics:                             metrics,
		HealthProbeBindAddress:              settings.HealthAddress,
		LeaderElection:                      settings.LeaderElection,
		LeaderElectionID:                    leaseName,
		LeaderElectionResourceLockInterface: lock,
		// Nothing is left running when the manager has stopped, and the state is in the API: the
		// next leader can start at once.
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &settings.LeaseDuration,
		RenewDeadline:                 &settings.RenewDeadline,
		RetryPeriod:                   &lookEvery,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("make manager: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, nil, fmt.Errorf("add health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return nil, nil, fmt.Errorf("add readiness check: %w", err)
	}
	//nolint:staticcheck // client-go's elector knows the old kind of events only
	lock.LockConfig.EventRecorder = mgr.GetEventRecorderFor(leaseName)
	mgr, err = kubeevents.With(ctx, mgr)
	return mgr, lock, err
}

// ownNamespace is that of the driver's pods.
func ownNamespace(settings *config.Controller) string {
	if settings.LeaderElectionNamespace != "" {
		return settings.LeaderElectionNamespace
	}
	if namespace, _ := config.Environment("POD_NAMESPACE"); namespace != "" {
		return namespace
	}
	return settings.Namespace
}

// newLeaderLock makes the lock of the leader's lease. The identity names the node, so that a
// standby knows when that is lost.
func newLeaderLock(settings *config.Controller, cfg *rest.Config) (*leadership.Lock, error) {
	namespace := ownNamespace(settings)
	pod, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read the name of the pod: %w", err)
	}
	node, _ := config.Environment("NODE_NAME")
	own := rest.AddUserAgent(kube.ForLeader(cfg), "leader-election")
	own.Timeout = max(settings.RenewDeadline/2, time.Second) // one call that hangs must not cost the lease
	leases, err := coordinationv1client.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("make a client for the leader's lease: %w", err)
	}
	return leadership.New(leadership.Options{
		Leases:     leases,
		Namespace:  namespace,
		Name:       leaseName,
		Identity:   leadership.Identity(pod, node, string(uuid.NewUUID())),
		RenewEvery: settings.RetryPeriod,
		Clock:      clock.RealClock{},
		Log:        ctrl.Log.WithName("leadership"),
	}), nil
}

// runController wires the controller plug-in, with what else is to run in it, and runs it until ctx
// ends.
func runController(ctx context.Context, settings *config.Controller, cloud provisioner.Cloud,
	besides ...func(ctrl.Manager) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	mgr, lock, err := newControllerManager(ctx, settings)
	if err != nil {
		return err
	}
	if err := checkAttachRequired(ctx, mgr.GetAPIReader(), settings); err != nil {
		return err
	}
	if err := cluster.AddIndexes(ctx, mgr.GetFieldIndexer(), settings.DriverName); err != nil {
		return err
	}
	monitor, err := addMonitor(ctx, mgr, settings, cloud)
	if err != nil {
		return err
	}
	lock.Health = monitor.Health
	lock.Superseded = func(by string) { stop(fmt.Errorf("%s has taken the lease of the leader from this controller", by)) }
	publisher, err := addControllerServer(ctx, mgr, settings, cloud)
	if err != nil {
		return err
	}
	reconcilers, err := newDiskReconcilers(ctx, mgr, settings, cloud, monitor)
	if err != nil {
		return err
	}
	for _, r := range append(reconcilers, newPodReconcilers(mgr, settings, publisher)...) {
		if err := r.SetUp(mgr, settings.Namespace); err != nil {
			return err
		}
	}
	for _, add := range besides {
		if err := add(mgr); err != nil {
			return err
		}
	}
	if err := mgr.Start(ctx); err != nil {
		return err
	}
	if why := context.Cause(ctx); !errors.Is(why, context.Canceled) {
		return why
	}
	return nil
}

// addControllerServer adds the CSI endpoint, which every replica serves, and returns its calls for
// use within the process.
func addControllerServer(ctx context.Context, mgr ctrl.Manager, settings *config.Controller,
	cloud provisioner.Cloud) (attachdetach.Publisher, error) {
	watch := cluster.NewWatch()
	if err := watch.Register(ctx, mgr.GetCache()); err != nil {
		return nil, err
	}
	controllerServer, err := csicontroller.New(csicontroller.Options{
		Client:          mgr.GetClient(),
		Reader:          mgr.GetAPIReader(),
		Watch:           watch,
		Disks:           cloud.Disks(),
		Snapshots:       cloud.Snapshots(),
		SKUs:            cloud.SKUs(),
		Clock:           clock.RealClock{},
		Namespace:       settings.Namespace,
		DriverName:      settings.DriverName,
		SubscriptionID:  settings.SubscriptionID,
		ResourceGroup:   settings.ResourceGroup,
		Location:        settings.Location,
		WaitTimeout:     callTimeout,
		Metrics:         ctrlmetrics.Registry,
		PublishedByPods: !settings.AttachRequired,
		ExtraTags:       settings.Tags(),
	})
	if err != nil {
		return nil, err
	}
	ready := func(ctx context.Context) error {
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return fmt.Errorf("the cache is not filled yet")
		}
		return nil
	}
	identityServer := identity.New(identity.Options{
		DriverName: settings.DriverName,
		Version:    version.Version,
		Ready:      ready,
		Expansion: []csi.PluginCapability_VolumeExpansion_Type{csi.PluginCapability_VolumeExpansion_OFFLINE,
			csi.PluginCapability_VolumeExpansion_ONLINE},
	})
	traces, err := startTracing(ctx, &settings.Common, "azuredisk-controller")
	if err != nil {
		return nil, err
	}
	endpoint, err := server.New(server.Options{
		Endpoint: settings.Endpoint,
		Log:      ctrl.Log.WithName("csi"),
		Metrics:  ctrlmetrics.Registry,
		Tracing:  traces,
		Register: func(r grpc.ServiceRegistrar) {
			csi.RegisterIdentityServer(r, identityServer)
			csi.RegisterControllerServer(r, controllerServer)
		},
	})
	if err != nil {
		return nil, err
	}
	return newInProcess(endpoint, controllerServer), mgr.Add(endpoint)
}
