package volume

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
)

// see adds the nodes and pods that the replicas depend on. It reads the whole cluster only when a
// place is searched.
func (r *Reconciler) see(ctx context.Context, o observed, in *placement.Input) error {
	users, err := cluster.PodsOf(ctx, r.Client, o.pv)
	if err != nil {
		return err
	}
	for i := range users {
		if users[i].DeletionTimestamp != nil {
			continue // another pod, with its own rules, will replace it
		}
		pod, err := cluster.PodView(ctx, r.Client, r.DriverName, users[i], o.volume.Name)
		if err != nil {
			return err
		}
		in.Pods = append(in.Pods, pod)
	}
	if in.Nodes, err = r.nodesOf(ctx, o.attachments); err != nil {
		return err
	}
	if in.Beside, err = r.beside(ctx, o, in.Pods); err != nil {
		return err
	}
	in.ClosedSince = r.closed.see(o.volume.Name, placement.Closed(*in), o.now)
	if !placement.MissesReplicas(*in) {
		return nil
	}
	if in.Nodes, err = r.Nodes.Views(ctx); err != nil {
		return fmt.Errorf("read the nodes of the volume's attachments: %w", err)
	}
	if err := r.tellCrowded(ctx, o.volume.Namespace, in.Nodes); err != nil {
		return err
	}
	if len(in.Pods) == 0 {
		return nil
	}
	if in.Cluster, err = cluster.Surroundings(ctx, r.Client, users); err != nil {
		return err
	}
	return r.companions(ctx, o.volume, in)
}

// beside returns the pods on the nodes of the volume's replicas, by node. They belong to the cache, and must not be
// changed.
func (r *Reconciler) beside(ctx context.Context, o observed, users []placement.PodView) (map[string][]*corev1.Pod, error) {
	found := map[string][]*corev1.Pod{}
	for _, a := range o.attachments {
		if len(users) == 0 || a.Spec.Role != apiv1.RoleReplica || a.DeletionTimestamp != nil {
			continue
		}
		pods, err := cluster.PodsOn(ctx, r.Client, a.Spec.NodeName)
		if err != nil {
			return nil, fmt.Errorf("list the pods on the node of a replica: %w", err)
		}
		found[a.Spec.NodeName] = pods
	}
	return found, nil
}

// repelledBy requests the volumes with a replica on the node of a pod that must not be beside a pod of theirs.
func (r *Reconciler) repelledBy(ctx context.Context, namespace string, o client.Object) (requests []reconcile.Request) {
	pod, is := o.(*corev1.Pod)
	if !is {
		return nil
	}
	node, err := kube.Find[corev1.Node](ctx, r.Client, client.ObjectKey{Name: pod.Spec.NodeName}, client.UnsafeDisableDeepCopy)
	if err != nil || node == nil {
		return nil
	}
	here, err := cluster.AttachmentsOfNode(ctx, r.Client, namespace, node.Name)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "attachments not found", "node", node.Name)
	}
	for _, a := range here {
		if a.Spec.Role != apiv1.RoleReplica {
			continue
		}
		pvs, err := cluster.PersistentVolumes(ctx, r.Client, a.Spec.VolumeName)
		for i := 0; err == nil && i < len(pvs); i++ {
			var users []*corev1.Pod
			users, err = cluster.PodsOf(ctx, r.Client, pvs[i])
			if slices.ContainsFunc(users, func(u *corev1.Pod) bool { return placement.Repel(u, pod, node) }) {
				key := client.ObjectKey{Namespace: namespace, Name: a.Spec.VolumeName}
				requests = append(requests, reconcile.Request{NamespacedName: key})
				break
			}
		}
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "pods of a volume not found", "volume", a.Spec.VolumeName)
		}
	}
	return requests
}

// companions adds the pods that leave together with the pods of the volume.
func (r *Reconciler) companions(ctx context.Context, v *apiv1.AzVolume, in *placement.Input) error {
	pods := placement.Companions(*in)
	if len(pods) == 0 {
		return nil
	}
	for _, pod := range pods {
		if len(cluster.PodClaimKeys(pod)) == 0 {
			// The cache does not keep where a pod without claims may run.
			current, err := kube.Find[corev1.Pod](ctx, r.Reader, client.ObjectKeyFromObject(pod))
			if err != nil {
				return err
			}
			if current == nil {
				continue
			}
			pod = current
		}
		p, err := cluster.PodView(ctx, r.Client, r.DriverName, pod, v.Name)
		if err != nil {
			return err
		}
		in.Companions = append(in.Companions, p)
	}
	for _, views := range [][]placement.PodView{in.Pods, in.Companions} {
		for i := range views {
			if err := r.replicated(ctx, v.Namespace, &views[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// replicated sets which of a pod's volumes want replicas.
func (r *Reconciler) replicated(ctx context.Context, namespace string, p *placement.PodView) error {
	for _, name := range p.Volumes {
		v, err := kube.Find[apiv1.AzVolume](ctx, r.Client, client.ObjectKey{
			Namespace: namespace,
			Name:      name,
		}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return err
		}
		if v != nil && !v.Leaving() && v.Spec.Access != apiv1.AccessMultiNode && v.Spec.MaxMountReplicaCount > 0 {
			p.Replicated = append(p.Replicated, name)
		}
	}
	return nil
}

func (r *Reconciler) nodesOf(ctx context.Context, attachments []*apiv1.AzVolumeAttachment) ([]placement.NodeView, error) {
	var nodes []placement.NodeView
	for _, a := range attachments {
		node, err := r.Nodes.View(ctx, a.Spec.NodeName)
		if err != nil {
			return nil, fmt.Errorf("read a node of the cluster: %w", err)
		}
		if node != nil {
			nodes = append(nodes, *node)
		}
	}
	return nodes, nil
}

// tellCrowded adds where primaries wait for a slot.
func (r *Reconciler) tellCrowded(ctx context.Context, namespace string, nodes []placement.NodeView) error {
	waiting, err := cluster.Attachments(ctx, r.Client, namespace, cluster.AttachmentSlot, cluster.AttachmentSlotAwaited)
	if err != nil {
		return err
	}
	crowded := map[string]bool{}
	for _, a := range waiting {
		crowded[a.Spec.NodeName] = true
	}
	for i := range nodes {
		nodes[i].Crowded = crowded[nodes[i].Node.Name]
	}
	return nil
}
