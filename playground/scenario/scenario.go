// Package scenario holds what can be played through on a playground: a workload
// runs, something happens to it, and the outcome is judged by numbers and by what
// is on the disk. `playground run` and `make demo` call it.
//
// A scenario gets an Environment: clients, a namespace of its own, the Collector of
// the recorders, and the Report that it fills with checks, metrics and figures.
// Everything is observed from outside, by watches, the driver's log, azuresim's record
// of calls and the Collector; the driver knows of no scenario.
package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
)

// Cluster is what a scenario needs of a playground; *cluster.Cluster is one.
type Cluster interface {
	// RESTConfig is the configuration of a client with the administrator's rights.
	RESTConfig() (*rest.Config, error)
	// LoadImage gives an image tar to every node.
	LoadImage(ctx context.Context, path string) error
	// Expose makes a loopback address of the host reachable for pods, at the address
	// that it returns.
	Expose(ctx context.Context, hostAddress string) (string, error)
	// AzureAdmin is the URL of azuresim's admin API on the host, without a path.
	AzureAdmin(ctx context.Context) (string, error)

	// PowerOff cuts the power of a node: its disks fail first, then its processes are
	// gone. Azure goes on to say that its VM runs. PowerOn boots it again. Both are
	// idempotent.
	PowerOff(ctx context.Context, node string) error
	PowerOn(ctx context.Context, node string) error
	// Partition pulls the network cable of a node, whose pods run on, and Heal plugs it
	// in again. Both are idempotent.
	Partition(ctx context.Context, node string) error
	Heal(ctx context.Context, node string) error
	// StopKubelet halts a node's kubelet: its pods run on, and no one there mounts or unmounts. What it returns
	// lets the kubelet go on.
	StopKubelet(ctx context.Context, node string) (resume func() error, err error)
	// DeallocateVM and StartVM ask Azure for it, as an operator would, and return when it
	// is done.
	DeallocateVM(ctx context.Context, node string) error
	StartVM(ctx context.Context, node string) error
	// Process is the folder of the node's first process in the host's /proc: what is
	// mounted on the node is in its file mounts, and the node's files are below root. It
	// needs no network. It fails for a node without power.
	Process(ctx context.Context, node string) (string, error)
	// ChangeDriver upgrades the driver with these Helm values over those that it has, and
	// returns what takes that back. Both wait until the driver is ready.
	ChangeDriver(ctx context.Context, values map[string]any) (restore func(context.Context) error, err error)
	// CrashpointDriver makes a driver that can be told where to die, gives its image to all
	// nodes, and returns the Helm values with which the chart takes it.
	CrashpointDriver(ctx context.Context, progress func(format string, args ...any)) (map[string]any, error)
	// StopAPIServer halts the API server: connections stay open and nobody answers. What
	// it returns lets the server go on.
	StopAPIServer(ctx context.Context) (resume func() error, err error)
}

// Scenario is one of the things that can be played through.
type Scenario struct {
	// Name is that of the command line and of the files that are written.
	Name string
	// Summary is a line for lists.
	Summary string
	// Title is the heading of the report.
	Title string
	// Latency is the profile of azuresim that the measures are meant for; empty if any does.
	Latency string
	// Run plays it. It returns an error only if it could not be played to its end; a
	// check that did not hold is no error.
	Run func(ctx context.Context, env *Environment) error
}

