package replicas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/evidence"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	drainedVolumes  = 10
	maxDrainSeconds = 25
	// evictAgain is how long is waited after an eviction that a PodDisruptionBudget refused.
	evictAgain = time.Second
)

// NodeDrain is the scenario node-drain.
var NodeDrain = scenario.Scenario{
	Name:    "node-drain",
	Summary: "a node with ten pods that write to replicated disks is drained",
	Title:   "A node with ten volumes is drained",
	Latency: "realistic",
	Run:     nodeDrain,
}

// nodeDrain drains a node on which ten pods write to a disk with a replica each, as
// `kubectl drain` does: it cordons it and evicts everything but what a DaemonSet runs.
func nodeDrain(ctx context.Context, e *scenario.Environment) error {
	node, zone, err := drainTarget(ctx, e)
	if err != nil {
		return err
	}
	var workloads []scenario.Workload
	for i := range drainedVolumes {
		workloads = append(workloads, scenario.Workload{
			Name:      fmt.Sprintf("writer-%02d", i+1),
			MaxShares: 2,
			Replicas:  1,
			Zone:      zone,
			Interval:  100 * time.Millisecond,
		})
	}
	e.Progress("making %d pods that write on %s, each to a disk with a replica", drainedVolumes, node)
	volumes, err := e.StartOn(ctx, node, workloads...)
	if err != nil {
		return err
	}
	moves, err := drain(ctx, e, node, workloads, volumes)
	if err != nil {
		return err
	}
	if err := e.JudgeAll(ctx, workloads...); err != nil {
		return err
	}
	return recordDrain(ctx, e, node, moves)
}

// drainTarget is a node in a zone with at least two, away from the leader and, if
// possible, from every controller: the loss of those is not measured here.
func drainTarget(ctx context.Context, e *scenario.Environment) (node, zone string, err error) {
	zones := e.View.Zones()
	if len(zones) == 0 {
		return "", "", errors.New("node-drain needs a zone with two nodes: bring the playground up with 4 nodes or more")
	}
	avoid := e.ControllerNodes()
	leads, err := e.Leader(ctx)
	if err != nil {
		return "", "", err
	}
	for _, taken := range [][]string{avoid, {leads.Node}} {
		for _, zone := range zones {
			for _, node := range e.View.Nodes(zone) {
				if !slices.Contains(taken, node) {
					return node, zone, nil
				}
			}
		}
	}
	return "", "", errors.New("there is no node without the controller's leader")
}

// drain drains the node and returns when all workloads run elsewhere.
func drain(ctx context.Context, e *scenario.Environment, node string, workloads []scenario.Workload,
	volumes []observer.Volume) ([]scenario.Move, error) {
	var moves []scenario.Move
	for i, w := range workloads {
		pod := e.View.Pod(w.Pod())
		if pod == nil || pod.Spec.NodeName != node {
			return nil, fmt.Errorf("pod %s is not on %s", w.Pod(), node)
		}
		moves = append(moves, scenario.Move{
			Workload: w,
			Volume:   volumes[i],
			From:     node,
			Machines: e.View.Nodes(w.Zone),
		})
	}
	held := map[string]map[string]observer.Attachment{}
	old := map[string]*corev1.Pod{}
	for _, m := range moves {
		held[m.Workload.Name], old[m.Workload.Name] = e.View.Attachments(m.Volume.Name), e.View.Pod(m.Workload.Pod())
	}
	e.Progress("draining %s", node)
	e.RepairLater("uncordon "+node, func(ctx context.Context) error { return e.SetCordon(ctx, node, false) })
	began := e.Say(timeline.Kubernetes, "", "drain of "+node+" begins", "it is cordoned, and all of its pods are evicted")
	if err := evictAll(ctx, e, node); err != nil {
		return nil, err
	}
	for i := range moves {
		m := &moves[i]
		m.Requested = began
		name := m.Workload.Pod()
		err := e.View.Await(ctx, scenario.MoveTimeout, name+" runs on another node than "+node, func() bool {
			pod := e.View.Pod(name)
			return pod != nil && pod.UID != old[m.Workload.Name].UID && observer.IsRunning(pod) && pod.Spec.NodeName != node
		})
		if err != nil {
			return nil, err
		}
		pod := e.View.Pod(name)
		m.To = pod.Spec.NodeName
		m.Running = observer.First(e.View.Observer.Marks(), began, observer.Milestone{Kind: observer.PodRunning, Pod: pod.UID}).At
		m.OntoReplica = held[m.Workload.Name][m.To].State == "Attached"
		received, err := e.AwaitWriter(ctx, m.Workload, string(pod.UID))
		if err != nil {
			return nil, err
		}
		m.LastWrite, m.FirstWrite = scenario.AroundStart(received.Acks, string(pod.UID))
	}
	return moves, nil
}

