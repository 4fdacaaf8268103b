package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/azuredisk-csi/azuredisk/cli/collect"
	"github.com/azuredisk-csi/azuredisk/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/printable"
)

func newGetCommand(s *settings) *cobra.Command {
	output, all := "", false
	cmd := &cobra.Command{
		Use:   "get volumes|nodes",
		Short: "List volumes with their nodes, or nodes with their free slots",
		Long: `List the volumes of a namespace, or the nodes of the cluster, from the driver's records.

volumes  claim, state of the disk, primary, replicas (ready/wanted), the nodes on which a replica is attached, and how
         the volume is taken from a lost node
nodes    zone, VM size, kubelet, the driver's view of the node, attachments by role, and free disk slots

Behind a state are the reasons of the conditions that are not as they should be. "why" explains them.

It reads with your own rights, which must allow to list the custom resources in the driver's namespace.`,
		Example: `  kubectl azuredisk get volumes -n shop
  kubectl azuredisk get volumes -A -o json
  kubectl azuredisk get nodes`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"volumes", "nodes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			reader, now, err := s.reader()
			if err != nil {
				return err
			}
			if args[0] == "nodes" {
				rows, err := collect.Nodes(ctx, reader, s.driverNamespace, now.Now)
				if err != nil {
					return err
				}
				return writeRows(cmd.OutOrStdout(), output, explain.NodeColumns, rows)
			}
			namespace := ""
			if !all {
				if namespace, _, err = s.kube.ToRawKubeConfigLoader().Namespace(); err != nil {
					return err
				}
			}
			rows, err := collect.Volumes(ctx, reader, s.driverNamespace, namespace, now.Now)
			if err != nil {
				return err
			}
			return writeRows(cmd.OutOrStdout(), output, explain.VolumeColumns, rows)
		},
	}
	addOutput(cmd, &output)
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false,
		"the volumes of all namespaces, and those that were provisioned for no claim")
	return cmd
}

// writeRows writes a table, or the rows as JSON.
func writeRows[Row interface{ Cells() []string }](w io.Writer, output string, columns []string, rows []Row) error {
	w = printable.Writer(w)
	if output == "json" {
		return writeJSON(w, rows)
	}
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, strings.Join(columns, "\t"))
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row.Cells(), "\t"))
	}
	return table.Flush()
}
