package maintenance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/evidence"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// poolNodes are upgraded one after the other; one more node takes their pods.
	poolNodes = 6
	// poolVolumes are spread over all zones.
	poolVolumes = 9
	// reimaging is how long a node has no power: its disk is replaced in that time.
	reimaging = 30 * time.Second
	// maxPauseRatio is how much longer pods with volumes may write nothing than pods without, which
	// are drained in the same run.
	maxPauseRatio = 1.3
	// poolInterval is the time between two records of a pod: many pods that write as fast as a single
	// one usually does would load the machine.
	poolInterval = 100 * time.Millisecond
)

// pool is the kind of volumes with which a pool of nodes is upgraded.
type pool struct {
	replicas int
	zrs      bool
}

// PoolUpgrade, PoolUpgradeZRS and PoolUpgradeTwoReplicas are the scenarios node-pool-upgrade…
var (
	PoolUpgrade = poolUpgrade("", pool{replicas: 1},
		"six nodes with nine volumes are drained, reimaged and used again, one after the other, beside a surge node")
	PoolUpgradeZRS         = poolUpgrade("-zrs", pool{replicas: 1, zrs: true}, "the same with volumes that any zone can use")
	PoolUpgradeTwoReplicas = poolUpgrade("-two-replicas", pool{replicas: 2}, "the same with two replicas of each volume")
)

func poolUpgrade(suffix string, p pool, summary string) scenario.Scenario {
	return scenario.Scenario{
		Name:    "node-pool-upgrade" + suffix,
		Summary: summary,
		Title:   "A pool of nodes is upgraded",
		Latency: "realistic",
		Run:     p.upgrade,
	}
}

// upgrade upgrades a pool as AKS does: a surge node joins; each node is cordoned, drained, without
// power while its disk is replaced, and used again; at the end the surge node is drained and
// leaves.
func (p pool) upgrade(ctx context.Context, e *scenario.Environment) error {
	nodes := e.View.Nodes("")
	if len(nodes) != poolNodes+1 {
		return fmt.Errorf("%s needs %d nodes: bring the playground up with them", e.Report.Scenario, poolNodes+1)
	}
	nodes, surge := nodes[:poolNodes], nodes[poolNodes]
	if err := leave(ctx, e, surge); err != nil {
		return err
	}
	workloads, volumes, stateless, err := p.start(ctx, e, nodes)
	if err != nil {
		return err
	}
	e.Progress("the surge node %s joins", surge)
	if err := join(ctx, e, surge); err != nil {
		return err
	}
	began := e.Clock.Now()
	u := upgraded{surge: surge}
	for _, node := range nodes {
		if err := u.drain(ctx, e, node, workloads, volumes, stateless); err != nil {
			return err
		}
		if err := reimage(ctx, e, node); err != nil {
			return err
		}
	}
	if err := u.drain(ctx, e, surge, workloads, volumes, stateless); err != nil {
		return err
	}
	ended := e.Clock.Now()
	for i, w := range workloads {
		if err := e.AwaitReplicas(ctx, w, volumes[i]); err != nil {
			return err
		}
	}
	if err := e.JudgeAll(ctx, workloads...); err != nil {
		return err
	}
	return u.record(ctx, e, began, ended)
}

// leave has a node leave the cluster, as if it had never been there. At the end of the scenario it
// joins again.
func leave(ctx context.Context, e *scenario.Environment, node string) error {
	if _, err := e.PowerOff(ctx, node); err != nil {
		return err
	}
	if err := e.Kube.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the Node %s: %w", node, err)
	}
	return e.View.Await(ctx, scenario.SetUpTimeout, node+" has left", func() bool {
		return !slices.Contains(e.View.Nodes(""), node) && e.View.DriverNode(node).GetName() == ""
	})
}

// join gives a node its power and waits until it is used.
func join(ctx context.Context, e *scenario.Environment, node string) error {
	on, err := e.PowerOn(ctx, node)
	if err != nil {
		return err
	}
	back := func() bool { return e.View.IsBack(node, on) }
	if err := e.View.Await(ctx, scenario.BackTimeout, node+" is used", back); err != nil {
		return fmt.Errorf("%w: it is %s", err, e.View.DescribeNode(node))
	}
	return nil
}

