package main

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/azuredisk-csi/azuredisk/playground/aks"
	"github.com/azuredisk-csi/azuredisk/playground/cluster"
	"github.com/azuredisk-csi/azuredisk/playground/state"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

func newUpCommand(dir *string) *cobra.Command {
	build := cluster.BuildOptions{}
	subnet, profile := topology.DefaultSubnet, ""
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring a playground up; return when it is ready",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			progress := newProgress()
			var err error
			if build.Profile, err = aks.Parse(profile); err != nil {
				return fmt.Errorf("--profile: %w", err)
			}
			if build.Subnet, err = netip.ParsePrefix(subnet); err != nil {
				return fmt.Errorf("--subnet: %w", err)
			}
			switch c, err := cluster.Attach(cmd.Context(), state.Dir(*dir)); {
			case err == nil:
				if err := c.Ready(cmd.Context()); err != nil {
					return fmt.Errorf("a playground is there already: %w (`playground down` takes it down)", err)
				}
				if minor := c.Options.Kubernetes.Minor; minor != build.Kubernetes && cmd.Flags().Changed("kubernetes") {
					return fmt.Errorf("start Kubernetes %s: a playground with Kubernetes %s is up already in %s (`playground down` takes it down)", build.Kubernetes, minor, *dir)
				}
				progress("the playground is up already (%s)", *dir)
				return nil
			case !errors.Is(err, cluster.ErrNotUp):
				return err
			}
			c, err := cluster.BuildAndUp(cmd.Context(), state.Dir(*dir), build, progress)
			if err != nil {
				return err
			}
			progress("the playground is ready: try `playground status` and `playground kubectl get nodes`")
			_ = c
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&profile, "profile", "", "kind of cluster: aks (AKS Standard, Deployment Safeguards warn), aks-enforce (they refuse) or "+
		"aks-automatic (they refuse, and the node resource group is locked); empty for a plain one (playground/aks/README.md)")
	f.IntVar(&build.Nodes, "nodes", 4, "number of worker nodes")
	f.IntVar(&build.Zones, "zones", topology.DefaultZones, "number of availability zones that the nodes are in, 1 to 3")
	kubernetesFlag(f, &build.Kubernetes)
	f.StringVar(&subnet, "subnet", subnet,
		"network of the machines (IPv4, 24 bits); pods and Services take the next two of 16 bits")
	f.IntVar(&build.APIPort, "api-port", 0, "port of the API server on 127.0.0.1 (0 takes a free one)")
	f.StringVar(&build.Latency, "latency", "realistic", "azuresim's latencies: realistic or fast")
	f.BoolVar(&build.NoQuotas, "no-quotas", false,
		"switch off Azure's quotas at azuresim, for long test runs that update few VMs often")
	f.Int64Var(&build.Seed, "seed", 1, "seed of azuresim's latencies")
	f.BoolVar(&build.NoDriver, "no-driver", false, "do not install the driver")
	f.BoolVar(&build.PlainScheduler, "plain-scheduler", false,
		"do not configure kube-scheduler for the driver, as on a managed cluster; the driver's webhook steers pods")
	f.StringVar(&build.Values, "values", "", "file of Helm values for the driver")
	return cmd
}

func newDownCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Take the playground down and leave nothing behind",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cluster.Down(cmd.Context(), state.Dir(*dir), newProgress())
		},
	}
}
