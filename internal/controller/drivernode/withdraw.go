package drivernode

import (
	"context"
	"fmt"

	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
)

// withdraw removes the requests to fence that a node has and that are over. The node then gives up
// the reservation that it took.
func (r *Reconciler) withdraw(ctx context.Context, d *apiv1.AzDriverNode) error {
	if len(d.FenceRequests()) == 0 {
		return nil
	}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := kube.Find[apiv1.AzDriverNode](ctx, r.Reader, client.ObjectKeyFromObject(d))
		if err != nil || current == nil {
			return err
		}
		var left []apiv1.FenceRequest
		for _, request := range current.FenceRequests() {
			key := client.ObjectKey{Namespace: d.Namespace, Name: apiv1.AttachmentName(request.VolumeName, request.NodeName)}
			lost, err := kube.Find[apiv1.AzVolumeAttachment](ctx, r.Reader, key)
			if err != nil {
				return err
			}
			if attaching.FenceRequestOver(request, lost) {
				ctrl.LoggerFrom(ctx).Info("withdrawing a request to fence", "volume", request.VolumeName, "node",
					request.NodeName, "helper", d.Name)
				continue
			}
			left = append(left, request)
		}
		if len(left) == len(current.FenceRequests()) {
			return nil
		}
		changed := current.DeepCopy()
		changed.Spec.Requests.Fences = left
		return kube.Patch(ctx, r.Client, changed, current)
	})
	if err != nil {
		return fmt.Errorf("withdraw requests to fence from node %s: %w", d.Name, err)
	}
	return nil
}

// asked requests the nodes that were asked to fence the node of an attachment.
func (r *Reconciler) asked(ctx context.Context, o client.Object) []reconcile.Request {
	var list apiv1.AzDriverNodeList
	nodes, err := kube.FindBy(ctx, r.Client, &list, &list.Items, o.GetNamespace(), cluster.NodeFence, o.GetName())
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "nodes that were asked to fence not found", "attachment", o.GetName())
		return nil
	}
	var requests []reconcile.Request
	for _, d := range nodes {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(d)})
	}
	return requests
}
