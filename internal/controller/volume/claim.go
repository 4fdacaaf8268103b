package volume

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/claimstatus"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=patch

const (
	// claimEvery is the least time between two writes of the status of one claim, and claimRate how
	// many are written each second: when many nodes are lost, the writes of the failover come first.
	claimEvery = 10 * time.Second
	claimRate  = 20
	// claimRefusedRetry is how soon a refused write is tried again.
	claimRefusedRetry = 5 * time.Minute
)

// claims is what this process has written about volumes on their claims. A new process writes
// nothing again but the status of a claim sooner than claimEvery; nothing else depends on it.
type claims struct {
	rate flowcontrol.RateLimiter

	mu      sync.Mutex
	since   time.Time // when the first volume was reconciled
	volumes map[string]*claimRecord
}

type claimRecord struct {
	uid types.UID // of the claim
	// told has for each reason of an event since when the volume had waited.
	told map[string]time.Time
	// missing says that there was an event about missing replicas, and none since that they are back.
	missing bool
	// next is when the status may be written again.
	next time.Time
}

func newClaims() *claims {
	return &claims{rate: flowcontrol.NewTokenBucketRateLimiter(claimRate, claimRate), volumes: map[string]*claimRecord{}}
}

// of returns the record of a volume, and since when this process reconciles volumes.
func (c *claims) of(volume string, uid types.UID, now time.Time) (*claimRecord, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		c.since = now
	}
	if r := c.volumes[volume]; r == nil || r.uid != uid {
		c.volumes[volume] = &claimRecord{uid: uid}
	}
	return c.volumes[volume], c.since
}

func (c *claims) forget(volume string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.volumes, volume)
}

// tellClaim writes the events of a volume's claim that are due, and its status. It returns when there
// is more to write even if nothing changes; 0 for never.
func (r *Reconciler) tellClaim(ctx context.Context, o observed) (time.Duration, error) {
	claim, err := cluster.ClaimBoundTo(ctx, r.Client, o.pv)
	if err != nil || claim == nil {
		return 0, err
	}
	in := claimstatus.Input{Volume: o.volume, Attachments: o.attachments, Claim: claim}
	if claim.DeletionTimestamp != nil {
		if in.Users, err = r.users(ctx, o.pv); err != nil {
			return 0, err
		}
	}
	if p := o.volume.Status.Primary; p != nil && p.NodeName != "" {
		if in.Holder, err = cluster.Find[apiv1.AzDriverNode](ctx, r.Client, client.ObjectKey{
			Namespace: o.volume.Namespace,
			Name:      p.NodeName,
		}, client.UnsafeDisableDeepCopy); err != nil {
			return 0, err
		}
	}
	record, since := r.claims.of(o.volume.Name, claim.UID, o.now)
	after := r.claimEvents(in, record, o.now, since)
	if !r.ClaimStatus {
		return after, nil
	}
	again, err := r.annotate(ctx, claim, claimstatus.Of(in).Text(), record, o.now)
	return operation.Sooner(after, again), err
}

// users returns the names of the pods that use the claim of a PersistentVolume.
func (r *Reconciler) users(ctx context.Context, pv *corev1.PersistentVolume) ([]string, error) {
	pods, err := cluster.PodsOf(ctx, r.Client, pv)
	names := make([]string, 0, len(pods))
	for _, p := range pods {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names, err
}

// claimEvents writes the events that are due. Those that were due before this process began have been
// written by another one.
func (r *Reconciler) claimEvents(in claimstatus.Input, record *claimRecord, now, began time.Time) time.Duration {
	if message := claimstatus.Restored(in.Volume); record.missing && message != "" {
		record.missing = false
		r.Events.Eventf(in.Claim, nil, corev1.EventTypeNormal, placement.ReasonReplicasAttached,
			placement.ReasonReplicasAttached, "%s", message)
	}
	w := claimstatus.WaitOf(in)
	due := w.Since.Add(w.Patience)
	if w.Event == "" || record.told[w.Event].Equal(w.Since) || due.Before(began.Truncate(time.Second)) {
		return 0
	}
	if now.Before(due) {
		return max(due.Sub(now), operation.MinWait)
	}
	if record.told == nil {
		record.told = map[string]time.Time{}
	}
	record.told[w.Event] = w.Since
	record.missing = record.missing || w.Event == placement.ReasonReplicasMissing
	r.Events.Eventf(in.Claim, nil, corev1.EventTypeWarning, w.Event, w.Event, "%s", w.Message)
	return 0
}

// annotate writes the status of a claim, if it has changed. The write is refused if the claim has
// changed since it was read, so that no other claim of the same name gets the status.
func (r *Reconciler) annotate(ctx context.Context, claim *corev1.PersistentVolumeClaim, text string, record *claimRecord,
	now time.Time) (time.Duration, error) {
	current, written := claim.Annotations[apiv1.AnnotationStatus]
	if current == text || !written && text == (claimstatus.Status{}).Text() {
		return 0, nil // the first write is for the first node
	}
	if wait := record.next.Sub(now); wait > 0 {
		return wait, nil
	}
	if !r.claims.rate.TryAccept() {
		return time.Second, nil
	}
	changed := claim.DeepCopy()
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[apiv1.AnnotationStatus] = text
	err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(claim, client.MergeFromWithOptimisticLock{}))
	record.next = now.Add(claimEvery)
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
		// Nothing but the annotation depends on this write.
		ctrl.LoggerFrom(ctx).Error(err, "the cluster refuses the status of a claim", "claim",
			client.ObjectKeyFromObject(claim).String())
		record.next = now.Add(claimRefusedRetry)
		return claimRefusedRetry, nil
	case apierrors.IsConflict(err):
		record.next = now.Add(operation.FirstRetry) // the cache was behind
		return operation.FirstRetry, nil
	case apierrors.IsNotFound(err):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("write the status of claim %s: %w", client.ObjectKeyFromObject(claim), err)
	}
	return 0, nil
}

// ofClaim requests the volume of a claim.
func (r *Reconciler) ofClaim(ctx context.Context, namespace string, o client.Object) []reconcile.Request {
	claim, ok := o.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Spec.VolumeName == "" {
		return nil
	}
	pv, err := cluster.Find[corev1.PersistentVolume](ctx, r.Client, client.ObjectKey{Name: claim.Spec.VolumeName},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "volume of a claim not found", "claim", client.ObjectKeyFromObject(claim).String())
	}
	if err != nil || pv == nil {
		return nil
	}
	name := cluster.VolumeOf(pv, r.DriverName)
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}}
}

// claimChanged passes the updates of claims after which there may be something to tell: the deletion,
// and an edit of the status. A new claim leads to its PersistentVolume, whose events are watched.
var claimChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: cluster.Changed(func(c *corev1.PersistentVolumeClaim) any {
		return []any{c.Annotations[apiv1.AnnotationStatus], c.DeletionTimestamp != nil}
	}).Update,
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}
