package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/azuredisk-csi/azuredisk/internal/cli/collect"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
)

func newGetCommand(s *settings) *cobra.Command {
	all := false
	var output *format
	cmd := &cobra.Command{
		Use:   "get volumes|nodes",
		Short: "List volumes with their nodes, or nodes with their free slots",
		Long: `List the volumes of a namespace, or the nodes of the cluster, from the driver's records.

volumes  claim, state of the disk, primary, replicas (ready/wanted), the nodes on which a replica is attached, and how
         the volume is taken from a lost node
nodes    zone, VM size, kubelet, the driver's view of the node, attachments by role, and free disk slots

Behind a state are the reasons of the conditions that are not as they should be. "why" explains them.

It reads with your own rights, which must allow to list the custom resources in the driver's namespace.` +
			explain.ExitHelp(func(c explain.ExitCode) string { return c.Others }),
		Example: `  kubectl azuredisk get volumes -n shop
  kubectl azuredisk get volumes -A -o json
  kubectl azuredisk get nodes`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"volumes", "nodes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			reader, now, err := s.reader()
			if err != nil {
				return err
			}
			if args[0] == "nodes" {
				list, err := collect.Nodes(ctx, reader, s.driverNamespace, now.Now)
				if err != nil {
					return err
				}
				return answer(cmd.OutOrStdout(), output, list, cause.Healthy)
			}
			namespace := ""
			if !all {
				if namespace, _, err = s.kube.ToRawKubeConfigLoader().Namespace(); err != nil {
					return err
				}
			}
			list, err := collect.Volumes(ctx, reader, s.driverNamespace, namespace, now.Now)
			if err != nil {
				return err
			}
			return answer(cmd.OutOrStdout(), output, list, cause.Healthy)
		},
	}
	output = addOutput(cmd)
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false,
		"the volumes of all namespaces, and those that were provisioned for no claim")
	return cmd
}
