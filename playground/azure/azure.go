// Package azure runs azuresim, the stand-in for Azure, for a playground: its
// hypervisor, the ioctls of its disks for the nodes' processes, its ARM front end
// and the instance metadata service of each VM. The
// front end is authoritative for whether a VM has power; Watch reports changes.
package azure

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/network"
	"github.com/azuredisk-csi/azuredisk/playground/process"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// Port is where the front end answers, at the plan's Cloud address.
const Port = 8080

const (
	frontEnd   = "azuresim"
	hypervisor = "azuresim-hypervisor"
	guest      = "azuresim-guest"
	// metadataAddress is where a VM finds its metadata.
	metadataAddress = "169.254.169.254:80"
)

// Options say how to run azuresim.
type Options struct {
	// Dir holds its state: disks, and below vms/ what each VM sees.
	Dir, Logs string
	// Program is azuresim itself.
	Program string
	Plan    topology.Plan
	// Namespace is the network namespace that has the plan's Cloud address.
	Namespace *network.Namespace
	// Latency is the profile and Seed its seed.
	Latency string
	Seed    int64
	// NoQuotas switches off Azure's quotas.
	NoQuotas bool
	// Credentials of the one client that may ask for tokens.
	Credentials Credentials
	Log         *slog.Logger
}

// Credentials are those of a service principal.
type Credentials struct {
	ClientID string `json:"clientID"`
	Secret   string `json:"secret"`
}

// Azure is a running azuresim.
type Azure struct {
	opts Options

	mu       sync.Mutex
	children map[string]*process.Child
}

// AdminSocket is the path of the socket of azuresim's admin API in the state folder.
func AdminSocket(dir string) string { return filepath.Join(dir, "admin.sock") }

// GuestSocket is the path of the socket at which a node's first process hands over its ioctls.
func GuestSocket(dir string) string { return filepath.Join(dir, "guest.sock") }

// Start starts azuresim with a VM for each node and returns when all are there.
//
// The VMs are made under the latency profile fast, and the front end is then started
// again with the one that was asked for: how long Azure takes to make VMs is not what
// a playground is about. What was started is returned also with an error.
func Start(ctx context.Context, opts Options) (*Azure, error) {
	a := &Azure{opts: opts, children: map[string]*process.Child{}}
	if err := os.MkdirAll(opts.Dir, 0o755); err != nil {
		return a, err
	}
	if err := a.start(hypervisor, nil, 20*time.Second, "hypervisor", "--state-dir", opts.Dir, "--socket",
		a.hypervisorSocket()); err != nil {
		return a, err
	}
	if err := a.start(guest, nil, 0, "guest", "serve", "--socket", GuestSocket(opts.Dir), "--hypervisor",
		a.hypervisorSocket()); err != nil {
		return a, err
	}
	if err := a.serve(ctx, "fast"); err != nil {
		return a, err
	}
	if err := a.waitForGuest(ctx); err != nil {
		return a, err
	}
	if err := a.createVMs(ctx); err != nil {
		return a, err
	}
	if opts.Latency == "fast" {
		return a, nil
	}
	a.stop(ctx, frontEnd)
	return a, a.serve(ctx, opts.Latency)
}

func (a *Azure) hypervisorSocket() string { return filepath.Join(a.opts.Dir, "hypervisor.sock") }

func (a *Azure) frontEndDir() string { return filepath.Join(a.opts.Dir, "arm") }

// serve starts the front end and waits until it answers.
func (a *Azure) serve(ctx context.Context, latency string) error {
	throttle := "on"
	if a.opts.NoQuotas {
		throttle = "off"
	}
	err := a.start(frontEnd, a.opts.Namespace, 0, "serve",
		"--listen", a.Endpoint(),
		"--admin-listen", AdminSocket(a.opts.Dir),
		"--state-dir", a.frontEndDir(),
		"--hypervisor", a.hypervisorSocket(),
		"--latency", latency,
		"--throttle", throttle,
		"--seed", strconv.FormatInt(a.opts.Seed, 10),
		"--auth", "on",
		"--client", a.opts.Credentials.ClientID+"="+a.opts.Credentials.Secret,
		"--subscription", topology.SubscriptionID,
		"--resource-group", topology.ResourceGroup,
		"--resource-group", a.opts.Plan.Nodes[0].Group,
		"--location", topology.Region)
	if err != nil {
		return err
	}
	return a.waitHealthy(ctx)
}

// Endpoint is the front end's address and port, as pods and nodes reach it.
func (a *Azure) Endpoint() string { return fmt.Sprintf("%s:%d", a.opts.Plan.Cloud(), Port) }

func (a *Azure) start(name string, ns *network.Namespace, grace time.Duration, args ...string) error {
	spec := process.Spec{
		Name:   name,
		Path:   a.opts.Program,
		Args:   args,
		LogDir: a.opts.Logs,
		Grace:  grace,
	}
	if ns != nil {
		spec.Enter = ns.Do
	}
	child, err := process.Start(spec, a.opts.Log)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.children[name] = child
	return nil
}

func (a *Azure) stop(ctx context.Context, name string) {
	a.mu.Lock()
	child := a.children[name]
	delete(a.children, name)
	a.mu.Unlock()
	if child != nil {
		child.Stop(ctx)
	}
}

// ServeMetadata serves the metadata of the node's VM inside its network namespace.
// The service asks the front end from outside the namespace, as a host does: it
// works when the VM's network is cut.
func (a *Azure) ServeMetadata(node topology.Node, ns *network.Namespace) error {
	return a.start(metadataName(node), a.opts.Namespace, 0, "imds",
		"--arm-endpoint", "http://"+a.Endpoint(),
		"--token-key-file", filepath.Join(a.frontEndDir(), "token.key"),
		"--admin-endpoint", "unix://"+AdminSocket(a.opts.Dir),
		"--resource-id", node.ResourceID(),
		"--netns", ns.Path,
		"--listen", metadataAddress)
}

// StopMetadata ends ServeMetadata.
func (a *Azure) StopMetadata(ctx context.Context, node topology.Node) {
	a.stop(ctx, metadataName(node))
}

func metadataName(node topology.Node) string { return "azuresim-imds-" + node.Name }

// Stop stops azuresim, the hypervisor last. No VM may use its disks any more.
func (a *Azure) Stop(ctx context.Context) {
	var wait sync.WaitGroup
	for _, c := range a.Components() {
		if c.Name != hypervisor {
			wait.Go(func() { a.stop(ctx, c.Name) })
		}
	}
	wait.Wait()
	a.stop(ctx, hypervisor)
}

// Components lists the processes of azuresim, in no order.
func (a *Azure) Components() []process.Component {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []process.Component
	for name, child := range a.children {
		list = append(list, process.Component{
			Name:     name,
			PID:      child.PID(),
			Restarts: child.Restarts(),
		})
	}
	return list
}