// reimage leaves a drained node without power for a while, and uncordons it when it is back.
func reimage(ctx context.Context, e *scenario.Environment, node string) error {
	off, err := e.PowerOff(ctx, node)
	if err != nil {
		return err
	}
	if err := e.AwaitTime(ctx, off.Add(reimaging)); err != nil {
		return err
	}
	if err := join(ctx, e, node); err != nil {
		return err
	}
	if err := e.SetCordon(ctx, node, false); err != nil {
		return err
	}
	e.Repaired("uncordon " + node)
	return nil
}

// start makes the pods with volumes in all zones, and one without a volume on each node.
func (p pool) start(ctx context.Context, e *scenario.Environment, nodes []string) (workloads []scenario.Workload,
	volumes []observer.Volume, stateless []scenario.Workload, err error) {
	zones := e.View.Zones()
	if len(zones) < 2 || !p.zrs && slices.ContainsFunc(zones, func(z string) bool { return len(e.View.Nodes(z)) <= p.replicas }) {
		return nil, nil, nil, errors.New("every zone needs a node for the pod and one for each replica: bring the playground up with other --zones")
	}
	for i := range poolVolumes {
		w := scenario.Workload{
			Name:      fmt.Sprintf("writer-%d", i+1),
			MaxShares: p.replicas + 1,
			Replicas:  p.replicas,
			ZRS:       p.zrs,
			Interval:  poolInterval,
		}
		if !p.zrs {
			w.Zone = zones[i%len(zones)]
		}
		workloads = append(workloads, w)
	}
	e.Progress("making %d pods that write to replicated disks in %d zones, and %d that write to no disk", len(workloads),
		len(zones), len(nodes))
	if volumes, err = e.Start(ctx, workloads...); err != nil {
		return nil, nil, nil, err
	}
	for i, node := range nodes {
		w := scenario.Workload{
			Name:      fmt.Sprintf("stateless-%d", i+1),
			Stateless: true,
			Interval:  poolInterval,
		}
		if err := e.CreateOn(ctx, node, w); err != nil {
			return nil, nil, nil, err
		}
		stateless = append(stateless, w)
	}
	for _, w := range stateless {
		if err := e.AwaitWriting(ctx, w); err != nil {
			return nil, nil, nil, err
		}
	}
	return workloads, volumes, stateless, e.AwaitEarlierDisks(ctx)
}

// upgraded is what was measured of the upgrade.
type upgraded struct {
	surge string
	// moves are those of pods with volumes, others those of pods without.
	moves, others []scenario.Move
	// drains are how long the drain of each node took, in seconds.
	drains []float64
}

// drain drains a node and measures the moves of the pods on it.
func (u *upgraded) drain(ctx context.Context, e *scenario.Environment, node string, workloads []scenario.Workload,
	volumes []observer.Volume, stateless []scenario.Workload) error {
	var on []scenario.Workload
	var theirs []observer.Volume
	isOn := func(w scenario.Workload) bool {
		pod := e.View.Pod(w.Pod())
		return pod != nil && pod.Spec.NodeName == node
	}
	for i, w := range workloads {
		if isOn(w) {
			on, theirs = append(on, w), append(theirs, volumes[i])
		}
	}
	for _, w := range stateless {
		if isOn(w) {
			on, theirs = append(on, w), append(theirs, observer.Volume{})
		}
	}
	e.Progress("draining %s, with %d pods", node, len(on))
	e.RepairLater("uncordon "+node, func(ctx context.Context) error { return e.SetCordon(ctx, node, false) })
	began := e.Clock.Now()
	moves, err := e.Drain(ctx, node, on, theirs)
	if err != nil {
		return err
	}
	u.drains = append(u.drains, scenario.Seconds(e.Clock.Now().Sub(began)))
	for _, m := range moves {
		if m.Workload.Stateless {
			u.others = append(u.others, m)
		} else {
			u.moves = append(u.moves, m)
		}
	}
	return nil
}

