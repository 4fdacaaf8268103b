// Package tagging changes the tags of disks whose StorageClass has tagsFollowLabels, when the
// labels and annotations of their PersistentVolumeClaims and namespaces change. It writes
// spec.disk.tags of the AzVolumes, and the reconciler of volumes changes the disks.
//
// The leader runs it. It keeps nothing in memory: after a start each such volume is compared once.
package tagging

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/volumeparams"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumes;persistentvolumeclaims;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes,verbs=get;list;watch;patch

const (
	// perSecond and burst limit how many volumes are compared with their labels, and so how many
	// disks are changed: one label of a namespace may concern thousands.
	perSecond, burst = 5, 50
	// nextTurn is when a volume that has to wait is tried again.
	nextTurn = time.Second
)

// ReasonNotFollowed of the event for tags that cannot have the value of a label or an annotation.
const ReasonNotFollowed = "TagsNotFollowed"

// Options of a Reconciler.
type Options struct {
	// Client reads from the cache; Reader from the API server.
	Client client.Client
	Reader client.Reader
	Clock  clock.PassiveClock
	Events events.EventRecorder
	// DriverName is the CSI driver's, by which its PersistentVolumes are known.
	DriverName string
}

// Reconciler changes the tags.
type Reconciler struct {
	Options
	pace flowcontrol.PassiveRateLimiter
}

// New makes a Reconciler.
func New(options Options) *Reconciler {
	return &Reconciler{
		Options: options,
		pace:    flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(perSecond, burst, options.Clock),
	}
}

// Reconcile compares the followed tags of one volume with the labels and annotations.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	v, err := cluster.Find[apiv1.AzVolume](ctx, r.Client, request.NamespacedName, client.UnsafeDisableDeepCopy)
	if err != nil || v == nil || !follows(v) {
		return reconcile.Result{}, err
	}
	if wait := disk.RetagAfter(v, r.Clock.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if !r.pace.TryAccept() {
		return reconcile.Result{RequeueAfter: nextTurn}, nil
	}
	values, err := r.values(ctx, v)
	if err != nil || values == nil {
		return reconcile.Result{}, err
	}
	tags := disk.Retag(v, values)
	if maps.Equal(tags, v.Spec.Disk.Tags) {
		return reconcile.Result{}, nil
	}
	if len(tags) > volumeparams.MaxTags {
		r.notFollowed(v, fmt.Sprintf("the disk would have %d tags; allowed: %d", len(tags), volumeparams.MaxTags))
		return reconcile.Result{}, nil
	}
	changed := v.DeepCopy()
	changed.Spec.Disk.Tags = tags
	err = r.Client.Patch(ctx, changed, client.MergeFromWithOptions(v, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: operation.ConflictRetry}, nil
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("change the tags of volume %s: %w", v.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("the tags follow the labels", "volume", v.Name)
	return reconcile.Result{}, nil
}

// follows reports whether a volume has tags that follow a claim, which is known.
func follows(v *apiv1.AzVolume) bool {
	return !v.Leaving() && len(v.Spec.Disk.FollowedTags) > 0 && v.Status.PersistentVolume != ""
}

// values returns the values of the followed tags; nil if they stay as they are, because the volume
// has no claim, or because a value cannot be a tag's.
func (r *Reconciler) values(ctx context.Context, v *apiv1.AzVolume) (map[string]string, error) {
	pv, err := cluster.PersistentVolume(ctx, r.Client, v)
	if err != nil || pv == nil || pv.Spec.ClaimRef == nil {
		return nil, err
	}
	templates := v.Spec.Disk.FollowedTags
	claim, namespace, err := cluster.ClaimMetadata(ctx, r.Reader, pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name,
		volumeparams.ReadsNamespace(templates))
	if err != nil || claim == nil || claim.Spec.VolumeName != pv.Name {
		return nil, err
	}
	values, err := volumeparams.FillTemplates(templates, claim.ObjectMeta, namespace)
	if err != nil {
		r.notFollowed(v, err.Error())
		return nil, nil
	}
	return values, nil
}

func (r *Reconciler) notFollowed(v *apiv1.AzVolume, message string) {
	r.Events.Eventf(v, nil, corev1.EventTypeWarning, ReasonNotFollowed, "ChangeTags", "%s", message)
}
