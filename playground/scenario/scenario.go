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
