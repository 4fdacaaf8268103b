package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/azuredisk-csi/azuredisk/playground/recorder"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// MoveTimeout is above the longest tail of an attach at Azure.
const MoveTimeout = 4 * time.Minute

// Move is one move of a workload's pod to another node.
type Move struct {
	Workload Workload
	Volume   observer.Volume
	From, To string
	// Machines are the nodes to which the disk may be attached.
	Machines []string
	// OntoReplica says that the disk was attached to the new node before.
	OntoReplica bool
	// Requested is when the deletion of the pod was asked for, Running when the next pod
	// was seen Ready on another node.
	Requested, Running time.Time
	// LastWrite is the time in the last acknowledged record of the old pod, FirstWrite
	// that in the first of the new one.
	LastWrite, FirstWrite time.Time
}

// Pause is how long the workload could not write, 0 if that is not known.
func (m Move) Pause() time.Duration {
	if m.LastWrite.IsZero() {
		return 0
	}
	return m.FirstWrite.Sub(m.LastWrite)
}

// involves reports whether the resource at Azure is the move's disk or one of its machines.
func (m Move) involves(resource string) bool {
	return strings.EqualFold(resource, m.Volume.Name) ||
		slices.ContainsFunc(m.Machines, func(name string) bool { return strings.EqualFold(name, resource) })
}

// Took is the time from the request to the pod Running elsewhere.
func (m Move) Took() time.Duration { return m.Running.Sub(m.Requested) }

// Move cordons the pod's node, deletes the pod, waits until it runs elsewhere and
// writes, and lifts the cordon.
func (e *Environment) Move(ctx context.Context, w Workload, v observer.Volume) (Move, error) {
	old := e.View.Pod(w.Pod())
	if old == nil {
		return Move{}, fmt.Errorf("pod %s is not there", w.Pod())
	}
	m := Move{
		Workload: w,
		Volume:   v,
		From:     old.Spec.NodeName,
		Machines: e.View.Nodes(w.Zone),
	}
	attached := e.View.Attachments(v.Name)
	if err := e.SetCordon(ctx, m.From, true); err != nil {
		return Move{}, err
	}
	defer func() { _ = e.SetCordon(context.WithoutCancel(ctx), m.From, false) }()
	m.Requested = e.Clock.Now()
	e.Events.Add(timeline.Event{
		At:      m.Requested,
		Lane:    timeline.Kubernetes,
		Kind:    timeline.State,
		Source:  "scenario",
		Subject: w.Name,
		Step:    "deletion of the pod is asked for",
		Detail:  fmt.Sprintf("pod %s on %s, which is cordoned", w.Pod(), m.From),
	})
	uid := old.UID
	err := e.Kube.CoreV1().Pods(e.Namespace).Delete(ctx, w.Pod(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil {
		return Move{}, fmt.Errorf("delete pod %s: %w", w.Pod(), err)
	}
	var next types.UID
	err = e.View.Await(ctx, MoveTimeout, w.Pod()+" runs on another node than "+m.From, func() bool {
		pod := e.View.Pod(w.Pod())
		if pod == nil || pod.UID == uid || !observer.IsRunning(pod) {
			return false
		}
		m.Running, m.To, next = e.Clock.Now(), pod.Spec.NodeName, pod.UID
		return true
	})
	if err != nil {
		return Move{}, err
	}
	if m.To == m.From {
		return Move{}, fmt.Errorf("pod %s came back to %s, which was cordoned", w.Pod(), m.From)
	}
	m.OntoReplica = attached[m.To].State == "Attached"
	received, err := e.AwaitWriter(ctx, w, string(next))
	if err != nil {
		return Move{}, err
	}
	m.LastWrite, m.FirstWrite = AroundStart(received.Acks, string(next))
	return m, nil
}

// SetCordon cordons the node, or lifts the cordon.
func (e *Environment) SetCordon(ctx context.Context, node string, on bool) error {
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%s}}`, map[bool]string{true: "true", false: "null"}[on])
	if _, err := e.Kube.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("cordon or uncordon %s: %w", node, err)
	}
	return nil
}

// AwaitWriter blocks until a record of that writer has been acknowledged.
func (e *Environment) AwaitWriter(ctx context.Context, w Workload, writer string) (recorder.Received, error) {
	ctx, cancel := context.WithTimeout(ctx, MoveTimeout)
	defer cancel()
	received, err := e.Collector.Await(ctx, w.Name, func(t recorder.Received) bool {
		return slices.ContainsFunc(t.Acks[max(0, len(t.Acks)-1000):], func(a recorder.Ack) bool { return a.Writer == writer })
	})
	if err != nil {
		return received, fmt.Errorf("wait until %s has written a record: %w", w.Pod(), err)
	}
	return received, nil
}

// AwaitRecords blocks until that many records of each workload have been acknowledged.
func (e *Environment) AwaitRecords(ctx context.Context, count int, workloads ...Workload) error {
	ctx, cancel := context.WithTimeout(ctx, MoveTimeout)
	defer cancel()
	for _, w := range workloads {
		_, err := e.Collector.Await(ctx, w.Name, func(t recorder.Received) bool { return len(t.Acks) >= count })
		if err != nil {
			return fmt.Errorf("wait until %s has written %d records: %w", w.Pod(), count, err)
		}
	}
	return nil
}

// AroundStart returns the times of the last acknowledged record before the writer's
// first one, and of that. The former is zero if there is none.
func AroundStart(acks []recorder.Ack, writer string) (last, first time.Time) {
	var from *recorder.Ack
	for i := range acks {
		if acks[i].Writer == writer && (from == nil || acks[i].Time.Before(from.Time)) {
			from = &acks[i]
		}
	}
	if from == nil {
		return last, first
	}
	for _, a := range acks {
		// Not by the start number: a pod that finds its disk empty begins with 1 again.
		if a.Writer != writer && a.Time.Before(from.Time) && a.Time.After(last) {
			last = a.Time
		}
	}
	return last, from.Time
}

// Start makes the workloads and waits until each writes and has its replicas. They
// come up at the same time.
func (e *Environment) Start(ctx context.Context, workloads ...Workload) ([]observer.Volume, error) {
	for _, w := range workloads {
		if err := e.create(ctx, w); err != nil {
			return nil, err
		}
	}
	return e.AwaitAllReady(ctx, workloads...)
}

// AwaitAllReady waits until each of the workloads writes and has its replicas.
func (e *Environment) AwaitAllReady(ctx context.Context, workloads ...Workload) ([]observer.Volume, error) {
	var volumes []observer.Volume
	for _, w := range workloads {
		v, err := e.AwaitReady(ctx, w)
		if err != nil {
			return nil, err
		}
		volumes = append(volumes, v)
	}
	return volumes, nil
}
