package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/signal"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// NewCommand returns `azuresim hypervisor`, the process that serves a hypervisor until SIGTERM or
// SIGINT, and then leaves neither device nor mount behind.
func NewCommand() *cobra.Command {
	var stateDir, socket string
	command := &cobra.Command{
		Use:   "hypervisor",
		Short: "Serve disks as real block devices (root, FUSE and loop devices needed)",
		Long: `Serve disks as real block devices.

The ARM front end tells this process over a unix socket what to attach where. It is a process of its own so that
the front end can be stopped, upgraded or killed while VMs have the devices mounted.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if stateDir == "" {
				return errors.New("flag --state-dir is required")
			}
			if socket == "" {
				socket = filepath.Join(stateDir, "hypervisor.sock")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGTERM, unix.SIGINT)
			defer stop()
			return serve(ctx, Options{StateDir: stateDir, Logger: slog.Default()}, socket)
		},
	}
	command.Flags().StringVar(&stateDir, "state-dir", "", "directory of disks, device directories and state (required)")
	command.Flags().StringVar(&socket, "socket", "", "unix socket to listen on (default: hypervisor.sock in the state directory)")
	return command
}

func serve(ctx context.Context, o Options, socket string) error {
	h, err := New(ctx, o)
	if err != nil {
		return err
	}
	listener, err := Listen(socket)
	if err == nil {
		o.Logger.InfoContext(ctx, "hypervisor ready", "socket", socket, "stateDir", o.StateDir)
		err = h.Serve(ctx, listener)
	}
	if err = errors.Join(err, h.Close()); err != nil {
		return fmt.Errorf("hypervisor: %w", err)
	}
	o.Logger.InfoContext(ctx, "hypervisor stopped")
	return nil
}
