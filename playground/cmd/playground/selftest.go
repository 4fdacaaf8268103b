package main

import (
	"github.com/spf13/cobra"

	"github.com/azuredisk-csi/azuredisk/playground/selftest"
	"github.com/azuredisk-csi/azuredisk/playground/state"
)

func newSelftestCommand(dir *string) *cobra.Command {
	var kubernetes, out string
	cmd := &cobra.Command{
		Use:   "selftest",
		Short: "Bring a playground up without the driver, test it from inside and outside, and take it down",
		Long: "Bring a playground up without the driver, test it from inside and outside, and take it down.\n\n" +
			"Every difference on the machine afterwards is an error, so no other playground may come up or go down while it runs.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := selftest.Run(cmd.Context(), state.Dir(*dir), kubernetes, newProgress())
			if err != nil {
				return err
			}
			return conclude(cmd.OutOrStdout(), report, out, "selftest.json")
		},
	}
	cmd.Flags().StringVar(&out, "out", "out", "`folder` for selftest.json")
	kubernetesFlag(cmd.Flags(), &kubernetes)
	return cmd
}
