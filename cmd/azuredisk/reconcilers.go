package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/config"
	"github.com/azuredisk-csi/azuredisk/internal/controller/annotations"
	"github.com/azuredisk-csi/azuredisk/internal/controller/attachdetach"
	"github.com/azuredisk-csi/azuredisk/internal/controller/attachment"
	"github.com/azuredisk-csi/azuredisk/internal/controller/drivernode"
	"github.com/azuredisk-csi/azuredisk/internal/controller/failover"
	"github.com/azuredisk-csi/azuredisk/internal/controller/inuse"
	"github.com/azuredisk-csi/azuredisk/internal/controller/liveness"
	"github.com/azuredisk-csi/azuredisk/internal/controller/maintenance"
	"github.com/azuredisk-csi/azuredisk/internal/controller/scaledown"
	"github.com/azuredisk-csi/azuredisk/internal/controller/startuptaint"
	"github.com/azuredisk-csi/azuredisk/internal/controller/statemetrics"
	"github.com/azuredisk-csi/azuredisk/internal/controller/volume"
	"github.com/azuredisk-csi/azuredisk/internal/controller/work"
	drivermetrics "github.com/azuredisk-csi/azuredisk/internal/metrics"
	plan "github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	// volumeWorkers, attachmentWorkers and nodeWorkers are how many objects are reconciled at once.
	volumeWorkers, attachmentWorkers, nodeWorkers = 20, 40, 10
	// cloudOperations is how many operations at Azure are followed at once.
	cloudOperations = 1000
)

// reconciler adds itself to a manager, for the custom resources of a namespace.
type reconciler interface {
	SetUp(mgr ctrl.Manager, namespace string) error
}

// newDiskReconcilers makes the reconcilers that act at Azure, and the one that fences lost nodes.
func newDiskReconcilers(ctx context.Context, mgr ctrl.Manager, settings *config.Controller, cloud provisioner.Cloud,
	monitor *liveness.Monitor) ([]reconciler, error) {
	now := clock.RealClock{}
	nodes := cluster.NewNodes(mgr.GetClient(), settings.Namespace, now, monitor)
	if err := drivermetrics.Register(ctrlmetrics.Registry, "the state of volumes and nodes", drivermetrics.WhileLeading(
		mgr.Elected(), statemetrics.New(ctx, mgr.GetClient(), settings.Namespace, now.Now))); err != nil {
		return nil, err
	}
	volumes, err := newVolumeReconciler(ctx, mgr, settings, cloud, nodes)
	if err != nil {
		return nil, err
	}
	attachments, err := newAttachmentReconciler(ctx, mgr, settings, cloud, nodes)
	if err != nil {
		return nil, err
	}
	policies, err := plan.ParsePolicies(settings.MaintenancePolicies)
	if err != nil {
		return nil, err
	}
	maintenances, err := maintenance.New(maintenance.Options{
		Client:     mgr.GetClient(),
		Nodes:      nodes,
		Events:     mgr.GetEventRecorder("azuredisk-maintenance"),
		Clock:      now,
		Policies:   policies,
		DriverName: settings.DriverName,
		Workers:    nodeWorkers,
		Metrics:    ctrlmetrics.Registry,
	})
	if err != nil {
		return nil, err
	}
	driverNodes := drivernode.New(drivernode.Options{
		Client:          mgr.GetClient(),
		Reader:          mgr.GetAPIReader(),
		Cloud:           cloud,
		FirstConditions: monitor.FirstConditions,
		Events:          mgr.GetEventRecorder("azuredisk-drivernode"),
		Workers:         nodeWorkers,
	})
	failovers, err := failover.New(failover.Options{
		Client:            mgr.GetClient(),
		Reader:            mgr.GetAPIReader(),
		Monitor:           monitor,
		Clock:             now,
		Events:            mgr.GetEventRecorder("azuredisk-failover"),
		DriverName:        settings.DriverName,
		OwnNamespace:      ownNamespace(settings),
		OutOfServiceTaint: settings.FailoverOutOfServiceTaint,
		Workers:           nodeWorkers,
		Metrics:           ctrlmetrics.Registry,
	})
	return []reconciler{volumes, attachments, driverNodes, failovers, maintenances}, err
}

func newVolumeReconciler(ctx context.Context, mgr ctrl.Manager, settings *config.Controller, cloud provisioner.Cloud,
	nodes *cluster.Nodes) (*volume.Reconciler, error) {
	return volume.New(volume.Options{
		Client:        mgr.GetClient(),
		Reader:        mgr.GetAPIReader(),
		Cloud:         cloud,
		Jobs:          work.New(ctx, clock.RealClock{}, cloudOperations),
		Nodes:         nodes,
		Clock:         clock.RealClock{},
		Events:        mgr.GetEventRecorder("azuredisk-volume"),
		DriverName:    settings.DriverName,
		CleanUpDelay:  settings.CleanUpDelay,
		ReservedSlots: settings.ReplicaReservedSlots,
		NodeLabel:     settings.ReplicaNodeLabel,
		DrainGrace:    settings.ReplicaDrainGrace,
		Workers:       volumeWorkers,
		Metrics:       ctrlmetrics.Registry,
		Leading:       mgr.Elected(),
	})
}

