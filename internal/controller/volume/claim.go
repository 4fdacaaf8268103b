package volume

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/claimstatus"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
)

// claims holds what this process has written about volumes on their claims. Only events depend on it.
type claims struct {
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
	// waits is the change that waits for the next restart, and waitsSince when this process saw it first.
	waits      string
	waitsSince time.Time
}

func newClaims() *claims {
	return &claims{volumes: map[string]*claimRecord{}}
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

// tellClaim writes the events of a volume's claim that are due. It returns when another one is due if
// nothing changes; 0 for never.
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
		if in.Holder, err = kube.Find[apiv1.AzDriverNode](ctx, r.Client, client.ObjectKey{
			Namespace: o.volume.Namespace,
			Name:      p.NodeName,
		}, client.UnsafeDisableDeepCopy); err != nil {
			return 0, err
		}
	}
	record, since := r.claims.of(o.volume.Name, claim.UID, o.now)
	again := r.claimEvents(in, record, o.now, since)
	evictAgain, err := r.applyPending(ctx, o, claim, record)
	return operation.Sooner(again, evictAgain), err
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
		r.Events.Eventf(in.Claim, nil, corev1.EventTypeNormal, apiv1.ReasonReplicasAttached,
			apiv1.ReasonReplicasAttached, "%s", message)
	}
	w := claimstatus.WaitOf(in)
	due := w.Since.Add(w.Patience)
	if w.Event == "" || record.told[w.Event].Equal(w.Since) || due.Before(began.Truncate(time.Second)) {
		return 0
	}
	if now.Before(due) {
		return max(due.Sub(now), operation.MinWait)
	}
	record.missing = record.missing || w.Event == apiv1.ReasonReplicasMissing
	kind := corev1.EventTypeWarning
	if w.Usual {
		kind = corev1.EventTypeNormal
	}
	record.tellOnce(w.Event, w.Since, func() { r.Events.Eventf(in.Claim, nil, kind, w.Event, w.Event, "%s", w.Message) })
	return 0
}

// ofClaim requests the volume of a claim.
func (r *Reconciler) ofClaim(ctx context.Context, namespace string, o client.Object) []reconcile.Request {
	claim, ok := o.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Spec.VolumeName == "" {
		return nil
	}
	pv, err := kube.Find[corev1.PersistentVolume](ctx, r.Client, client.ObjectKey{Name: claim.Spec.VolumeName},
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

// claimChanged passes the deletion of claims, about which there may be an event to write, and the annotation
// that asks for evictions. A new claim leads to its PersistentVolume, whose events are watched.
var claimChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: cluster.Changed(func(c *corev1.PersistentVolumeClaim) any {
		return [2]any{c.DeletionTimestamp != nil, c.Annotations[apiv1.AnnotationApplyPending]}
	}).Update,
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}
