package failover

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/fencing"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// observe reads a node, its pods and its volumes from the cache.
func (r *Reconciler) observe(ctx context.Context, request reconcile.Request) (observed, error) {
	o := observed{namespace: request.Namespace, claims: map[string]*corev1.PersistentVolumeClaim{}}
	o.NodeName, o.OutOfServiceTaint = request.Name, r.OutOfServiceTaint
	o.Health = r.Monitor.Health(request.Name)
	var err error
	if o.Node, err = kube.Find[corev1.Node](ctx, r.Client, client.ObjectKey{Name: request.Name}); err != nil {
		return o, err
	}
	if o.DriverNode, err = kube.Find[apiv1.AzDriverNode](ctx, r.Client, request.NamespacedName); err != nil {
		return o, err
	}
	if o.DriverNode == nil {
		r.forget(request.Name)
	} else {
		o.Unresponsive, o.answerIn = fencing.Unresponsive(o.DriverNode, r.Clock.Now())
	}
	o.Heard = r.heard(o.DriverNode, o.Unresponsive)
	if err := r.volumes(ctx, &o); err != nil {
		return o, err
	}
	if !concerned(o) {
		return o, nil
	}
	return o, r.pods(ctx, &o)
}

// concerned reports whether the pods of the node matter: they do if it is lost or unresponsive, or
// if it is being fenced from a volume.
func concerned(o observed) bool {
	if o.Health.Fence() || o.Health.Guarded() || o.Unresponsive {
		return true
	}
	for _, v := range o.Volumes {
		if v.FenceDecided(o.NodeName) {
			return true
		}
	}
	return false
}

// volumes finds the volumes that the node holds.
func (r *Reconciler) volumes(ctx context.Context, o *observed) error {
	here, err := cluster.AttachmentsOfNode(ctx, r.Client, o.namespace, o.NodeName)
	if err != nil {
		return err
	}
	attachments := map[string]*apiv1.AzVolumeAttachment{}
	for _, a := range here {
		attachments[a.Spec.VolumeName] = a
	}
	owned, err := cluster.Held(ctx, r.Client, o.namespace, o.NodeName)
	if err != nil {
		return err
	}
	held, err := r.multiNode(ctx, here)
	if err != nil {
		return err
	}
	for _, v := range owned {
		if v.Spec.Access != apiv1.AccessMultiNode && ownership.OwnedBy(v, o.NodeName) {
			held = append(held, v)
		}
	}
	for _, v := range held {
		if err := r.claim(ctx, o, v); err != nil {
			return err
		}
		found := lostnode.Volume{Volume: v, Attachment: attachments[v.Name]}
		if o.Node != nil {
			found.InUse = len(cluster.InUseNames(o.Node.Status.VolumesInUse, r.DriverName, volumehandle.Of(v.Spec.Disk))) > 0
		}
		o.Volumes = append(o.Volumes, found)
	}
	return nil
}

// multiNode returns those volumes of attachments that several nodes use at once.
func (r *Reconciler) multiNode(ctx context.Context, attachments []*apiv1.AzVolumeAttachment) ([]*apiv1.AzVolume, error) {
	var found []*apiv1.AzVolume
	for _, a := range attachments {
		if a.Spec.Role != apiv1.RolePrimary {
			continue
		}
		v, err := kube.Find[apiv1.AzVolume](ctx, r.Client, client.ObjectKey{Namespace: a.Namespace, Name: a.Spec.VolumeName})
		if err != nil {
			return nil, err
		}
		if v == nil && ownership.MultiNodeFenceDecided(a) {
			if v, err = r.lostVolume(ctx, a); err != nil {
				return nil, err
			}
		}
		if v != nil && v.Spec.Access == apiv1.AccessMultiNode {
			found = append(found, v)
		}
	}
	return found, nil
}

// lostVolume stands for the AzVolume of an attachment whose fence was decided before the AzVolume
// was lost, so that the decision is carried through: its finalizer would keep the attachment for
// ever. The PersistentVolume says which disk it is.
func (r *Reconciler) lostVolume(ctx context.Context, a *apiv1.AzVolumeAttachment) (*apiv1.AzVolume, error) {
	v := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: a.Namespace,
			Name:      a.Spec.VolumeName,
		}, Spec: apiv1.AzVolumeSpec{Access: apiv1.AccessMultiNode},
	}
	handle, _, err := cluster.Disk(ctx, r.Client, v.Name)
	if err != nil {
		return nil, err
	}
	v.Spec.Disk.SubscriptionID = handle.SubscriptionID
	v.Spec.Disk.ResourceGroup = handle.ResourceGroup
	v.Spec.Disk.Name = handle.DiskName
	return v, nil
}