func newAttachmentReconciler(ctx context.Context, mgr ctrl.Manager, settings *config.Controller, cloud provisioner.Cloud,
	nodes *cluster.Nodes) (*attachment.Reconciler, error) {
	return attachment.New(attachment.Options{
		Client:        mgr.GetClient(),
		Reader:        mgr.GetAPIReader(),
		Cloud:         cloud,
		Jobs:          work.New(ctx, clock.RealClock{}, cloudOperations),
		Nodes:         nodes,
		Clock:         clock.RealClock{},
		Events:        mgr.GetEventRecorder("azuredisk-attachment"),
		ReservedSlots: settings.ReplicaReservedSlots,
		Workers:       attachmentWorkers,
		Overlap:       overlap(settings),
		Metrics:       ctrlmetrics.Registry,
	})
}

// overlap is how long a former leader may send requests after this one has the lease: until it has
// missed the renewal, which it tries at each period, and has ended (ADR 0014).
func overlap(settings *config.Controller) time.Duration {
	if !settings.LeaderElection {
		return 0
	}
	return settings.RenewDeadline + settings.RetryPeriod + time.Second
}

// newPodReconcilers makes the reconcilers that act on what Kubernetes knows of pods and nodes.
func newPodReconcilers(mgr ctrl.Manager, settings *config.Controller, publisher attachdetach.Publisher) []reconciler {
	var reconcilers []reconciler
	if settings.RemoveNotReadyTaint {
		reconcilers = append(reconcilers, startuptaint.New(startuptaint.Options{
			Client:     mgr.GetClient(),
			Reader:     mgr.GetAPIReader(),
			Events:     mgr.GetEventRecorder("azuredisk-startuptaint"),
			DriverName: settings.DriverName,
			Workers:    nodeWorkers,
		}))
	}
	if settings.FailoverEnabled {
		reconcilers = append(reconcilers, scaledown.New(scaledown.Options{
			Client:  mgr.GetClient(),
			Reader:  mgr.GetAPIReader(),
			Workers: nodeWorkers,
		}))
	}
	pods := attachdetach.Options{
		Client:     mgr.GetClient(),
		Reader:     mgr.GetAPIReader(),
		Events:     mgr.GetEventRecorder("azuredisk-attachdetach"),
		Clock:      clock.RealClock{},
		DriverName: settings.DriverName,
	}
	if settings.AttachRequired {
		reconcilers = append(reconcilers, inuse.New(inuse.Options{
			Client:     mgr.GetClient(),
			Reader:     mgr.GetAPIReader(),
			DriverName: settings.DriverName,
			Workers:    nodeWorkers,
		}))
	} else {
		pods.Publisher = publisher
	}
	return append(reconcilers, attachdetach.New(pods), &annotations.Reporter{
		Informers: mgr.GetCache(),
		Events:    mgr.GetEventRecorder("azuredisk-annotations"),
	})
}

// addMonitor adds the monitor of nodes, which every replica runs, and the writer of node health,
// which the leader runs.
func addMonitor(ctx context.Context, mgr ctrl.Manager, settings *config.Controller, cloud provisioner.Cloud) (*liveness.Monitor,
	error) {
	options := liveness.Options{
		Reader:            mgr.GetClient(),
		APIReader:         mgr.GetAPIReader(),
		Writer:            mgr.GetClient(),
		Instances:         cloud.Instances(),
		Namespace:         settings.Namespace,
		Clock:             clock.RealClock{},
		StaleAfter:        settings.HeartbeatStaleAfter,
		Patience:          settings.FailoverPatience,
		MassLossThreshold: settings.FailoverMassLossThreshold,
		Enabled:           settings.FailoverEnabled,
		Metrics:           ctrlmetrics.Registry,
		Leading:           mgr.Elected(),
	}
	if settings.FailoverProbe == config.ProbeKubelet {
		options.Prober = liveness.KubeletProber{}
	}
	monitor, err := liveness.New(options)
	if err != nil {
		return nil, err
	}
	driverNodes, err := mgr.GetCache().GetInformer(ctx, &apiv1.AzDriverNode{})
	if err != nil {
		return nil, fmt.Errorf("get informer of nodes: %w", err)
	}
	if _, err := driverNodes.AddEventHandler(monitor.Handler()); err != nil {
		return nil, fmt.Errorf("watch heartbeats: %w", err)
	}
	writer := &liveness.ConditionWriter{
		Client:    mgr.GetClient(),
		Monitor:   monitor,
		Namespace: settings.Namespace,
		Clock:     clock.RealClock{},
		Events:    mgr.GetEventRecorder("azuredisk-liveness"),
	}
	for _, runnable := range []manager.Runnable{monitor, writer} {
		if err := mgr.Add(runnable); err != nil {
			return nil, fmt.Errorf("add the monitor of nodes: %w", err)
		}
	}
	return monitor, nil
}
