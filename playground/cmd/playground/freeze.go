package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/azuredisk-csi/azuredisk/playground/cluster"
)

func newFreezeCommand(dir *string) *cobra.Command {
	var announce time.Duration
	cmd := &cobra.Command{
		Use:   "freeze NAME DURATION",
		Short: "Pause a node, as Azure pauses a VM: its processes and its network stand still, and go on",
		Long: `Pause a node, as Azure pauses a VM for maintenance that keeps its memory: all of its processes, those of its pods
included, and its network stand still, and go on after that time. The command returns then; if it is interrupted before,
the node goes on at its time nevertheless.`,
		Example: "  playground freeze node-1 6s\n  playground freeze node-1 10s --announce 15s",
		Args:    cobra.ExactArgs(2),
		RunE: attached(dir, func(cmd *cobra.Command, args []string, c *cluster.Cluster) error {
			length, err := time.ParseDuration(args[1])
			if err != nil {
				return err
			}
			progress := newProgress()
			var notice *time.Duration
			if cmd.Flags().Changed("announce") {
				notice = &announce
				progress("announcing a freeze of %s to %s, %s before", length, args[0], announce)
			}
			freeze, err := c.Freeze(cmd.Context(), args[0], length, notice)
			if err != nil {
				return err
			}
			progress("%s was frozen for %s, from %s to %s", args[0], freeze.Thawed.Sub(freeze.Frozen).Round(time.Millisecond),
				freeze.Frozen.Format(time.TimeOnly), freeze.Thawed.Format(time.TimeOnly))
			return nil
		}),
	}
	cmd.Flags().DurationVar(&announce, "announce", 0,
		"announce the freeze by a scheduled event in the metadata of the VM, that long before it (default: no event)")
	return cmd
}
