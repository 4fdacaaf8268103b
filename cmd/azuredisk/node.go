package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/config"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	drivermetrics "github.com/azuredisk-csi/azuredisk/internal/metrics"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/volumemetrics"
	"github.com/azuredisk-csi/azuredisk/internal/node/departure"
	"github.com/azuredisk-csi/azuredisk/internal/node/imds"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/node/registrar"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/identity"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/server"
	"github.com/azuredisk-csi/azuredisk/internal/version"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/host"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=csinodes,verbs=get;watch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes/status,verbs=update
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes,verbs=get
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumeattachments,verbs=get;list;watch

// Node and cluster are looked up for so long before the plug-in gives up and leaves it to its
// restart.
const (
	identifyInterval = 2 * time.Second
	identifyTimeout  = time.Minute
)

func newNodeCommand() *cobra.Command {
	settings := &config.Node{}
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Serve CSI node calls on one node, and report what is staged there",
		Long: `Serve CSI node calls on one node, and report what is staged there.

The node plug-in stages and mounts volumes, writes heartbeats and the report of
staged volumes to its own AzDriverNode, and registers itself with the kubelet. It
needs root on the node and holds no Azure credential.

/healthz says that the process runs, /readyz that the node's mounts have been
compared with the report and that the kubelet has registered the plug-in. The plug-in
registers once more when the Node's CSINode does not list the driver any more.

On SIGTERM the plug-in stops at once where the node stays, since mounts do not need
it. Where the node is drained or shut down (cordoned, tainted by an autoscaler, its
kubelet not ready, or gone) it serves until no volume is in use any more, for at
most --drain-timeout.

Every flag can also be given in the file named by --config, or as an
environment variable: --node-name is AZUREDISK_NODE_NAME.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := prepare(cmd, &settings.Common, settings.Validate); err != nil {
				return err
			}
			return runNode(cmd.Context(), settings)
		},
	}
	settings.AddFlags(cmd.Flags())
	return cmd
}

// runNode wires the node plug-in and runs it until ctx ends.
func runNode(ctx context.Context, settings *config.Node) error {
	log := ctrl.Log.WithName("node")
	ctx = logr.NewContext(ctx, log)
	cfg, err := restConfig(&settings.Common)
	if err != nil {
		return err
	}
	// Without a cache: the hand-over protocol rests on reads from the API server.
	api, err := client.NewWithWatch(cfg, client.Options{Scheme: newScheme()})
	if err != nil {
		return fmt.Errorf("make client of the API server: %w", err)
	}
	bootID, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Errorf("read boot ID: %w", err)
	}
	instance, err := identify(ctx, settings, api)
	if err != nil {
		return err
	}
	cluster, err := identifyCluster(ctx, api)
	if err != nil {
		return err
	}
	log.Info("this node is", "vmID", instance.VMID, "vmSize", instance.VMSize, "location", instance.Location, "zone",
		instance.Zone, "cluster", cluster)
	machine := host.New(hostOptions(settings))
	records := nodereport.Records{Dir: settings.RecordsDir()}
	release, err := records.Lock(ctx, clock.RealClock{})
	if err != nil {
		return err
	}
	defer release()
	boot := strings.TrimSpace(string(bootID))
	report := newReport(settings, api, machine, records, instance, boot)
	nodes := csinode.New(csinode.Options{
		NodeName:     settings.NodeName,
		DriverName:   settings.DriverName,
		Namespace:    settings.Namespace,
		Instance:     instance,
		BootID:       boot,
		Cluster:      cluster,
		Client:       api,
		Host:         machine,
		Report:       report,
		Records:      records,
		Expansion:    settings.Expansion,
		AwaitPublish: !settings.AttachRequired,
		DiskAt:       diskAt(ctx, settings),
		Reservations: settings.PersistentReservations == config.ReservationsAuto,
		Limit:        limitOf(settings),
	})
	calls, err := newNodeServer(ctx, settings, nodes, report, log)
	if err != nil {
		return err
	}
	// The parts outlast the order to stop by the wait for the volumes of a node that is leaving.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	context.AfterFunc(serving, machine.Close)
	go func() {
		select {
		case <-ctx.Done():
			departure.Await(serving, departure.Options{
				Client:   api,
				NodeName: settings.NodeName,
				Empty:    report.AwaitEmpty,
				Patience: settings.DrainTimeout,
			})
			stop()
		case <-serving.Done():
		}
	}()
	events := followerOf(settings, instance, report)
	volumes := volumeMetrics(settings, machine, report)
	if err := runNodeManager(serving, cfg, settings, api, nodes, report, calls, events, volumes); err != nil {
		return err
	}
	if err := report.Leave(context.WithoutCancel(ctx)); err != nil {
		log.Error(err, "the stop could not be reported")
	}
	return nil
}

func hostOptions(settings *config.Node) host.Options {
	return host.Options{
		Links:               settings.DeviceLinks,
		RescanInterval:      settings.RescanInterval,
		MaxFormatsAndChecks: settings.MaxFormatsAndChecks,
		NVMeReservations:    settings.NVMeReservations,
	}
}

func limitOf(settings *config.Node) csinode.Limit {
	return csinode.Limit{
		Volumes:  settings.MaxVolumes,
		Reserved: settings.ReservedSlots,
		Patience: settings.CapacityWait,
		Fallback: settings.DefaultMaxVolumes,
	}
}

func newReport(settings *config.Node, api client.WithWatch, machine *host.Host, records nodereport.Records,
	instance apiv1.AzDriverNodeSpec, boot string) *nodereport.Reporter {
	return nodereport.New(nodereport.Options{
		Client:         api,
		Namespace:      settings.Namespace,
		NodeName:       settings.NodeName,
		Spec:           instance,
		DriverVersion:  version.Version,
		SlowInterval:   settings.HeartbeatInterval,
		FastInterval:   settings.ReplicatedHeartbeatInterval,
		ProbedInterval: settings.ProbedHeartbeatInterval,
		Scanner: nodereport.Scanner{
			KubeletDir: settings.KubeletDir,
			DriverName: settings.DriverName,
			BootID:     boot,
			Records:    records,
			Mounts:     machine.Mounts(),
			Devices:    machine.Devices(),
		},
	})
}

func volumeMetrics(settings *config.Node, machine *host.Host, report *nodereport.Reporter) prometheus.Collector {
	options := volumemetrics.Options{
		NodeName: settings.NodeName,
		InUse:    report.InUse,
		Capacity: report.KnownCapacity,
	}
	if settings.DiskMetrics {
		options.Counters = machine.Counters
	}
	return volumemetrics.New(options)
}

func newNodeServer(ctx context.Context, settings *config.Node, nodes csi.NodeServer, report *nodereport.Reporter,
	log logr.Logger) (*server.Server, error) {
	options := identity.Options{
		DriverName: settings.DriverName,
		Version:    version.Version,
		Ready:      func(context.Context) error { return scanned(report) },
	}
	if settings.Expansion {
		options.Expansion = append(options.Expansion, csi.PluginCapability_VolumeExpansion_ONLINE)
	}
	traces, err := startTracing(ctx, &settings.Common, "azuredisk-node")
	if err != nil {
		return nil, err
	}
	return server.New(server.Options{
		Endpoint: settings.Endpoint,
		Log:      log,
		Metrics:  ctrlmetrics.Registry,
		Tracing:  traces,
		Register: func(r grpc.ServiceRegistrar) {
			csi.RegisterIdentityServer(r, identity.New(options))
			csi.RegisterNodeServer(r, nodes)
		},
	})
}

// runNodeManager runs the parts side by side until ctx ends or one of them fails.
func runNodeManager(ctx context.Context, cfg *rest.Config, settings *config.Node, api client.WithWatch, nodes *csinode.Server,
	report *nodereport.Reporter, calls *server.Server, events manager.Runnable, volumes prometheus.Collector,
) error {
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: newScheme(),
		Logger: ctrl.Log,
		// The parts get their logger from here; they end with the manager.
		BaseContext:            func() context.Context { return context.WithoutCancel(ctx) },
		Metrics:                metricsOptions(&settings.Common),
		HealthProbeBindAddress: settings.HealthAddress,
	})
	if err != nil {
		return fmt.Errorf("make manager: %w", err)
	}
	checks := map[string]error{
		"metrics": drivermetrics.Register(ctrlmetrics.Registry, "the volumes in use", volumes),
		"healthz": mgr.AddHealthzCheck("ping", healthz.Ping),
		"readyz":  mgr.AddReadyzCheck("report", func(*http.Request) error { return scanned(report) }),
		"report":  mgr.Add(report),
		"calls":   mgr.Add(calls),
		"events":  mgr.Add(events),
		"fences": mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			return nodes.AnswerFences(ctx, ctrlmetrics.Registry)
		})),
		"rests": mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			wait.UntilWithContext(ctx, func(ctx context.Context) {
				nodes.EndUnfinished(ctx)
				nodes.EndReservations(ctx)
				nodes.ProtectReplicas(ctx)
			}, csinode.ClearInterval)
			return nil
		})),
	}
	if settings.Register {
		registration := registrar.New(registrar.Options{
			DriverName: settings.DriverName,
			Socket:     settings.SocketPath(),
			Dir:        settings.RegistrationDir(),
			Await:      func(ctx context.Context) error { return awaitAll(ctx, calls.Listening(), report.Scanned()) },
			Notify:     reportRegistration(report),
		})
		checks["registration"] = mgr.AddReadyzCheck("registration",
			func(*http.Request) error { return registration.Registered() })
		checks["registrar"] = mgr.Add(registration)
		checks["presence"] = mgr.Add(registrar.NewPresence(registrar.PresenceOptions{
			Client:     api,
			NodeName:   settings.NodeName,
			DriverName: settings.DriverName,
			Registered: registration.Registered,
			Again:      registration.Again,
			Missing:    func(message string) { report.SetReady(false, "NotInCSINode", message) },
		}))
	} else {
		report.SetReady(true, "Serving", "the plug-in serves without the kubelet")
	}
	for name, err := range checks {
		if err != nil {
			return fmt.Errorf("add %s: %w", name, err)
		}
	}
	return mgr.Start(ctx)
}

// identify finds out which VM this node is. Shortly after a boot neither the metadata service nor
// the Node may be able to say.
func identify(ctx context.Context, settings *config.Node, api client.Client) (apiv1.AzDriverNodeSpec, error) {
	sources := make([]imds.Source, 0, len(settings.MetadataSources))
	for _, source := range settings.MetadataSources {
		sources = append(sources, imds.Source(source))
	}
	options := imds.Options{
		Sources:  sources,
		Endpoint: settings.IMDSEndpoint,
		Node: func(ctx context.Context) (*corev1.Node, error) {
			found := &corev1.Node{}
			return found, api.Get(ctx, client.ObjectKey{Name: settings.NodeName}, found)
		},
	}
	var instance apiv1.AzDriverNodeSpec
	err := untilKnown(ctx, "which VM this node is cannot be found out yet", func(ctx context.Context) (err error) {
		instance, err = imds.Find(ctx, options)
		return err
	})
	return instance, err
}

// identifyCluster finds out which cluster this node belongs to.
func identifyCluster(ctx context.Context, api client.Reader) (provisioner.ClusterIdentity, error) {
	var uid string
	err := untilKnown(ctx, "which cluster this is cannot be found out yet", func(ctx context.Context) (err error) {
		uid, err = kube.UID(ctx, api)
		return err
	})
	return provisioner.NewClusterIdentity(uid), err
}

// untilKnown repeats find until it succeeds. After identifyTimeout it returns the last error of
// find.
func untilKnown(ctx context.Context, notYet string, find func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, identifyInterval, identifyTimeout, true, func(ctx context.Context) (bool, error) {
		if last = find(ctx); last != nil {
			logr.FromContextOrDiscard(ctx).Info(notYet, "reason", last.Error())
		}
		return last == nil, nil
	})
	if err != nil && last != nil {
		return last
	}
	return err
}

// diskAt returns how instance metadata is asked which disk is at a LUN; nil where the node does not
// use it, or it does not answer: each use of a new device would wait for it in vain.
func diskAt(ctx context.Context, settings *config.Node) func(context.Context, int32) (string, error) {
	if !slices.Contains(settings.MetadataSources, string(imds.SourceIMDS)) {
		return nil
	}
	ask := func(ctx context.Context, lun int32) (string, error) {
		return imds.DiskAt(ctx, settings.IMDSEndpoint, lun)
	}
	if _, err := ask(ctx, 0); err != nil {
		logr.FromContextOrDiscard(ctx).Info(
			"instance metadata does not list the disks of this VM; devices are identified without it", "reason", err.Error())
		return nil
	}
	return ask
}

// followerOf returns what follows the scheduled events of this VM, if the node uses instance
// metadata.
func followerOf(settings *config.Node, instance apiv1.AzDriverNodeSpec, report *nodereport.Reporter) manager.Runnable {
	if !slices.Contains(settings.MetadataSources, string(imds.SourceIMDS)) {
		report.SetMaintenance(nil)
		return manager.RunnableFunc(func(context.Context) error { return nil })
	}
	events := &imds.Events{Endpoint: settings.IMDSEndpoint}
	return imds.Follower{
		Read:   events.Read,
		VMID:   instance.VMID,
		Report: report.SetMaintenance,
		Clock:  clock.RealClock{},
	}
}

func scanned(report *nodereport.Reporter) error {
	select {
	case <-report.Scanned():
		return nil
	default:
		return errors.New("the mounts of this node have not been compared with its report yet")
	}
}

func reportRegistration(report *nodereport.Reporter) func(bool, string) {
	return func(registered bool, message string) {
		if registered {
			report.SetReady(true, "Registered", "the kubelet has registered the plug-in")
			return
		}
		report.SetReady(false, "RegistrationFailed", message)
	}
}

func awaitAll(ctx context.Context, conditions ...<-chan struct{}) error {
	for _, condition := range conditions {
		select {
		case <-condition:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
