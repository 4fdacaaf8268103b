package attachment

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// readTruth reads at the API server what the fence of a deserted volume depends on. The cache may
// be behind, and a pod that it does not show yet would lose its disk.
func (r *Reconciler) readTruth(ctx context.Context, in *attaching.Input) error {
	a := in.Attachment
	node, err := kube.Find[corev1.Node](ctx, r.Reader, client.ObjectKey{Name: a.Spec.NodeName})
	if err != nil {
		return err
	}
	in.NotReadySince = nodehealth.NotReadySince(node)
	in.UsedByPod, err = cluster.UsedOn(ctx, r.Reader, r.Client, a.Spec.VolumeName, a.Spec.NodeName)
	return err
}

// tellDeserted writes the events about a deserted volume whose fence has begun: on the volume, its
// PersistentVolumeClaim and the Node.
func (r *Reconciler) tellDeserted(ctx context.Context, in attaching.Input, message string) {
	a := in.Attachment
	ctrl.LoggerFrom(ctx).Info("deserted volume is fenced", "volume", a.Spec.VolumeName, "node", a.Spec.NodeName, "notReadySince",
		in.NotReadySince, "reason", apiv1.ReasonFailoverStarted)
	about := &corev1.ObjectReference{
		APIVersion: "v1",
		Kind:       "Node",
		Name:       a.Spec.NodeName,
		UID:        types.UID(a.Spec.NodeName),
	}
	r.Events.Eventf(about, nil, corev1.EventTypeNormal, apiv1.ReasonFailoverStarted, apiv1.ReasonFailoverStarted,
		"volume %s: %s", a.Spec.VolumeName, message)
	if in.Volume != nil {
		r.Events.Eventf(in.Volume, nil, corev1.EventTypeNormal, apiv1.ReasonFailoverStarted, apiv1.ReasonFailoverStarted,
			"%s", message)
	}
	claim, err := r.claim(ctx, in.Volume)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "no event on the PersistentVolumeClaim of a deserted volume", "volume", a.Spec.VolumeName)
	}
	if err != nil || claim == nil {
		return
	}
	if annotation.Failover.Switched(claim.Annotations) != "" {
		message += "; " + lostnode.OptOutEnds
	}
	r.Events.Eventf(claim, nil, corev1.EventTypeNormal, apiv1.ReasonFailoverStarted, apiv1.ReasonFailoverStarted, "%s",
		message)
}

// claim returns the PersistentVolumeClaim that a volume is bound to; nil if there is none.
func (r *Reconciler) claim(ctx context.Context, volume *apiv1.AzVolume) (*corev1.PersistentVolumeClaim, error) {
	if volume == nil {
		return nil, nil
	}
	pv, err := cluster.PersistentVolume(ctx, r.Client, volume)
	if err != nil {
		return nil, err
	}
	return cluster.ClaimBoundTo(ctx, r.Client, pv)
}
