package scenario

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/azuredisk-csi/azuredisk/playground/figures"
	"github.com/azuredisk-csi/azuredisk/playground/recorder"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// FailoverTimeout is how long a failover may take before the scenario breaks off: far
	// above every bound, so that a failover that is too slow is measured too.
	FailoverTimeout = 4 * time.Minute
	// BackTimeout bounds how long a node may take to be used again.
	BackTimeout = 5 * time.Minute
	// RecordsBeforeFault are to be written before a fault, so that there is something to lose.
	RecordsBeforeFault = 200
	// watchSkew is by how much two watches may differ in when they show things that
	// happened one after the other.
	watchSkew = 250 * time.Millisecond
)

// LossOf blocks until there are records to lose, and describes the workload as it is before its
// node is lost.
func (e *Environment) LossOf(ctx context.Context, w Workload, v observer.Volume) (Failover, error) {
	if err := e.AwaitRecords(ctx, RecordsBeforeFault, w); err != nil {
		return Failover{}, err
	}
	pod := e.View.Pod(w.Pod())
	if pod == nil || !observer.IsRunning(pod) {
		return Failover{}, fmt.Errorf("pod %s does not run", w.Pod())
	}
	fencing := func() string { return observer.Text(e.View.AzVolume(v.Name), "status", "fencing") }
	err := e.View.Await(ctx, FencingTimeout, "the driver says how the node would be fenced",
		func() bool { return fencing() != "" })
	if err != nil {
		return Failover{}, err
	}
	return Failover{
		Workload: w,
		Volume:   v,
		From:     pod.Spec.NodeName,
		Old:      pod.UID,
		Machines: e.View.Nodes(""),
		Fencing:  fencing(),
	}, nil
}

// FencingTimeout limits the wait for what the driver says about the fencing of a node that has
// staged a volume.
const FencingTimeout = 10 * time.Second

// ProofOfLoss is the proof that a lost node leads to whose VM is said to run.
func (f Failover) ProofOfLoss() string {
	if f.Fencing == observer.FencingPreemption {
		return observer.ProofPreempted
	}
	return observer.ProofDetached
}

// AwaitFailover blocks until the workload runs on another node than the one that was
// lost at the time f.Fault, and writes, and fills f in with what was seen. If the time
// is over before, it fills in what was seen until then and returns the error.
func (e *Environment) AwaitFailover(ctx context.Context, f *Failover, limit time.Duration) error {
	var held map[string]observer.Attachment
	err := e.View.Await(ctx, limit, f.Workload.Pod()+" runs on another node than "+f.From, func() bool {
		pod := e.View.Pod(f.Workload.Pod())
		if held == nil && (pod == nil || pod.UID != f.Old) {
			held = e.View.Attachments(f.Volume.Name)
		}
		if pod == nil || pod.UID == f.Old || pod.Spec.NodeName == f.From || !observer.IsRunning(pod) {
			return false
		}
		f.To, f.New = pod.Spec.NodeName, pod.UID
		return true
	})
	f.OntoReplica = held[f.To].State == "Attached"
	if err != nil {
		f.Steps = readSteps(*f, e.View.Observer.Marks(), nil)
		return errors.Join(err, e.whyNot(f))
	}
	received, err := e.AwaitWriter(ctx, f.Workload, string(f.New))
	if err != nil {
		return err
	}
	f.LastWrite, f.FirstWrite = AroundStart(received.Acks, string(f.New))
	calls, err := e.driverCalls(ctx, f.Fault)
	f.Steps = readSteps(*f, e.View.Observer.Marks(), calls)
	e.Progress("%s runs on %s after %s", f.Workload.Pod(), f.To, timeline.Round(f.Took()))
	return err
}

