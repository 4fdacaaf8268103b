package nodeloss

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// maxVMStoppedSeconds has a forced detach of up to 14 s in it: a VM that is down may be started with
// its mounts.
const maxVMStoppedSeconds = 20

// rebootPatience is how long node-reboot leaves the power off if no failover begins.
const rebootPatience = 20 * time.Second

// single is the workload of the scenarios in which one node is lost.
var single = scenario.Workload{
	Name:      "writer",
	MaxShares: 2,
	Replicas:  1,
}

// beginLoss makes the workload on a node without the controller's leader and lets it
// write.
func beginLoss(ctx context.Context, e *scenario.Environment, w scenario.Workload) (scenario.Failover, error) {
	e.Progress("making a pod that writes to a disk with a replica")
	volumes, err := e.StartAway(ctx, w)
	if err != nil {
		return scenario.Failover{}, err
	}
	f, err := e.LossOf(ctx, w, volumes[0])
	if err != nil {
		return scenario.Failover{}, err
	}
	leads, err := e.Leader(ctx)
	if err != nil {
		return scenario.Failover{}, err
	}
	e.Metric("controller_leader_node", leads.Node)
	e.Check("the controller's leader is on another node", leads.Node != f.From, "it is on %s; %s is going to be lost", leads.Node,
		f.From)
	return f, nil
}

// endLoss judges the records and draws.
func endLoss(ctx context.Context, e *scenario.Environment, f scenario.Failover) error {
	if err := e.JudgeAll(ctx, f.Workload); err != nil {
		return err
	}
	if err := e.DrawFailover(ctx, f, "The node is lost"); err != nil {
		return err
	}
	e.Report.Notes = append(e.Report.Notes,
		"The nodes are machines made of namespaces, their disks are real block devices, and a disk that is cut answers with an I/O error; only Azure is simulated, with the time that it usually takes.",
		"Each step is drawn when a watch outside of the nodes showed it, the driver's calls as its log tells, and Azure's operations as azuresim recorded them. All clocks are the same one.")
	e.Report.Summary = fmt.Sprintf("The pod ran again on %s %s after %s was lost. %s %s",
		f.To, timeline.Round(f.Took()), f.From, f.Story(), e.RecordsLost())
	return nil
}

// powerCutFigure is the record of failovers with the same fencing.
func powerCutFigure(f scenario.Failover) string {
	if f.Fencing == observer.FencingPreemption {
		return "node-power-cut"
	}
	return "power-cut-detach"
}

// usualFence is about how long it takes from a power cut until the next pod is scheduled:
// to notice it, and to take the reservation or to detach the disk by force.
func usualFence(f scenario.Failover) time.Duration {
	if f.Fencing == observer.FencingPreemption {
		return 4 * time.Second
	}
	return 18 * time.Second
}

// awaitTypicalTime blocks until a time at which a power cut leads to a failover of typical
// length. A kubelet mounts a new volume only after its own next report, every ten seconds,
// of the volumes that it uses; whether that comes at once or late is chance. The pod is
// moved away and back, so that it is known when the kubelet to which it will go reports.
func awaitTypicalTime(ctx context.Context, e *scenario.Environment, f *scenario.Failover) error {
	e.Progress("moving the pod away and back, to learn when the kubelet of the other node reports")
	home, other := f.From, ""
	for range 2 {
		m, err := e.Move(ctx, f.Workload, f.Volume)
		if err != nil {
			return err
		}
		if err := e.AwaitReplicas(ctx, f.Workload, f.Volume); err != nil {
			return err
		}
		other = m.From
	}
	moved, err := e.LossOf(ctx, f.Workload, f.Volume)
	if err != nil {
		return err
	}
	*f = moved
	if f.From != home {
		return fmt.Errorf("the pod came back to %s and not to %s", f.From, home)
	}
	e.Report.Notes = append(e.Report.Notes, fmt.Sprintf(
		"The power was cut when the kubelet of %s was likely to be half a period of ten seconds away from its next report of the volumes that it uses. With VolumeAttachments it mounts a new volume only after that, "+
			"so the whole would have taken up to five seconds more or less at another moment.", other))
	return e.AwaitTime(ctx, scenario.MiddleStart(e.View.Observer.ReportedUse(other), usualFence(*f), e.Clock.Now()))
}

