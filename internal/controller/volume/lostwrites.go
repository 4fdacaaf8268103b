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
	reports, err := r.reportsOf(ctx, o, disk.LossReporters(o.volume, o.attachments))
	if err != nil {
		return nil, 0, err
	}
	loss, after := disk.LostWrites(o.volume, reports, o.now, status)
	return loss, after, nil
}

// reportsOf returns the reports of nodes, without those that have none.
func (r *Reconciler) reportsOf(ctx context.Context, o observed, nodes []string) (reports []*apiv1.AzDriverNode, err error) {
	for _, node := range nodes {
		report, err := kube.Find[apiv1.AzDriverNode](ctx, r.Client,
			client.ObjectKey{Namespace: o.volume.Namespace, Name: node}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return nil, err
		}
		if report != nil {
			reports = append(reports, report)
		}
	}
	return reports, nil
}

// tellLoss writes the events about a loss of writes: on the volume, on its PersistentVolumeClaim, and on
// the pods that use it on the node: one of them has most likely written the data.
func (r *Reconciler) tellLoss(ctx context.Context, o observed, loss disk.Loss) {
	ctrl.LoggerFrom(ctx).Info("writes are lost", "volume", o.volume.Name, "node", loss.NodeName, "reason",
		apiv1.ReasonDiskFlushFailed,
		"message", loss.Message)
	users := r.usersOf(ctx, o, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == loss.NodeName })
	r.tellAll(users, corev1.EventTypeWarning, apiv1.ReasonDiskFlushFailed, "volume "+o.volume.Name+": "+loss.Message)
}

// usersOf returns the volume, its PersistentVolumeClaim and those of its pods that are affected, for events.
func (r *Reconciler) usersOf(ctx context.Context, o observed, affected func(*corev1.Pod) bool) []runtime.Object {
	log := ctrl.LoggerFrom(ctx)
	about := []runtime.Object{o.volume}
	if claim, err := cluster.ClaimBoundTo(ctx, r.Client, o.pv); err != nil {
		log.Error(err, "no event on the PersistentVolumeClaim of a volume", "volume", o.volume.Name)
	} else if claim != nil {
		about = append(about, claim)
	}
	pods, err := cluster.PodsOf(ctx, r.Client, o.pv)
	if err != nil {
		log.Error(err, "no event on the pods of a volume", "volume", o.volume.Name)
	}
	for _, pod := range pods {
		if affected(pod) {
			about = append(about, pod)
		}
	}
	return about
}

func (r *Reconciler) tellAll(about []runtime.Object, kind, reason, note string) {
	for _, object := range about {
		r.Events.Eventf(object, nil, kind, reason, reason, "%s", note)
	}
}
