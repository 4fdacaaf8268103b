package verify

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
)

// NewCommand returns `azuresim verify`.
func NewCommand() *cobra.Command {
	o := Options{
		Endpoint: "https://management.azure.com",
		Location: "eastus",
		MaxCost:  1,
		Clock:    clock.RealClock{},
		Poll:     2 * time.Second,
	}
	c := &cobra.Command{
		Use:   "verify",
		Short: "Play the rules of the simulator against a real subscription, and print where the two differ",
		Long: "Play the rules of the simulator against a real subscription, and print where the two differ. Then ask what is not\n" +
			"known of the platform, and print what was seen: paste such lines into an issue.\n\n" +
			"It needs the right to create a resource group, and the credentials of the environment (az login is enough). It makes small disks and two VMs in one\n" +
			"resource group, and deletes that at the end. What a killed run leaves behind is deleted by the next..",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SilenceUsage = true
			host, err := os.Hostname()
			if err != nil {
				return err
			}
			o.Owner, o.Alive = fmt.Sprintf("%s/%d", host, os.Getpid()), func(owner string) bool { return alive(host, owner) }
			o.Endpoint = strings.TrimSuffix(o.Endpoint, "/")
			o.Credential = Anyone{}
			if strings.HasPrefix(o.Endpoint, "https://") {
				if o.Credential, err = azidentity.NewDefaultAzureCredential(nil); err != nil {
					return fmt.Errorf("find credentials: %w", err)
				}
			}
			differences, err := Run(cmd.Context(), o, cmd.OutOrStdout())
			if err == nil && len(differences) > 0 {
				return fmt.Errorf("%d rules differ", len(differences))
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&o.Subscription, "subscription", o.Subscription, "subscription to play in")
	f.StringVar(&o.Location, "location", o.Location, "location of what is made")
	f.StringVar(&o.Endpoint, "endpoint", o.Endpoint, "endpoint of Resource Manager; over plain http no credentials are sent")
	f.StringVar(&o.Subnet, "subnet", o.Subnet, "resource ID of the subnet of the VMs (default: a network is created)")
	f.Float64Var(&o.MaxCost, "max-cost", o.MaxCost, "what the run may cost at most, in US dollars; it ends before that")
	f.StringSliceVar(&o.Rules, "rule", o.Rules, "rule to play, or question to ask; repeatable (default: all)")
	_ = c.MarkFlagRequired("subscription")
	return c
}

// alive reports whether the process of an owner runs: always, if it is on another host.
func alive(host, owner string) bool {
	at, number, _ := strings.Cut(owner, "/")
	pid, err := strconv.Atoi(number)
	return at != host || err != nil || syscall.Kill(pid, 0) == nil
}
