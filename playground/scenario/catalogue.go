package scenario

import (
	"fmt"
	"slices"
	"strings"
)

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