// AwaitAnywhere blocks until the workload writes again on any node, and fills f in
// with what was seen.
func (e *Environment) AwaitAnywhere(ctx context.Context, f *Failover, limit time.Duration) error {
	before := lastStart(e.Collector.Received(f.Workload.Name).Acks, f.Fault)
	awaiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	received, err := e.Collector.Await(awaiting, f.Workload.Name, func(t recorder.Received) bool {
		return lastStart(t.Acks, time.Time{}) > before
	})
	if err != nil {
		f.Steps = readSteps(*f, e.View.Observer.Marks(), nil)
		return errors.Join(fmt.Errorf("wait until %s writes again: %w", f.Workload.Pod(), err), e.whyNot(f))
	}
	var writer string
	f.LastWrite, f.FirstWrite, writer = aroundNextStart(received.Acks, before)
	f.New = types.UID(writer)
	err = e.View.Await(ctx, limit, f.Workload.Pod()+" runs", func() bool {
		pod := e.View.Pod(f.Workload.Pod())
		if pod == nil || pod.UID != f.New || !observer.IsRunning(pod) {
			return false
		}
		f.To = pod.Spec.NodeName
		return true
	})
	if err != nil {
		return err
	}
	calls, err := e.driverCalls(ctx, f.Fault)
	f.Steps = readSteps(*f, e.View.Observer.Marks(), calls)
	if f.FirstWrite.After(f.Running) {
		// A node that is away for a moment only is not noticed, and its pod passes for
		// Running all the time.
		f.Running = f.FirstWrite
	}
	e.Progress("%s runs on %s after %s", f.Workload.Pod(), f.To, timeline.Round(f.Took()))
	return err
}

// lastStart is the highest start number of the records that were written before that
// time, of all records if it is zero.
func lastStart(acks []recorder.Ack, before time.Time) int64 {
	var highest int64
	for _, a := range acks {
		if before.IsZero() || a.Time.Before(before) {
			highest = max(highest, a.Start)
		}
	}
	return highest
}

// aroundNextStart returns the times of the last acknowledged record of the starts up
// to that one and of the first record after, and the writer of the latter.
func aroundNextStart(acks []recorder.Ack, start int64) (last, next time.Time, writer string) {
	for _, a := range acks {
		switch {
		case a.Start <= start && a.Time.After(last):
			last = a.Time
		case a.Start > start && (next.IsZero() || a.Time.Before(next)):
			next, writer = a.Time, a.Writer
		}
	}
	return last, next, writer
}

// whyNot says how far a failover came.
func (e *Environment) whyNot(f *Failover) error {
	missing := []string{}
	for _, step := range []struct {
		name string
		at   time.Time
	}{
		{"the driver says that the node is lost", f.Unreachable}, {"the fence is decided", f.Decided},
		{"the release is proven", f.Proven}, {"the old pod is gone", f.PodDeleted},
		{"the volume is not in use", f.NotInUse}, {"the old attachment is gone", f.Unattached},
	} {
		if step.at.IsZero() {
			missing = append(missing, step.name)
		}
	}
	return fmt.Errorf("of %s's failover this was not seen: %q", f.Workload.Name, missing)
}

// AwaitBack blocks until a node that was lost at that time is used again without
// manual help: it is Ready, the driver sees it, it is not marked out of service, and
// the workload's volume has its replica again on any node. It returns when that was.
func (e *Environment) AwaitBack(ctx context.Context, node string, since time.Time, f Failover) (time.Time, error) {
	err := e.View.Await(ctx, BackTimeout, node+" is back", func() bool { return e.View.IsBack(node, since) })
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: it is %s", err, e.View.DescribeNode(node))
	}
	err = e.AwaitReplicas(ctx, f.Workload, f.Volume)
	return e.Clock.Now(), err
}

// RecordFailover makes metrics of what was measured of one failover, and checks that
// its proof was one that the scenario allows.
func (e *Environment) RecordFailover(f Failover, proofs ...string) {
	p := f.Phases(f.Fault)
	e.Metric("detect_seconds", Seconds(p.Detect))
	e.Metric("fence_seconds", Seconds(p.Fence))
	e.Metric("unblock_seconds", Seconds(p.Unblock))
	e.Metric("total_seconds", Seconds(p.Total))
	e.Metric("kubelet_wait_seconds", Seconds(f.KubeletWait()))
	e.Metric("write_pause_seconds", Seconds(Between(f.LastWrite, f.FirstWrite)))
	e.Metric("lost_node", f.From)
	e.Metric("new_node", f.To)
	e.Metric("proof", f.ProofKind)
	e.Metric("fencing", f.Fencing)
	e.Metric("unreachable_reason", f.UnreachableReason)
	e.Metric("onto_a_replica", f.OntoReplica)
	for _, step := range []struct {
		name string
		at   time.Time
	}{
		{"pod_deleted_after_proof_seconds", f.PodDeleted}, {"not_in_use_after_proof_seconds", f.NotInUse},
		{"unattached_after_proof_seconds", f.Unattached}, {"published_after_proof_seconds", f.Published},
		{"stage_asked_after_proof_seconds", f.StageAsked}, {"staged_after_proof_seconds", f.Staged},
		{"running_after_proof_seconds", f.Running},
	} {
		e.Metric(step.name, Seconds(Between(f.Proven, step.at)))
	}
	e.Check("it is proven that the old node cannot write, and how", slices.Contains(proofs, f.ProofKind),
		"proof %q, one of %q is expected", f.ProofKind, proofs)
	e.Check("the pod goes to the node with the replica", f.OntoReplica, "%s to %s", f.From, f.To)
}

