package volume

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
)

// lostWrites records in a status what nodes report of lost writes; see disk.LostWrites.
func (r *Reconciler) lostWrites(ctx context.Context, o observed, status *apiv1.AzVolumeStatus) (*disk.Loss, time.Duration,
	error) {
	var reports []*apiv1.AzDriverNode
	for _, node := range disk.LossReporters(o.volume, o.attachments) {
		report, err := kube.Find[apiv1.AzDriverNode](ctx, r.Client,
			client.ObjectKey{Namespace: o.volume.Namespace, Name: node}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return nil, 0, err
		}
		if report != nil {
			reports = append(reports, report)
		}
	}
	loss, after := disk.LostWrites(o.volume, reports, o.now, status)
	return loss, after, nil
}

// tellLoss writes the events about a loss of writes: on the volume, on its PersistentVolumeClaim, and on
// the pods that use it on the node: one of them has most likely written the data.
func (r *Reconciler) tellLoss(ctx context.Context, o observed, loss disk.Loss) {
	ctrl.LoggerFrom(ctx).Info("writes are lost", "volume", o.volume.Name, "node", loss.NodeName, "reason",
		apiv1.ReasonDiskFlushFailed,
		"message", loss.Message)
	about := []runtime.Object{o.volume}
	if claim, err := cluster.ClaimBoundTo(ctx, r.Client, o.pv); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "no event on the PersistentVolumeClaim of a volume with lost writes", "volume", o.volume.Name)
	} else if claim != nil {
		about = append(about, claim)
	}
	pods, err := cluster.PodsOf(ctx, r.Client, o.pv)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "no event on the pods of a volume with lost writes", "volume", o.volume.Name)
	}
	for _, pod := range pods {
		if pod.Spec.NodeName == loss.NodeName {
			about = append(about, pod)
		}
	}
	for _, object := range about {
		r.Events.Eventf(object, nil, corev1.EventTypeWarning,
			apiv1.ReasonDiskFlushFailed, apiv1.ReasonDiskFlushFailed, "volume %s: %s",
			o.volume.Name, loss.Message)
	}
}
