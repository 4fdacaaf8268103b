// Command playground runs a real multi-node Kubernetes on one Linux machine,
// wired to a simulator of Azure. See playground/README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/azuredisk-csi/azuredisk/playground/state"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Filesystem and network tools are where the PATH of a plain su does not lead.
	os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	err := newRootCommand().ExecuteContext(ctx)
	if code := exitCode(0); errors.As(err, &code) {
		stop()
		os.Exit(int(code))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		stop()
		os.Exit(1)
	}
}

// exitCode is the exit code of a program that was run on the user's behalf and
// has said itself what is wrong.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "playground",
		Short:         "A real Kubernetes of several nodes on this machine, with a simulated Azure under its disks",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	dir := root.PersistentFlags().String("state", string(state.FromEnvironment()),
		"folder in which the playground is kept ($PLAYGROUND_STATE)")
	// Its supervisor and the locks of the machine are found by the whole path, wherever a command
	// is given.
	root.PersistentPreRunE = func(*cobra.Command, []string) (err error) {
		*dir, err = filepath.Abs(*dir)
		return err
	}
	root.AddCommand(newUpCommand(dir), newDownCommand(dir), newStatusCommand(dir), newSelftestCommand(dir),
		newKubectlCommand(dir), newUICommand(dir), newLoadCommand(dir), newNodeCommand(dir), newPoolCommand(dir),
		newFreezeCommand(dir), newEnterCommand(dir),
		newImagesCommand(), newDriverCommand(dir), newRunCommand(dir), newLifecycleCommand(dir), newMigrationCommand(dir),
		newGuideCommand(dir), newLatencyCommand(dir), newProgramsCommand())
	root.AddCommand(newInternalCommands(dir)...)
	return root
}