// CheckOrder checks that the pod was left alone until the proof was there.
func (e *Environment) CheckOrder(f Failover) {
	e.Check("the old pod is deleted only after the proof", !f.Proven.IsZero() && f.PodDeleted.After(f.Proven.Add(-watchSkew)),
		"%s after it", timeline.Round(Between(f.Proven, f.PodDeleted)))
}

// Limit returns the most seconds that a run may take, by the record of the figure and the speed of the
// machine.
func (e *Environment) Limit(figure string) float64 {
	limit := figures.Limit(figure, figures.Slowness(func(do func()) time.Duration {
		began := e.Clock.Now()
		do()
		return e.Clock.Since(began)
	}))
	return math.Round(limit*10) / 10
}

// PodLimit is Limit of a figure that ends when a pod runs. With VolumeAttachments a kubelet mounts a
// volume only after its next report.
func (e *Environment) PodLimit(figure string) float64 {
	if e.Report.Metrics["attach_required"] == true {
		return e.Limit(figure) + kubeletReport.Seconds()
	}
	return e.Limit(figure)
}

// kubeletReport is how often a kubelet reports which volumes it uses.
const kubeletReport = 10 * time.Second

// Bound checks that a duration was measured and is at most so many seconds.
func (e *Environment) Bound(name string, took time.Duration, limit float64) {
	e.Check(fmt.Sprintf("%s at most %g s", name, limit), took > 0 && took.Seconds() <= limit, "%s", timeline.Round(took))
}

// DrawFailover adds the picture of the failover, from the fault until the new pod
// writes, and what Azure and the driver did to the timeline.
func (e *Environment) DrawFailover(ctx context.Context, f Failover, title string) error {
	if _, err := e.AddEvidence(ctx, e.Report.Started); err != nil {
		return err
	}
	e.Events.Add(Move{
		Workload:   f.Workload,
		From:       f.From,
		To:         f.To,
		LastWrite:  f.LastWrite,
		FirstWrite: f.FirstWrite,
	}.Writes()...)
	e.Report.Figures = append(e.Report.Figures, f.Figure(title, e.During(f)))
	return nil
}

// During are the events of the failover that concern its workload, its disk or a
// machine.
func (e *Environment) During(f Failover) []timeline.Event {
	return slices.DeleteFunc(e.Events.Between(f.Fault, f.end()), func(ev timeline.Event) bool {
		return ev.Subject != f.Workload.Name && !f.involves(ev.Subject)
	})
}

func (f Failover) end() time.Time {
	if f.FirstWrite.After(f.Running) {
		return f.FirstWrite
	}
	return f.Running
}

// Figure draws the failover. The caller has left out the events of other workloads.
func (f Failover) Figure(title string, events []timeline.Event) timeline.Figure {
	figure := timeline.Figure{
		Title:    fmt.Sprintf("%s: %s", title, timeline.Round(f.Took())),
		Caption:  fmt.Sprintf("%s is lost; the pod runs again on %s. %s", f.From, f.To, f.Story()),
		Start:    f.Fault,
		End:      f.end().Add(f.Took() / 25),
		Headline: true,
		Lanes:    lanes(nodeLane(f.From, "the node is lost"), nodeLane(f.To, "the pod arrives")),
		Events:   events,
		Gap:      writePause(f.LastWrite, f.FirstWrite),
	}
	if f.To == f.From {
		figure.Lanes = slices.Delete(figure.Lanes, 3, 4)
	}
	return figure
}

// Story is a sentence about the phases that there were.
func (f Failover) Story() string {
	p := f.Phases(f.Fault)
	switch {
	case p.Detect == 0:
		return "The driver did not take it for lost."
	case p.Fence == 0:
		return fmt.Sprintf("It was known after %s, and nothing was fenced.", timeline.Round(p.Detect))
	}
	return fmt.Sprintf("It was known after %s, fenced in %s (proof: %s) and unblocked in %s.",
		timeline.Round(p.Detect), timeline.Round(p.Fence), f.ProofKind, timeline.Round(p.Unblock))
}
