package outages

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// podsPerNode is how many pods with volumes are on each node of the zone.
	podsPerNode = 2
	// zoneInterval is the time between two records of a pod.
	zoneInterval = 50 * time.Millisecond
)

// ZoneDown is the scenario zone-down.
var ZoneDown = scenario.Scenario{
	Name:    "zone-down",
	Summary: "all nodes of a zone lose their power, with the controller's leader and a scheduler extender or webhook",
	Title:   "A zone is lost",
	Latency: "realistic",
	Run:     zoneDown,
}

// zoneDown cuts the power of all nodes of the zone in which the controller leads. The pods there
// have zone-redundant disks, and must run in another zone.
func zoneDown(ctx context.Context, e *scenario.Environment) error {
	zone, err := zoneToLose(ctx, e)
	if err != nil {
		return err
	}
	lost := e.View.Nodes(zone)
	e.Progress("making %d pods that write to zone-redundant disks on each of %s", podsPerNode, strings.Join(lost, " and "))
	losses, workloads, err := startInZone(ctx, e, lost)
	if err != nil {
		return err
	}
	leads, err := e.Leader(ctx)
	if err != nil {
		return err
	}
	components := componentsIn(e, lost)
	e.Metric("zone", zone)
	e.Metric("components_in_zone", components)
	e.Check("the leader and a scheduler component are in the zone", slices.Contains(lost, leads.Node) &&
		slices.ContainsFunc(components, func(pod string) bool { return strings.Contains(pod, observer.Scheduler) }),
		"the leader is on %s; in the zone are %q", leads.Node, components)
	e.Progress("cutting the power of %s", strings.Join(lost, " and "))
	if err := loseZone(ctx, e, lost, losses); err != nil {
		return err
	}
	next, err := e.Leader(ctx)
	if err != nil {
		return err
	}
	e.Metric("next_leader_seconds", scenario.Seconds(max(next.Since.Sub(losses[0].Fault), 0)))
	last := recordZone(e, zone, losses)
	e.Progress("switching the zone on again")
	for _, node := range lost {
		on, err := e.PowerOn(ctx, node)
		if err != nil {
			return err
		}
		if _, err := e.AwaitBack(ctx, node, on, last); err != nil {
			return err
		}
	}
	if err := e.JudgeAll(ctx, workloads...); err != nil {
		return err
	}
	if err := e.DrawFailover(ctx, last, "The last pod of the lost zone"); err != nil {
		return err
	}
	e.Report.Summary = fmt.Sprintf("All %d nodes of %s were lost, with the controller's leader. The last of %d pods ran in another zone after %s. %s %s",
		len(lost), zone, len(losses), timeline.Round(last.Took()), last.Story(), e.RecordsLost())
	return nil
}

// zoneToLose is the zone of the leading controller, and sees to it that a pod of the scheduler
// component is there.
func zoneToLose(ctx context.Context, e *scenario.Environment) (string, error) {
	leads, err := e.Leader(ctx)
	if err != nil {
		return "", err
	}
	zones := e.View.Zones()
	at := slices.IndexFunc(zones, func(zone string) bool { return slices.Contains(e.View.Nodes(zone), leads.Node) })
	all := len(e.View.Nodes(""))
	if at < 0 || len(e.View.Nodes(zones[at]))*100 > all*massLossPercent {
		return "", errors.New("zone-down loses a zone of two nodes or more that has less than 45 % of all nodes: bring the playground up with --nodes 6 --zones 3")
	}
	zone := zones[at]
	controllers := map[string]bool{}
	for _, node := range e.ControllerNodes() {
		i := slices.IndexFunc(zones, func(zone string) bool { return slices.Contains(e.View.Nodes(zone), node) })
		controllers[zones[max(i, 0)]] = true
	}
	e.Check("the controllers are in different zones", len(controllers) > 1, "they are on %q, in %d zones", e.ControllerNodes(),
		len(controllers))
	return zone, bringScheduler(ctx, e, zone)
}

