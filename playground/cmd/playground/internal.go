package main

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/azuredisk-csi/azuredisk/playground/azcli"
	"github.com/azuredisk-csi/azuredisk/playground/cluster"
	"github.com/azuredisk-csi/azuredisk/playground/machine"
	"github.com/azuredisk-csi/azuredisk/playground/pid1"
	"github.com/azuredisk-csi/azuredisk/playground/state"
	"github.com/azuredisk-csi/azuredisk/playground/supervisor"
)

// newInternalCommands are the subcommands that the playground runs itself with.
func newInternalCommands(dir *string) []*cobra.Command {
	commands := []*cobra.Command{
		{
			Use:   "supervisor-init",
			Short: "Be the first process of the playground's PID namespace",
			Args:  cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				if line, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
					return fmt.Errorf("wait to be recorded: %w %q", err, line)
				}
				return exited(pid1.Run("/proc/self/exe", "supervisor", "--state", *dir))
			},
		},
		{
			Use:   "supervisor",
			Short: "Own everything of the playground",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return supervisor.Run(cmd.Context(), state.Dir(*dir), logger())
			},
		},
		{
			Use:   "node-boot DISK",
			Short: "Be the first process of a node, before it has its control groups",
			Args:  cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error {
				return machine.Boot(args[0], "node-init", args[0])
			},
		},
		{
			Use:   "node-init DISK",
			Short: "Be the first process of a node",
			Args:  cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error {
				return exited(machine.Init(args[0], "node-run"))
			},
		},
		{
			Use:                "az DIR ...",
			Short:              "Stand in for Azure's command line",
			DisableFlagParsing: true,
			RunE: func(cmd *cobra.Command, args []string) error {
				c, err := cluster.Attach(cmd.Context(), state.FromEnvironment())
				if err != nil {
					return err
				}
				out, err := azcli.Run(cmd.Context(), c, args[0], args[1:])
				if out != "" {
					fmt.Fprintln(cmd.OutOrStdout(), out)
				}
				return err
			},
		},
		{
			Use:   "node-run",
			Short: "Run containerd, the kubelet and kube-proxy of a node",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return machine.Run(cmd.Context(), logger())
			},
		},
	}
	for _, c := range commands {
		c.Hidden = true
	}
	return commands
}

func exited(code int, err error) error {
	if err != nil {
		return err
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}

func logger() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }
