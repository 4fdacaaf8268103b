package maintenance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
)

const (
	// paceRetry is when an eviction is tried again that the pace did not allow.
	paceRetry = 500 * time.Millisecond
)

// move evicts the pods of a node that have to move now, and returns when to look again.
func (r *Reconciler) move(ctx context.Context, d *apiv1.AzDriverNode, announced []maintenance.Announcement) (time.Duration,
	error) {
	pods, err := cluster.PodsOn(ctx, r.Client, d.Name)
	if err != nil {
		return 0, err
	}
	nodes, err := r.Nodes.Views(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the nodes that pods can go to: %w", err)
	}
	// Pods that come, and replicas that are attached, are seen at the next look.
	after, faults := maintenance.MoveAgain, []error{}
	for _, p := range pods {
		pod, err := r.see(ctx, d.Namespace, p, nodes)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		because, in := r.Policies.Evict(announced, pod, r.Clock.Now())
		switch after = operation.Sooner(after, in); {
		case because == nil:
		case r.pace.TryAccept():
			faults = append(faults, r.evict(ctx, pod.Pod, because))
		default:
			after = operation.Sooner(after, paceRetry)
		}
	}
	return after, errors.Join(faults...)
}

// announced returns the events of a node with the time at which each was seen first. Those that this
// process finds at its first look may have been seen by an earlier one.
func (r *Reconciler) announced(d *apiv1.AzDriverNode, events []apiv1.MaintenanceEvent) []maintenance.Announcement {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, looked := r.seen[d.Name]
	seen := make(map[string]time.Time, len(events))
	announced := make([]maintenance.Announcement, 0, len(events))
	for i, e := range events {
		at, known := before[e.EventID]
		if !known {
			at = r.Clock.Now()
		}
		if c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionUndisturbed); !looked && c != nil {
			at = c.LastTransitionTime.Time
		}
		seen[e.EventID] = at
		announced = append(announced, maintenance.Announcement{MaintenanceEvent: &events[i], Seen: at})
	}
	r.seen[d.Name] = seen
	return announced
}

func (r *Reconciler) forget(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen, node)
}

// see finds out whether a pod has replicated volumes, where it could go, and whether its replicas are
// there.
func (r *Reconciler) see(ctx context.Context, namespace string, pod *corev1.Pod,
	nodes []placement.NodeView) (maintenance.Pod, error) {
	seen := maintenance.Pod{Pod: pod, Warm: true}
	view, err := cluster.PodView(ctx, r.Client, r.DriverName, pod, "")
	if err != nil {
		return seen, err
	}
	var volumes, replicated []*apiv1.AzVolume
	for _, name := range view.Volumes {
		volume, err := kube.Find[apiv1.AzVolume](ctx, r.Client, client.ObjectKey{Namespace: namespace, Name: name},
			client.UnsafeDisableDeepCopy)
		switch {
		case err != nil:
			return seen, err
		case volume == nil:
			continue
		case volume.WantedReplicas() > 0:
			replicated = append(replicated, volume)
		}
		volumes = append(volumes, volume)
	}
	if seen.Replicated = len(replicated) > 0; !seen.Replicated {
		return seen, nil
	}
	around, err := cluster.Surroundings(ctx, r.Client, []*corev1.Pod{pod})
	if err != nil {
		return seen, fmt.Errorf("read the surroundings of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	homes := placement.Homes(view, volumes, nodes, around)
	homes = slices.DeleteFunc(homes, func(node string) bool { return node == pod.Spec.NodeName })
	seen.Homeless = len(homes) == 0
	for _, v := range replicated {
		warm, err := r.warm(ctx, v, homes)
		if err != nil {
			return seen, err
		}
		seen.Warm = seen.Warm && warm
	}
	return seen, nil
}

// warm reports whether a volume is attached to one of the nodes.
func (r *Reconciler) warm(ctx context.Context, volume *apiv1.AzVolume, nodes []string) (bool, error) {
	attachments, err := cluster.Attachments(ctx, r.Client, volume.Namespace, cluster.AttachmentVolume, volume.Name)
	return slices.ContainsFunc(attachments, func(a *apiv1.AzVolumeAttachment) bool {
		return slices.Contains(nodes, a.Spec.NodeName) && a.DeletionTimestamp == nil && a.Status.State == apiv1.AttachmentAttached
	}), err
}

// evict asks Kubernetes to evict a pod. A PodDisruptionBudget that does not allow it is asked again
// at the next look.
func (r *Reconciler) evict(ctx context.Context, pod *corev1.Pod, event *apiv1.MaintenanceEvent) error {
	evicted, err := kube.Evict(ctx, r.Client, pod)
	switch {
	case evicted:
		r.evictions.WithLabelValues("Evicted").Inc()
		ctrl.LoggerFrom(ctx).Info("pod evicted", "pod", client.ObjectKeyFromObject(pod), "node", pod.Spec.NodeName, "reason",
			apiv1.ReasonMovedBeforeMaintenance, "event", event.EventID)
		r.Events.Eventf(pod, nil, corev1.EventTypeNormal, apiv1.ReasonMovedBeforeMaintenance, "EvictPod", "%s",
			maintenance.Describe(event))
		return nil
	case err == nil:
		return nil // it is gone
	case apierrors.IsTooManyRequests(err):
		r.evictions.WithLabelValues("Refused").Inc()
		return nil
	}
	r.evictions.WithLabelValues("Failed").Inc()
	return fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
}
