// The kubectl-azuredisk program is a plug-in of kubectl. It says with its user's own rights why a
// pod, a claim, a volume, a node or a snapshot is not ready.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/explain"
	"github.com/azuredisk-csi/azuredisk/internal/version"
)

// answered is the error of a command whose answer is printed and has another exit code than 0.
type answered struct{ code int }

func (a answered) Error() string { return fmt.Sprintf("exit code %d", a.code) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRootCommand().ExecuteContext(ctx)
	stop()
	if answer, ok := errors.AsType[answered](err); ok {
		os.Exit(answer.code)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubectl azuredisk:", err)
		os.Exit(explain.CannotTell.ExitCode())
	}
}

// settings are the flags of all commands.
type settings struct {
	kube            *genericclioptions.ConfigFlags
	driverName      string
	driverNamespace string
}

func newRootCommand() *cobra.Command {
	s := &settings{kube: genericclioptions.NewConfigFlags(true)}
	root := &cobra.Command{
		Use:           "kubectl-azuredisk",
		Short:         "Say why a volume of the Azure Disk CSI driver is not ready",
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl azuredisk"},
	}
	// The flags of a connection, as kubectl names them.
	s.kube.CacheDir = nil
	s.kube.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&s.driverName, "driver-name", "disk.csi.azure.com", "name of the CSI driver")
	root.PersistentFlags().StringVar(&s.driverNamespace, "driver-namespace", apiv1.DefaultNamespace,
		"namespace of the driver's objects")
	root.AddCommand(newWhyCommand(s), &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.Version)
			return err
		},
	})
	return root
}
