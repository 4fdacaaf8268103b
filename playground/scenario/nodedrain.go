package scenario

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

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	drainedVolumes  = 10
	maxDrainSeconds = 25
	// evictAgain is how long is waited after an eviction that a PodDisruptionBudget refused.
	evictAgain = time.Second
)

// nodeDrain drains a node on which ten pods write to a disk with a replica each, as
// `kubectl drain` does: it cordons it and evicts everything but what a DaemonSet runs.
func nodeDrain(ctx context.Context, e *Environment) error {
	node, zone, err := e.drainTarget(ctx)
	if err != nil {
		return err
	}
	var workloads []Workload
	for i := range drainedVolumes {
		workloads = append(workloads, Workload{
			Name: fmt.Sprintf("writer-%02d", i+1), MaxShares: 2, Replicas: 1, Zone: zone, Interval: 100 * time.Millisecond,
		})
	}
	e.Progress("making %d pods that write on %s, each to a disk with a replica", drainedVolumes, node)
	volumes, err := e.startOn(ctx, node, workloads...)
	if err != nil {
		return err
	}
	moves, err := e.drain(ctx, node, workloads, volumes)
	if err != nil {
		return err
	}
	if err := e.judgeAll(ctx, workloads...); err != nil {
		return err
	}
	return e.recordDrain(ctx, node, moves)
}

// drainTarget is a node in a zone with at least two, away from the leader and, if
// possible, from every controller: what becomes of those is another matter.
func (e *Environment) drainTarget(ctx context.Context) (node, zone string, err error) {
	zones := e.view.zones()
	if len(zones) == 0 {
		return "", "", errors.New("node-drain needs a zone with two nodes: bring the playground up with 4 nodes or more")
	}
	avoid, err := e.controllerNodes(ctx)
	if err != nil {
		return "", "", err
	}
	leads, err := e.leader(ctx)
	if err != nil {
		return "", "", err
	}
	for _, taken := range [][]string{avoid, {leads.Node}} {
		for _, zone := range zones {
			for _, node := range e.view.nodes(zone) {
				if !slices.Contains(taken, node) {
					return node, zone, nil
				}
			}
		}
	}
	return "", "", errors.New("there is no node without the controller's leader")
}

// drain drains the node and returns when all workloads run elsewhere.
func (e *Environment) drain(ctx context.Context, node string, workloads []Workload, volumes []volume) ([]Move, error) {
	var moves []Move
	for i, w := range workloads {
		pod := e.view.pod(w.pod())
		if pod == nil || pod.Spec.NodeName != node {
			return nil, fmt.Errorf("pod %s is not on %s", w.pod(), node)
		}
		moves = append(moves, Move{Workload: w, Volume: volumes[i], From: node, Machines: e.view.nodes(w.Zone)})
	}
	held := map[string]map[string]attachment{}
	old := map[string]*corev1.Pod{}
	for _, m := range moves {
		held[m.Workload.Name], old[m.Workload.Name] = e.view.attachments(m.Volume.Name), e.view.pod(m.Workload.pod())
	}
	e.Progress("draining %s", node)
	e.mendLater("uncordon "+node, func(ctx context.Context) error { return e.setCordon(ctx, node, false) })
	began := e.say(timeline.Kubernetes, "", "drain of "+node+" begins", "it is cordoned, and all of its pods are evicted")
	if err := e.evictAll(ctx, node); err != nil {
		return nil, err
	}
	for i := range moves {
		m := &moves[i]
		m.Requested = began
		name := m.Workload.pod()
		err := e.view.await(ctx, moveTimeout, name+" runs on another node than "+node, func() bool {
			pod := e.view.pod(name)
			return pod != nil && pod.UID != old[m.Workload.Name].UID && isRunning(pod) && pod.Spec.NodeName != node
		})
		if err != nil {
			return nil, err
		}
		pod := e.view.pod(name)
		m.To = pod.Spec.NodeName
		m.Running = first(e.view.observer.marks(), began, milestone{Kind: podRunning, Pod: pod.UID}).At
		m.OntoReplica = held[m.Workload.Name][m.To].State == "Attached"
		testimony, err := e.awaitWriter(ctx, m.Workload, string(pod.UID))
		if err != nil {
			return nil, err
		}
		m.LastWrite, m.FirstWrite = aroundStart(testimony.Acks, string(pod.UID))
	}
	return moves, nil
}

// evictAll cordons the node and evicts its pods at the same time, and returns when all
// evictions have been granted.
func (e *Environment) evictAll(ctx context.Context, node string) error {
	if err := e.setCordon(ctx, node, true); err != nil {
		return err
	}
	pods, err := e.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
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
		group.Go(func() error { return e.evict(ctx, pod) })
	}
	e.metric("evicted_pods", evicted)
	return group.Wait()
}

func (e *Environment) evict(ctx context.Context, pod *corev1.Pod) error {
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	}
	var failure error
	err := e.poll(ctx, moveTimeout, evictAgain, pod.Name+" may be evicted", func(ctx context.Context) error {
		err := e.kube.PolicyV1().Evictions(pod.Namespace).Evict(ctx, eviction)
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

func (e *Environment) recordDrain(ctx context.Context, node string, moves []Move) error {
	found, err := e.addEvidence(ctx, e.Report.Started)
	if err != nil {
		return err
	}
	series := measure(moves, found)
	last := slices.MaxFunc(moves, func(a, b Move) int { return a.Running.Compare(b.Running) })
	var writes []string
	onto := 0
	for _, c := range found.Azure {
		if c.isWrite() && changesDiskOrVM(c) && !c.Time.Before(last.Requested) && !c.Time.After(last.Running) {
			writes = append(writes, fmt.Sprintf("%s %s", c.API, c.Name))
		}
	}
	for _, m := range moves {
		e.events.Add(m.writes()...)
		if m.OntoReplica {
			onto++
		}
	}
	e.metric("drained_node", node)
	e.metric("drain_seconds", milli(last.Took()))
	e.metric("pod_seconds_all", series.Seconds)
	e.metric("pod_seconds_median", timeline.Median(series.Seconds))
	e.metric("driver_share_seconds_all", series.DriverSeconds)
	e.metric("write_pause_seconds_all", series.PauseSeconds)
	e.metric("azure_writes", len(writes))
	e.metric("moves_onto_a_replica", onto)
	e.check(fmt.Sprintf("all %d pods run elsewhere at most %d s after the drain began", len(moves), maxDrainSeconds),
		last.Took().Seconds() <= maxDrainSeconds, "%s; the pods took %s s", timeline.Round(last.Took()), list(series.Seconds))
	e.check("nothing is written to Azure until then", len(writes) == 0, "%d writes %s", len(writes), strings.Join(writes, ", "))
	e.check("every pod goes to the node with its replica", onto == len(moves), "%d of %d", onto, len(moves))
	e.Report.Comparison = &timeline.Comparison{
		Title:  "From the begin of the drain until each pod runs elsewhere",
		Groups: []timeline.Group{{Title: "With a replica", Seconds: series.Seconds, Good: true}},
	}
	e.Report.Figures = []timeline.Figure{last.figure("The last pod of the drained node", e.eventsOf(last), true)}
	e.Report.Summary = fmt.Sprintf("%s was drained. Its %d pods, each with a replicated disk, all ran elsewhere after %s; Azure was asked for %s. %s",
		node, len(moves), timeline.Round(last.Took()), changes(len(writes)), e.recordsLost())
	return nil
}
