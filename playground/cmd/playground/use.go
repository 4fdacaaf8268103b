package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/azuredisk-csi/azuredisk/playground/cluster"
	"github.com/azuredisk-csi/azuredisk/playground/state"
)

// attached is a command's RunE that works with the playground that is up in the folder dir.
func attached(dir *string, run func(cmd *cobra.Command, args []string, c *cluster.Cluster) error) func(*cobra.Command,
	[]string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := cluster.Attach(cmd.Context(), state.Dir(*dir))
		if err != nil {
			return err
		}
		return run(cmd, args, c)
	}
}

func newKubectlCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl ...",
		Short:              "Run kubectl with the administrator's rights",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			// Flags are kubectl's, but for one in front of all that it does not know.
			if len(args) > 1 && args[0] == "--state" {
				*dir, args = args[1], args[2:]
			} else if value, ok := strings.CutPrefix(strings.Join(args[:min(1, len(args))], ""), "--state="); ok {
				*dir, args = value, args[1:]
			}
			c, err := cluster.Attach(cmd.Context(), state.Dir(*dir))
			if err != nil {
				return err
			}
			kubectl, err := c.Program("kubectl")
			if err != nil {
				return err
			}
			return run(cmd.Context(), append(os.Environ(), "KUBECONFIG="+c.Dir.Kubeconfig()), kubectl, args...)
		},
	}
}

// nodeActions are the buttons of the page, and what they run, as kubectl azuredisk ui takes them.
func nodeActions(program, state string) []string {
	use := func(name, command string) string { return name + "=" + program + " --state " + state + " " + command + " {node}" }
	return []string{
		use("power off", "node power-off"), use("power on", "node power-on"),
		use("cut network", "node partition"), use("heal network", "node heal"),
		use("freeze 6 s", "freeze") + " 6s",
		"drain=" + program + " kubectl --state " + state + " drain {node} --ignore-daemonsets --delete-emptydir-data",
		"uncordon=" + program + " kubectl --state " + state + " uncordon {node}",
	}
}

func newUICommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "ui",
		Short: "Show the cluster on a page, with buttons for the power, the network, a freeze and a drain of each node",
		Long: `Run "kubectl azuredisk ui" with the administrator's rights and buttons for each node, and print the URL of the page.
It runs until it is interrupted.`,
		Args: cobra.NoArgs,
		RunE: attached(dir, func(cmd *cobra.Command, _ []string, c *cluster.Cluster) error {
			own, err := os.Executable()
			if err != nil {
				return err
			}
			arguments := []string{"ui"}
			for _, action := range nodeActions(own, *dir) {
				arguments = append(arguments, "--node-action", action)
			}
			return run(cmd.Context(), append(os.Environ(), "KUBECONFIG="+c.Dir.Kubeconfig()),
				filepath.Join(filepath.Dir(own), "kubectl-azuredisk"), arguments...)
		}),
	}
}

func newLoadCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "load IMAGE.tar...",
		Short: "Give image tars (of docker save, ko, …) to all nodes that have power",
		Args:  cobra.MinimumNArgs(1),
		RunE: attached(dir, func(cmd *cobra.Command, paths []string, c *cluster.Cluster) error {
			progress := newProgress()
			for _, path := range paths {
				progress("loading %s", path)
				if err := c.LoadImage(cmd.Context(), path); err != nil {
					return err
				}
			}
			progress("all nodes have it; pods need imagePullPolicy IfNotPresent or Never")
			return nil
		}),
	}
}

func newNodeCommand(dir *string) *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Cut and restore the power or the network of a node"}
	for _, action := range []struct {
		use, short string
		do         func(*cluster.Cluster, context.Context, string) error
	}{
		{"power-off", "Cut the power: disks fail first, then every process is gone", (*cluster.Cluster).PowerOff},
		{"power-on", "Boot again, with what was on the disk", (*cluster.Cluster).PowerOn},
		{"partition", "Pull the network cable; pods run on", (*cluster.Cluster).Partition},
		{"heal", "Plug the network cable in again", (*cluster.Cluster).Heal},
	} {
		cmd.AddCommand(&cobra.Command{
			Use:   action.use + " NAME",
			Short: action.short,
			Args:  cobra.ExactArgs(1),
			RunE: attached(dir, func(cmd *cobra.Command, names []string, c *cluster.Cluster) error {
				if err := action.do(c, cmd.Context(), names[0]); err != nil {
					return err
				}
				newProgress()("%s %s: done", names[0], action.use)
				return nil
			}),
		})
	}
	return cmd
}

func newEnterCommand(dir *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "enter NAME [COMMAND...]",
		Short: "Run a command (a shell, if none is given) inside a node, or in the namespaces cp, azure and net",
		Args:  cobra.MinimumNArgs(1),
		RunE: attached(dir, func(cmd *cobra.Command, args []string, c *cluster.Cluster) error {
			command := args[1:]
			if len(command) == 0 {
				command = []string{"/bin/bash"}
			}
			nsenter, err := c.Enter(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return run(cmd.Context(), os.Environ(), nsenter[0], append(nsenter[1:], command...)...)
		}),
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// run runs a program in the place of this one. A signal to this process, such as
// Ctrl-C, is passed on.
func run(ctx context.Context, env []string, path string, args ...string) error {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdin, os.Stdout, os.Stderr, env
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exitCode(max(1, exit.ExitCode()))
	}
	return err
}
