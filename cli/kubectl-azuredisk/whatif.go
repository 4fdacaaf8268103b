package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/azuredisk-csi/azuredisk/cli/collect"
	"github.com/azuredisk-csi/azuredisk/cli/whatif"
)

func newWhatIfCommand(s *settings) *cobra.Command {
	output, drain := "", false
	cmd := &cobra.Command{
		Use:   "what-if node|zone NAME",
		Short: "Say where pods would go if a node or a zone were lost",
		Long: `Say for each pod with a volume of the driver on a node, or on the nodes of a zone, where it would go if they were
lost at once: to a node with a replica of each of its disks (warm), or to one to which Azure has to attach a disk
(cold), in how many seconds it would write again, and which pods would be stuck and why. With --drain the nodes are
drained instead.

It asks the driver's own decisions about the failover, the slots and the score of nodes, and has kube-scheduler's rules
for selectors, taints, pods and requests. It does not know kube-scheduler's scores for free resources and images: where
these decide, it names several nodes. Nothing is changed.

Exit codes:
  0  every pod finds its disks attached, or there is none
  1  some wait until Azure has attached a disk
  2  some need an action
  3  it cannot be told; also if the objects cannot be listed`,
		Example: `  kubectl azuredisk what-if node aks-pool-1
  kubectl azuredisk what-if zone eastus-1 -o json
  kubectl azuredisk what-if node aks-pool-1 --drain`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, name, err := kindAndName(args)
			if err != nil {
				return err
			}
			if err := checkOutput(output); err != nil {
				return err
			}
			options := collect.WhatIfOptions{Drained: drain, DriverName: s.driverName, DriverNamespace: s.driverNamespace}
			switch kind {
			case "node", "nodes", "no":
				options.Node = name
			case "zone", "zones":
				options.Zone = name
			default:
				return fmt.Errorf("%q cannot be lost; expected node or zone", kind)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			reader, now, err := s.reader()
			if err != nil {
				return err
			}
			options.Now = now.Now
			facts, err := collect.WhatIf(ctx, reader, options)
			if err != nil {
				return err
			}
			report := whatif.Answer(facts)
			return answer(cmd.OutOrStdout(), output, report, report.Outcome)
		},
	}
	addOutput(cmd, &output)
	cmd.Flags().BoolVar(&drain, "drain", false, "the nodes are drained, and not lost")
	return cmd
}
