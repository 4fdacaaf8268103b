package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/playground/cluster"
	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenarios"
	"github.com/azuredisk-csi/azuredisk/playground/state"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

func newRunCommand(dir *string) *cobra.Command {
	var out string
	var keep, list bool
	cmd := &cobra.Command{
		Use:   "run SCENARIO",
		Short: "Play a scenario on the playground that is up, print its timeline and write a report",
		Long: "Play a scenario on the playground that is up, print its timeline and write a report.\n\nScenarios:\n" +
			scenarios.List(),
		Args: func(cmd *cobra.Command, args []string) error {
			if list {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if list {
				_, err := io.WriteString(cmd.OutOrStdout(), scenarios.List())
				return err
			}
			return runScenario(cmd.Context(), cmd.OutOrStdout(), state.Dir(*dir), args[0], out, keep)
		},
	}
	cmd.Flags().StringVar(&out, "out", "out", "`folder` for SCENARIO.json and SCENARIO.html")
	cmd.Flags().BoolVar(&keep, "keep", os.Getenv("KEEP") != "", "leave the scenario's pods and volumes there ($KEEP)")
	cmd.Flags().BoolVar(&list, "list", false, "list the scenarios and do nothing else")
	return cmd
}

func runScenario(ctx context.Context, w io.Writer, dir state.Dir, name, out string, keep bool) error {
	s, err := scenarios.Find(name)
	if err != nil {
		return err
	}
	c, err := cluster.Attach(ctx, dir)
	if err != nil {
		return err
	}
	if err := c.Ready(ctx); err != nil {
		return err
	}
	if s.Latency != "" && c.Options.Latency != s.Latency {
		return fmt.Errorf("the playground was brought up with --latency %s, and %s measures with %s: take it down and up again",
			c.Options.Latency, s.Name, s.Latency)
	}
	progress := newProgress()
	image, err := cluster.OwnImage(ctx, "recorder", progress)
	if err != nil {
		return err
	}
	report := scenario.Run(ctx, s, scenario.Options{
		Cluster:       c,
		RecorderImage: image.Tar,
		RecorderRef:   image.Ref,
		Keep:          keep,
		Clock:         clock.RealClock{},
		Progress:      progress,
	})
	return present(w, report, out)
}

// present prints the report, writes its files, and fails if the scenario did.
func present(w io.Writer, report *timeline.Report, out string) error {
	for i := range report.Figures {
		if !report.Figures[i].Headline {
			continue
		}
		fmt.Fprintln(w)
		if err := report.Figures[i].Text(w); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	if err := report.Text(w); err != nil {
		return err
	}
	jsonPath, htmlPath, err := report.Write(out)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\nTimeline as a picture: %s\nNumbers for programs:  %s\n", htmlPath, jsonPath)
	if !report.Passed() {
		return exitCode(1)
	}
	return nil
}
