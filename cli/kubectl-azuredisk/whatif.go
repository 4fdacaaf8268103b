package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/azuredisk-csi/azuredisk/internal/cli/collect"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/cli/whatif"
)

// lost is what can be lost.
var lost = subjects{
	offered: []string{"node", "zone"},
	kinds: map[string]explain.Kind{
		"node": explain.KindNode, "nodes": explain.KindNode, "no": explain.KindNode,
		"zone": whatif.KindZone, "zones": whatif.KindZone,
	},
}

func newWhatIfCommand(s *settings) *cobra.Command {
	drain := false
	var output *format
	cmd := &cobra.Command{
		Use:   "what-if node|zone NAME",
		Short: "Say where pods would go if a node or a zone were lost",
		Long: `Say for each pod with a volume of the driver on a node, or on the nodes of a zone, where it would go if they were
lost at once: to a node with a replica of each of its disks (warm), or to one to which Azure has to attach a disk
(cold), in how many seconds it would write again, and which pods would be stuck and why. With --drain the nodes are
drained instead.

It asks the driver's own decisions about the failover, the slots and the score of nodes, and has kube-scheduler's rules
for selectors, taints, pods and requests. It does not know kube-scheduler's scores for free resources and images: where
these decide, it names several nodes. Nothing is changed.` +
			explain.ExitHelp(func(c explain.ExitCode) string { return c.WhatIf }),
		Example: `  kubectl azuredisk what-if node aks-pool-1
  kubectl azuredisk what-if zone eastus-1 -o json
  kubectl azuredisk what-if node aks-pool-1 --drain`,
		Args:              func(_ *cobra.Command, args []string) error { _, err := lost.subject(args); return err },
		ValidArgsFunction: s.complete(lost),
		RunE: func(cmd *cobra.Command, args []string) error {
			subject, err := lost.subject(args)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			reader, now, err := s.reader()
			if err != nil {
				return err
			}
			facts, err := collect.WhatIf(ctx, reader, collect.WhatIfOptions{
				Subject:         subject,
				Drained:         drain,
				DriverName:      s.driverName,
				DriverNamespace: s.driverNamespace,
				Now:             now.Now,
			})
			if err != nil {
				return err
			}
			report := whatif.Answer(facts)
			return answer(cmd.OutOrStdout(), output, report, report.Outcome)
		},
	}
	output = addOutput(cmd)
	cmd.Flags().BoolVar(&drain, "drain", false, "the nodes are drained, and not lost")
	return cmd
}