// PowerCut is the scenario node-power-cut.
var PowerCut = scenario.Scenario{
	Name:    "node-power-cut",
	Summary: "a node loses its power while its pod writes, and Azure still says that the VM runs",
	Title:   "A node loses its power",
	Latency: "realistic",
	Run:     nodePowerCut,
}

// nodePowerCut cuts the power of a node. Azure says that its VM runs, as it does at
// first when a host dies, so only a forced detach can prove that it does not write.
func nodePowerCut(ctx context.Context, e *scenario.Environment) error {
	f, err := beginLoss(ctx, e, single)
	if err != nil {
		return err
	}
	if err := awaitTypicalTime(ctx, e, &f); err != nil {
		return err
	}
	return cutPower(ctx, e, f)
}

// cutPower cuts the power of the workload's node, judges the failover, also by what further checks
// there are, and gives the node its power back.
func cutPower(ctx context.Context, e *scenario.Environment, f scenario.Failover,
	further ...func(scenario.Failover) error) (err error) {
	e.Progress("cutting the power of %s", f.From)
	if f.Fault, err = e.PowerOff(ctx, f.From); err != nil {
		return err
	}
	if err := e.AwaitFailover(ctx, &f, scenario.FailoverTimeout); err != nil {
		return err
	}
	p := f.Phases(f.Fault)
	e.RecordFailover(f, f.ProofOfLoss())
	e.CheckOrder(f)
	e.Bound("the loss is known after", p.Detect, e.Limit("power-cut-known"))
	e.Bound("the pod runs elsewhere after", p.Total, e.PodLimit(powerCutFigure(f)))
	marked := observer.First(e.View.Observer.Marks(), f.Fault, observer.Milestone{Kind: observer.TaintedOut, Node: f.From})
	e.Check("the node is not marked out of service, because its VM is not proved down", marked.At.IsZero(),
		"the VM is said to run")
	for _, check := range further {
		if err := check(f); err != nil {
			return err
		}
	}
	if err := bringBack(ctx, e, f); err != nil {
		return err
	}
	return endLoss(ctx, e, f)
}

// bringBack gives a lost node its power again and waits until it is used.
func bringBack(ctx context.Context, e *scenario.Environment, f scenario.Failover) error {
	e.Progress("switching %s on again", f.From)
	on, err := e.PowerOn(ctx, f.From)
	if err != nil {
		return err
	}
	return recordBack(ctx, e, f, on)
}

func recordBack(ctx context.Context, e *scenario.Environment, f scenario.Failover, on time.Time) error {
	const name = "the node is used again without help"
	back, err := e.AwaitBack(ctx, f.From, on, f)
	if err != nil {
		e.Check(name, false, "%v", err)
		return err
	}
	e.Metric("back_seconds", scenario.Seconds(back.Sub(on)))
	e.Check(name, true, "Ready, reachable, and the disk has its replica again (on %s) %s after the fault was over",
		strings.Join(e.View.ReplicasOf(f.Volume.Name), ", "), timeline.Round(back.Sub(on)))
	return nil
}

// VMStopped is the scenario vm-stopped.
var VMStopped = scenario.Scenario{
	Name:    "vm-stopped",
	Summary: "the VM of a pod that writes is deallocated at Azure",
	Title:   "A virtual machine is deallocated",
	Latency: "realistic",
	Run:     vmStopped,
}

