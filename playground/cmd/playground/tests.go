package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/azuredisk-csi/azuredisk/playground/cluster"
	"github.com/azuredisk-csi/azuredisk/playground/lifecycle"
	"github.com/azuredisk-csi/azuredisk/playground/migration"
	"github.com/azuredisk-csi/azuredisk/playground/state"
	"github.com/azuredisk-csi/azuredisk/playground/steps"
)

func newLatencyCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "latency PROFILE",
		Short: "Switch azuresim's latencies of the playground that is up: realistic or fast",
		Args:  cobra.ExactArgs(1),
		RunE: attached(dir, func(cmd *cobra.Command, args []string, c *cluster.Cluster) error {
			return c.SetLatency(cmd.Context(), args[0])
		}),
	}
}

func newLifecycleCommand(dir *string) *cobra.Command {
	var expression, out string
	var list bool
	parallel := 6
	cmd := &cobra.Command{
		Use:   "lifecycle",
		Short: "Test the life cycle of Kubernetes' volumes on the playground that is up, and write a report",
		Long: "Test the life cycle of Kubernetes' volumes on the playground that is up, and write a report.\n\n" +
			"azuresim's latencies are fast while it runs. The exit code is not 0 if a test fails.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			tests, err := lifecycle.Select(expression)
			if err != nil {
				return err
			}
			if list {
				lifecycle.List(cmd.OutOrStdout(), tests)
				return nil
			}
			return runLifecycle(cmd.Context(), cmd.OutOrStdout(), state.Dir(*dir), tests, parallel, out)
		},
	}
	cmd.Flags().StringVar(&expression, "run", "",
		"run the tests whose topic and sentence match this `expression`, as in \"mounting|a claim\"")
	cmd.Flags().BoolVar(&list, "list", false, "list the tests and do nothing else")
	cmd.Flags().IntVar(&parallel, "parallel", parallel, "how many tests run at once")
	cmd.Flags().StringVar(&out, "out", "out", "`folder` for lifecycle.json")
	return cmd
}

func runLifecycle(ctx context.Context, w io.Writer, dir state.Dir, tests []lifecycle.Test, parallel int, out string) error {
	c, err := cluster.Attach(ctx, dir)
	if err != nil {
		return err
	}
	if err := c.Ready(ctx); err != nil {
		return err
	}
	image, err := cluster.OwnImage(ctx, "probe", newProgress())
	if err != nil {
		return err
	}
	report, err := lifecycle.Run(ctx, tests, lifecycle.Options{
		Cluster:  c,
		Image:    image,
		Parallel: parallel,
		Print:    func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) },
	})
	if err != nil {
		return err
	}
	return conclude(w, report, out, "lifecycle.json")
}

// conclude writes the report, prints the count, and fails if a test did.
func conclude(w io.Writer, report *steps.Report, out, name string) error {
	path, err := report.Write(out, name)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d passed, %d failed in %.0f s; the report is %s\n", report.Passed, report.Failed, report.Seconds, path)
	if report.Failed > 0 {
		return exitCode(1)
	}
	return nil
}

func newMigrationCommand(dir *string) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "migration",
		Short: "Follow the guide from the V1 driver and back, step by step, on the playground that is up",
		Long: "Follow the guide from the V1 driver and back, step by step, on the playground that is up.\n\n" +
			"The driver is uninstalled first, and volumes are laid out as V1 leaves them. azuresim's latencies are fast while it runs.\n" +
			"The exit code is not 0 if a step fails.",
		Args: cobra.NoArgs,
		RunE: attached(dir, func(cmd *cobra.Command, _ []string, c *cluster.Cluster) error {
			image, err := cluster.OwnImage(cmd.Context(), "probe", newProgress())
			if err != nil {
				return err
			}
			report, err := migration.Run(cmd.Context(), migration.Options{
				Cluster: c,
				Image:   image,
				Print:   func(format string, args ...any) { fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...) },
			})
			if err != nil {
				return err
			}
			return conclude(cmd.OutOrStdout(), report, out, "migration.json")
		}),
	}
	cmd.Flags().StringVar(&out, "out", "out", "`folder` for migration.json")
	return cmd
}

func newGuideCommand(dir *string) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "guide NAME",
		Short: "Run the commands of a guide on the playground that is up: " + strings.Join(migration.Guides(), ", "),
		Long: "Run the commands of a guide on the playground that is up: " + strings.Join(migration.Guides(), ", ") + ".\n\n" +
			"The guides to an installation need a playground without the driver's release. The exit code is not 0 if a section fails.",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: migration.Guides(),
		RunE: attached(dir, func(cmd *cobra.Command, args []string, c *cluster.Cluster) error {
			report, err := migration.Follow(cmd.Context(), migration.Options{
				Cluster: c, Print: func(format string, args ...any) { fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...) },
			}, args[0])
			if err != nil {
				return err
			}
			return conclude(cmd.OutOrStdout(), report, out, args[0]+".json")
		}),
	}
	cmd.Flags().StringVar(&out, "out", "out", "`folder` for NAME.json")
	return cmd
}
