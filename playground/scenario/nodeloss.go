package scenario

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// The bounds of the scenarios in which one node is lost, in seconds.
const (
	maxDetectSeconds    = 10
	maxPowerCutSeconds  = 30
	maxVMStoppedSeconds = 15
)

// rebootPatience is how long node-reboot leaves the power off if no failover begins.
const rebootPatience = 20 * time.Second

// single is the workload of the scenarios in which one node is lost.
var single = Workload{Name: "writer", MaxShares: 2, Replicas: 1}

// beginLoss makes the workload on a node without the controller's leader and lets it
// write.
func (e *Environment) beginLoss(ctx context.Context, w Workload) (Failover, error) {
	e.Progress("making a pod that writes to a disk with a replica")
	volumes, err := e.startAway(ctx, w)
	if err != nil {
		return Failover{}, err
	}
	f, err := e.lossOf(ctx, w, volumes[0])
	if err != nil {
		return Failover{}, err
	}
	leads, err := e.leader(ctx)
	if err != nil {
		return Failover{}, err
	}
	e.metric("controller_leader_node", leads.Node)
	e.check("the controller's leader is on another node", leads.Node != f.From, "it is on %s; %s is going to be lost", leads.Node, f.From)
	return f, nil
}

// endLoss judges the records and draws.
func (e *Environment) endLoss(ctx context.Context, f Failover) error {
	if err := e.judgeAll(ctx, f.Workload); err != nil {
		return err
	}
	if err := e.drawFailover(ctx, f, "The node is lost"); err != nil {
		return err
	}
	e.Report.Notes = append(e.Report.Notes,
		"The nodes are machines made of namespaces, their disks are real block devices, and a disk that is cut answers with an I/O error; only Azure is simulated, with the time that it usually takes.",
		"Each step is drawn when a watch outside of the nodes showed it, the driver's calls as its log tells, and Azure's operations as azuresim recorded them. All clocks are the same one.")
	e.Report.Summary = fmt.Sprintf("The pod ran again on %s %s after %s was lost. %s %s",
		f.To, timeline.Round(f.Took()), f.From, f.story(), e.recordsLost())
	return nil
}

// usualFence is about how long it takes from a power cut until the next pod is scheduled:
// to notice it and to detach the disk by force.
const usualFence = 18 * time.Second

// awaitTypicalTime blocks until a time at which a power cut leads to a failover of typical
// length. A kubelet mounts a new volume only after its own next report, every ten seconds,
// of the volumes that it uses; whether that comes at once or late is luck. The pod is
// moved away and back, so that it is known when the kubelet to which it will go reports.
func (e *Environment) awaitTypicalTime(ctx context.Context, f *Failover) error {
	e.Progress("moving the pod away and back, to learn when the other kubelet reports")
	home, other := f.From, ""
	for range 2 {
		m, err := e.move(ctx, f.Workload, f.Volume)
		if err != nil {
			return err
		}
		if err := e.awaitReplicas(ctx, f.Workload, f.Volume); err != nil {
			return err
		}
		other = m.From
	}
	moved, err := e.lossOf(ctx, f.Workload, f.Volume)
	if err != nil {
		return err
	}
	*f = moved
	if f.From != home {
		return fmt.Errorf("the pod came back to %s and not to %s", f.From, home)
	}
	e.Report.Notes = append(e.Report.Notes, fmt.Sprintf(
		"The power was cut when the kubelet of %s was likely to be half a period of ten seconds away from its next report of the volumes that it uses. It mounts a new volume only after that, "+
			"so the whole would have taken up to five seconds more or less at another moment.", other))
	return e.awaitTime(ctx, middleStart(e.view.observer.reportedUse(other), usualFence, e.Clock.Now()))
}

// nodePowerCut cuts the power of a node. Azure says that its VM runs, as it does at
// first when a host dies, so only a forced detach can prove that it does not write.
func nodePowerCut(ctx context.Context, e *Environment) error {
	f, err := e.beginLoss(ctx, single)
	if err != nil {
		return err
	}
	if err := e.awaitTypicalTime(ctx, &f); err != nil {
		return err
	}
	return e.cutPower(ctx, f)
}

// cutPower cuts the power of the workload's node, judges the failover, also by what further checks there are, and gives the node its power back.
func (e *Environment) cutPower(ctx context.Context, f Failover, further ...func(Failover) error) (err error) {
	e.Progress("cutting the power of %s", f.From)
	if f.Fault, err = e.powerOff(ctx, f.From); err != nil {
		return err
	}
	if err := e.awaitFailover(ctx, &f, failoverTimeout); err != nil {
		return err
	}
	p := f.phases(f.Fault)
	e.recordFailover(f, proofDetached)
	e.checkOrder(f)
	e.bound("the loss is known after", p.Detect, maxDetectSeconds)
	e.bound("the pod runs elsewhere after", p.Total, maxPowerCutSeconds)
	marked := first(e.view.observer.marks(), f.Fault, milestone{Kind: taintedOut, Node: f.From})
	e.check("the node is not marked out of service, because its VM is not proved down", marked.At.IsZero(), "the VM is said to run")
	for _, check := range further {
		if err := check(f); err != nil {
			return err
		}
	}
	if err := e.bringBack(ctx, f); err != nil {
		return err
	}
	return e.endLoss(ctx, f)
}