// All are the scenarios, by name.
var All = []Scenario{
	{
		Name:    "hello",
		Summary: "a pod with a replicated disk writes and is moved once",
		Title:   "A pod moves to another node and finds its data there",
		Run:     hello,
	},
	{
		Name:    "planned-move",
		Summary: "a pod that writes is moved between nodes, with a replica of its disk and without",
		Title:   "Moving a pod that writes to its disk",
		Latency: "realistic",
		Run:     plannedMove,
	},
	{
		Name:    "node-power-cut",
		Summary: "a node loses its power while its pod writes, and Azure still says that the VM runs",
		Title:   "A node loses its power",
		Latency: "realistic",
		Run:     nodePowerCut,
	},
	{
		Name:    "node-power-cut-leader",
		Summary: "the same for the node on which the controller's leader runs too",
		Title:   "A node loses its power, and the controller's leader with it",
		Latency: "realistic",
		Run:     nodePowerCutLeader,
	},
	{
		Name:    "node-power-cut-stock",
		Summary: "node-power-cut with the driver's failover switched off: how long Kubernetes itself takes",
		Title:   "A node loses its power, and nobody but Kubernetes does anything about it",
		Latency: "realistic",
		Run:     nodePowerCutStock,
	},
	{
		Name:    "vm-stopped",
		Summary: "the VM of a pod that writes is deallocated at Azure",
		Title:   "A virtual machine is deallocated",
		Latency: "realistic",
		Run:     vmStopped,
	},
	{
		Name:    "node-partition",
		Summary: "a node is cut off from the network while its pod goes on writing",
		Title:   "A node is cut off and goes on writing",
		Latency: "realistic",
		Run:     nodePartition,
	},
	{
		Name:    "kubelet-dead",
		Summary: "the kubelet of a node dies while its pod and the node plug-in live, and the pod is deleted by force",
		Title:   "A kubelet dies and its pod goes on writing",
		Latency: "realistic",
		Run:     kubeletDead,
	},
	{
		Name:    "node-reboot",
		Summary: "a node loses its power and is back within a minute",
		Title:   "A node restarts without warning",
		Latency: "realistic",
		Run:     nodeReboot,
	},
	{
		Name:    "node-drain",
		Summary: "a node with ten pods that write to replicated disks is drained",
		Title:   "A node with ten volumes is drained",
		Latency: "realistic",
		Run:     nodeDrain,
	},
	{
		Name:    "controller-crash",
		Summary: "the leading controller is killed at each point of a failover",
		Title:   "The controller dies in the middle of a failover",
		Latency: "realistic",
		Run:     controllerCrash,
	},
	{
		Name:    "azure-brownout",
		Summary: "Azure refuses everything for a minute in the middle of a failover",
		Title:   "Azure is out of order in the middle of a failover",
		Latency: "realistic",
		Run:     azureBrownout,
	},
	{
		Name:    "api-server-outage",
		Summary: "nobody can reach the API server for 30 seconds, and nothing must be fenced",
		Title:   "The API server does not answer",
		Latency: "realistic",
		Run:     apiServerOutage,
	},
	{
		Name:    "mass-false-alarm",
		Summary: "many nodes lose their network at once, and nothing must be fenced",
		Title:   "Many nodes fall silent at once",
		Latency: "realistic",
		Run:     massFalseAlarm,
	},
	{
		Name:    "slot-pressure",
		Summary: "pods start on a node whose slots are full of replicas",
		Title:   "Replicas give way",
		Latency: "realistic",
		Run:     slotPressure,
	},
	{
		Name:    "clean-up",
		Summary: "replicas are detached some time after the release of a volume",
		Title:   "Replicas are cleaned up",
		Latency: "realistic",
		Run:     cleanUp,
	},
}

// List has a line for each scenario: its name and its summary.
func List() string {
	width := 0
	for _, s := range All {
		width = max(width, len(s.Name))
	}
	var b strings.Builder
	for _, s := range All {
		fmt.Fprintf(&b, "  %-*s  %s\n", width, s.Name, s.Summary)
	}
	return b.String()
}

// Find returns the scenario of that name.
func Find(name string) (Scenario, error) {
	i := slices.IndexFunc(All, func(s Scenario) bool { return s.Name == name })
	if i >= 0 {
		return All[i], nil
	}
	var names []string
	for _, s := range All {
		names = append(names, s.Name)
	}
	return Scenario{}, fmt.Errorf("no scenario %q; there are %s", name, strings.Join(names, ", "))
}
