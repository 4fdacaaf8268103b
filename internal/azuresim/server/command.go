package server

import (
	"os"

	"github.com/spf13/cobra"
)

// NewCommand returns the command `serve`.
func NewCommand() *cobra.Command {
	o := Defaults()
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the simulated Azure Compute",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Run(cmd.Context(), o, cmd.OutOrStdout(), os.Stderr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", o.Listen, "address of the Azure endpoint: host:port, or the path of a unix socket")
	f.StringVar(&o.AdminListen, "admin-listen", o.AdminListen, "address of the admin API, in the same forms; empty for none")
	f.StringVar(&o.StateDir, "state-dir", o.StateDir, "directory of the store")
	f.StringVar(&o.Latency, "latency", o.Latency, "how long things take: realistic, fast, or a JSON file")
	f.Int64Var(&o.Seed, "seed", o.Seed, "seed of the latencies, of --reservations and of --goal-state")
	f.StringVar(&o.Reservations, "reservations", o.Reservations,
		"what a detach and a deallocation do with the VM's persistent reservations: keep, lose, or seed for either, by the disk")
	f.StringVar(&o.GoalState, "goal-state", o.GoalState,
		"whether VMs list what they are to have, so not a disk whose detach was accepted: "+
			"on, off, or seed, which is on if the seed is even")
	f.StringVar(&o.AttachDetach, "attach-detach", o.AttachDetach,
		"whether Azure has enabled attachDetachDataDisks: on, or for what it has not: subscription or region")
	f.StringVar(&o.Throttle, "throttle", o.Throttle, "on: hold clients to Azure's request quotas")
	f.StringVar(&o.Auth, "auth", o.Auth, "on: refuse calls without a token of this simulator")
	f.StringArrayVar(&o.Clients, "client", o.Clients,
		"client ID and secret that may ask for tokens, as ID=SECRET; repeatable; without one every client may ask")
	f.StringArrayVar(&o.Applications, "application", o.Applications,
		"client ID and file (JSON: secrets, certificates, federated) of what it may ask for tokens with, as ID=FILE; repeatable")
	f.StringArrayVar(&o.Roles, "role", o.Roles,
		"client ID and file (JSON, as for az role definition create) of what it may do within the assignable scopes, as ID=FILE; repeatable; without one every client may do everything")
	f.DurationVar(&o.TokenLifetime, "token-lifetime", o.TokenLifetime, "how long tokens are good for")
	f.StringVar(&o.Hypervisor, "hypervisor", o.Hypervisor, "unix socket of azuresim hypervisor; empty for disks without devices")
	f.StringSliceVar(&o.Subscriptions, "subscription", o.Subscriptions, "subscription that exists; repeatable")
	f.StringSliceVar(&o.ResourceGroups, "resource-group", o.ResourceGroups,
		"resource group to make at start in every subscription; repeatable")
	f.StringVar(&o.Location, "location", o.Location, "location of those resource groups")
	f.StringSliceVar(&o.Quotas, "quota", o.Quotas,
		"limit of a counter of the usages list, as in PremiumDiskCount=10; repeatable; Azure's defaults for the others")
	f.IntVar(&o.PageSize, "page-size", o.PageSize, "how many entries a page of a list holds")
	f.StringVar(&o.TLSCert, "tls-cert", o.TLSCert, "certificate file; with --tls-key the Azure endpoint speaks HTTPS")
	f.StringVar(&o.TLSKey, "tls-key", o.TLSKey, "key file of the certificate")
	f.StringVar(&o.LogLevel, "log-level", o.LogLevel, "debug, info, warn or error")
	return cmd
}
