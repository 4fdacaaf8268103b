package guest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/hypervisor"
)

// NewCommand returns `azuresim guest` with its two halves.
func NewCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "guest",
		Short: "Give the processes of VMs the ioctls of SCSI reservations (root and Linux 5.19 needed)",
	}
	command.AddCommand(newServeCommand(), newRunCommand())
	return command
}

func newServeCommand() *cobra.Command {
	var socket, hypervisorSocket string
	command := &cobra.Command{
		Use:           "serve",
		Short:         "Answer the ioctls of the programs that `azuresim guest run` started",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if socket == "" || hypervisorSocket == "" {
				return errors.New("flags --socket and --hypervisor are required")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGTERM, unix.SIGINT)
			defer stop()
			listener, err := hypervisor.Listen(socket)
			if err != nil {
				return err
			}
			return Serve(ctx, listener.(*net.UnixListener), hypervisor.NewClient(hypervisorSocket), slog.Default())
		},
	}
	command.Flags().StringVar(&socket, "socket", "", "unix socket to listen on (required)")
	command.Flags().StringVar(&hypervisorSocket, "hypervisor", "", "unix socket of azuresim hypervisor (required)")
	return command
}

func newRunCommand() *cobra.Command {
	var socket string
	command := &cobra.Command{
		Use:           "run --socket=PATH -- PROGRAM [ARGUMENT]...",
		Short:         "Become a program whose ioctls about reservations, and those of its descendants, `azuresim guest serve` answers",
		Args:          cobra.MinimumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if socket == "" {
				return errors.New("flag --socket is required")
			}
			return Run(cmd.Context(), socket, args)
		},
	}
	command.Flags().StringVar(&socket, "socket", "", "unix socket of azuresim guest serve (required)")
	return command
}

// Run installs the filter, hands its listener to the server at the socket, and becomes the program.
// It returns only an error.
func Run(ctx context.Context, socket string, args []string) error {
	program, err := exec.LookPath(args[0])
	if err != nil {
		return fmt.Errorf("find the program to run: %w", err)
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("connect to azuresim guest serve: %w", err)
	}
	// The filter is on this thread only. Exec makes this thread the process.
	runtime.LockOSThread()
	listener, err := install()
	if err != nil {
		return err
	}
	if err := sendFile(connection.(*net.UnixConn), listener); err != nil {
		return err
	}
	if err := errors.Join(connection.Close(), listener.Close()); err != nil {
		return err
	}
	//nolint:forbidigo // the environment is the program's, and nothing is read here
	if err := unix.Exec(program, args, os.Environ()); err != nil {
		return fmt.Errorf("run %s: %w", program, err)
	}
	return nil
}
