// The azuredisk program is the whole driver: each of its subcommands is one of
// the driver's processes in a cluster.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/azuredisk-csi/azuredisk/internal/version"
)

func main() {
	if err := newRootCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "azuredisk:", err)
		os.Exit(1)
	}
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "azuredisk",
		Short:         "Azure Disk CSI Driver V2",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		newControllerCommand(),
		newNodeCommand(),
		newSchedulerCommand(),
		newUninstallGuardCommand(),
		newAzureRoleCommand(),
		newVolumeTestCommand(),
		&cobra.Command{
			Use:   "version",
			Short: "Print the version",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), version.Version)
				return err
			},
		},
	)
	return root
}
