package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/config"
	"github.com/azuredisk-csi/azuredisk/internal/volumetest"
)

// newVolumeTestCommand returns the command of `helm test`, with those of its pods below it.
func newVolumeTestCommand() *cobra.Command {
	settings := &config.Common{}
	options := volumetest.Options{Clock: clock.RealClock{}}
	var size string
	cmd := &cobra.Command{
		Use:   "volume-test",
		Short: "Create a volume, write to it, move it to another node, read it there, and delete it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := prepare(cmd, settings, settings.Validate); err != nil {
				return err
			}
			if options.Size, err = resource.ParseQuantity(size); err != nil {
				return fmt.Errorf("bad configuration:\nsize: %q must be a quantity, as in 4Gi", size)
			}
			cfg, err := restConfig(settings)
			if err != nil {
				return err
			}
			if options.Client, err = client.New(cfg, client.Options{Scheme: newScheme()}); err != nil {
				return fmt.Errorf("make a client: %w", err)
			}
			options.Say = func(format string, args ...any) { _, _ = fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...) }
			return volumetest.Run(cmd.Context(), options)
		},
	}
	settings.AddFlags(cmd.Flags())
	cmd.Flags().StringVar(&options.Namespace, "pod-namespace", "default", "namespace of the claim and the pods")
	cmd.Flags().StringVar(&options.Name, "name", "azuredisk-volume-test",
		"name of the claim, and first part of the names of the pods")
	cmd.Flags().StringVar(&options.Image, "image", "", "`image` of the driver, which the pods run (required)")
	cmd.Flags().StringSliceVar(&options.PullSecrets, "image-pull-secrets", nil, "`names` of Secrets for pulling the image")
	cmd.Flags().StringVar(&options.StorageClass, "storage-class", "azuredisk-premium", "StorageClass of the volume")
	cmd.Flags().StringVar(&size, "size", "4Gi", "size of the volume")
	cmd.Flags().DurationVar(&options.Timeout, "timeout", 10*time.Minute, "time limit; the clean-up may take 5 minutes more")
	cmd.AddCommand(newVolumeTestPodCommands()...)
	return cmd
}

// newVolumeTestPodCommands returns what the pods of the test run.
func newVolumeTestPodCommands() []*cobra.Command {
	return []*cobra.Command{
		{
			Use:    "write FILE TEXT",
			Hidden: true,
			Args:   cobra.ExactArgs(2),
			RunE: func(_ *cobra.Command, args []string) error {
				return writeProof(args[0], args[1])
			},
		},
		{
			Use:    "read FILE TEXT",
			Hidden: true,
			Args:   cobra.ExactArgs(2),
			RunE: func(_ *cobra.Command, args []string) error {
				return checkProof(args[0], args[1])
			},
		},
		{
			Use:    "hold",
			Hidden: true,
			Args:   cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return hold(cmd.Context())
			},
		},
	}
}

// hold keeps a pod running until it is told to stop.
func hold(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// writeProof writes the file to the disk, not only to the node's cache.
func writeProof(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("create a file on the volume: %w", err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		return fmt.Errorf("write to the volume: %w", err)
	}
	return f.Sync()
}

func checkProof(file, want string) error {
	got, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read from the volume: %w", err)
	}
	if string(got) != want {
		return fmt.Errorf("read from the volume: %s has %q, want %q", file, got, want)
	}
	return nil
}