// claim takes note of the PersistentVolumeClaim of a volume, with the annotation that opts out.
func (r *Reconciler) claim(ctx context.Context, o *observed, v *apiv1.AzVolume) error {
	pv, err := cluster.PersistentVolume(ctx, r.Client, v)
	if err != nil || pv == nil || pv.Spec.ClaimRef == nil {
		return err
	}
	c := pv.Spec.ClaimRef
	claim, err := kube.Find[corev1.PersistentVolumeClaim](ctx, r.Client, client.ObjectKey{
		Namespace: c.Namespace,
		Name:      c.Name,
	})
	if err != nil {
		return err
	}
	if claim == nil {
		claim = &corev1.PersistentVolumeClaim{}
	}
	o.claims[v.Name] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace:   c.Namespace,
		Name:        c.Name,
		UID:         c.UID,
		Annotations: claim.Annotations,
	}}
	return nil
}

// pods finds the pods on the node and their volumes.
func (r *Reconciler) pods(ctx context.Context, o *observed) error {
	var list corev1.PodList
	if err := r.Client.List(ctx, &list, client.MatchingFields{cluster.PodNode: o.NodeName}); err != nil {
		return fmt.Errorf("list pods of node: %w", err)
	}
	for i := range list.Items {
		p := lostnode.Pod{Pod: &list.Items[i]}
		// Another pod of the Deployment that is placed here meanwhile does not run, and is not in
		// the Service.
		if p.Pod.Namespace == r.OwnNamespace && p.Pod.Status.Phase == corev1.PodRunning && lostnode.AdvisesScheduler(p.Pod) {
			o.SchedulerPods = append(o.SchedulerPods, p.Pod)
		}
		for _, v := range p.Pod.Spec.Volumes {
			volume, err := r.podVolume(ctx, o, p.Pod, v)
			if err != nil {
				return err
			}
			p.Volumes = append(p.Volumes, volume)
		}
		o.Pods = append(o.Pods, p)
	}
	return nil
}

// podVolume finds out what a volume of a pod is. The cache holds only PersistentVolumeClaims and
// objects that are not of one node.
func (r *Reconciler) podVolume(ctx context.Context, o *observed, pod *corev1.Pod, v corev1.Volume) (lostnode.PodVolume, error) {
	if v.PersistentVolumeClaim == nil {
		return lostnode.PodVolumeOf(pod, v, nil, nil, ""), nil
	}
	claim, err := kube.Find[corev1.PersistentVolumeClaim](ctx, r.Client, client.ObjectKey{
		Namespace: pod.Namespace,
		Name:      v.PersistentVolumeClaim.ClaimName,
	})
	if err != nil || claim == nil || claim.Spec.VolumeName == "" {
		return lostnode.PodVolumeOf(pod, v, claim, nil, ""), err
	}
	pv, err := kube.Find[corev1.PersistentVolume](ctx, r.Client, client.ObjectKey{Name: claim.Spec.VolumeName})
	if err != nil || pv == nil {
		return lostnode.PodVolumeOf(pod, v, claim, nil, ""), err
	}
	found := lostnode.PodVolumeOf(pod, v, claim, pv, cluster.VolumeOf(pv, r.DriverName))
	if found.Volume != "" {
		found.Unrecorded, err = r.unrecorded(ctx, o, found.Volume, pv)
	}
	return found, err
}

// unrecorded reports whether the node may use a volume of the driver's that it does not hold;
// see ownership.Unrecorded. An AzVolume of that name that is another disk's says nothing of
// this one.
func (r *Reconciler) unrecorded(ctx context.Context, o *observed, name string, pv *corev1.PersistentVolume) (bool, error) {
	if slices.ContainsFunc(o.Volumes, func(v lostnode.Volume) bool {
		return v.Volume.Name == name && cluster.IsOf(v.Volume, pv)
	}) {
		return false, nil
	}
	v, err := kube.Find[apiv1.AzVolume](ctx, r.Client, client.ObjectKey{Namespace: o.namespace, Name: name})
	if err != nil {
		return false, err
	}
	if v != nil && !cluster.IsOf(v, pv) {
		v = nil
	}
	return ownership.Unrecorded(v), nil
}
