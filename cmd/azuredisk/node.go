package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
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
	"github.com/azuredisk-csi/azuredisk/provisioner/host"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=csinodes,verbs=get;watch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes/status,verbs=patch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes,verbs=get
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumeattachments,verbs=get;list;watch

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

// nodePlugin is what the parts of the node plug-in share.
type nodePlugin struct {
	settings *config.Node
	api      client.WithWatch
	self     nodeIdentity
	machine  *host.Host
	records  nodereport.Records
	report   *nodereport.Reporter
}

// runNode wires the node plug-in and runs it until ctx ends.
func runNode(ctx context.Context, settings *config.Node) error {
	log := ctrl.Log.WithName("node")
	ctx = logr.NewContext(ctx, log)
	if err := nodereport.CheckKubeletDir(settings.KubeletDir); err != nil {
		return err
	}
	cfg, err := restConfig(&settings.Common)
	if err != nil {
		return err
	}
	// Without a cache: the hand-over protocol rests on reads from the API server.
	api, err := client.NewWithWatch(cfg, client.Options{Scheme: newScheme()})
	if err != nil {
		return fmt.Errorf("make client of the API server: %w", err)
	}
	self, err := identify(ctx, settings, api)
	if err != nil {
		return err
	}
	machine := host.New(hostOptions(settings))
	records := nodereport.Records{Dir: settings.RecordsDir()}
	release, err := records.Lock(ctx, clock.RealClock{})
	if err != nil {
		return err
	}
	defer release()
	p := &nodePlugin{settings: settings, api: api, self: self, machine: machine, records: records}
	p.report = p.newReport()
	nodes := p.newNodes(ctx)
	calls, err := p.newServer(ctx, nodes)
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
				Empty:    p.report.AwaitEmpty,
				Patience: settings.DrainTimeout,
			})
			stop()
		case <-serving.Done():
		}
	}()
	if err := p.runParts(serving, cfg, nodes, calls); err != nil {
		return err
	}
	if err := p.report.Leave(context.WithoutCancel(ctx)); err != nil {
		log.Error(err, "the stop could not be reported")
	}
	return nil
}

func (p *nodePlugin) newNodes(ctx context.Context) *csinode.Server {
	return csinode.New(csinode.Options{
		NodeName:     p.settings.NodeName,
		DriverName:   p.settings.DriverName,
		Namespace:    p.settings.Namespace,
		Instance:     p.self.instance,
		BootID:       p.self.bootID,
		KubeletDir:   p.settings.KubeletDir,
		Cluster:      p.self.cluster,
		Client:       p.api,
		Host:         p.machine,
		Report:       p.report,
		Records:      p.records,
		Expansion:    p.settings.Expansion,
		AwaitPublish: !p.settings.AttachRequired,
		DiskAt:       diskAt(ctx, p.settings),
		Reservations: p.settings.PersistentReservations == config.ReservationsAuto,
		Limit:        limitOf(p.settings),
	})
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

func (p *nodePlugin) newReport() *nodereport.Reporter {
	return nodereport.New(nodereport.Options{
		Client:         p.api,
		Namespace:      p.settings.Namespace,
		NodeName:       p.settings.NodeName,
		Spec:           p.self.instance,
		DriverVersion:  version.Version,
		SlowInterval:   p.settings.HeartbeatInterval,
		FastInterval:   p.settings.ReplicatedHeartbeatInterval,
		ProbedInterval: p.settings.ProbedHeartbeatInterval,
		Scanner: nodereport.Scanner{
			KubeletDir: p.settings.KubeletDir,
			DriverName: p.settings.DriverName,
			BootID:     p.self.bootID,
			Records:    p.records,
			Mounts:     p.machine.Mounts(),
			Devices:    p.machine.Devices(),
		},
	})
}

func (p *nodePlugin) newServer(ctx context.Context, nodes csi.NodeServer) (*server.Server, error) {
	options := identity.Options{
		DriverName: p.settings.DriverName,
		Version:    version.Version,
		Ready:      func(context.Context) error { return scanned(p.report) },
	}
	if p.settings.Expansion {
		options.Expansion = append(options.Expansion, csi.PluginCapability_VolumeExpansion_ONLINE)
	}
	traces, err := startTracing(ctx, &p.settings.Common, "azuredisk-node")
	if err != nil {
		return nil, err
	}
	return server.New(server.Options{
		Endpoint: p.settings.Endpoint,
		Log:      logr.FromContextOrDiscard(ctx),
		Metrics:  ctrlmetrics.Registry,
		Tracing:  traces,
		Register: func(r grpc.ServiceRegistrar) {
			csi.RegisterIdentityServer(r, identity.New(options))
			csi.RegisterNodeServer(r, nodes)
		},
	})
}

// runParts runs the parts side by side until ctx ends or one of them fails.
func (p *nodePlugin) runParts(ctx context.Context, cfg *rest.Config, nodes *csinode.Server, calls *server.Server) error {
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: newScheme(),
		Logger: ctrl.Log,
		// The parts get their logger from here; they end with the manager.
		BaseContext:            func() context.Context { return context.WithoutCancel(ctx) },
		Metrics:                metricsOptions(&p.settings.Common),
		HealthProbeBindAddress: p.settings.HealthAddress,
	})
	if err != nil {
		return fmt.Errorf("make manager: %w", err)
	}
	checks := map[string]error{
		"metrics": drivermetrics.Register(ctrlmetrics.Registry, "the volumes in use", p.volumeMetrics()),
		"healthz": mgr.AddHealthzCheck("ping", healthz.Ping),
		"readyz":  mgr.AddReadyzCheck("report", func(*http.Request) error { return scanned(p.report) }),
		"report":  mgr.Add(p.report),
		"calls":   mgr.Add(calls),
		"events":  mgr.Add(p.follower()),
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
		"problems": mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			wait.UntilWithContext(ctx, nodes.ReviewProblems, csinode.ReviewInterval)
			return nil
		})),
	}
	if p.settings.Register {
		p.addRegistrar(mgr, calls, checks)
	} else {
		p.report.SetReady(true, apiv1.ReasonServing, "the plug-in serves without the kubelet")
	}
	for name, err := range checks {
		if err != nil {
			return fmt.Errorf("add %s: %w", name, err)
		}
	}
	return mgr.Start(ctx)
}