// evictAll cordons the node and evicts its pods at the same time, and returns when all
// evictions have been granted.
func evictAll(ctx context.Context, e *scenario.Environment, node string) error {
	if err := e.SetCordon(ctx, node, true); err != nil {
		return err
	}
	pods, err := e.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return fmt.Errorf("list the pods of %s: %w", node, err)
	}
	group, ctx := errgroup.WithContext(ctx)
	evicted := 0
	for i := range pods.Items {
		pod := &pods.Items[i]
		if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
			continue
		}
		evicted++
		group.Go(func() error { return evict(ctx, e, pod) })
	}
	e.Metric("evicted_pods", evicted)
	return group.Wait()
}

func evict(ctx context.Context, e *scenario.Environment, pod *corev1.Pod) error {
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	}
	var failure error
	err := e.Poll(ctx, scenario.MoveTimeout, evictAgain, pod.Name+" may be evicted", func(ctx context.Context) error {
		err := e.Kube.PolicyV1().Evictions(pod.Namespace).Evict(ctx, eviction)
		if apierrors.IsTooManyRequests(err) {
			return err
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			failure = fmt.Errorf("evict %s: %w", pod.Name, err)
		}
		return nil
	})
	return errors.Join(failure, err)
}

func recordDrain(ctx context.Context, e *scenario.Environment, node string, moves []scenario.Move) error {
	found, err := e.AddEvidence(ctx, e.Report.Started)
	if err != nil {
		return err
	}
	series := scenario.Measure(moves, found)
	last := slices.MaxFunc(moves, func(a, b scenario.Move) int { return a.Running.Compare(b.Running) })
	var writes []string
	onto := 0
	for _, c := range found.Azure {
		if c.IsWrite() && evidence.ChangesDiskOrVM(c) && !c.Time.Before(last.Requested) && !c.Time.After(last.Running) {
			writes = append(writes, fmt.Sprintf("%s %s", c.API, c.Name))
		}
	}
	for _, m := range moves {
		e.Events.Add(m.Writes()...)
		if m.OntoReplica {
			onto++
		}
	}
	e.Metric("drained_node", node)
	e.Metric("drain_seconds", scenario.Seconds(last.Took()))
	e.Metric("pod_seconds_all", series.Seconds)
	e.Metric("pod_seconds_median", timeline.Median(series.Seconds))
	e.Metric("driver_share_seconds_all", series.DriverSeconds)
	e.Metric("write_pause_seconds_all", series.PauseSeconds)
	e.Metric("azure_writes", len(writes))
	e.Metric("moves_onto_a_replica", onto)
	e.Check(fmt.Sprintf("all %d pods run elsewhere at most %d s after the drain began", len(moves), maxDrainSeconds),
		last.Took().Seconds() <= maxDrainSeconds, "%s; the pods took %s s", timeline.Round(last.Took()), list(series.Seconds))
	e.Check("nothing is written to Azure until then", len(writes) == 0, "%d writes %s", len(writes), strings.Join(writes, ", "))
	e.Check("every pod goes to the node with its replica", onto == len(moves), "%d of %d", onto, len(moves))
	e.Report.Comparison = &timeline.Comparison{
		Title:  "From the begin of the drain until each pod runs elsewhere",
		Groups: []timeline.Group{{Title: "With a replica", Seconds: series.Seconds, Good: true}},
	}
	e.Report.Figures = []timeline.Figure{last.Figure("The last pod of the drained node", e.EventsOf(last), true)}
	e.Report.Summary = fmt.Sprintf("%s was drained. Its %d pods, each with a replicated disk, all ran elsewhere after %s; Azure was asked for %s. %s",
		node, len(moves), timeline.Round(last.Took()), changes(len(writes)), e.RecordsLost())
	return nil
}
