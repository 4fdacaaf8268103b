package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

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
				taint, err := parseTaint(text)
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

// parseTaint reads a taint as in key=value:effect.
func parseTaint(text string) (corev1.Taint, error) {
	rest, effect, ok := strings.Cut(text, ":")
	if !ok {
		return corev1.Taint{}, fmt.Errorf("--node-taints %q: must be key=value:effect", text)
	}
	key, value, _ := strings.Cut(rest, "=")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}, nil
}
