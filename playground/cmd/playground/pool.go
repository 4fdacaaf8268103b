package main

import (
	"github.com/spf13/cobra"

	"github.com/azuredisk-csi/azuredisk/playground/aks"
	"github.com/azuredisk-csi/azuredisk/playground/cluster"
)

func newPoolCommand(dir *string) *cobra.Command {
	var settings aks.Settings
	var taints []string
	cmd := &cobra.Command{
		Use:   "pool NAME",
		Short: "Set the labels and taints of a node pool, as az aks nodepool does (with --profile aks)",
		Long: "Set the labels and taints of a node pool, as az aks nodepool does (with --profile aks).\n\n" +
			"They cannot be removed through Kubernetes.",
		Example: "  playground pool trial --labels azuredisk=trial --node-taints azuredisk=trial:NoSchedule",
		Args:    cobra.ExactArgs(1),
		RunE: attached(dir, func(cmd *cobra.Command, args []string, c *cluster.Cluster) error {
			for _, text := range taints {
				taint, err := aks.ParseTaint(text)
				if err != nil {
					return err
				}
				settings.Taints = append(settings.Taints, taint)
			}
			return c.SetPool(cmd.Context(), args[0], settings)
		}),
	}
	cmd.Flags().StringToStringVar(&settings.Labels, "labels", nil, "labels of the nodes, as in key=value")
	cmd.Flags().StringSliceVar(&taints, "node-taints", nil, "taints of the nodes, as in key=value:NoSchedule")
	return cmd
}
