package checks

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/printable"
)

// Versions are those of the program that asks, and of what it has found in the cluster.
type Versions struct {
	explain.Document
	Client string `json:"clientVersion"`
	// Controller is the image of the controller.
	Controller  string         `json:"controllerImage,omitempty"`
	NodePlugins []NodesVersion `json:"nodePlugins,omitempty"`
	Kubernetes  string         `json:"kubernetesVersion,omitempty"`
}

// NodesVersion is a version of the node plug-in, with the number of the nodes that have reported it.
type NodesVersion struct {
	Version string `json:"version"`
	Nodes   int    `json:"nodes"`
}

// VersionsOf returns the versions in the facts.
func VersionsOf(f Facts) Versions {
	v := Versions{Document: explain.NewDocument("Version", f.Now, f.Unread), Client: f.Program, Kubernetes: f.Kubernetes}
	if d := f.Deployment(explain.ControllerComponent); d != nil {
		v.Controller = imageOf(d.Spec.Template.Spec, "controller")
	}
	nodes := f.nodesByVersion()
	for _, version := range slices.Sorted(maps.Keys(nodes)) {
		v.NodePlugins = append(v.NodePlugins, NodesVersion{version, len(nodes[version])})
	}
	return v
}

// nodesByVersion are the names of the nodes, by the version of their plug-in, as far as they have
// reported it.
func (f Facts) nodesByVersion() map[string][]string {
	nodes := map[string][]string{}
	for _, d := range f.DriverNodes {
		nodes[d.Status.DriverVersion] = append(nodes[d.Status.DriverVersion], d.Name)
	}
	delete(nodes, "")
	return nodes
}

// Text is the versions, one a line.
func (v Versions) Text() string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line := func(of, version string) {
		if version != "" {
			fmt.Fprintf(table, "%s:\t%s\n", of, printable.Line(version))
		}
	}
	line("Client", v.Client)
	line("Controller", v.Controller)
	for _, n := range v.NodePlugins {
		line("Node plug-in", fmt.Sprintf("%s (nodes: %d)", n.Version, n.Nodes))
	}
	line("Kubernetes", v.Kubernetes)
	for _, u := range v.Unread {
		line("Not read", u.What+": "+u.Why)
	}
	_ = table.Flush() // into memory
	return b.String()
}
