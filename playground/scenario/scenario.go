// Package scenario runs scenarios on a playground: a workload runs, something happens to it, and
// the outcome is judged by numbers and by what is on the disk. The scenarios are in ../scenarios;
// `playground run` and `make demo` call them.
//
// A scenario gets an Environment, which starts workloads, breaks and repairs parts of the cluster,
// waits for conditions, measures moves and failovers, and fills the report with checks, metrics and
// figures. Everything is observed from outside, by watches (observer), by the driver's log and
// azuresim's record of calls (evidence) and by the collector of the recorders; the driver does not
// know of scenarios.
package scenario

import (
	"context"
	"time"

	"k8s.io/client-go/rest"

	"github.com/azuredisk-csi/azuredisk/playground/azure"
	"github.com/azuredisk-csi/azuredisk/playground/state"
)

// Cluster is what a scenario needs of a playground; *cluster.Cluster is one.
type Cluster interface {
	Power
	Network
	Processes
	Driver
	Azure
}

// Power is the power of the nodes. PowerOff and PowerOn are idempotent.
type Power interface {
	// PowerOff cuts the power of a node: its disks fail first, then its processes are
	// gone. Azure still says that its VM runs. PowerOn boots it again.
	PowerOff(ctx context.Context, node string) error
	PowerOn(ctx context.Context, node string) error
	// Freeze pauses a node for that time, as Azure pauses a VM: all of its processes and its network
	// stand still. It returns when the node goes on. If notice is not nil, a scheduled event
	// announces it to the VM that long before.
	Freeze(ctx context.Context, node string, length time.Duration, notice *time.Duration) (state.Freeze, error)
}

// Network is the network of the nodes and pods.
type Network interface {
	// Expose makes a loopback address of the host reachable for pods, at the address
	// that it returns.
	Expose(ctx context.Context, hostAddress string) (string, error)
	// Partition pulls the network cable of a node, whose pods continue to run, and Heal plugs it
	// in again. Both are idempotent.
	Partition(ctx context.Context, node string) error
	Heal(ctx context.Context, node string) error
	// CutFromAPIServer drops all packets between the node and the API server; the rest of the
	// network works. restore lets them pass again.
	CutFromAPIServer(ctx context.Context, node string) (restore func(context.Context) error, err error)
}

// Processes are those of the nodes and of the control plane. resume lets a halted one continue.
type Processes interface {
	// Process is the folder of the node's first process in the host's /proc: what is
	// mounted on the node is in its file mounts, and the node's files are below root. It
	// needs no network. It fails for a node without power.
	Process(ctx context.Context, node string) (string, error)
	// StopKubelet halts a node's kubelet: its pods continue to run, and no volume is mounted or
	// unmounted there.
	StopKubelet(ctx context.Context, node string) (resume func() error, err error)
	// StopNodePlugin halts the driver's node plug-in there: the kubelet and the pods continue to
	// run, and the plug-in answers nothing.
	StopNodePlugin(ctx context.Context, node string) (resume func() error, err error)
	// StopAPIServer halts the API server: connections stay open and no request is answered.
	StopAPIServer(ctx context.Context) (resume func() error, err error)
}

// Driver is the driver, and how a client reaches the API server beside it.
type Driver interface {
	// RESTConfig is the configuration of a client with the administrator's rights.
	RESTConfig() (*rest.Config, error)
	// Kubeconfig is the path of its kubeconfig, for programs.
	Kubeconfig() string
	// LoadImage gives an image tar to every node.
	LoadImage(ctx context.Context, path string) error
	// ChangeDriver upgrades the driver with these Helm values over those that it has, and
	// returns what takes that back. Both wait until the driver is ready.
	ChangeDriver(ctx context.Context, values map[string]any) (restore func(context.Context) error, err error)
	// CrashpointDriver makes a driver that can be told where to die, gives its image to all
	// nodes, and returns the Helm values with which the chart takes it.
	CrashpointDriver(ctx context.Context, progress func(format string, args ...any)) (map[string]any, error)
}

// Azure is the platform.
type Azure interface {
	// NodeOfVM returns the node whose VM has that name at Azure. Another VM keeps its name.
	NodeOfVM(vm string) string
	// AzureAdmin is a client of azuresim's admin API on the host.
	AzureAdmin(ctx context.Context) (azure.Admin, error)
	// DeallocateVM and StartVM ask Azure for it, as an operator would, and return when it
	// is done.
	DeallocateVM(ctx context.Context, node string) error
	StartVM(ctx context.Context, node string) error
	// DeleteVM has Azure delete the VM of a node, whose machine loses its power at once, and CreateVM
	// has it make the VM again. Both return when it is done.
	DeleteVM(ctx context.Context, node string) error
	CreateVM(ctx context.Context, node string) error
	// AttachOutside has Azure attach so many new disks to a node's VM. The driver knows nothing of
	// them. remove takes them away, also after an error.
	AttachOutside(ctx context.Context, node string, count int) (remove func(context.Context) error, err error)
	// AttachElsewhere attaches a disk to a new VM that is no node, in the zone of a node.
	AttachElsewhere(ctx context.Context, vm, zoneOf, disk string) (has func(context.Context) (bool, error),
		remove func(context.Context) error, err error)
}

// Scenario is something that happens to workloads on a playground, and how its outcome is judged.
type Scenario struct {
	// Name is that of the command line and of the files that are written.
	Name string
	// Summary is a line for lists.
	Summary string
	// Title is the heading of the report.
	Title string
	// Latency is the profile of azuresim that the measures are meant for; empty if any does.
	Latency string
	// Run runs it. It returns an error only if the scenario could not be completed; a failed check
	// is not an error.
	Run func(ctx context.Context, env *Environment) error
}
