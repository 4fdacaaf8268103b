package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
)

// namespacesTimeout limits the first read of namespaces, which fills their cache.
const namespacesTimeout = 10 * time.Second

// PodView returns a pod with the names of its volumes, except self. The objects belong to the cache,
// and must not be changed.
func PodView(ctx context.Context, reader client.Reader, driverName string, pod *corev1.Pod,
	self string) (placement.PodView, error) {
	p := placement.PodView{Pod: pod}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim, err := kube.Find[corev1.PersistentVolumeClaim](ctx, reader, client.ObjectKey{
			Namespace: pod.Namespace,
			Name:      v.PersistentVolumeClaim.ClaimName,
		}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return p, err
		}
		if claim == nil || claim.Spec.VolumeName == "" {
			continue
		}
		pv, err := kube.Find[corev1.PersistentVolume](ctx, reader, client.ObjectKey{Name: claim.Spec.VolumeName},
			client.UnsafeDisableDeepCopy)
		if err != nil {
			return p, err
		}
		if pv == nil {
			continue
		}
		p.PersistentVolumes = append(p.PersistentVolumes, pv)
		if name := VolumeOf(pv, driverName); name != "" && name != self {
			p.Volumes = append(p.Volumes, name)
		}
	}
	return p, nil
}

// Surroundings returns every node, and all pods except users, for the rules between pods. The
// users, at least one, are in one namespace. The objects belong to the cache, and must not be changed.
func Surroundings(ctx context.Context, reader client.Reader, users []*corev1.Pod) (placement.Cluster, error) {
	var c placement.Cluster
	seen := make(map[types.UID]bool, len(users))
	for _, p := range users {
		seen[p.UID] = true
	}
	queries := [][]client.ListOption{nil}
	if namespace := users[0].Namespace; !placement.SelectsOtherNamespaces(users) {
		queries = [][]client.ListOption{{client.InNamespace(namespace)},
			{client.MatchingFields{PodRules: podRulesKey}}}
	}
	for _, q := range queries {
		var pods corev1.PodList
		if err := reader.List(ctx, &pods, append(q, client.UnsafeDisableDeepCopy)...); err != nil {
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
	if err := reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return c, fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		c.Nodes = append(c.Nodes, &nodes.Items[i])
	}
	if !placement.SelectsNamespaces(slices.Concat(users, c.Pods)) {
		return c, nil
	}
	var err error
	c.Namespaces, err = namespaces(ctx, reader)
	return c, err
}

// namespaces returns the labels of the namespaces.
func namespaces(ctx context.Context, reader client.Reader) (map[string]labels.Set, error) {
	ctx, cancel := context.WithTimeout(ctx, namespacesTimeout)
	defer cancel()
	var list corev1.NamespaceList
	if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	found := make(map[string]labels.Set, len(list.Items))
	for i := range list.Items {
		found[list.Items[i].Name] = list.Items[i].Labels
	}
	return found, nil
}
