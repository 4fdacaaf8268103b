package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/azuredisk-csi/azuredisk/internal/cli/checks"
	"github.com/azuredisk-csi/azuredisk/internal/cli/collect"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/version"
)

// versionTimeout bounds the wait for a cluster.
const versionTimeout = 10 * time.Second

func newVersionCommand(s *settings) *cobra.Command {
	var output *format
	own := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of the driver",
		Long: `Print the version of this program, and those of the controller, of the node plug-ins and of Kubernetes if the
cluster answers.` + explain.ExitHelp(func(c explain.ExitCode) string { return c.Others }),
		Example: `  kubectl azuredisk version
  kubectl azuredisk version --client -o json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			facts := checks.Facts{Now: time.Now(), Program: version.Version}
			if !own {
				ctx, cancel := context.WithTimeout(cmd.Context(), versionTimeout)
				defer cancel()
				reader, options, err := s.checkOptions()
				if err == nil {
					facts = collect.Versions(ctx, reader, options)
				} else {
					facts.Unread = []explain.Unread{{What: checks.ServerVersion, Reason: explain.UnreadFailed, Why: err.Error()}}
				}
			}
			return answer(cmd.OutOrStdout(), output, checks.VersionsOf(facts), cause.Healthy)
		},
	}
	output = addOutput(cmd)
	cmd.Flags().BoolVar(&own, "client", false, "print the version of this program only, without asking the cluster")
	return cmd
}
