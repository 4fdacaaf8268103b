package main

import (
	"context"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/cli/checks"
	"github.com/azuredisk-csi/azuredisk/internal/cli/collect"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/version"
)

// checkup is a command that checks line by line.
type checkup struct {
	use, short, long, example string
	collect                   func(context.Context, client.Reader, collect.CheckOptions) (checks.Facts, error)
	judge                     func(checks.Facts) checks.Report
}

// exitCodes end the help of a checkup.
var exitCodes = explain.ExitHelp(func(c explain.ExitCode) string { return c.Checks })

var doctor = checkup{
	use:   "doctor",
	short: "Check an installation of the driver, line by line",
	long: `Check an installation of the driver: its custom resources, versions, pods, leaders and registrations, whether nodes
report and probes reach them, whether pods are steered, replicas, leftovers, slots, clocks, and what Azure and the
cluster have refused. Each line has a result (OK, Warning, Failed, CannotTell). What to do follows.

It reads with your own rights and changes nothing: it asks the API server to create a lease and an AzVolume as a dry
run, to see whether a webhook or a policy refuses what the driver writes. It does not ask Azure: credentials,
permissions and quota are judged by the requests that the driver has recorded.` + exitCodes,
	example: `  kubectl azuredisk doctor
  kubectl azuredisk doctor -o json`,
	collect: collect.Installation,
	judge:   checks.Doctor,
}

var preflight = checkup{
	use:   "preflight",
	short: "Check a cluster before the driver is installed, line by line",
	long: `Check a cluster before the driver is installed: the version of Kubernetes, nodes, snapshots, another driver of the
name, VolumeAttachments, ports of the nodes, policies that refuse privileged pods, and webhooks that fail closed. Each line
has a result (OK, Warning, Failed, CannotTell). What to do follows.

It reads with your own rights and changes nothing. It does not sign in to Azure: for what only Azure knows (lockdown,
permissions, SKUs, quota) it prints the commands to ask with, and these lines do not count for the exit code.` + exitCodes,
	example: `  kubectl azuredisk preflight
  kubectl azuredisk preflight --driver-namespace storage`,
	collect: collect.Cluster,
	judge:   checks.Preflight,
}

func newCheckCommand(s *settings, c checkup) *cobra.Command {
	var output *format
	cmd := &cobra.Command{
		Use:     c.use,
		Short:   c.short,
		Long:    c.long,
		Example: c.example,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			reader, options, err := s.checkOptions()
			if err != nil {
				return err
			}
			facts, err := c.collect(ctx, reader, options)
			if err != nil {
				return err
			}
			report := c.judge(facts)
			return answer(cmd.OutOrStdout(), output, report, report.Outcome)
		},
	}
	output = addOutput(cmd)
	return cmd
}

// checkOptions returns what the checks and version need.
func (s *settings) checkOptions() (client.Reader, collect.CheckOptions, error) {
	options := collect.CheckOptions{
		DriverName:      s.driverName,
		DriverNamespace: s.driverNamespace,
		Program:         version.Version,
	}
	config, err := s.config()
	if err != nil {
		return nil, options, err
	}
	reader, now, err := s.reader()
	if err != nil {
		return nil, options, err
	}
	options.Now, options.Writer, options.Kubernetes = now.Now, reader, collect.ServerVersion(config)
	return reader, options, nil
}