// vmStopped deallocates the VM at Azure. Its word, and a forced detach, are then the proof.
func vmStopped(ctx context.Context, e *scenario.Environment) error {
	f, err := beginLoss(ctx, e, single)
	if err != nil {
		return err
	}
	e.Progress("deallocating the VM %s at Azure", f.From)
	if f.Fault, err = e.Deallocate(ctx, f.From); err != nil {
		return err
	}
	if err := e.AwaitFailover(ctx, &f, scenario.FailoverTimeout); err != nil {
		return err
	}
	// Azure does not say whether a registration survives a deallocation: if it does, a pre-emption is a proof.
	e.RecordFailover(f, observer.ProofVMDown, observer.ProofDetached, observer.ProofPreempted)
	e.Bound("the pod runs elsewhere after", f.Took(), maxVMStoppedSeconds)
	marks := func() []observer.Milestone { return e.View.Observer.Marks() }
	err = e.View.Await(ctx, time.Minute, f.From+" is marked out of service", func() bool {
		return !observer.First(marks(), f.Fault, observer.Milestone{Kind: observer.TaintedOut, Node: f.From}).At.IsZero()
	})
	marked := observer.First(marks(), f.Fault, observer.Milestone{Kind: observer.TaintedOut, Node: f.From})
	e.Check("the node is marked out of service while its VM is down", err == nil, "%s after the VM was down",
		timeline.Round(scenario.Between(f.Fault, marked.At)))
	e.Progress("starting the VM %s again", f.From)
	on, err := e.StartVM(ctx, f.From)
	if err != nil {
		return err
	}
	if err := recordBack(ctx, e, f, on); err != nil {
		return err
	}
	unmarked := observer.First(marks(), on, observer.Milestone{Kind: observer.Untainted, Node: f.From})
	e.Check("the mark is gone after the VM was started", !unmarked.At.IsZero(), "%s after the start was asked for",
		timeline.Round(scenario.Between(on, unmarked.At)))
	return endLoss(ctx, e, f)
}

// Reboot is the scenario node-reboot.
var Reboot = scenario.Scenario{
	Name:    "node-reboot",
	Summary: "a node loses its power and is back within a minute",
	Title:   "A node restarts without warning",
	Latency: "realistic",
	Run:     nodeReboot,
}

// nodeReboot gives the node its power back as soon as the failover has begun. Where the
// pod runs then is open; that it runs, and that nothing is lost, is not.
func nodeReboot(ctx context.Context, e *scenario.Environment) error {
	f, err := beginLoss(ctx, e, single)
	if err != nil {
		return err
	}
	e.Progress("cutting the power of %s until its failover has begun", f.From)
	if f.Fault, err = e.PowerOff(ctx, f.From); err != nil {
		return err
	}
	_ = e.View.Await(ctx, rebootPatience, "the failover has begun", func() bool {
		return !observer.First(e.View.Observer.Marks(), f.Fault, observer.Milestone{
			Kind:   observer.FenceDecided,
			Node:   f.From,
			Volume: f.Volume.Name,
		}).At.IsZero()
	})
	on, err := e.PowerOn(ctx, f.From)
	if err != nil {
		return err
	}
	e.Metric("off_seconds", scenario.Seconds(on.Sub(f.Fault)))
	if err := e.AwaitAnywhere(ctx, &f, scenario.FailoverTimeout); err != nil {
		return err
	}
	e.Metric("total_seconds", scenario.Seconds(f.Took()))
	e.Metric("lost_node", f.From)
	e.Metric("new_node", f.To)
	e.Metric("proof", f.ProofKind)
	e.Check("the pod is back", f.Took() > 0, "on %s after %s", f.To, timeline.Round(f.Took()))
	e.Check("what was decided is carried through although the node is back", f.Decided.IsZero() || !f.Proven.IsZero(),
		"the proof is %q, %s after the node was switched on", f.ProofKind, timeline.Round(scenario.Between(on, f.Proven)))
	if err := recordBack(ctx, e, f, on); err != nil {
		return err
	}
	return endLoss(ctx, e, f)
}
