package imds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// armResource is whom the service's own requests to the front end are meant for.
const armResource = "https://management.azure.com/"

// options are the flags of the command.
type options struct {
	armEndpoint    string
	armCA          string
	adminEndpoint  string
	tokenKey       string
	resourceID     string
	subscription   string
	resourceGroup  string
	vm             string
	listen         string
	netns          string
	allowLinkLocal bool
	keep           time.Duration
}

// NewCommand returns `azuresim imds`, which serves the metadata of one VM until SIGTERM or SIGINT.
func NewCommand() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "imds",
		Short: "Serve the instance metadata of one VM",
		Long: `Serve the instance metadata of one VM, as Azure does at 169.254.169.254 inside of it.

With --netns the service listens inside the VM's network namespace, also at the link-local address, and reaches the
front end from where it was started.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGTERM, unix.SIGINT)
			defer stop()
			return run(ctx, o)
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.armEndpoint, "arm-endpoint", "",
		"the ARM front end: http://HOST:PORT, https://HOST:PORT or unix:///PATH (required)")
	flags.StringVar(&o.armCA, "arm-ca", "",
		"file of PEM certificates that the front end's is checked against (default: the system's)")
	flags.StringVar(&o.adminEndpoint, "admin-endpoint", "",
		"the admin API, which has the scheduled events: http://HOST:PORT or unix:///PATH (default: there are none)")
	flags.StringVar(&o.tokenKey, "token-key-file", "",
		"file with the front end's token key, so that it accepts the tokens made here (default: a random key)")
	flags.StringVar(&o.resourceID, "resource-id", "",
		"ARM ID of the VM or scale-set instance; instead of --subscription, --resource-group and --vm")
	flags.StringVar(&o.subscription, "subscription", "", "subscription ID of the VM")
	flags.StringVar(&o.resourceGroup, "resource-group", "", "resource group of the VM")
	flags.StringVar(&o.vm, "vm", "", "name of the VM")
	flags.StringVar(&o.listen, "listen", "127.0.0.1:0", "IP:PORT to listen on")
	flags.StringVar(&o.netns, "netns", "",
		"network namespace to listen in, for instance /run/netns/NAME or /proc/PID/ns/net (default: the process's own)")
	flags.BoolVar(&o.allowLinkLocal, "allow-link-local", false,
		"allow a link-local or unspecified address; only for a process that runs inside a VM's network namespace")
	flags.DurationVar(&o.keep, "keep", 10*time.Second, "how long an answer of the front end is served again")
	return command
}

// validate returns all faults at once, and the ID of the VM.
func (o options) validate() (string, error) {
	var errs []error
	if o.armEndpoint == "" {
		errs = append(errs, errors.New("flag --arm-endpoint is required"))
	}
	id := o.resourceID
	if id == "" {
		for name, value := range map[string]string{
			"subscription":   o.subscription,
			"resource-group": o.resourceGroup,
			"vm":             o.vm,
		} {
			if value == "" {
				errs = append(errs, fmt.Errorf("flag --%s is required where --resource-id is not given", name))
			}
		}
		id = "/subscriptions/" + o.subscription + "/resourceGroups/" + o.resourceGroup +
			"/providers/Microsoft.Compute/virtualMachines/" + o.vm
	}
	if !o.allowLinkLocal && o.netns == "" {
		errs = append(errs, checkAddress(o.listen))
	}
	return id, errors.Join(errs...)
}

func run(ctx context.Context, o options) error {
	id, err := o.validate()
	if err != nil {
		return err
	}
	var key []byte
	if o.tokenKey != "" {
		if key, err = os.ReadFile(o.tokenKey); err != nil {
			return fmt.Errorf("read --token-key-file: %w", err)
		}
	}
	signer, err := NewSigner(key, clock.RealClock{})
	if err != nil {
		return err
	}
	source, err := o.source(id, signer)
	if err != nil {
		return err
	}
	listener, err := listen(ctx, o.listen, o.netns)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", o.listen, err)
	}
	slog.InfoContext(ctx, "instance metadata ready", "address", listener.Addr().String(), "vm", id)
	cached := &Cached{
		Source: source,
		Clock:  clock.RealClock{},
		Keep:   o.keep,
		Failed: func(err error) {
			slog.WarnContext(ctx, "front end does not answer, serving what it said before", "error", err)
		},
	}
	server := &http.Server{
		Handler:           (&Server{Source: cached, Signer: signer, Events: o.events(id)}).Handler(),
		ReadHeaderTimeout: 10 * time.Second,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return server.Shutdown(stopping)
}

// events asks the admin API.
func (o options) events(id string) Events {
	if o.adminEndpoint == "" {
		return NoEvents{}
	}
	events := &AdminEvents{Endpoint: o.adminEndpoint, Client: &http.Client{Timeout: armTimeout}, ResourceID: id}
	if socket, ok := strings.CutPrefix(o.adminEndpoint, "unix://"); ok {
		events.Endpoint, events.Client = "http://azuresim", DialUnix(socket)
	}
	return events
}

// source asks the front end, with a token as every client of ARM must have one.
func (o options) source(id string, signer *Signer) (*ARM, error) {
	self := Identity{
		ClientID: madeID("imds"),
		ObjectID: madeID("imds object"),
		TenantID: madeID("tenant"),
	}
	arm := &ARM{
		ResourceID: id,
		Endpoint:   o.armEndpoint,
		Token: func() (string, error) {
			t, err := signer.sign(self, id, armResource)
			return t.signed, err
		},
	}
	if socket, ok := strings.CutPrefix(o.armEndpoint, "unix://"); ok {
		arm.Endpoint, arm.Client = "http://azuresim", DialUnix(socket)
		return arm, nil
	}
	arm.Client = &http.Client{Timeout: armTimeout}
	if o.armCA == "" {
		return arm, nil
	}
	pem, err := os.ReadFile(o.armCA)
	if err != nil {
		return nil, fmt.Errorf("read --arm-ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read --arm-ca: no certificate in %s", o.armCA)
	}
	arm.Client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	return arm, nil
}