// bringScheduler moves a pod of the scheduler component into the zone unless one is there.
func bringScheduler(ctx context.Context, e *scenario.Environment, zone string) error {
	nodes := e.View.Nodes(zone)
	there := func() bool {
		return slices.ContainsFunc(e.View.Component(observer.Scheduler), func(pod *corev1.Pod) bool {
			return slices.Contains(nodes, pod.Spec.NodeName) && observer.IsReady(pod)
		})
	}
	pods := e.View.Component(observer.Scheduler)
	switch {
	case there():
		return nil
	case len(pods) == 0:
		return errors.New("zone-down needs the driver's scheduler extender or webhook")
	}
	others := slices.DeleteFunc(e.View.Nodes(""), func(node string) bool { return slices.Contains(nodes, node) })
	free := func(ctx context.Context) error {
		var failures []error
		for _, node := range others {
			failures = append(failures, e.SetCordon(ctx, node, false))
		}
		return errors.Join(failures...)
	}
	e.RepairLater("uncordon the other zones", free)
	for _, node := range others {
		if err := e.SetCordon(ctx, node, true); err != nil {
			return err
		}
	}
	if err := e.Kube.CoreV1().Pods(observer.DriverNamespace).Delete(ctx, pods[0].Name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the pod %s: %w", pods[0].Name, err)
	}
	if err := e.View.Await(ctx, scenario.SetUpTimeout, "a scheduler component runs in "+zone, there); err != nil {
		return err
	}
	if err := free(ctx); err != nil {
		return err
	}
	e.Repaired("uncordon the other zones")
	return nil
}

// componentsIn are the pods of the driver's controller and scheduler component on those nodes.
func componentsIn(e *scenario.Environment, nodes []string) []string {
	var names []string
	for _, pod := range slices.Concat(e.View.Controllers(), e.View.Component(observer.Scheduler)) {
		if slices.Contains(nodes, pod.Spec.NodeName) {
			names = append(names, pod.Name)
		}
	}
	return names
}

// startInZone makes the pods on those nodes and lets them write.
func startInZone(ctx context.Context, e *scenario.Environment, nodes []string) (losses []scenario.Failover,
	workloads []scenario.Workload, err error) {
	for n, node := range nodes {
		var here []scenario.Workload
		for i := range podsPerNode {
			here = append(here, scenario.Workload{
				Name:      fmt.Sprintf("writer-%d", n*podsPerNode+i+1),
				MaxShares: 2,
				Replicas:  1,
				ZRS:       true,
				Interval:  zoneInterval,
			})
		}
		if err := e.CreateOn(ctx, node, here...); err != nil {
			return nil, nil, err
		}
		workloads = append(workloads, here...)
	}
	volumes, err := e.AwaitAllReady(ctx, workloads...)
	if err != nil {
		return nil, nil, err
	}
	for i, w := range workloads {
		f, err := e.LossOf(ctx, w, volumes[i])
		if err != nil {
			return nil, nil, err
		}
		losses = append(losses, f)
	}
	return losses, workloads, nil
}

// loseZone cuts the power of the nodes at once, and returns when all pods run elsewhere.
func loseZone(ctx context.Context, e *scenario.Environment, nodes []string, losses []scenario.Failover) error {
	fault := e.Clock.Now()
	off, offCtx := errgroup.WithContext(ctx)
	for _, node := range nodes {
		off.Go(func() error { _, err := e.PowerOff(offCtx, node); return err })
	}
	if err := off.Wait(); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range losses {
		losses[i].Fault = fault
		group.Go(func() error { return e.AwaitFailover(groupCtx, &losses[i], scenario.FailoverTimeout) })
	}
	return group.Wait()
}

// recordZone makes metrics and checks of the failovers, and returns that of the pod that ran last.
func recordZone(e *scenario.Environment, zone string, losses []scenario.Failover) scenario.Failover {
	var totals []float64
	var stayed, cold []string
	lost := e.View.Nodes(zone)
	for _, f := range losses {
		totals = append(totals, scenario.Seconds(f.Took()))
		if slices.Contains(lost, f.To) {
			stayed = append(stayed, fmt.Sprintf("%s on %s", f.Workload.Name, f.To))
		}
		if !f.OntoReplica {
			cold = append(cold, fmt.Sprintf("%s to %s", f.Workload.Name, f.To))
		}
	}
	last := slices.MaxFunc(losses, func(a, b scenario.Failover) int { return int(a.Took() - b.Took()) })
	e.RecordFailover(last, last.ProofOfLoss())
	e.CheckOrder(last)
	e.Metric("pods", len(losses))
	e.Metric("total_seconds_all", totals)
	e.Metric("pods_onto_a_replica", len(losses)-len(cold))
	e.Check("all pods run in another zone", len(stayed) == 0, "%d of %d; in %s: %q", len(losses)-len(stayed), len(losses), zone,
		stayed)
	e.Check("every pod goes to a node with a replica, which is in another zone", len(cold) == 0, "%d of %d; not %q",
		len(losses)-len(cold), len(losses), cold)
	e.Bound("the last pod runs in another zone after", last.Took(), e.PodLimit("zone-down"))
	return last
}
