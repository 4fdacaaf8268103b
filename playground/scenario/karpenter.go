package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// What Karpenter's controller of the termination of nodes uses (kubernetes-sigs/karpenter,
// pkg/controllers/node/termination).
const (
	karpenterFinalizer = "karpenter.sh/termination"
	karpenterTaint     = "karpenter.sh/disrupted"
	// karpenterRequeue is the time between two of its looks, and between two of its steps.
	karpenterRequeue = time.Second
	// removalTimeout is far above what each step may take.
	removalTimeout = 5 * time.Minute
)

// KarpenterRemoval says when Karpenter's steps were done. VMDeletion is when Azure was asked to delete
// the VM, which lost its power at that moment.
type KarpenterRemoval struct {
	Began, Drained, Detached, VMDeletion, Gone time.Time
}

// RemoveAsKarpenter removes a node, whose VM is not one of a scale set, in Karpenter's order: the
// Node is deleted and keeps Karpenter's finalizer, gets the taint, is drained by the Eviction API in
// groups, Karpenter waits for the VolumeAttachments, deletes the VM, and removes the finalizer. At
// the end of the scenario the VM is created again.
func (e *Environment) RemoveAsKarpenter(ctx context.Context, node string) (KarpenterRemoval, error) {
	r := KarpenterRemoval{
		Began: e.Say(timeline.Kubernetes, node, "Karpenter removes "+node, "it deletes the Node, which has its finalizer"),
	}
	if err := e.patchNode(ctx, node, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, karpenterFinalizer)); err != nil {
		return r, err
	}
	release := func(ctx context.Context) error {
		err := e.patchNode(ctx, node, `{"metadata":{"finalizers":null}}`)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	e.RepairLater("remove Karpenter's finalizer", release)
	if err := e.Kube.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{}); err != nil {
		return r, fmt.Errorf("delete the Node %s: %w", node, err)
	}
	taint := fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"effect":"NoSchedule"}]}}`, karpenterTaint)
	if err := e.patchNode(ctx, node, taint); err != nil {
		return r, err
	}
	if err := e.drainAsKarpenter(ctx, node); err != nil {
		return r, err
	}
	r.Drained = e.Say(timeline.Kubernetes, node, node+" is drained",
		"Karpenter looks for VolumeAttachments after "+karpenterRequeue.String())
	if err := e.AwaitTime(ctx, r.Drained.Add(karpenterRequeue)); err != nil {
		return r, err
	}
	if err := e.awaitNoAttachment(ctx, node); err != nil {
		return r, err
	}
	r.Detached = e.Say(timeline.Kubernetes, node, node+" has no VolumeAttachment",
		"Karpenter deletes the VM after "+karpenterRequeue.String())
	if err := e.AwaitTime(ctx, r.Detached.Add(karpenterRequeue)); err != nil {
		return r, err
	}
	e.RepairLater("create the VM of "+node+" again", func(ctx context.Context) error { return e.restoreNode(ctx, node) })
	r.VMDeletion = e.Say(timeline.Azure, node, "deletion of the VM is asked for", "the machine has no power from now on")
	if err := e.Cluster.DeleteVM(ctx, node); err != nil {
		return r, fmt.Errorf("delete the VM of %s: %w", node, err)
	}
	if err := release(ctx); err != nil {
		return r, err
	}
	r.Gone = e.Say(timeline.Kubernetes, node, "the Node "+node+" is gone",
		"Azure has no such VM, and Karpenter removes its finalizer")
	return r, nil
}

// restoreNode creates the VM of a node again, and waits until the node is used.
func (e *Environment) restoreNode(ctx context.Context, node string) error {
	since := e.Clock.Now()
	if err := e.Cluster.CreateVM(ctx, node); err != nil {
		return err
	}
	if err := e.Cluster.PowerOn(ctx, node); err != nil {
		return err
	}
	return e.View.Await(ctx, BackTimeout, node+" is used", func() bool { return e.View.IsBack(node, since) })
}

func (e *Environment) patchNode(ctx context.Context, node, patch string) error {
	_, err := e.Kube.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("patch the Node %s with %s: %w", node, patch, err)
	}
	return nil
}

// drainAsKarpenter evicts the pods of a node group by group, and returns when none is left that
// Karpenter waits for.
func (e *Environment) drainAsKarpenter(ctx context.Context, node string) error {
	return e.Poll(ctx, removalTimeout, karpenterRequeue, node+" is drained", func(ctx context.Context) error {
		here := metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}
		list, err := e.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, here)
		if err != nil {
			return fmt.Errorf("list the pods of %s: %w", node, err)
		}
		waiting, evict := drainStep(list.Items)
		for _, pod := range evict {
			if err := e.requestEviction(ctx, &pod); err != nil && !apierrors.IsTooManyRequests(err) {
				return err
			}
		}
		if waiting > 0 {
			return fmt.Errorf("%d pods are left", waiting)
		}
		return nil
	})
}

// drainStep decides about the pods of a node: for how many Karpenter waits, and which it evicts now.
// Those that tolerate its taint stay. Daemons follow other pods, and critical pods those that are not.
func drainStep(pods []corev1.Pod) (waiting int, evict []corev1.Pod) {
	groups := make([][]corev1.Pod, 4)
	for _, pod := range pods {
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if ended || slices.ContainsFunc(pod.Spec.Tolerations, toleratesKarpenter) {
			continue
		}
		waiting++
		if pod.DeletionTimestamp != nil {
			continue
		}
		group := 0
		if owner := metav1.GetControllerOf(&pod); owner != nil && owner.Kind == "DaemonSet" {
			group++
		}
		if class := pod.Spec.PriorityClassName; class == "system-cluster-critical" || class == "system-node-critical" {
			group += 2
		}
		groups[group] = append(groups[group], pod)
	}
	for _, group := range groups {
		if len(group) > 0 {
			return waiting, group
		}
	}
	return waiting, nil
}

func toleratesKarpenter(t corev1.Toleration) bool {
	return (t.Key == "" && t.Operator == corev1.TolerationOpExists || t.Key == karpenterTaint) &&
		(t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule)
}

// awaitNoAttachment waits until no volume is attached to a node by a VolumeAttachment. Karpenter
// does not wait for those of pods that stay; here none of these has a volume.
func (e *Environment) awaitNoAttachment(ctx context.Context, node string) error {
	return e.Poll(ctx, removalTimeout, karpenterRequeue, node+" has no VolumeAttachment", func(ctx context.Context) error {
		list, err := e.Kube.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list the VolumeAttachments: %w", err)
		}
		for _, a := range list.Items {
			if a.Spec.NodeName == node {
				return fmt.Errorf("there is %s", a.Name)
			}
		}
		return nil
	})
}
