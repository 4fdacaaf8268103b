package volume

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
)

// evictAgain is when a pod is tried again whose eviction a PodDisruptionBudget does not allow.
const evictAgain = 5 * time.Second

// waiting returns since when the change that waits for the next release of the volume does so; the zero time if
// none does. Of a change that waited before this process looked, it is the time in the condition.
func (c *claimRecord) waiting(v *apiv1.AzVolume, now time.Time) time.Time {
	change := ""
	if _, pending := disk.Pending(v); pending {
		d := v.Spec.Disk
		change = fmt.Sprint(v.Spec.CapacityBytes, d.SKUName, d.Tier)
	}
	if first := c.waits == "" && c.waitsSince.IsZero(); c.waits != change || first {
		c.waits, c.waitsSince = change, now
		if told := meta.FindStatusCondition(v.Status.Conditions, apiv1.VolumeConditionUpdated); first && told != nil {
			c.waitsSince = told.LastTransitionTime.Time
		}
	}
	if change == "" {
		return time.Time{}
	}
	return c.waitsSince
}

// applyPending evicts the pods of a claim that asks for it while a change of the disk waits, and returns when to
// try again; 0 for not. Pods that use a volume on several nodes stay: their successors would use it before all have
// ended. A pod that was created after the change was seen stays: it started on the node that has the
// volume, and would do so again.
func (r *Reconciler) applyPending(ctx context.Context, o observed, claim *corev1.PersistentVolumeClaim,
	record *claimRecord) (again time.Duration, err error) {
	since := record.waiting(o.volume, o.now)
	if since.IsZero() || claim.Annotations[apiv1.AnnotationApplyPending] != apiv1.ApplyPendingEvict ||
		annotation.Paused.Switched(o.volume.Annotations) != "" || o.volume.Spec.Access == apiv1.AccessMultiNode {
		return 0, nil
	}
	pods, err := cluster.PodsOf(ctx, r.Client, o.pv)
	if err != nil {
		return 0, err
	}
	for _, pod := range pods {
		leaves, why := disk.LeavesFor(pod)
		if pod.CreationTimestamp.After(since) || !leaves && why == "" {
			continue
		}
		if leaves {
			evicted, err := kube.Evict(ctx, r.Client, pod)
			switch {
			case evicted:
				ctrl.LoggerFrom(ctx).Info("pod evicted", "pod", client.ObjectKeyFromObject(pod), "node", pod.Spec.NodeName,
					"reason", apiv1.ReasonEvictedForDiskUpdate)
				r.Events.Eventf(pod, nil, corev1.EventTypeNormal, apiv1.ReasonEvictedForDiskUpdate, "EvictPod",
					"a change of the disk of claim %s waits for a restart", claim.Name)
				continue
			case err == nil:
				continue // it is gone
			case !apierrors.IsTooManyRequests(err):
				return 0, fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
			}
			again, why = evictAgain, err.Error()
		}
		record.tellOnce(apiv1.ReasonEvictionRefused, since, func() {
			r.Events.Eventf(claim, nil, corev1.EventTypeWarning, apiv1.ReasonEvictionRefused, "EvictPod", "pod %s stays: %s",
				pod.Name, why)
		})
	}
	return again, nil
}

// tellOnce writes an event about something that has been so since a time, unless it has been written.
func (c *claimRecord) tellOnce(reason string, since time.Time, tell func()) {
	if c.told[reason].Equal(since) {
		return
	}
	if c.told == nil {
		c.told = map[string]time.Time{}
	}
	c.told[reason] = since
	tell()
}
