package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/azuredisk-csi/azuredisk/playground/cluster"
)

func newImagesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "images",
		Short: "Make the images that are not cached, and list all with the paths of their tars",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := cluster.BuildImages(cmd.Context(), newProgress())
			if err != nil {
				return err
			}
			for _, image := range list {
				fmt.Fprintf(cmd.OutOrStdout(), "%-50s %s\n", image.Ref, image.Tar)
			}
			return nil
		},
	}
}

func newDriverCommand(dir *string) *cobra.Command {
	cmd := &cobra.Command{Use: "driver", Short: "Install the driver, again or with other values, or uninstall it"}
	var values string
	install := &cobra.Command{
		Use:   "install",
		Short: "Build the driver again and install it or upgrade it in the playground that is up",
		Args:  cobra.NoArgs,
		RunE: attached(dir, func(cmd *cobra.Command, _ []string, c *cluster.Cluster) error {
			return c.UpdateDriver(cmd.Context(), values, newProgress())
		}),
	}
	install.Flags().StringVar(&values, "values", "", "file of Helm values")
	cmd.AddCommand(install, &cobra.Command{
		Use:   "uninstall",
		Short: "Uninstall the driver's chart",
		Args:  cobra.NoArgs,
		RunE: attached(dir, func(cmd *cobra.Command, _ []string, c *cluster.Cluster) error {
			return c.UninstallDriver(cmd.Context())
		}),
	})
	return cmd
}
