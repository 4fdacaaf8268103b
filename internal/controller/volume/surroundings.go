package volume

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
)

// namespacesTimeout limits the first read of namespaces, which fills their cache.
const namespacesTimeout = 10 * time.Second

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
		pod, err := r.pod(ctx, users[i], o.volume.Name)
		if err != nil {
			return err
		}
		in.Pods = append(in.Pods, pod)
	}
	if in.Nodes, err = r.nodesOf(ctx, o.attachments); err != nil || !placement.MissesReplicas(*in) {
		return err
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
	if in.Cluster, err = r.cluster(ctx, users); err != nil {
		return err
	}
	return r.companions(ctx, o.volume, in)
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
			current, err := cluster.Find[corev1.Pod](ctx, r.Reader, client.ObjectKeyFromObject(pod))
			if err != nil {
				return err
			}
			if current == nil {
				continue
			}
			pod = current
		}
		p, err := r.pod(ctx, pod, v.Name)
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
		v, err := cluster.Find[apiv1.AzVolume](ctx, r.Client, client.ObjectKey{
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

// pod returns a pod that uses the volume, with its other volumes. They share memory with the cache
// and must not be changed.
func (r *Reconciler) pod(ctx context.Context, pod *corev1.Pod, self string) (placement.PodView, error) {
	p := placement.PodView{Pod: pod}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim, err := cluster.Find[corev1.PersistentVolumeClaim](ctx, r.Client, client.ObjectKey{
			Namespace: pod.Namespace,
			Name:      v.PersistentVolumeClaim.ClaimName,
		}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return p, err
		}
		if claim == nil || claim.Spec.VolumeName == "" {
			continue
		}
		pv, err := cluster.Find[corev1.PersistentVolume](ctx, r.Client, client.ObjectKey{Name: claim.Spec.VolumeName},
			client.UnsafeDisableDeepCopy)
		if err != nil {
			return p, err
		}
		if pv == nil {
			continue
		}
		p.PersistentVolumes = append(p.PersistentVolumes, pv)
		if name := cluster.VolumeOf(pv, r.DriverName); name != "" && name != self {
			p.Volumes = append(p.Volumes, name)
		}
	}
	return p, nil
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

// cluster returns every node, and all pods that do not use the volume, for the rules between pods.
// The objects belong to the cache, and must not be changed.
func (r *Reconciler) cluster(ctx context.Context, users []*corev1.Pod) (placement.Cluster, error) {
	var c placement.Cluster
	seen := make(map[types.UID]bool, len(users))
	for _, p := range users {
		seen[p.UID] = true
	}
	queries := [][]client.ListOption{nil}
	if namespace := users[0].Namespace; !placement.SelectsOtherNamespaces(users) {
		queries = [][]client.ListOption{{client.InNamespace(namespace)},
			{client.MatchingFields{cluster.PodRules: cluster.PodRulesKey}}}
	}
	for _, q := range queries {
		var pods corev1.PodList
		if err := r.Client.List(ctx, &pods, append(q, client.UnsafeDisableDeepCopy)...); err != nil {
			return c, fmt.Errorf("list pods: %w", err)
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Spec.NodeName != "" && !seen[p.UID] {
				seen[p.UID] = true
				c.Pods = append(c.Pods, p)
			}
		}
	}
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return c, fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		c.Nodes = append(c.Nodes, &nodes.Items[i])
	}
	if !placement.SelectsNamespaces(slices.Concat(users, c.Pods)) {
		return c, nil
	}
	var err error
	c.Namespaces, err = r.namespaces(ctx)
	return c, err
}

// namespaces returns the labels of the namespaces.
func (r *Reconciler) namespaces(ctx context.Context) (map[string]labels.Set, error) {
	ctx, cancel := context.WithTimeout(ctx, namespacesTimeout)
	defer cancel()
	var list corev1.NamespaceList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	found := make(map[string]labels.Set, len(list.Items))
	for i := range list.Items {
		found[list.Items[i].Name] = list.Items[i].Labels
	}
	return found, nil
}
