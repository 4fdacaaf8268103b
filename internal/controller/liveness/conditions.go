package liveness

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azdrivernodes/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

const (
	// publishEvery is how often the conditions are compared with the judgements, besides after each
	// judgement that changed.
	publishEvery = time.Second
	// publishAtOnce is how many conditions are written at once. If many nodes are lost together,
	// none should wait for all others.
	publishAtOnce = 16
	// firstWriteWithin is for how long the first conditions of a new node are left to the writer of
	// its capacity.
	firstWriteWithin = 2 * time.Minute
)

// ConditionWriter keeps the conditions Ready, Reachable and Probeable of the AzDriverNodes in step with a
// Monitor. Only the leader runs it.
type ConditionWriter struct {
	// Client reads from the cache.
	Client    client.Client
	Monitor   *Monitor
	Namespace string
	Clock     clock.WithTicker
	// Events records each change, as an event about the Node.
	Events events.EventRecorder
}

// NeedLeaderElection tells the manager that one writer is enough.
func (w *ConditionWriter) NeedLeaderElection() bool { return true }

// Start writes until ctx ends.
func (w *ConditionWriter) Start(ctx context.Context) error {
	ticker := w.Clock.NewTicker(publishEvery)
	defer ticker.Stop()
	log := ctrl.LoggerFrom(ctx)
	for {
		if err := w.Tick(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "conditions of nodes not written")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		case <-w.Monitor.changed:
		}
	}
}

// Tick writes the conditions that differ from the judgements. The next Tick retries a write that
// failed. A write may have to wait for many others, so each is derived from the cache when it is
// made.
func (w *ConditionWriter) Tick(ctx context.Context) error {
	var all apiv1.AzDriverNodeList
	if err := w.Client.List(ctx, &all, client.InNamespace(w.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list AzDriverNodes: %w", err)
	}
	var writes errgroup.Group
	writes.SetLimit(publishAtOnce)
	for i := range all.Items {
		if changed, _ := w.Monitor.conditions(&all.Items[i]); changed == nil || w.Monitor.leavesFirst(&all.Items[i]) {
			continue
		}
		name := all.Items[i].Name
		writes.Go(func() error {
			if err := w.write(ctx, name); err != nil {
				return fmt.Errorf("node %s: %w", name, err)
			}
			return nil
		})
	}
	return writes.Wait()
}

// conditions returns the node with the conditions as they are to be, nil if they are so already,
// and the conditions that need an event. It does not change d, which is the cache's. Ready needs no event
// besides those about its parts. Others write two of them.
func (m *Monitor) conditions(d *apiv1.AzDriverNode) (changed *apiv1.AzDriverNode, told []metav1.Condition) {
	if d.DeletionTimestamp != nil {
		return nil, nil
	}
	m.mu.Lock()
	now := m.Clock.Now()
	all := m.detector.Conditions(d.Name, now)
	m.mu.Unlock()
	next, differs := d.Status.Conditions, false
	if all == nil && meta.FindStatusCondition(next, apiv1.NodeConditionReachable) == nil {
		return nil, nil
	}
	set := func(c metav1.Condition) {
		if !differs {
			next, differs = slices.Clone(next), true
		}
		c.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&next, c)
	}
	for _, wanted := range all {
		write, tell := news(meta.FindStatusCondition(d.Status.Conditions, wanted.Type), wanted)
		if write {
			set(wanted)
		}
		if tell {
			told = append(told, wanted)
		}
	}
	if differs {
		for _, c := range nodehealth.Missing(d) {
			set(c)
		}
	}
	if c, changes := nodehealth.Ready(next); changes {
		set(c)
	}
	if !differs {
		return nil, nil
	}
	changed = d.DeepCopy()
	changed.Status.Conditions = next
	return changed, told
}

// news reports whether a condition has to be written, and whether with an event. The message of the moment of
// the change stays: a newer message is not worth a write. What is not known to this process may be known to its
// predecessor.
func news(before *metav1.Condition, wanted metav1.Condition) (write, tell bool) {
	unknown := wanted.Reason == apiv1.ReasonNotYetKnown
	if before != nil && (unknown || before.Status == wanted.Status && before.Reason == wanted.Reason) {
		return false, false
	}
	first := before == nil || before.Reason == apiv1.ReasonNotYetKnown
	return true, !unknown && (!first || wanted.Status != metav1.ConditionTrue)
}

// FirstConditions returns the controller's conditions that are missing in the status of a node, if none of
// them needs an event. The writer of a new node's capacity writes them with it, because a second write
// for each node delays the first start in a large cluster.
func (m *Monitor) FirstConditions(d *apiv1.AzDriverNode) []metav1.Condition {
	changed, told := m.conditions(d)
	if changed == nil || len(told) > 0 {
		return nil
	}
	return slices.DeleteFunc(changed.Status.Conditions,
		func(c metav1.Condition) bool { return meta.FindStatusCondition(d.Status.Conditions, c.Type) != nil })
}

// leavesFirst reports whether the first conditions of a node are left to the writer of its
// capacity. They wait at most firstWriteWithin, because the capacity may stay unknown.
func (m *Monitor) leavesFirst(d *apiv1.AzDriverNode) bool {
	return d.Status.Capacity == nil && d.Spec.VMSize != "" && m.Clock.Since(m.Health(d.Name).Since) < firstWriteWithin &&
		len(m.FirstConditions(d)) > 0
}

func (w *ConditionWriter) write(ctx context.Context, name string) error {
	d, err := kube.Find[apiv1.AzDriverNode](ctx, w.Client, client.ObjectKey{Namespace: w.Namespace, Name: name})
	if err != nil || d == nil {
		return err
	}
	changed, told := w.Monitor.conditions(d)
	if changed == nil {
		return nil
	}
	// The node writes to the same list, so that the second writer has to read it again.
	err = kube.PatchStatus(ctx, w.Client, changed, d)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the cache will have the change in the next round
	}
	if err != nil {
		return fmt.Errorf("write conditions: %w", err)
	}
	for _, c := range told {
		ctrl.LoggerFrom(ctx).Info("node judged", "node", d.Name, "condition", c.Type, "reason", c.Reason, "evidence", c.Message)
		w.tell(d.Name, c)
	}
	return nil
}

func (w *ConditionWriter) tell(node string, c metav1.Condition) {
	if w.Events == nil {
		return
	}
	kind := corev1.EventTypeNormal
	if slices.Contains([]string{
		apiv1.ReasonNodeLost, apiv1.ReasonVMDown, apiv1.ReasonVMStopped, apiv1.ReasonFencingHeldBack,
	}, c.Reason) {
		kind = corev1.EventTypeWarning
	}
	w.Events.Eventf(cluster.AboutNode(node), nil, kind, c.Reason, "JudgeNode", "%s", c.Message)
}
