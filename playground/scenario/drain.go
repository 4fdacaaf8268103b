package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// evictAgain is how long is waited after an eviction that a PodDisruptionBudget refused.
const evictAgain = time.Second

// Drain drains a node as `kubectl drain` does, and returns when the pods of the workloads, which
// are on it, run elsewhere and write. It cordons the node and evicts everything but what a
// DaemonSet runs. volumes are those of the workloads; that of a stateless one is ignored.
func (e *Environment) Drain(ctx context.Context, node string, workloads []Workload, volumes []observer.Volume) ([]Move, error) {
	var moves []Move
	held := map[string]map[string]observer.Attachment{}
	old := map[string]*corev1.Pod{}
	for i, w := range workloads {
		pod := e.View.Pod(w.Pod())
		if pod == nil || pod.Spec.NodeName != node {
			return nil, fmt.Errorf("pod %s is not on %s", w.Pod(), node)
		}
		moves = append(moves, Move{
			Workload: w,
			Volume:   volumes[i],
			From:     node,
			Machines: e.View.Nodes(w.Zone),
		})
		held[w.Name], old[w.Name] = e.View.Attachments(volumes[i].Name), pod
	}
	began := e.Say(timeline.Kubernetes, "", "drain of "+node+" begins", "it is cordoned, and all of its pods are evicted")
	evicted, err := e.evictAll(ctx, node)
	if err != nil {
		return nil, err
	}
	e.Metric("evicted_pods", evicted)
	for i := range moves {
		m := &moves[i]
		m.Requested = began
		name := m.Workload.Pod()
		err := e.View.Await(ctx, MoveTimeout, name+" runs on another node than "+node, func() bool {
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
		m.LastWrite, m.FirstWrite = AroundStart(received.Acks, string(pod.UID))
	}
	return moves, nil
}

// evictAll cordons the node and evicts its pods at the same time, and returns how many there were
// when all evictions have been granted.
func (e *Environment) evictAll(ctx context.Context, node string) (int, error) {
	if err := e.SetCordon(ctx, node, true); err != nil {
		return 0, err
	}
	pods, err := e.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return 0, fmt.Errorf("list the pods of %s: %w", node, err)
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
	return evicted, group.Wait()
}

func (e *Environment) evict(ctx context.Context, pod *corev1.Pod) error {
	var failure error
	err := e.Poll(ctx, MoveTimeout, evictAgain, pod.Name+" may be evicted", func(ctx context.Context) error {
		err := e.requestEviction(ctx, pod)
		if apierrors.IsTooManyRequests(err) {
			return err
		}
		failure = err
		return nil
	})
	return errors.Join(failure, err)
}

// requestEviction asks once for the eviction of a pod that may be gone already. The error is
// TooManyRequests if a PodDisruptionBudget refuses it for now.
func (e *Environment) requestEviction(ctx context.Context, pod *corev1.Pod) error {
	err := e.Kube.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("evict %s: %w", pod.Name, err)
}
