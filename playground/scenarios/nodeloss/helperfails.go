package nodeloss

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// maxHelperFailsSeconds is how long a failover took at most when only a forced detach could prove
// anything. A node that is asked to take the reservation, and fails, must not make it slower.
const maxHelperFailsSeconds = 18.7

// twoReplicas is the workload of a disk with two replicas; the node of one of them fails too.
var twoReplicas = scenario.Workload{
	Name:      "writer",
	MaxShares: 3,
	Replicas:  2,
}

// helperFault is a way in which the node fails that is asked to take the reservation.
type helperFault struct {
	// name is the end of the names of its metrics, does a sentence about the node.
	name, does string
	// asked says that the controller cannot know of the fault before it asks the node.
	asked bool
	// begin breaks the node and returns what ends the fault.
	begin func(ctx context.Context, e *scenario.Environment, node string) (end func(context.Context) error, err error)
}

var helperFaults = []helperFault{
	{"powerless", "loses its power too", false,
		func(ctx context.Context, e *scenario.Environment, node string) (func(context.Context) error, error) {
			_, err := e.PowerOff(ctx, node)
			return func(ctx context.Context) error {
				_, err := e.PowerOn(ctx, node)
				return err
			}, err
		}},
	{"halted", "has a node plug-in that does not answer", true,
		func(ctx context.Context, e *scenario.Environment, node string) (func(context.Context) error, error) {
			resume, err := e.Cluster.StopNodePlugin(ctx, node)
			return func(context.Context) error { return resume() }, err
		}},
	{"cut_off", "does not reach the API server", true,
		func(ctx context.Context, e *scenario.Environment, node string) (func(context.Context) error, error) {
			return e.Cluster.CutFromAPIServer(ctx, node)
		}},
}

// PowerCutHelper is the scenario node-power-cut-helper.
var PowerCutHelper = scenario.Scenario{
	Name:    "node-power-cut-helper",
	Summary: "the same, and the node that is asked first to take the reservation fails at that moment, in three ways",
	Title:   "A node loses its power, and the node that is to fence it fails",
	Latency: "realistic",
	Run:     nodePowerCutHelper,
}

// nodePowerCutHelper is node-power-cut for a disk with two replicas, once for each of the faults of
// the node that is asked first.
func nodePowerCutHelper(ctx context.Context, e *scenario.Environment) error {
	leads, err := e.Leader(ctx)
	if err != nil {
		return err
	}
	zones := e.View.Zones()
	far := slices.IndexFunc(zones, func(zone string) bool {
		nodes := e.View.Nodes(zone)
		return len(nodes) > twoReplicas.Replicas && !slices.Contains(nodes, leads.Node)
	})
	if far < 0 {
		return errors.New("node-power-cut-helper needs three nodes in the zone without the controller's leader: bring the playground up with 6 nodes")
	}
	w := twoReplicas
	w.Zone = zones[far]
	e.Progress("making a pod that writes to a disk with two replicas, far from the controller's leader")
	volumes, err := e.StartAway(ctx, w)
	if err != nil {
		return err
	}
	var slowest scenario.Failover
	for _, fault := range helperFaults {
		f, err := failHelper(ctx, e, w, volumes[0], fault)
		if err != nil {
			return fmt.Errorf("the helper %s: %w", fault.does, err)
		}
		if f.Took() > slowest.Took() {
			slowest = f
		}
	}
	return endLoss(ctx, e, slowest)
}

// failHelper lets the pod's node lose its power and the node that is asked first fail, and judges
// the failover. All nodes are used again when it returns.
func failHelper(ctx context.Context, e *scenario.Environment, w scenario.Workload, v observer.Volume,
	fault helperFault) (scenario.Failover, error) {
	f, err := e.LossOf(ctx, w, v)
	if err != nil {
		return f, err
	}
	helper := e.View.ReplicasOf(v.Name)[0] // the controller asks in the order of the names
	e.Progress("cutting the power of %s, and %s %s", f.From, helper, fault.does)
	if f.Fault, err = e.PowerOff(ctx, f.From); err != nil {
		return f, err
	}
	e.Say(timeline.Node(helper), helper, helper+" "+fault.does,
		"it has a replica, and is the first to be asked to take the reservation")
	end, err := fault.begin(ctx, e, helper)
	if end != nil {
		e.RepairLater("end that "+helper+" "+fault.does, end)
	}
	if err != nil {
		return f, err
	}
	broken := e.Clock.Now()
	asked := awaitAsked(ctx, e, helper, v)
	if err := e.AwaitFailover(ctx, &f, scenario.FailoverTimeout); err != nil {
		return f, err
	}
	recordHelper(e, f, fault, helper, broken, asked())
	if err := end(ctx); err != nil {
		return f, err
	}
	e.Repaired("end that " + helper + " " + fault.does)
	return f, bringBack(ctx, e, f)
}

// awaitAsked begins to wait until a node is asked to take the reservation of the volume. asked ends
// that, and returns when it was; zero if it was not.
func awaitAsked(ctx context.Context, e *scenario.Environment, helper string, v observer.Volume) (asked func() time.Time) {
	ctx, cancel := context.WithCancel(ctx)
	at := make(chan time.Time, 1)
	go func() {
		err := e.View.Await(ctx, scenario.FailoverTimeout, helper+" is asked", func() bool {
			requests, _, _ := unstructured.NestedSlice(e.View.DriverNode(helper).Object, "spec", "requests", "fences")
			return slices.ContainsFunc(requests, func(r any) bool {
				request, _ := r.(map[string]any)
				return request["volumeName"] == e.View.AzVolume(v.Name).GetName()
			})
		})
		if err != nil {
			at <- time.Time{}
			return
		}
		at <- e.Clock.Now()
	}()
	return func() time.Time {
		cancel()
		return <-at
	}
}

// recordHelper makes metrics and checks of one failover.
func recordHelper(e *scenario.Environment, f scenario.Failover, fault helperFault, helper string, broken, asked time.Time) {
	p := f.Phases(f.Fault)
	by := observer.Text(e.View.AzVolume(f.Volume.Name), "status", "lastRelease", "proof", "preemption", "nodeName")
	for name, value := range map[string]any{
		"helper": helper, "asked": !asked.IsZero(), "proof": f.ProofKind, "fenced_by": by, "new_node": f.To,
		"detect_seconds": scenario.Seconds(p.Detect), "fence_seconds": scenario.Seconds(p.Fence),
		"total_seconds": scenario.Seconds(p.Total),
	} {
		e.Metric(name+"_"+fault.name, value)
	}
	if fault.asked {
		e.Check(fmt.Sprintf("%s is asked first although it %s", helper, fault.does), asked.After(broken), "%s after the fault",
			timeline.Round(scenario.Between(broken, asked)))
	}
	e.Check(fmt.Sprintf("while the helper %s, another proof counts", fault.does),
		by != helper && (f.ProofKind == observer.ProofDetached || f.ProofKind == observer.ProofPreempted && by != ""),
		"proof %q by %q after %s", f.ProofKind, by, timeline.Round(p.Fence))
	e.Check(fmt.Sprintf("while the helper %s, the pod goes to the other replica", fault.does), f.OntoReplica && f.To != helper,
		"%s to %s", f.From, f.To)
	e.Bound(fmt.Sprintf("while the helper %s, the pod runs elsewhere after", fault.does), p.Total, maxHelperFailsSeconds)
	e.CheckOrder(f)
}