// addRegistrar adds what registers the plug-in with the kubelet once calls are served, and what
// registers it once more. It records in checks how that went.
func (p *nodePlugin) addRegistrar(mgr ctrl.Manager, calls *server.Server, checks map[string]error) {
	registration := registrar.New(registrar.Options{
		DriverName: p.settings.DriverName,
		Socket:     p.settings.SocketPath(),
		Dir:        p.settings.RegistrationDir(),
		Await:      func(ctx context.Context) error { return awaitAll(ctx, calls.Listening(), p.report.Scanned()) },
		Notify:     reportRegistration(p.report),
	})
	checks["registration"] = mgr.AddReadyzCheck("registration",
		func(*http.Request) error { return registration.Registered() })
	checks["registrar"] = mgr.Add(registration)
	checks["presence"] = mgr.Add(registrar.NewPresence(registrar.PresenceOptions{
		Client:     p.api,
		NodeName:   p.settings.NodeName,
		DriverName: p.settings.DriverName,
		Registered: registration.Registered,
		Again:      registration.Again,
		Missing:    func(message string) { p.report.SetReady(false, apiv1.ReasonNotInCSINode, message) },
	}))
}

// follower returns what follows the scheduled events of this VM, if the node uses instance
// metadata.
func (p *nodePlugin) follower() manager.Runnable {
	if !slices.Contains(p.settings.MetadataSources, string(imds.SourceIMDS)) {
		p.report.SetMaintenance(nil)
		return manager.RunnableFunc(func(context.Context) error { return nil })
	}
	events := &imds.Events{Endpoint: p.settings.IMDSEndpoint}
	return imds.Follower{
		Read:   events.Read,
		VMID:   p.self.instance.VMID,
		Report: p.report.SetMaintenance,
		Clock:  clock.RealClock{},
	}
}

func (p *nodePlugin) volumeMetrics() prometheus.Collector {
	options := volumemetrics.Options{
		NodeName: p.settings.NodeName,
		InUse:    p.report.InUse,
		Capacity: p.report.KnownCapacity,
	}
	if p.settings.DiskMetrics {
		options.Counters = p.machine.Counters
	}
	return volumemetrics.New(options)
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
			report.SetReady(true, apiv1.ReasonRegistered, "the kubelet has registered the plug-in")
			return
		}
		report.SetReady(false, apiv1.ReasonRegistrationFailed, message)
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