func (u *upgraded) record(ctx context.Context, e *scenario.Environment, began, ended time.Time) error {
	found, err := e.AddEvidence(ctx, e.Report.Started)
	if err != nil {
		return err
	}
	with, without := scenario.Measure(u.moves, found), scenario.Measure(u.others, found)
	if len(u.moves) == 0 || len(u.others) == 0 {
		return fmt.Errorf("%d moves of pods with volumes and %d of pods without were measured", len(u.moves), len(u.others))
	}
	var cold, writes []string
	onSurge := 0
	for _, m := range u.moves {
		e.Events.Add(m.Writes()...)
		if !m.OntoReplica {
			cold = append(cold, fmt.Sprintf("%s: %s to %s in %s", m.Workload.Name, m.From, m.To, timeline.Round(m.Took())))
		}
		writes = append(writes, writesFor(m, found.Azure)...)
		if m.To == u.surge {
			onSurge++
		}
	}
	fences := fencesBetween(e, began, ended)
	pause, other := timeline.Median(with.PauseSeconds), timeline.Median(without.PauseSeconds)
	for name, value := range map[string]any{
		"moves": len(u.moves), "moves_onto_a_replica": len(u.moves) - len(cold), "azure_writes_for_moves": len(writes),
		"moves_to_the_surge_node": onSurge,
		"fences":                  len(fences), "write_pause_seconds_all": with.PauseSeconds, "write_pause_seconds_median": pause,
		"write_pause_seconds_max":              slices.Max(with.PauseSeconds),
		"stateless_write_pause_seconds_all":    without.PauseSeconds,
		"stateless_write_pause_seconds_median": other,
		"stateless_write_pause_seconds_max":    slices.Max(without.PauseSeconds),
		"pod_seconds_median":                   timeline.Median(with.Seconds),
		"stateless_pod_seconds_median":         timeline.Median(without.Seconds),
		"driver_share_seconds_median":          timeline.Median(with.DriverSeconds),
		"drain_seconds_all":                    u.drains,
		"upgrade_seconds":                      scenario.Seconds(ended.Sub(began)),
	} {
		e.Metric(name, value)
	}
	e.Check("every pod goes to a node with a replica", len(cold) == 0, "%d of %d; not %q", len(u.moves)-len(cold),
		len(u.moves), cold)
	e.Check("nothing is written to Azure for a pod between its eviction and Running", len(writes) == 0, "%d writes %s",
		len(writes), strings.Join(writes, ", "))
	e.Check("no node is fenced", len(fences) == 0, "%d decisions %q", len(fences), fences)
	e.Check(fmt.Sprintf("pods with volumes write nothing for at most %.1f times as long as pods without", maxPauseRatio),
		pause <= maxPauseRatio*other, "median %.2f s against %.2f s: %.2f times", pause, other, pause/other)
	e.Report.Comparison = &timeline.Comparison{
		Title: "For how long no pod wrote while it moved",
		Groups: []timeline.Group{
			{Title: "With a replicated volume", Seconds: with.PauseSeconds, Good: true},
			{Title: "Without a volume", Seconds: without.PauseSeconds},
		},
	}
	typical := u.moves[with.Typical()]
	e.Report.Figures = []timeline.Figure{typical.Figure("A typical move", e.EventsOf(typical), true)}
	e.Report.Summary = fmt.Sprintf("%d nodes were drained, reimaged and used again, and the surge node was drained at the end. %d of %d moves went onto a replica. Pods with volumes wrote nothing for %.1f s (median), those without for %.1f s. %s",
		poolNodes, len(u.moves)-len(cold), len(u.moves), pause, other, e.RecordsLost())
	return nil
}

// writesFor are the writes to Azure, between the eviction of a pod and its start elsewhere, that
// change its disk, its new VM, or the disks of its old one.
func writesFor(m scenario.Move, calls []evidence.AzureCall) []string {
	var writes []string
	for _, c := range calls {
		ours := strings.EqualFold(c.Name, m.Volume.Name) || strings.EqualFold(c.Name, m.To) || strings.EqualFold(c.Name, m.From)
		if c.IsWrite() && evidence.ChangesDiskOrVM(c) && ours && !c.Time.Before(m.Requested) && !c.Time.After(m.Running) {
			writes = append(writes, fmt.Sprintf("%s %s during the move of %s", c.API, c.Name, m.Workload.Name))
		}
	}
	return writes
}

// fencesBetween are the decisions to fence a node in that time.
func fencesBetween(e *scenario.Environment, began, ended time.Time) []string {
	var fences []string
	for _, m := range e.View.Observer.Marks() {
		if m.Kind == observer.FenceDecided && !m.At.Before(began) && !m.At.After(ended) {
			fences = append(fences, m.Node)
		}
	}
	return fences
}
