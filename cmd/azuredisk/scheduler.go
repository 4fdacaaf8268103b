package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/azuredisk-csi/azuredisk/internal/config"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/scheduler"
	"github.com/azuredisk-csi/azuredisk/internal/webhookcert"
)

// maxRequestBytes limits the body of a request. A list of whole nodes takes about 10 KB for each.
const maxRequestBytes = 64 << 20

func newSchedulerCommand() *cobra.Command {
	settings := &config.Scheduler{}
	cmd := &cobra.Command{
		Use:   "scheduler",
		Short: "Steer pods to the nodes that have their disks attached",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := prepare(cmd, &settings.Common, settings.Validate); err != nil {
				return err
			}
			limitHeap()
			kube.BeginWithLists()
			return runScheduler(cmd.Context(), settings)
		},
	}
	settings.AddFlags(cmd.Flags())
	return cmd
}

func runScheduler(ctx context.Context, settings *config.Scheduler) error {
	config, err := restConfig(&settings.Common)
	if err != nil {
		return err
	}
	identity := settings.LeaderElectionID
	if identity == "" {
		if identity, err = os.Hostname(); err != nil {
			return fmt.Errorf("find the host's name: %w", err)
		}
	}
	options := scheduler.Options{
		Config:          config,
		Namespace:       settings.Namespace,
		DriverName:      settings.DriverName,
		CertFile:        settings.TLSCertFile,
		KeyFile:         settings.TLSKeyFile,
		MaxRequestBytes: maxRequestBytes,
		ShutdownDelay:   settings.ShutdownDelay,
		LeaseNamespace:  settings.LeaderElectionNamespace,
		Identity:        identity,
		Registry:        ctrlmetrics.Registry,
		Clock:           clock.RealClock{},
	}
	if options.Listener, err = listenUnlessOff(settings.Address); err != nil {
		return fmt.Errorf("listen for the scheduler: %w", err)
	}
	if options.HealthListener, err = listenUnlessOff(settings.HealthAddress); err != nil {
		return fmt.Errorf("listen for health checks: %w", err)
	}
	if options.MetricsServer, err = newMetricsServer(&settings.Common, config); err != nil {
		return err
	}
	if options.WebhookListener, err = listenUnlessOff(settings.WebhookAddress); err != nil {
		return fmt.Errorf("listen for admission requests: %w", err)
	}
	if options.WebhookListener != nil && settings.WebhookSecret != "" {
		if options.WebhookCertificate, err = webhookCertificate(config, settings); err != nil {
			return err
		}
	}
	return scheduler.Run(logr.NewContext(ctx, ctrl.Log.WithName("scheduler")), options)
}

// webhookCertificate keeps the certificate of the webhook in its Secret.
func webhookCertificate(kubeConfig *rest.Config, settings *config.Scheduler) (*webhookcert.Keeper, error) {
	kube, err := webhookcert.NewClient(kubeConfig)
	if err != nil {
		return nil, fmt.Errorf("make a client for the webhook's certificate: %w", err)
	}
	namespace, service, _ := strings.Cut(settings.WebhookService, "/")
	return webhookcert.New(webhookcert.Options{
		Client:        kube,
		Secret:        client.ObjectKey{Namespace: namespace, Name: settings.WebhookSecret},
		Configuration: settings.WebhookConfiguration,
		Names:         []string{service + "." + namespace + ".svc"},
		Clock:         clock.RealClock{},
	}), nil
}

// listenUnlessOff returns nil for the address "0", which means off.
func listenUnlessOff(address string) (net.Listener, error) {
	if address == "0" {
		return nil, nil
	}
	return net.Listen("tcp", address)
}