// bringBack gives a lost node its power again and waits until it is used.
func (e *Environment) bringBack(ctx context.Context, f Failover) error {
	e.Progress("switching %s on again", f.From)
	on, err := e.powerOn(ctx, f.From)
	if err != nil {
		return err
	}
	return e.recordBack(ctx, f, on)
}

func (e *Environment) recordBack(ctx context.Context, f Failover, on time.Time) error {
	const name = "the node is used again without help"
	back, err := e.awaitBack(ctx, f.From, on, f)
	if err != nil {
		e.check(name, false, "%v", err)
		return err
	}
	e.metric("back_seconds", milli(back.Sub(on)))
	e.check(name, true, "Ready, reachable, and the disk has its replica again (on %s) %s after the fault was over",
		strings.Join(e.view.replicasOf(f.Volume.Name), ", "), timeline.Round(back.Sub(on)))
	return nil
}

// vmStopped deallocates the VM at Azure, whose word is then the proof.
func vmStopped(ctx context.Context, e *Environment) error {
	f, err := e.beginLoss(ctx, single)
	if err != nil {
		return err
	}
	e.Progress("deallocating the VM %s at Azure", f.From)
	if f.Fault, err = e.deallocate(ctx, f.From); err != nil {
		return err
	}
	if err := e.awaitFailover(ctx, &f, failoverTimeout); err != nil {
		return err
	}
	e.recordFailover(f, proofVMDown, proofDetached)
	e.bound("the pod runs elsewhere after", f.Took(), maxVMStoppedSeconds)
	marks := func() []milestone { return e.view.observer.marks() }
	err = e.view.await(ctx, time.Minute, f.From+" is marked out of service", func() bool {
		return !first(marks(), f.Fault, milestone{Kind: taintedOut, Node: f.From}).At.IsZero()
	})
	marked := first(marks(), f.Fault, milestone{Kind: taintedOut, Node: f.From})
	e.check("the node is marked out of service while its VM is down", err == nil, "%s after the VM was down", timeline.Round(between(f.Fault, marked.At)))
	e.Progress("starting the VM %s again", f.From)
	on, err := e.startVM(ctx, f.From)
	if err != nil {
		return err
	}
	if err := e.recordBack(ctx, f, on); err != nil {
		return err
	}
	unmarked := first(marks(), on, milestone{Kind: untainted, Node: f.From})
	e.check("the mark is gone after the VM was started", !unmarked.At.IsZero(), "%s after the start was asked for", timeline.Round(between(on, unmarked.At)))
	return e.endLoss(ctx, f)
}

// nodeReboot gives the node its power back as soon as the failover has begun. Where the
// pod runs then is open; that it runs, and that nothing is lost, is not.
func nodeReboot(ctx context.Context, e *Environment) error {
	f, err := e.beginLoss(ctx, single)
	if err != nil {
		return err
	}
	e.Progress("cutting the power of %s until its failover has begun", f.From)
	if f.Fault, err = e.powerOff(ctx, f.From); err != nil {
		return err
	}
	_ = e.view.await(ctx, rebootPatience, "the failover has begun", func() bool {
		return !first(e.view.observer.marks(), f.Fault, milestone{Kind: fenceDecided, Node: f.From, Volume: f.Volume.Name}).At.IsZero()
	})
	on, err := e.powerOn(ctx, f.From)
	if err != nil {
		return err
	}
	e.metric("off_seconds", milli(on.Sub(f.Fault)))
	if err := e.awaitAnywhere(ctx, &f, failoverTimeout); err != nil {
		return err
	}
	e.metric("total_seconds", milli(f.Took()))
	e.metric("lost_node", f.From)
	e.metric("new_node", f.To)
	e.metric("proof", f.ProofKind)
	e.check("the pod is back", f.Took() > 0, "on %s after %s", f.To, timeline.Round(f.Took()))
	e.check("what was decided is carried through although the node is back", f.Decided.IsZero() || !f.Proven.IsZero(),
		"the proof is %q, %s after the node was switched on", f.ProofKind, timeline.Round(between(on, f.Proven)))
	if err := e.recordBack(ctx, f, on); err != nil {
		return err
	}
	return e.endLoss(ctx, f)
}
