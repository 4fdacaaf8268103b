package main

import (
	"context"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/cli/checks"
	"github.com/azuredisk-csi/azuredisk/cli/collect"
	"github.com/azuredisk-csi/azuredisk/internal/version"
)

// checkup is a command that checks line by line.
type checkup struct {
	use, short, long, example string
	collect                   func(context.Context, client.Reader, collect.CheckOptions) (checks.Facts, error)
	judge                     func(checks.Facts) checks.Report
}

// exitCodes end the help of a checkup.
const exitCodes = `

Exit codes:
  0  all is well
  1  there are warnings
  2  something has failed
  3  something could not be read that decides it; also if the API server does not answer`

var doctor = checkup{
	use:   "doctor",
	short: "Check an installation of the driver, line by line",
	long: `Check an installation of the driver: its custom resources, versions, pods, leaders and registrations, whether nodes
report and probes reach them, whether pods are steered, replicas, leftovers, slots, clocks, and what Azure and the
cluster have refused. Each line has a result (ok, warning, failed, cannot tell). What to do follows.

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
has a result (ok, warning, failed, cannot tell). What to do follows.

It reads with your own rights and changes nothing. It does not sign in to Azure: for what only Azure knows (lockdown,
permissions, SKUs, quota) it prints the commands to ask with, and these lines do not count for the exit code.` + exitCodes,
	example: `  kubectl azuredisk preflight
  kubectl azuredisk preflight --driver-namespace storage`,
	collect: collect.Cluster,
	judge:   checks.Preflight,
}

func newCheckCommand(s *settings, c checkup) *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use:     c.use,
		Short:   c.short,
		Long:    c.long,
		Example: c.example,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			config, err := s.kube.ToRESTConfig()
			if err != nil {
				return err
			}
			reader, now, err := s.reader()
			if err != nil {
				return err
			}
			facts, err := c.collect(ctx, reader, collect.CheckOptions{
				DriverName:      s.driverName,
				DriverNamespace: s.driverNamespace,
				Program:         version.Version,
				Now:             now.Now,
				Writer:          reader,
				Kubernetes:      collect.ServerVersion(config),
			})
			if err != nil {
				return err
			}
			report := c.judge(facts)
			return answer(cmd.OutOrStdout(), output, report, report.Outcome)
		},
	}
	addOutput(cmd, &output)
	return cmd
}
