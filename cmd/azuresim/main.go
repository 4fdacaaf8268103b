// Command azuresim simulates Azure Compute: `serve` is the Azure endpoint, `hypervisor` the block
// devices behind it, `guest` the ioctls of a VM's processes, `imds` the instance metadata service
// of one VM. `verify` plays the simulator's rules against a subscription.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/guest"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/hypervisor"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/imds"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/verify"
)

func main() {
	root := &cobra.Command{
		Use:           "azuresim",
		Short:         "Simulator of Azure Compute",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(server.NewCommand(), hypervisor.NewCommand(), guest.NewCommand(), imds.NewCommand(), verify.NewCommand())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "azuresim:", err)
		os.Exit(1)
	}
}
