package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/azuredisk-csi/azuredisk/internal/config"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/printable"
	"github.com/azuredisk-csi/azuredisk/internal/tracing"
	"github.com/azuredisk-csi/azuredisk/internal/version"
)

// prepare fills the flags of a subcommand from file and environment and
// validates them, so that a wrong setting ends the program before anything starts.
func prepare(cmd *cobra.Command, common *config.Common, validate func() error) error {
	file := common.File
	if file == "" {
		file, _ = config.Environment("AZUREDISK_CONFIG")
	}
	if err := config.Fill(cmd.Flags(), config.Environment, file); err != nil {
		return fmt.Errorf("bad configuration:\n%w", err)
	}
	if err := validate(); err != nil {
		return fmt.Errorf("bad configuration:\n%w", err)
	}
	if err := registerBuild(ctrlmetrics.Registry); err != nil {
		return err
	}
	return setLogger(common)
}

func setLogger(common *config.Common) error {
	level, err := common.SlogLevel()
	if err != nil {
		return err
	}
	options := &slog.HandlerOptions{Level: level}
	out := printable.Writer(os.Stderr)
	var handler slog.Handler = slog.NewTextHandler(out, options)
	if common.LogFormat == "json" {
		handler = slog.NewJSONHandler(out, options)
	}
	logger := logr.FromSlogHandler(handler)
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	return nil
}

// startTracing starts to send traces as the name says, if the settings ask for it.
func startTracing(ctx context.Context, common *config.Common, name string) (*tracing.Tracing, error) {
	if !common.OTelTracing {
		return nil, nil
	}
	return tracing.Start(ctx, name, version.Version)
}

func restConfig(common *config.Common) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", common.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig: %w", err)
	}
	// The API server takes longer to compress a large list than the network to send it, as in
	// kube-scheduler and kube-controller-manager.
	cfg.DisableCompression = true
	kube.Pace(cfg, common.KubeAPIQPS, common.KubeAPIBurst)
	return cfg, nil
}
